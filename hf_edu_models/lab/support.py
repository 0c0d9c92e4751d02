"""What the page cannot run, said before it is written: the tables are those of the page's own modules."""

from __future__ import annotations

import json
import re
from typing import Any

from ..auto import find_rung
from ..pages.document import package_text

# Parts of a regular expression that JavaScript does not have, or reads in another way.
_UNKNOWN_SYNTAX = re.compile(r"\(\?(?:[imsx>#~]|<(?![=!]))|[*+?}]\+|\\[AGhHKRXZz]|\[\[:|&&|\[[^\]]*\\W[^\]]*\]")
_LISTS = ("normalizers", "pretokenizers", "processors", "decoders")


def check_config(name: str, config: dict[str, Any]) -> None:
    """Raise an error if the engine cannot compute a model."""
    supported = _table("lab/engine/supported.js")
    shared = supported.pop("shared")
    model_type = config.get("model_type")
    architecture = (config.get("architectures") or ["none"])[0]
    if architecture in shared["numeric"]:
        raise ValueError(
            f"the lab cannot run {architecture} of {name}, which reads numbers; give a model that reads text"
        )
    if model_type not in supported:
        advice = "" if find_rung(model_type or "") else "; `hf-edu convert` reads BERT, GPT-2, OpenAI GPT and Marian"
        raise ValueError(f"the lab cannot run {name}, a {model_type}: it runs {', '.join(supported)}{advice}")
    heads = supported[model_type]["heads"]
    if architecture not in heads:
        raise ValueError(f"the lab cannot run {architecture} of {name}; of {model_type} it runs {', '.join(heads)}")
    if config.get("quantization_config"):
        raise ValueError(f"{name} is quantised; save it in float32, float16 or bfloat16 for the lab")
    for field, allowed in {**shared["values"], **supported[model_type]["values"]}.items():
        if field in config and config[field] not in allowed and allowed == [None]:
            raise ValueError(f"the lab cannot compute the {field} of {name}; give a model without")
        if field in config and config[field] not in allowed:
            known = ", ".join(map(str, allowed))
            raise ValueError(f"the lab cannot compute {field} {config[field]!r} of {name}; it computes {known}")


def check_tokenizer(name: str, tokenizer: dict[str, Any]) -> None:
    """Raise an error that names a part of tokenizer.json that the page does not have."""
    supported = _table("lab/tokenizer/supported.js")
    for role, types in supported.items():
        for part in _parts(tokenizer.get(role)):
            kind = part.get("type")
            if kind is not None and kind not in types:
                raise ValueError(
                    f"the lab cannot run the tokenizer of {name}: it has no {role.replace('_', ' ')} {kind}; "
                    f"it has {', '.join(types)}"
                )
            pattern = (part.get("pattern") or {}).get("Regex") if isinstance(part.get("pattern"), dict) else None
            if pattern and (unknown := _UNKNOWN_SYNTAX.search(pattern)):
                raise ValueError(
                    f"the lab cannot run the tokenizer of {name}: its regular expression {pattern} has "
                    f"{unknown[0]!r}, which JavaScript does not have"
                )


def _parts(part: dict[str, Any] | None) -> list[dict[str, Any]]:
    """A part and, of a sequence, the parts in it."""
    if part is None:
        return []
    inner = [each for key in _LISTS for each in part.get(key, [])]
    return [part, *(found for each in inner for found in _parts(each))]


def _table(path: str) -> dict[str, Any]:
    """The object of a module whose text between the outer braces is JSON."""
    text = package_text(path)
    return json.loads(text[text.index("{") : text.rindex("}") + 1])
