"""Train a tokenizer on a corpus: six kinds, the special tokens of each rung, plain files that `AutoTokenizer` loads.

| kind       | a token is                                        | decode returns                               |
|------------|---------------------------------------------------|----------------------------------------------|
| bpe        | bytes, merged by frequency (as in GPT-2)          | every text, exactly                          |
| unigram    | a likely subword (as in SentencePiece)            | every text, but a space at its very start    |
| wordpiece  | a word or a `##` subword (as in BERT)             | the known words, one space between           |
| word       | a word or a punctuation mark, with its space      | every text of known words, as unigram        |
| char       | a character                                       | every text of known characters               |
| whitespace | what is between spaces, or a newline: for texts   | the known words, one space between           |
|            | that are tokenized already (the Penn Treebank)    |                                              |

All but wordpiece normalise to NFC first. For language models, unigram and word decode a space before the first word
too: the new tokens of a generation then follow the prompt with their own space. `normalise` is the exact definition:
decode(encode(text)) == normalise(text, tokenizer).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..auto import LADDER
from . import tokenizer_kinds
from .cache import build_once, cache_folder, code_version, content_of, fingerprint
from .columns import column_names

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

KINDS = ("wordpiece", "bpe", "unigram", "word", "char", "whitespace")

# Special tokens around a text, by template. Pairs: `$B` is the second text, `:1` its token type id.
TEMPLATES = {
    # Generation continues a prompt, so nothing follows it; `language_modeling.py` adds the end of documents.
    "language_modeling": {"single": "<s> $A", "pair": "<s> $A <sep> $B:1"},
    # The model itself starts the decoder with <s>: neither side contains it.
    "seq2seq": {"single": "$A </s>", "pair": "$A </s> $B:1 </s>:1"},
    "bert": {"single": "[CLS] $A [SEP]", "pair": "[CLS] $A [SEP] $B:1 [SEP]:1"},
}
_SPECIAL_TOKENS = {
    "language_modeling": {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>", "sep": "<sep>"},
    "seq2seq": {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>"},
    "bert": {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
}
_MIN_VOCAB = {"bpe": 256, "unigram": 256}
_TEXT_COLUMNS = ("source", "target", "text", "text_pair", "sentences", "tokens", "context", "question", "choices")


def train_tokenizer(
    corpus: Any,
    kind: str = "wordpiece",
    vocab_size: int = 8_000,
    *,
    lowercase: bool = False,
    joint: bool = True,
    rung: str | None = None,
    task: str | None = None,
    columns: Iterable[str] | None = None,
    min_frequency: int = 1,
    model_max_length: int | None = None,
    cache_dir: str | os.PathLike | None = None,
) -> PreTrainedTokenizerFast | tuple[PreTrainedTokenizerFast, PreTrainedTokenizerFast]:
    """Train on the train split of `corpus`, or on an iterable of texts.

    Args:
        joint: One vocabulary for source and target. False returns two tokenizers, (source, target).
        rung: Name of the rung that the tokenizer is for; it chooses the special tokens and the template.
        task: The template itself: language_modeling, seq2seq or bert. Default: seq2seq if there is source and target.
        columns: Columns to train on; default all columns of text.
        min_frequency: Minimum number of occurrences of a word or a merge.
        cache_dir: Cache of vocabularies; the same texts give the same one.
    """
    data = _train_split(corpus)
    names = _text_columns(data, columns)
    spec = TokenizerSpec(kind, vocab_size, lowercase, _template(task, rung, names), min_frequency)
    spec.check()
    if joint:
        return _wrap(_train_once(data, names, spec, cache_dir), spec.template, model_max_length)
    if not {"source", "target"} <= set(names or ()):
        raise ValueError(
            f"joint=False needs the columns 'source' and 'target'; the corpus has {names or 'plain texts'}"
        )
    sides = [_train_once(data, [name], spec, cache_dir) for name in ("source", "target")]
    return tuple(_wrap(side, spec.template, model_max_length) for side in sides)


def tokenizer_of_words(words: Iterable[str]) -> PreTrainedTokenizerFast:
    """A word tokenizer with exactly these words, for vectors from elsewhere; it lowercases if no word has a capital."""
    from tokenizers import models

    words = list(dict.fromkeys(words))
    spec = TokenizerSpec(
        "word", len(words) + 10, not any(word != word.lower() for word in words), "language_modeling", 1
    )
    backend, mark = spec.backend(), tokenizer_kinds.SPACE_MARK
    own = [word for word in words if word not in spec.special_tokens]
    tokens = [*spec.special_tokens, *(f"{mark}{word}" for word in own)]
    backend.model = models.WordLevel({token: n for n, token in enumerate(tokens)}, unk_token=spec.unk_token)
    return _wrap(backend, spec.template, None)


@dataclass(frozen=True)
class TokenizerSpec:
    """Everything but the texts that determines a vocabulary."""

    kind: str
    vocab_size: int
    lowercase: bool
    template: str
    min_frequency: int

    def check(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {self.kind!r}")
        if not isinstance(self.vocab_size, int) or self.vocab_size < 1:
            raise ValueError(f"vocab_size must be a whole number above 0, got {self.vocab_size!r}")
        least = len(self.special_tokens) + _MIN_VOCAB.get(self.kind, 0)
        if self.vocab_size <= least:
            raise ValueError(f"vocab_size {self.vocab_size} is too small for {self.kind}: it needs more than {least}")
        if self.kind == "unigram" and self.min_frequency != 1:
            raise ValueError(f"unigram prunes by likelihood and has no min_frequency, got {self.min_frequency}")

    @property
    def special_tokens(self) -> list[str]:
        return list(_SPECIAL_TOKENS[self.template].values())

    @property
    def unk_token(self) -> str:
        return _SPECIAL_TOKENS[self.template]["unk"]

    def backend(self) -> Tokenizer:
        """The tokenizer before training."""
        backend = tokenizer_kinds.BACKENDS[self.kind](self.unk_token, self.lowercase)
        return tokenizer_kinds.keep_first_space(backend) if self.template == "language_modeling" else backend


def _train_once(data: Any, names: list[str] | None, spec: TokenizerSpec, cache_dir: Any) -> Tokenizer:
    """Train, or load what was trained on the same texts with the same settings."""
    import tokenizers

    if names is not None and not hasattr(data, "__len__"):
        return _train(lambda: _texts(data, names), spec)  # a stream has no content to hash
    if names is None:
        data = list(data)  # it is read twice
    content = fingerprint(data) if names is None else content_of(data, names)
    key = fingerprint(content, asdict(spec), tokenizers.__version__, code_version(__name__, tokenizer_kinds))

    def build(folder: Path) -> None:
        _train(lambda: _texts(data, names), spec).save(str(folder / "tokenizer.json"))

    folder = build_once(cache_folder(cache_dir) / "tokenizers" / key, build)
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


def _train(read: Callable[[], Iterator[list[str]]], spec: TokenizerSpec) -> Tokenizer:
    if spec.kind in ("char", "whitespace") and spec.template == "language_modeling":
        read = _with_newlines(read)
    if spec.kind == "whitespace":
        read = _without_special_tokens(read, set(spec.special_tokens))
    if spec.kind == "wordpiece":
        backend = _train_wordpiece(read, spec)
    else:
        backend = _run_trainer(read, spec, _trainer(spec))
    if backend.get_vocab_size() <= len(spec.special_tokens):
        if spec.min_frequency > 1:
            raise ValueError(
                f"no word of the corpus occurs {spec.min_frequency} times; lower the minimum count (--min_count), or "
                "give more text"
            )
        raise ValueError("the corpus has no text to learn a vocabulary from; check its train split and columns")
    return tokenizer_kinds.add_byte_fallback(backend, spec.unk_token) if spec.kind == "unigram" else backend


def _with_newlines(read: Callable[[], Iterator[list[str]]]) -> Callable[[], Iterator[list[str]]]:
    """Rows contain no newline, but `language_modeling.py` joins them with newlines: the vocabulary needs it."""

    def read_all() -> Iterator[list[str]]:
        for texts in read():
            yield [part for text in texts for part in (text, "\n")]

    return read_all


def _without_special_tokens(read: Callable[[], Iterator[list[str]]], special: set[str]) -> Callable:
    """A text that is tokenized already may contain `<unk>`; counted as a word, it would get a second id."""

    def read_all() -> Iterator[list[str]]:
        for texts in read():
            yield [" ".join(word for word in text.split(" ") if word not in special) for text in texts]

    return read_all


def _trainer(spec: TokenizerSpec) -> Any:
    from tokenizers import pre_tokenizers, trainers

    common: dict[str, Any] = {
        "special_tokens": spec.special_tokens,
        "vocab_size": spec.vocab_size,
        "show_progress": False,
    }
    if spec.kind == "unigram":
        common["vocab_size"] -= len(tokenizer_kinds.BYTES)
        alphabet = tokenizer_kinds.PRINTABLE
        return trainers.UnigramTrainer(unk_token=spec.unk_token, initial_alphabet=alphabet, **common)
    if spec.kind == "bpe":
        common["initial_alphabet"] = pre_tokenizers.ByteLevel.alphabet()
        return trainers.BpeTrainer(min_frequency=spec.min_frequency, **common)
    return trainers.WordLevelTrainer(min_frequency=spec.min_frequency, **common)


def _train_wordpiece(read: Callable[[], Iterator[list[str]]], spec: TokenizerSpec) -> Tokenizer:
    """Train twice, first for the alphabet alone: the trainer numbers `##` letters at random and breaks ties by id."""
    from tokenizers import models, trainers

    def train(size: int, special_tokens: list[str]) -> dict[str, int]:
        options: dict[str, Any] = {"min_frequency": spec.min_frequency, "show_progress": False}
        trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=special_tokens, **options)
        return _run_trainer(read, spec, trainer).get_vocab()

    letters = [token for token in train(1, spec.special_tokens) if token not in spec.special_tokens]
    vocab = train(spec.vocab_size, spec.special_tokens + sorted(letters))
    if len(vocab) > spec.vocab_size:
        raise ValueError(
            f"vocab_size {spec.vocab_size} is too small for wordpiece: {len(spec.special_tokens)} special tokens and "
            f"the {len(letters)} letters at the start and inside of words must fit; ask for more, or use kind='bpe'"
        )
    backend = spec.backend()
    backend.model = models.WordPiece(vocab, unk_token=spec.unk_token)
    return backend


def _run_trainer(read: Callable[[], Iterator[list[str]]], spec: TokenizerSpec, trainer: Any) -> Tokenizer:
    backend = spec.backend()
    try:
        backend.train_from_iterator(read(), trainer)
    except Exception as problem:  # the library raises no narrower one
        if "not large enough" not in str(problem):
            raise
        raise ValueError(
            f"vocab_size {spec.vocab_size} is too small for {spec.kind}: 256 bytes, {len(spec.special_tokens)} special "
            "tokens and every character of the corpus must fit; ask for more, or use kind='bpe'"
        ) from None
    return backend


def _wrap(backend: Tokenizer, template: str, model_max_length: int | None) -> PreTrainedTokenizerFast:
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    special_tokens, parts = _SPECIAL_TOKENS[template], TEMPLATES[template]
    used = [(token, backend.token_to_id(token)) for token in special_tokens.values() if token in parts["pair"]]
    backend.post_processor = TemplateProcessing(special_tokens=used, **parts)
    names = ["input_ids", "token_type_ids", "attention_mask"] if template == "bert" else ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_input_names=names,
        clean_up_tokenization_spaces=False,
        **{f"{role}_token": token for role, token in special_tokens.items()},
        **({} if model_max_length is None else {"model_max_length": model_max_length}),
    )


def _train_split(corpus: Any) -> Any:
    if isinstance(corpus, dict):
        if "train" not in corpus:
            raise ValueError(f"a tokenizer learns from the split 'train' alone; the corpus has {', '.join(corpus)}")
        return corpus["train"]
    if isinstance(corpus, str):
        raise TypeError(f"corpus is the text {corpus[:40]!r}; pass load_corpus(...) or a list of texts")
    return corpus


def _text_columns(data: Any, columns: Iterable[str] | None) -> list[str] | None:
    """The columns to train on; None where `data` is plain texts."""
    if not hasattr(data, "column_names"):
        return None
    available = column_names(data)
    names = list(columns) if columns is not None else [name for name in _TEXT_COLUMNS if name in available]
    missing = [name for name in names if name not in available]
    if missing or not names:
        lacking = missing[0] if missing else "any column of text"
        raise ValueError(f"the corpus has no {lacking!r}; it has {', '.join(available)}; pass columns=[...]")
    return names


def _texts(data: Any, names: list[str] | None, rows: int = 1_000) -> Iterator[list[str]]:
    if names is None:
        yield from ([text] for text in data)
        return
    for batch in data.select_columns(names).iter(batch_size=rows):
        for value in (value for name in names for value in batch[name] if value is not None):
            yield [value] if isinstance(value, str) else list(value)


def _template(task: str | None, rung: str | None, names: list[str] | None) -> str:
    templates = {row.name: row.tokenizer for row in LADDER if row.tokenizer is not None}
    if rung is not None and rung not in templates:
        raise ValueError(f"rung must be one of {', '.join(templates)}; got {rung!r}")
    if task is not None and task not in TEMPLATES:
        raise ValueError(f"task must be one of {', '.join(TEMPLATES)}; got {task!r}")
    if task is not None and rung is not None and templates[rung] != task:
        raise ValueError(f"rung {rung!r} has the task {templates[rung]!r}, but got task={task!r}; give one of them")
    if rung is not None:
        return templates[rung]
    if task is not None:
        return task
    return "seq2seq" if {"source", "target"} <= set(names or ()) else "language_modeling"
