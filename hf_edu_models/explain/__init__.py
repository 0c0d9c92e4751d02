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
    "Tokens": "readable_tokens",
    "readable_tokens": "readable_tokens",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"hf_edu_models.explain has no {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
