"""Checks for any custom transformers model. Names are imported when first used."""

from __future__ import annotations

from ..lazy import lazy_names

_HOMES = {"Report": "report", "diagnose": "diagnosis"}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
