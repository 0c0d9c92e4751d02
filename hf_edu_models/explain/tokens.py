"""Token ids as a reader wants to see them: no marks of the tokenizer, and which pieces make one word.

A tokenizer hides the spaces of a text in marks: byte-level BPE writes a space before a word as `Ġ`, SentencePiece as
`▁`, WordPiece marks the pieces inside a word with `##`, the first GPT the last piece with `</w>`. The marks are taken
off the labels; what they said, where words begin, is kept as a number for each token.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SPACE_MARK = "▁"
VISIBLE = {" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍", "\u00a0": "␣"}
BYTE = re.compile(r"<0x([0-9A-F]{2})>")


@dataclass(frozen=True)
class Tokens:
    """The tokens of one side of a map.

    Args:
        labels: one readable text a token, never empty.
        words: for each token the number of the word that it is a piece of, counted from 0.
        word_labels: one readable text a word.
    """

    labels: tuple[str, ...]
    words: tuple[int, ...]
    word_labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)


def readable_tokens(tokenizer: Any, ids: Sequence[int]) -> Tokens:
    """Labels and words of token ids, for any tokenizer that transformers loads."""
    raw = [str(token) for token in tokenizer.convert_ids_to_tokens(list(ids))]
    special = set(tokenizer.all_special_ids)
    read = READERS[scheme_of(tokenizer, raw)]
    pieces = [(token.encode(), True, True) if i in special else read(token) for i, token in zip(ids, raw, strict=True)]
    words, number, must_begin = [], -1, True
    for _, begins, ends in pieces:
        number += begins or must_begin
        must_begin = ends
        words.append(number)
    groups: list[list[bytes]] = [[] for _ in range(number + 1)]
    for (content, _, _), word in zip(pieces, words, strict=True):
        groups[word].append(content)
    labels = tuple(visible(content) for content, _, _ in pieces)
    return Tokens(labels, tuple(words), tuple(visible(joined(group)) for group in groups))


def joined(pieces: list[bytes]) -> bytes:
    """A word without the space before it, unless it is nothing else."""
    word = b"".join(pieces)
    return word.strip(b" ") or word


def scheme_of(tokenizer: Any, raw: list[str]) -> str:
    """Which marks a tokenizer uses, told by how it would decode; without a decoder, by what its tokens look like."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    decoder = getattr(backend, "decoder", None)
    if decoder is not None:
        state = json.dumps(json.loads(decoder.__getstate__()), ensure_ascii=False)
        for sign, scheme in SIGNS.items():
            if sign in state:
                return scheme
        return "plain"
    looks = {"##": any(token.startswith("##") for token in raw), "▁": any(SPACE_MARK in token for token in raw)}
    return next((scheme for scheme, is_so in looks.items() if is_so), "plain")


# What is read from a token: its bytes, whether it begins a word, whether the next token must begin one.
Piece = tuple[bytes, bool, bool]
SIGNS = {"ByteLevel": "bytes", "WordPiece": "##", "BPEDecoder": "</w>", "Metaspace": "▁", SPACE_MARK: "▁"}


@functools.cache
def byte_of_character() -> dict[str, int]:
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return {character: byte for byte, character in bytes_to_unicode().items()}


def read_bytes(token: str) -> Piece:
    byte_of = byte_of_character()
    content = bytes(byte_of[character] for character in token) if set(token) <= set(byte_of) else token.encode()
    return trimmed(content), content[:1].isspace(), content[-1:].isspace()


def read_space_mark(token: str) -> Piece:
    if match := BYTE.fullmatch(token):
        return bytes.fromhex(match[1]), False, False
    content = token.replace(SPACE_MARK, " ")
    return trimmed(content.encode()), content.startswith(" "), content.endswith(" ") and content != " "


def read_inside_mark(token: str) -> Piece:
    inside = token.startswith("##") and len(token) > 2
    return (token[2:] if inside else token).encode(), not inside, False


def read_end_mark(token: str) -> Piece:
    return token.removesuffix("</w>").encode(), False, token.endswith("</w>")


def read_plain(token: str) -> Piece:
    """A tokenizer of characters has no marks; spaces are tokens and words lie between them."""
    return token.encode(), token.isspace(), token.isspace()


READERS = {
    "bytes": read_bytes,
    "▁": read_space_mark,
    "##": read_inside_mark,
    "</w>": read_end_mark,
    "plain": read_plain,
}


def trimmed(content: bytes) -> bytes:
    """Without the one space that only says that a word begins; a token that is nothing but space keeps it."""
    return content[1:] if content[:1] == b" " and len(content) > 1 else content


def visible(content: bytes) -> str:
    """Text with its white space drawn; bytes that are a part of a character, by their numbers."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return " ".join(f"{byte:02X}" for byte in content)
    return "".join(VISIBLE.get(character, character) for character in text) or "∅"
