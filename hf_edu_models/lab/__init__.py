"""The lab: one HTML page with the models running in it. `build_lab` writes it."""

from ..lazy import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, {"Lab": "page", "build_lab": "page"})
