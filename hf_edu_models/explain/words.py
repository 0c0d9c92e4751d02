"""From tokens back to words: which tokens of a model's input spell which words of the text.

Gold alignments and tags count words that stand between spaces (or in a list), tokenizers count pieces. The two are
matched by where they stand in the text, so that any tokenizer will do: letters, bytes, pieces or words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Span = tuple[int, int]


@dataclass(frozen=True)
class Encoded:
    """A text as a model reads it, with the way back to its words.

    Args:
        input_ids: all tokens, special ones included.
        words: the words of the text.
        membership: (tokens, words), how much of a token belongs to a word: rows sum to one, or to zero for special
            tokens and spaces.
    """

    input_ids: list[int]
    words: list[str]
    membership: np.ndarray

    def first_tokens(self) -> np.ndarray:
        """(words,), the first token of each word, -1 where no token spells it."""
        belongs = self.membership > 0
        if not len(belongs):
            return np.full(belongs.shape[1], -1)
        return np.where(belongs.any(axis=0), belongs.argmax(axis=0), -1)


def encode_words(tokenizer: Any, text: str | Sequence[str], is_target: bool = False) -> Encoded:
    """Tokens of a text, or of a list of words as they would stand in a text, and what words they spell."""
    if isinstance(text, str):
        spans = [match.span() for match in re.finditer(r"\S+", text)]
    else:
        spans, text = spans_in_join(text), " ".join(text)
    words = [text[start:end] for start, end in spans]
    if getattr(tokenizer, "is_fast", False):
        encoded = tokenizer(**{"text_target" if is_target else "text": text}, return_offsets_mapping=True)
        return Encoded(encoded["input_ids"], words, membership(encoded["offset_mapping"], spans))
    return encode_without_offsets(tokenizer, text, words, is_target)


def spans_in_join(words: Sequence[str]) -> list[Span]:
    """Where each word stands once they are joined by spaces; a word of a list may have a space inside."""
    spans, start = [], 0
    for word in words:
        spans.append((start, start + len(word)))
        start += len(word) + 1
    return spans


def membership(offsets: Sequence[Span], spans: Sequence[Span]) -> np.ndarray:
    """(tokens, words): a token that spells parts of several words counts for each in equal shares."""
    # The space before a word is often part of its first token; no word has it, so it counts for none.
    tokens = np.array(offsets).reshape(-1, 1, 2)
    places = np.array(spans).reshape(1, -1, 2)
    overlap = np.minimum(tokens[..., 1], places[..., 1]) - np.maximum(tokens[..., 0], places[..., 0])
    belongs = (overlap > 0).astype(float)
    return belongs / np.maximum(belongs.sum(axis=1, keepdims=True), 1)


def encode_without_offsets(tokenizer: Any, text: str, words: list[str], is_target: bool) -> Encoded:
    """For tokenizers written in Python: word by word, which must give the same tokens as the text at once."""
    side = "text_target" if is_target else "text"
    input_ids = tokenizer(**{side: text})["input_ids"]
    pieces = [tokenizer(**{side: word}, add_special_tokens=False)["input_ids"] for word in words]
    flat = [piece for word in pieces for piece in word]
    starts = range(len(input_ids) - len(flat) + 1)
    start = next((start for start in starts if input_ids[start : start + len(flat)] == flat), None)
    if start is None:
        raise ValueError(
            f"{type(tokenizer).__name__} does not say where its tokens stand, and splits {text[:60]!r} otherwise than "
            "word by word; use a fast tokenizer (tokenizer.json)"
        )
    belongs = np.zeros((len(input_ids), len(words)))
    owners = [number for number, word in enumerate(pieces) for _ in word]
    belongs[np.arange(start, start + len(flat)), owners] = 1
    return Encoded(input_ids, words, belongs)
