"""How tokens are spelled: their text without the marks of the tokenizer.

Tokenizers mark word boundaries inside their tokens: byte-level BPE writes the space before a word as `Ġ`, SentencePiece
as `▁`; WordPiece marks subwords that continue a word with `##`, the first GPT marks the last subword with `</w>`.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from typing import Any

_SPACE_MARK = "▁"
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
# A part of the tokenizer's decoder that gives its marks away.
_DECODERS = {"ByteLevel": "bytes", "WordPiece": "##", "BPEDecoder": "</w>", "Metaspace": "▁", _SPACE_MARK: "▁"}
# A parsed token: its bytes, whether it starts a word, whether the next token must start one.
_Parsed = tuple[bytes, bool, bool]


def parse_tokens(tokenizer: Any, ids: Sequence[int]) -> list[_Parsed]:
    """The bytes of each token, whether it starts a word and whether it ends one; special tokens are words."""
    raw = [str(token) for token in tokenizer.convert_ids_to_tokens(list(ids))]
    special = set(tokenizer.all_special_ids)
    parse = _PARSERS[_marking_of(tokenizer, raw)]
    return [(token.encode(), True, True) if i in special else parse(token) for i, token in zip(ids, raw, strict=True)]


def spellings(tokenizer: Any) -> list[bytes]:
    """The text of every token of a tokenizer, by id, as UTF-8; a token that starts a word has a space before it.

    A tokenizer of characters has spaces among its tokens, and none before them. Special tokens are spelled by name.
    """
    special, ids = set(tokenizer.all_special_ids), range(len(tokenizer))
    marks_words = _marking_of(tokenizer, tokenizer.convert_ids_to_tokens(list(ids))) != "none"
    return [
        b" " + content if starts and marks_words and token_id not in special and content[:1] != b" " else content
        for token_id, (content, starts, _) in zip(ids, parse_tokens(tokenizer, ids), strict=True)
    ]


def _marking_of(tokenizer: Any, raw: list[str]) -> str:
    """Which marks a tokenizer uses, by its decoder; without a decoder, by what its tokens look like."""
    decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
    if decoder is not None:
        state = json.dumps(json.loads(decoder.__getstate__()), ensure_ascii=False)
        return next((marking for name, marking in _DECODERS.items() if name in state), "none")
    if any(token.startswith("##") for token in raw):
        return "##"
    return "▁" if any(_SPACE_MARK in token for token in raw) else "none"


@functools.cache
def _byte_of_character() -> dict[str, int]:
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return {character: byte for byte, character in bytes_to_unicode().items()}


def _parse_byte_level(token: str) -> _Parsed:
    byte_of = _byte_of_character()
    content = bytes(byte_of[character] for character in token) if set(token) <= set(byte_of) else token.encode()
    return _strip_boundary(content), content[:1].isspace(), content[-1:].isspace()


def _parse_sentencepiece(token: str) -> _Parsed:
    if match := _BYTE_TOKEN.fullmatch(token):
        return bytes.fromhex(match[1]), False, False
    content = token.replace(_SPACE_MARK, " ")
    return _strip_boundary(content.encode()), content.startswith(" "), content.endswith(" ") and content != " "


def _parse_wordpiece(token: str) -> _Parsed:
    continues = token.startswith("##") and len(token) > 2
    return (token[2:] if continues else token).encode(), not continues, False


def _parse_end_of_word(token: str) -> _Parsed:
    return token.removesuffix("</w>").encode(), False, token.endswith("</w>")


def _parse_characters(token: str) -> _Parsed:
    """A character tokenizer has no marks: spaces are tokens, and words are between them."""
    return token.encode(), token.isspace(), token.isspace()


_PARSERS = {
    "bytes": _parse_byte_level,
    "▁": _parse_sentencepiece,
    "##": _parse_wordpiece,
    "</w>": _parse_end_of_word,
    "none": _parse_characters,
}


def _strip_boundary(content: bytes) -> bytes:
    """Drop the one space that marks the start of a word; a token that is only a space keeps it."""
    return content[1:] if content[:1] == b" " and len(content) > 1 else content
