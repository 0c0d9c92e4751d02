"""Readable labels for token ids, and the word that each token belongs to.

Labels have no marks of word boundaries (`data/spelling.py`); the boundaries become one word id for each token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..data.spelling import parse_tokens

_VISIBLE = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "\u00a0": "␣"}


@dataclass(frozen=True)
class Tokens:
    """The tokens along one axis of an attention map.

    Args:
        labels: Readable text of each token, never empty.
        word_ids: For each token the index of its word, as in `BatchEncoding.word_ids()`.
        word_labels: Readable text of each word.
    """

    labels: tuple[str, ...]
    word_ids: tuple[int, ...]
    word_labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def merged(self) -> Tokens:
        """Words in place of tokens."""
        return Tokens(self.word_labels, tuple(range(len(self.word_labels))), self.word_labels)


def readable_tokens(tokenizer: Any, ids: Sequence[int]) -> Tokens:
    """Labels and words of token ids, for every tokenizer that transformers loads."""
    parsed = parse_tokens(tokenizer, ids)
    words: list[bytes] = []
    word_ids, must_start = [], True
    for content, starts, ends in parsed:
        if starts or must_start:
            words.append(b"")
        words[-1] += content
        word_ids.append(len(words) - 1)
        must_start = ends
    labels = tuple(_visible(content) for content, _, _ in parsed)
    return Tokens(labels, tuple(word_ids), tuple(_visible(word.strip(b" ") or word) for word in words))


def _visible(content: bytes) -> str:
    """Text with visible white space; an incomplete UTF-8 character as hexadecimal bytes."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return " ".join(f"{byte:02X}" for byte in content)
    return "".join(_VISIBLE.get(character, character) for character in text) or "∅"
