"""Conversion of weights between transformers' own models and ours. Names are imported when first used."""

from __future__ import annotations

from ..lazy import lazy_names

_HOMES = dict.fromkeys(("Conversion", "convert_checkpoint", "from_transformers", "to_transformers"), "conversion")
_HOMES |= dict.fromkeys(("WordVectors", "copy_vectors", "read_vectors", "vectors_of"), "word_vectors")
_HOMES |= dict.fromkeys(("Export", "export_checkpoint", "export_model"), "export")

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
