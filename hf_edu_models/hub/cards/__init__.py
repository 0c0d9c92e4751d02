"""Model cards: a rung's template, filled from the folder of a run."""

from __future__ import annotations

from ...lazy import lazy_names

_HOMES = {"make_card": "card", "write_card": "card"}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
