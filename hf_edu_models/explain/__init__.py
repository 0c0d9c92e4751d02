"""See inside a model: arrays first, then pictures, then pages. Names are imported when first used."""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "AttentionMap": "attention",
    "AttentionMaps": "attention",
    "attention_maps": "attention",
    "save_attention": "attention_files",
    "to_bertviz": "attention_files",
    "write_page": "attention_page",
    "draw_attention": "attention_pictures",
    "load_model": "loading",
    "Tokens": "tokens",
    "readable_tokens": "tokens",
    "Alignment": "alignment",
    "LayerScore": "alignment",
    "align": "alignment",
    "best_layer": "alignment",
    "score_links": "alignment",
    "symmetrize": "alignment",
    "draw_alignments": "alignment_pictures",
    "draw_layers": "alignment_pictures",
    "diagonal_links": "links",
    "from_pharaoh": "links",
    "merge_links": "links",
    "to_pharaoh": "links",
    "draw_positions": "positions",
    "position_products": "positions",
    "position_vectors": "positions",
    "Contexts": "embeddings",
    "Neighbours": "embeddings",
    "draw_contexts": "embeddings",
    "in_contexts": "embeddings",
    "nearest": "embeddings",
    "ProbeResult": "probing",
    "draw_probe": "probing",
    "probe": "probing",
    "save_probe": "probing",
    "encode_words": "words",
    "GradientFlow": "gradients",
    "StateFlow": "gradients",
    "gradient_flow": "gradients",
    "GradientFlowCallback": "gradient_callback",
    "read_gradients": "gradient_callback",
    "VanishingLesson": "vanishing",
    "vanishing_gradient_lesson": "vanishing",
    "draw_gradient_flow": "gradient_pictures",
    "draw_lesson": "gradient_pictures",
    "draw_training": "gradient_pictures",
    "new_figure": "figure_style",
    "save_figure": "figure_style",
    "scores_by_length": "curves",
    "predictions_of": "curves",
    "Predictions": "curves",
    "draw_by_length": "curve_pictures",
    "draw_sweep": "curve_pictures",
    "sweep": "sweeps",
    "Variant": "sweeps",
    "PUBLISHED": "published",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"hf_edu_models.explain has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
