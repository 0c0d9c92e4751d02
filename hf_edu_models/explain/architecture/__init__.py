"""The parts of a model and a picture of them. Names are imported when first used."""

from __future__ import annotations

from ...lazy import lazy_names
from .. import names_in

__getattr__, __dir__, __all__ = lazy_names(__name__, names_in("architecture"))
