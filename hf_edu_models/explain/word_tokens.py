"""Encode a text and keep track of which tokens spell which of its words.

Gold alignments and tags count words (between spaces, or in a list), models count tokens. Both are matched by their
character offsets, so any tokenizer works: characters, bytes, subwords or words.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_Span = tuple[int, int]


@dataclass(frozen=True)
class Encoded:
    """An encoded text and its words.

    Args:
        input_ids: Token ids, special tokens included.
        words: The words of the text.
        membership: (tokens, words), the share of a token that belongs to a word: rows sum to one, or to zero for
            special tokens and spaces.
        is_truncated: Whether the text was cut at a maximum length; words behind it have no tokens.
    """

    input_ids: list[int]
    words: list[str]
    membership: np.ndarray
    is_truncated: bool = False

    def first_tokens(self) -> np.ndarray:
        """(words,), index of the first token of each word, -1 for a word without tokens."""
        belongs = self.membership > 0
        if not len(belongs):
            return np.full(belongs.shape[1], -1)
        return np.where(belongs.any(axis=0), belongs.argmax(axis=0), -1)


def encode_words(
    tokenizer: Any, text: str | Sequence[str], is_target: bool = False, max_length: int | None = None
) -> Encoded:
    """Encode a text, or a list of words joined by spaces, and assign its tokens to its words."""
    if isinstance(text, str):
        spans = [match.span() for match in re.finditer(r"\S+", text)]
    else:
        spans, text = _spans_in_join(text), " ".join(text)
    words = [text[start:end] for start, end in spans]
    side = "text_target" if is_target else "text"
    if not getattr(tokenizer, "is_fast", False):
        return _encode_without_offsets(tokenizer, text, words, side)
    truncation = {} if max_length is None else {"truncation": True, "max_length": max_length}
    encoded = tokenizer(**{side: text}, return_offsets_mapping=True, **truncation)
    membership = _membership_of(encoded["offset_mapping"], spans)
    return Encoded(encoded["input_ids"], words, membership, bool(encoded.encodings[0].overflowing))


def encode_span(tokenizer: Any, sentence: str, span: tuple[int, int], max_length: int | None = None) -> Encoded:
    """Encode a sentence, with the word at `span` as its only word; behind a maximum length it has no tokens."""
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(f"{type(tokenizer).__name__} has no offset mapping; use a fast tokenizer (tokenizer.json)")
    truncation = {} if max_length is None else {"truncation": True, "max_length": max_length}
    encoded = tokenizer(sentence, return_offsets_mapping=True, **truncation)
    membership = _membership_of(encoded["offset_mapping"], [span])
    is_truncated = max_length is not None and bool(encoded.encodings[0].overflowing)
    if not membership.any() and not is_truncated:
        raise ValueError(f"the tokenizer drops {sentence[slice(*span)]!r} from {sentence!r}; choose another word")
    return Encoded(encoded["input_ids"], [sentence[slice(*span)]], membership, is_truncated)


def _spans_in_join(words: Sequence[str]) -> list[_Span]:
    """Character span of each word after joining by spaces; a word of a list may contain a space."""
    spans, start = [], 0
    for word in words:
        spans.append((start, start + len(word)))
        start += len(word) + 1
    return spans


def _membership_of(offsets: Sequence[_Span], spans: Sequence[_Span]) -> np.ndarray:
    """(tokens, words): a token that overlaps several words counts for each in equal shares."""
    # The space before a word is often part of its first token; it is in no span, so it counts for no word.
    tokens = np.array(offsets).reshape(-1, 1, 2)
    words = np.array(spans).reshape(1, -1, 2)
    overlap = np.minimum(tokens[..., 1], words[..., 1]) - np.maximum(tokens[..., 0], words[..., 0])
    belongs = (overlap > 0).astype(float)
    return belongs / np.maximum(belongs.sum(axis=1, keepdims=True), 1)


def _encode_without_offsets(tokenizer: Any, text: str, words: list[str], side: str) -> Encoded:
    """For slow tokenizers: encode word by word, which must give the same tokens as the whole text."""
    input_ids = tokenizer(**{side: text})["input_ids"]
    by_word = [tokenizer(**{side: word}, add_special_tokens=False)["input_ids"] for word in words]
    flat = [token for ids in by_word for token in ids]
    starts = range(len(input_ids) - len(flat) + 1)
    start = next((start for start in starts if input_ids[start : start + len(flat)] == flat), None)
    if start is None:
        raise ValueError(
            f"{type(tokenizer).__name__} has no offset mapping and does not split {text[:60]!r} word by word; "
            "use a fast tokenizer (tokenizer.json)"
        )
    membership = np.zeros((len(input_ids), len(words)))
    owners = [index for index, ids in enumerate(by_word) for _ in ids]
    membership[np.arange(start, start + len(flat)), owners] = 1
    return Encoded(input_ids, words, membership)
