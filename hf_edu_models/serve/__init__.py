"""Serve models over HTTP: embeddings, completions, translations, predictions. Names are imported when first used."""

from __future__ import annotations

from ..lazy import lazy_names

_HOMES = {"ServeSettings": "app", "create_app": "app", "run_server": "server", "Batcher": "batching"}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
