"""What to do with a finished run: the commands that its end prints."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from ..redaction import make_visible
from ..tasks import find_task

_MAX_CHARACTERS = 80  # of a text that a command quotes


def next_commands(folder: Path, model: Any, results: dict[str, Any]) -> dict[str, str]:
    """By purpose, commands that work on this run: use it, see inside, change it in a browser, upload it."""
    task = find_task(results["task"])
    text = "NUMBERS" if task.values else _sample_text(results["samples"])
    run = shlex.quote(str(folder))
    verb = "translate" if task.generates else task.verb
    return {
        "try it": f"hf-edu {verb} {run} {text}{_fewer_tokens(model)}",
        "see inside": f"hf-edu {_explain(model, run, text, reads_numbers=bool(task.values))}",
        "play with it": f"hf-edu lab {run}" if _lab_runs(folder, model) else "",
        "upload it": f"hf-edu push {run} user/name",
    }


def _fewer_tokens(model: Any) -> str:
    """The option that a model with few positions needs to write text."""
    from ..generation import DEFAULT_NEW_TOKENS

    limit = getattr(model.config, "max_position_embeddings", None)
    if not model.can_generate() or limit is None or limit >= 2 * DEFAULT_NEW_TOKENS:
        return ""
    return f" --max-new-tokens {limit // 2}"


def _explain(model: Any, run: str, text: str, reads_numbers: bool) -> str:
    """The verb that shows what is new in this rung; the drawing of its architecture where none reads this model."""
    config = model.config
    rung = config.model_type.removeprefix("edu_")
    if reads_numbers:
        return f"draw {run}"
    if rung in ("word_vectors", "feedforward"):
        return f"explain neighbours {run} WORD"
    if getattr(getattr(model, "layer_mix", None), "weights", None) is not None:
        return f"explain layers {run}"
    if rung == "elmo":
        return f"explain contexts {run} WORD SENTENCE SENTENCE"
    if any(getattr(config, name, None) for name in ("num_attention_heads", "attention_score")):
        return f"explain attention {run} {text}"
    if rung == "hierarchical" or "attention" in getattr(config, "pooling", ""):
        return f"explain text {run} {text}"
    if getattr(config, "cell_type", None) in ("lstm", "gru"):
        return f"explain gates {run} {text}"
    return f"draw {run}"


def _lab_runs(folder: Path, model: Any) -> bool:
    """Whether the page of the lab can compute this model and its tokenizer."""
    from ..lab.support import check_config, check_tokenizer

    try:
        check_config(str(folder), model.config.to_dict() | {"architectures": [type(model).__name__]})
        check_tokenizer(str(folder), json.loads((folder / "tokenizer.json").read_text("utf-8")))
    except (ValueError, OSError):
        return False
    return True


def _sample_text(samples: list[dict[str, Any]]) -> str:
    """The first sample that is short enough to be quoted."""
    texts = [row.get(name) for row in samples for name in ("source", "text", "prompt")]
    short = [text for text in texts if isinstance(text, str) and 0 < len(text) <= _MAX_CHARACTERS]
    plain = [text for text in short if make_visible(text) == text and text.isprintable()]
    return shlex.quote(plain[0]) if plain else "TEXT"
