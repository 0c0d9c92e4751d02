"""Gradient flow through time steps, layers and training. Names are imported when first used."""

from ...lazy import lazy_names
from .. import names_in

__getattr__, __dir__, __all__ = lazy_names(__name__, names_in("gradients"))
