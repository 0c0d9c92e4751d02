"""The five kinds of tokenizer, untrained: how each normalises, splits and joins text, on the `tokenizers` library."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPACE_MARK = "▁"
BYTES = [f"<0x{number:02X}>" for number in range(256)]


def _normalizer(lowercase: bool):
    from tokenizers import normalizers

    return normalizers.Sequence(
        [normalizers.NFC(), *([normalizers.Lowercase(), normalizers.NFC()] if lowercase else [])]
    )


def _wordpiece(unk: str, lowercase: bool):
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers

    backend = Tokenizer(models.WordPiece(unk_token=unk))
    backend.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(cleanup=False)
    return backend


def _bpe(unk: str, lowercase: bool):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    backend = Tokenizer(models.BPE(unk_token=unk))
    backend.normalizer = _normalizer(lowercase)
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return backend


def _unigram(unk: str, lowercase: bool):
    from tokenizers import Tokenizer, models, pre_tokenizers

    backend = Tokenizer(models.Unigram())
    backend.normalizer = _normalizer(lowercase)
    backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement=SPACE_MARK, prepend_scheme="first")
    backend.decoder = _space_decoder()
    return backend


def _word(unk: str, lowercase: bool):
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    backend = Tokenizer(models.WordLevel(unk_token=unk))
    backend.normalizer = _normalizer(lowercase)
    spaces = pre_tokenizers.Metaspace(replacement=SPACE_MARK, prepend_scheme="first")
    # A mark stands alone and keeps the space before it, so "Hello, (you)" comes back with its own spacing.
    marks = pre_tokenizers.Split(Regex(rf"{SPACE_MARK}?[^\w{SPACE_MARK}]"), behavior="isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence([spaces, marks])
    backend.decoder = _space_decoder()
    return backend


def _char(unk: str, lowercase: bool):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    backend = Tokenizer(models.WordLevel(unk_token=unk))
    backend.normalizer = _normalizer(lowercase)
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    backend.decoder = decoders.Fuse()
    return backend


BACKENDS = {"wordpiece": _wordpiece, "bpe": _bpe, "unigram": _unigram, "word": _word, "char": _char}


def _space_decoder():
    from tokenizers import decoders

    # Bytes first, then one text, then the marks of spaces; the first mark stands for no space.
    return decoders.Sequence(
        [
            decoders.Replace(SPACE_MARK, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1, right=0),
        ]
    )


def with_bytes(backend: Tokenizer, unk: str) -> Tokenizer:
    """Add the 256 bytes, so that a character never seen is written by its bytes and not lost."""
    import json

    from tokenizers import models

    vocab = in_order([tuple(each) for each in json.loads(backend.to_str())["model"]["vocab"]])
    lowest = min(score for _, score in vocab) - 100.0
    unk_id = [token for token, _ in vocab].index(unk)
    backend.model = models.Unigram([*vocab, *((token, lowest) for token in BYTES)], unk_id=unk_id, byte_fallback=True)
    return backend


def in_order(vocab: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """The pieces by score, equal ones by name: the trainer's own order and last digits change from run to run."""
    special = [piece for piece in vocab if piece[1] == 0.0]
    learned = [piece for piece in vocab if piece[1] != 0.0]
    # Characters that pruning took are put back with the lowest scores, 0.0001 apart, in an order of chance.
    border = min(score for _, score in learned) + 0.0001 * len(learned) if learned else 0.0
    put_back = [piece for piece in learned if len(piece[0]) == 1 and piece[1] <= border]
    kept = sorted(set(learned) - set(put_back))
    names = sorted(kept, key=lambda piece: (-round(piece[1], 4), piece[0])) + sorted(
        put_back, key=lambda piece: piece[0]
    )
    scores = sorted((round(score, 4) for _, score in kept), reverse=True)
    scores += sorted((round(score, 4) for _, score in put_back), reverse=True)
    return special + [(name, score) for (name, _), score in zip(names, scores, strict=True)]


def printable() -> list[str]:
    return [chr(number) for number in range(0x21, 0x7F)] + [SPACE_MARK]
