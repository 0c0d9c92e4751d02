"""Sentences of a text."""

from __future__ import annotations

import re

_SENTENCE = re.compile(r"\S.*?(?:[.!?。！？…]+[\"'”’»)\]]*(?=\s)|$)", re.DOTALL)  # noqa: RUF001


def cut_sentences(text: str) -> list[str]:
    """Split a text at its sentence ends: a rule of punctuation, not a linguistic one."""
    return _SENTENCE.findall(text.rstrip())
