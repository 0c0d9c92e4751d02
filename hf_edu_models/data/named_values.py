"""`name=value` on a command line: what it takes apart, and what a value means."""

from __future__ import annotations

import json
from typing import Any


def named_texts(option: str, given: list[str] | None) -> list[tuple[str, str]]:
    """Each name with its value as it was written; `option` is what a mistake is said of."""
    parts = [each.partition("=") for each in given or []]
    for name, sign, value in parts:
        if not (name and sign and value):
            raise ValueError(f"--{option} takes name=value, got {name + sign + value!r}")
    return [(name, value) for name, _, value in parts]


def named_values(option: str, given: list[str] | None) -> dict[str, Any]:
    """Each name with its value read by `read_value`."""
    return {name: read_value(value) for name, value in named_texts(option, given)}


def read_value(text: str) -> Any:
    """JSON where it is some (0.1, true, [1, 2]), a list where there are commas, else the word itself."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return word_or_list(text)


def word_or_list(text: str) -> str | list[str]:
    return text.split(",") if "," in text else text
