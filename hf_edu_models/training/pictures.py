"""The pictures that a run saves beside its scores: its architecture, and what it attends to."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

_ATTENTION_PICTURE = Path("pictures") / "attention.png"
_ARCHITECTURE = Path("pictures") / "architecture.png"
_LAST_COMMON_LETTER = "\u0530"  # Latin, Greek and Cyrillic come before it
_MAX_CHARACTERS = 160  # a picture of a longer text is unreadable


def save_architecture(model: Any, folder: Path) -> Path:
    """Draw the model as `hf-edu draw` does."""
    from ..explain.architecture import draw_architecture, find_parts
    from ..plotting import save_figure

    root = find_parts(model.config, type(model).__name__)
    return save_figure(draw_architecture(root, root.kind), folder / _ARCHITECTURE)


def choose_text(model: Any, samples: list[dict[str, Any]]) -> str | None:
    """The first sample that is short enough for a picture, or the start of one; None if the model has no attention."""
    texts = [text for text in map(_text_of, samples) if text]
    if not texts or not _has_attention(model.config):
        return None
    starts = [textwrap.shorten(text, _MAX_CHARACTERS, placeholder="") for text in texts]
    texts = [text for text in texts if len(text) <= _MAX_CHARACTERS] or [start for start in starts if start]
    if not texts:
        return None
    # Most fonts have these letters; without a glyph a letter becomes an empty box.
    return next((text for text in texts if max(text) < _LAST_COMMON_LETTER), texts[0])


def save_attention_picture(model: Any, tokenizer: Any, text: str, folder: Path) -> Path:
    """Draw the cross-attention of an encoder-decoder, or the self-attention of the last layer."""
    from ..explain.attention.files import save_attention
    from ..explain.attention.maps import attention_maps

    maps = attention_maps(model, tokenizer, _fit(text, tokenizer, model.config))
    layer = None if model.config.is_encoder_decoder else len(maps.main.weights) - 1
    return save_attention(maps, folder / _ATTENTION_PICTURE, layer=layer)


def _fit(text: str, tokenizer: Any, config: Any) -> str:
    """The start of a text that has no more tokens than the model has positions."""
    limit = getattr(config, "max_position_embeddings", None)
    words = text.split()
    while limit and len(words) > 1 and len(tokenizer(" ".join(words))["input_ids"]) > limit:
        words.pop()
    return " ".join(words) if len(words) < len(text.split()) else text


def _has_attention(config: Any) -> bool:
    return any(getattr(config, name, None) for name in ("num_attention_heads", "attention_score", "attention_window"))


def _text_of(sample: dict[str, Any]) -> str | None:
    texts = (sample.get(name) for name in ("source", "text", "prompt", "question"))
    return next((text for text in texts if isinstance(text, str)), None)
