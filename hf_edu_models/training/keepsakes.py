"""What a run leaves for people beside its numbers: a picture of its attention, and its card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

ATTENTION_PICTURE = Path("pictures") / "attention.png"
LAST_COMMON_LETTER = "\u0530"  # Latin, Greek and Cyrillic come before it
LONGEST_TEXT = 160  # characters; a longer text makes a picture that nobody can read


def attention_picture(model: Any, tokenizer: Any, samples: list[dict[str, Any]], folder: Path) -> Path | None:
    """Draw what the model looks at in the first sample that is short enough; None where it attends to nothing."""
    from ..explain.attention import attention_maps
    from ..explain.attention_files import save_attention

    texts = [text for text in map(_text_of, samples) if text and len(text) <= LONGEST_TEXT]
    if not texts or not _attends(model):
        return None
    # The fonts of most machines have these letters; a picture full of empty boxes shows nothing.
    plain = [text for text in texts if max(text) < LAST_COMMON_LETTER]
    maps = attention_maps(model, tokenizer, (plain or texts)[0])
    shown = None if model.config.is_encoder_decoder else len(next(iter(maps.values())).weights) - 1
    return save_attention(maps, folder / ATTENTION_PICTURE, layer=shown)


def _attends(model: Any) -> bool:
    config = model.config
    return any(getattr(config, name, None) for name in ("num_attention_heads", "attention_score", "attention_window"))


def _text_of(sample: dict[str, Any]) -> str | None:
    texts = (sample.get(name) for name in ("source", "text", "prompt", "question"))
    return next((text for text in texts if isinstance(text, str)), None)
