"""`normalise`: the text that a tokenizer can represent, so that decode(encode(text)) == normalise(text)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .tokenizer_kinds import SPACE_MARK

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast


def normalise(text: str, tokenizer: PreTrainedTokenizerFast) -> str:
    """What `decode(encode(text))` returns, computed without encoding; unknown words and characters are left out."""
    specials = sorted(tokenizer.all_special_tokens, key=len, reverse=True)
    # A special token spelled out in a text is encoded as that token; decode skips it.
    parts = re.split("|".join(map(re.escape, specials)), text)
    backend = tokenizer.backend_tokenizer
    parts = [backend.normalizer.normalize_str(part) if backend.normalizer else part for part in parts]
    return _REBUILD[kind_of(tokenizer)](parts, tokenizer)


def kind_of(tokenizer: PreTrainedTokenizerFast) -> str:
    """Which of the six kinds a tokenizer is, by its model and decoder."""
    backend = tokenizer.backend_tokenizer
    name = type(backend.model).__name__
    if name == "WordLevel":
        return {"Fuse": "char", "WordPiece": "whitespace"}.get(type(backend.decoder).__name__, "word")
    return {"WordPiece": "wordpiece", "BPE": "bpe", "Unigram": "unigram"}[name]


def continuation_table(tokenizer: PreTrainedTokenizerFast) -> list[bool]:
    """For every token id, whether the token continues the word before it, for whole-word masking."""
    starts = {"wordpiece": None, "bpe": "Ġ", "unigram": SPACE_MARK, "word": "", "whitespace": ""}
    kind = kind_of(tokenizer)
    if kind not in starts:
        raise ValueError(f"a {kind} tokenizer does not know where words begin; use one of {', '.join(starts)}")
    table = [False] * len(tokenizer)
    for token, token_id in tokenizer.get_vocab().items():
        table[token_id] = token.startswith("##") if kind == "wordpiece" else not token.startswith(starts[kind])
    for token_id in tokenizer.all_special_ids:
        table[token_id] = False
    return table


def _decode_spaces(text: str, tokenizer: PreTrainedTokenizerFast) -> str:
    text = text.replace(SPACE_MARK, " ")
    keeps_first_space = tokenizer.backend_tokenizer.decoder.decode([SPACE_MARK]) == " "  # those of language models
    return text if keeps_first_space else text.removeprefix(" ")


def _rebuild_unigram(parts: list[str], tokenizer: PreTrainedTokenizerFast) -> str:
    mark = SPACE_MARK if parts[0] and not parts[0].startswith((" ", SPACE_MARK)) else ""
    return _decode_spaces(mark + "".join(parts), tokenizer)


def _rebuild_chars(parts: list[str], tokenizer: PreTrainedTokenizerFast) -> str:
    known = tokenizer.get_vocab()
    return "".join(character for character in "".join(parts) if character in known)


def _rebuild_words(parts: list[str], tokenizer: PreTrainedTokenizerFast) -> str:
    known = tokenizer.get_vocab()
    split = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str
    words = []
    for number, part in enumerate(parts):
        found = [word for word, _ in split(part)]
        if number and found and not part.startswith((" ", SPACE_MARK)):
            found[0] = found[0].removeprefix(SPACE_MARK)  # only the first word of a text gets a mark without a space
        words += found
    return _decode_spaces("".join(word for word in words if word in known), tokenizer)


def _rebuild_wordpieces(parts: list[str], tokenizer: PreTrainedTokenizerFast) -> str:
    backend = tokenizer.backend_tokenizer
    words = [word for part in parts for word, _ in backend.pre_tokenizer.pre_tokenize_str(part)]
    return " ".join(word for word in words if _is_known(word, backend))


def _rebuild_tokens(parts: list[str], tokenizer: PreTrainedTokenizerFast) -> str:
    known, split = tokenizer.get_vocab(), tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str
    return " ".join(word for part in parts for word, _ in split(part) if word in known)


def _is_known(word: str, backend: Tokenizer) -> bool:
    """Whether subwords of the vocabulary cover a word, by WordPiece's greedy longest match."""
    if len(word) > backend.model.max_input_chars_per_word:
        return False
    start = 0
    while start < len(word):
        prefix = "##" if start else ""
        ends = range(len(word), start, -1)
        end = next((end for end in ends if backend.token_to_id(prefix + word[start:end]) is not None), None)
        if end is None:
            return False
        start = end
    return True


_REBUILD = {
    "bpe": lambda parts, tokenizer: "".join(parts),
    "unigram": _rebuild_unigram,
    "char": _rebuild_chars,
    "word": _rebuild_words,
    "wordpiece": _rebuild_wordpieces,
    "whitespace": _rebuild_tokens,
}
