"""Parse `name=value` options of a command line."""

from __future__ import annotations

import json
from typing import Any


def named_texts(option: str, pairs: list[str] | None) -> list[tuple[str, str]]:
    """Each name with its value as written; `option` is the name that an error mentions."""
    parts = [pair.partition("=") for pair in pairs or []]
    for name, sign, value in parts:
        if not (name and sign and value):
            raise ValueError(f"--{option} takes name=value, got {name + sign + value!r}")
    return [(name, value) for name, _, value in parts]


def named_values(option: str, pairs: list[str] | None) -> dict[str, Any]:
    """Each name with its value: JSON where it parses (0.1, true, [1, 2]), a list where there are commas, else text."""
    return {name: _parse_value(value) for name, value in named_texts(option, pairs)}


def word_or_list(text: str) -> str | list[str]:
    """The words between commas, or the text itself where there is no comma."""
    return text.split(",") if "," in text else text


def _parse_value(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return {"True": True, "False": False, "None": None}.get(text, word_or_list(text))
