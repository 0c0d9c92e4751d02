"""What a run leaves for people beside its numbers: a picture of its attention, and its card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ATTENTION_PICTURE = Path("pictures") / "attention.png"
LAST_COMMON_LETTER = "\u0530"  # Latin, Greek and Cyrillic come before it
LONGEST_TEXT = 160  # characters; a longer text makes a picture that nobody can read


def text_to_show(model: Any, samples: list[dict[str, Any]]) -> str | None:
    """The first sample that is short enough for a picture; None where the model attends to nothing."""
    texts = [text for text in map(_text_of, samples) if text and len(text) <= LONGEST_TEXT]
    if not texts or not _attends(model):
        return None
    # The fonts of most machines have these letters; a picture full of empty boxes shows nothing.
    return next((text for text in texts if max(text) < LAST_COMMON_LETTER), texts[0])


def attention_picture(model: Any, tokenizer: Any, text: str, folder: Path) -> Path:
    """Draw what the model looks at; of a model that only reads, the last layer."""
    from ..explain.attention import attention_maps
    from ..explain.attention_files import save_attention

    maps = attention_maps(model, tokenizer, text)
    layer = None if model.config.is_encoder_decoder else len(maps.main.weights) - 1
    return save_attention(maps, folder / ATTENTION_PICTURE, layer=layer)


def _attends(model: Any) -> bool:
    config = model.config
    return any(getattr(config, name, None) for name in ("num_attention_heads", "attention_score", "attention_window"))


def _text_of(sample: dict[str, Any]) -> str | None:
    texts = (sample.get(name) for name in ("source", "text", "prompt", "question"))
    return next((text for text in texts if isinstance(text, str)), None)
