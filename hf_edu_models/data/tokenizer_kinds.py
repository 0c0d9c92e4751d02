"""The six kinds of tokenizer, untrained: the normalizer, pre-tokenizer, model and decoder of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPACE_MARK = "▁"
BYTES = [f"<0x{number:02X}>" for number in range(256)]
PRINTABLE = [*(chr(number) for number in range(0x21, 0x7F)), SPACE_MARK]  # ASCII


def _wordpiece(unk: str, lowercase: bool) -> Tokenizer:
    from tokenizers import decoders, models, normalizers, pre_tokenizers

    return _assemble(
        models.WordPiece(unk_token=unk),
        normalizers.BertNormalizer(lowercase=lowercase),
        pre_tokenizers.BertPreTokenizer(),
        decoders.WordPiece(cleanup=False),
    )


def _bpe(unk: str, lowercase: bool) -> Tokenizer:
    from tokenizers import decoders, models, pre_tokenizers

    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return _assemble(models.BPE(unk_token=unk), _nfc(lowercase), byte_level, decoders.ByteLevel())


def _unigram(unk: str, lowercase: bool) -> Tokenizer:
    from tokenizers import models

    return _assemble(models.Unigram(), _nfc(lowercase), _mark_spaces(), _space_decoder())


def _word(unk: str, lowercase: bool) -> Tokenizer:
    from tokenizers import Regex, models, pre_tokenizers

    # Punctuation is a token with the space before it, so "Hello, (you)" is decoded with its own spacing.
    punctuation = pre_tokenizers.Split(Regex(rf"{SPACE_MARK}?[^\w{SPACE_MARK}]"), behavior="isolated")
    split = pre_tokenizers.Sequence([_mark_spaces(), punctuation])
    return _assemble(models.WordLevel(unk_token=unk), _nfc(lowercase), split, _space_decoder())


def _char(unk: str, lowercase: bool) -> Tokenizer:
    from tokenizers import Regex, decoders, models, pre_tokenizers

    split = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    return _assemble(models.WordLevel(unk_token=unk), _nfc(lowercase), split, decoders.Fuse())


def _whitespace(unk: str, lowercase: bool) -> Tokenizer:
    from tokenizers import Regex, decoders, models, pre_tokenizers

    lines = pre_tokenizers.Split("\n", behavior="isolated")
    words = pre_tokenizers.Split(Regex(r"[^\S\n]+"), behavior="removed")
    split, decoder = pre_tokenizers.Sequence([lines, words]), decoders.WordPiece(prefix=" ", cleanup=False)
    return _assemble(models.WordLevel(unk_token=unk), _nfc(lowercase), split, decoder)


BACKENDS = {
    "wordpiece": _wordpiece,
    "bpe": _bpe,
    "unigram": _unigram,
    "word": _word,
    "char": _char,
    "whitespace": _whitespace,
}


def _assemble(model: Any, normalizer: Any, pre_tokenizer: Any, decoder: Any) -> Tokenizer:
    from tokenizers import Tokenizer

    backend = Tokenizer(model)
    backend.normalizer, backend.pre_tokenizer, backend.decoder = normalizer, pre_tokenizer, decoder
    return backend


def _nfc(lowercase: bool) -> Any:
    from tokenizers.normalizers import NFC, Lowercase, Sequence

    return Sequence([NFC(), Lowercase(), NFC()] if lowercase else [NFC()])


def _mark_spaces() -> Any:
    from tokenizers.pre_tokenizers import Metaspace

    return Metaspace(replacement=SPACE_MARK, prepend_scheme="first")


def _space_decoder(keep_first_space: bool = False) -> Any:
    from tokenizers.decoders import ByteFallback, Fuse, Replace, Sequence, Strip

    # The space mark before the first word is not a space of the text.
    strip = [] if keep_first_space else [Strip(content=" ", left=1, right=0)]
    return Sequence([Replace(SPACE_MARK, " "), ByteFallback(), Fuse(), *strip])


def keep_first_space(backend: Tokenizer) -> Tokenizer:
    """Decode the space before the first word: without it, a continuation is glued to the prompt before it."""
    if SPACE_MARK in str(backend.decoder):
        backend.decoder = _space_decoder(keep_first_space=True)
    return backend


def add_byte_fallback(backend: Tokenizer, unk: str) -> Tokenizer:
    """Add the 256 bytes to a unigram vocabulary: an unseen character is encoded as bytes, not as unknown."""
    import json

    from tokenizers import models

    vocab = _sort_vocab([tuple(entry) for entry in json.loads(backend.to_str())["model"]["vocab"]])
    lowest = min(score for _, score in vocab) - 100.0
    unk_id = [token for token, _ in vocab].index(unk)
    backend.model = models.Unigram([*vocab, *((token, lowest) for token in BYTES)], unk_id=unk_id, byte_fallback=True)
    return backend


def _sort_vocab(vocab: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """Subwords by score, equal ones by name: the trainer's own order and last digits differ between runs."""
    special = [entry for entry in vocab if entry[1] == 0.0]
    learned = [entry for entry in vocab if entry[1] != 0.0]
    # Characters that were pruned come back with the lowest scores, 0.0001 apart, in random order.
    border = min(score for _, score in learned) + 0.0001 * len(learned) if learned else 0.0
    restored = [entry for entry in learned if len(entry[0]) == 1 and entry[1] <= border]
    ranked = set(learned) - set(restored)
    names = [name for _, name in sorted((-round(score, 4), name) for name, score in ranked)]
    names += sorted(name for name, _ in restored)
    scores = [sorted((round(score, 4) for _, score in group), reverse=True) for group in (ranked, restored)]
    return special + list(zip(names, scores[0] + scores[1], strict=True))
