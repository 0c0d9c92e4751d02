"""Train a tokenizer on a corpus: five kinds, the special tokens of each rung, plain files that `AutoTokenizer` loads.

| kind      | a token is                                        | decode gives back                            |
|-----------|---------------------------------------------------|----------------------------------------------|
| bpe       | bytes, merged by frequency (GPT-2's way)          | every text, exactly                          |
| unigram   | a likely piece of text (SentencePiece's way)      | every text, but a space at its very start    |
| wordpiece | a word or `##` piece of one (BERT's way)          | the known words, one space between           |
| word      | a word or a mark, with the space before it        | every text of known words, as unigram        |
| char      | a character                                       | every text of known characters               |

All but wordpiece compose characters first (NFC). `normalise` says it all in code: decode(encode(text)) ==
normalise(text, tokenizer).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import tokenizer_kinds
from .cache import build_once, cache_folder, code_version, content_of, fingerprint

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

KINDS = ("wordpiece", "bpe", "unigram", "word", "char")

# What stands around a text, by task. Pairs: `$B` is the second text, `:1` its segment id.
TEMPLATES = {
    # A prompt must stay open for generation, so nothing follows it; `language_modeling.py` sets the end of documents.
    "language_modeling": {"single": "<s> $A", "pair": "<s> $A <sep> $B:1"},
    # The decoder starts from <s>, which the model puts before the labels: neither side carries it.
    "seq2seq": {"single": "$A </s>", "pair": "$A </s> $B:1 </s>:1"},
    "bert": {"single": "[CLS] $A [SEP]", "pair": "[CLS] $A [SEP] $B:1 [SEP]:1"},
}
SPECIAL_TOKENS = {
    "language_modeling": {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>", "sep": "<sep>"},
    "seq2seq": {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>"},
    "bert": {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"},
}
RUNGS = {
    "feedforward": "language_modeling",
    "recurrent": "language_modeling",
    "seq2seq": "seq2seq",
    "bahdanau": "seq2seq",
    "transformer": "seq2seq",
    "gpt": "language_modeling",
    "bert": "bert",
}
SMALLEST = {"bpe": 256, "unigram": 256}
TEXT_COLUMNS = ("source", "target", "text", "text_pair", "sentences", "tokens", "context", "question", "choices")


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
    """Learn a vocabulary from the train split of `corpus`, or from an iterable of texts.

    Args:
        joint: One vocabulary for source and target. False gives two tokenizers, (source, target).
        rung: Name of the rung that the tokenizer is for; decides the special tokens and what is set around a text.
        task: The same by task: language_modeling, seq2seq or bert. Default: seq2seq where there is source and target.
        columns: Columns to learn from; default every column of text.
        min_frequency: How often a word or a merge must be seen.
        cache_dir: Where a vocabulary is kept, so that the same texts give it again.
    """
    recipe = Recipe(kind, vocab_size, lowercase, _task(task, rung, corpus, columns), min_frequency)
    recipe.check()
    data = _train_split(corpus)
    names = _text_columns(data, columns)
    if joint:
        return _wrap(_learn_once(data, names, recipe, cache_dir), recipe.task, model_max_length)
    if not {"source", "target"} <= set(names or ()):
        raise ValueError(
            f"joint=False needs the columns 'source' and 'target'; the corpus has {names or 'plain texts'}"
        )
    sides = [_learn_once(data, [name], recipe, cache_dir) for name in ("source", "target")]
    return tuple(_wrap(side, recipe.task, model_max_length) for side in sides)


@dataclass(frozen=True)
class Recipe:
    """All that decides a vocabulary, beside the texts."""

    kind: str
    vocab_size: int
    lowercase: bool
    task: str
    min_frequency: int

    def check(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {self.kind!r}")
        if not isinstance(self.vocab_size, int) or self.vocab_size < 1:
            raise ValueError(f"vocab_size must be a whole number above 0, got {self.vocab_size!r}")
        least = len(SPECIAL_TOKENS[self.task]) + SMALLEST.get(self.kind, 0)
        if self.vocab_size <= least:
            raise ValueError(f"vocab_size {self.vocab_size} is too small for {self.kind}: it needs more than {least}")
        if self.kind == "unigram" and self.min_frequency != 1:
            raise ValueError(f"unigram prunes by likelihood and has no min_frequency, got {self.min_frequency}")

    @property
    def specials(self) -> list[str]:
        return list(SPECIAL_TOKENS[self.task].values())

    @property
    def unknown(self) -> str:
        return SPECIAL_TOKENS[self.task]["unk"]


def _learn_once(data: Any, names: list[str] | None, recipe: Recipe, cache_dir: Any) -> Tokenizer:
    """Learn, or find what was learned from the same texts: a second run has the same ids, and has them at once."""
    import tokenizers

    if names is not None and not hasattr(data, "__len__"):
        return _learn(lambda: _texts(data, names), recipe)  # a stream has no content to be found by
    if names is None:
        data = list(data)  # it is read twice
    content = fingerprint(data) if names is None else content_of(data, names)
    code = code_version(sys.modules[__name__], tokenizer_kinds)
    key = fingerprint(content, asdict(recipe), tokenizers.__version__, code)

    def build(folder: Path) -> None:
        _learn(lambda: _texts(data, names), recipe).save(str(folder / "tokenizer.json"))

    folder = build_once(cache_folder(cache_dir) / "tokenizers" / key, build)
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


def _learn(read: Callable[[], Iterator[list[str]]], recipe: Recipe) -> Tokenizer:
    if recipe.kind == "char" and recipe.task == "language_modeling":
        read = _with_line_ends(read, recipe.min_frequency)
    if recipe.kind == "wordpiece":
        backend = _train_wordpiece(read, recipe)
    else:
        backend = _train(read, recipe, _trainer(recipe))
    if backend.get_vocab_size() <= len(recipe.specials):
        raise ValueError("the corpus has no text to learn a vocabulary from; check its train split and columns")
    return tokenizer_kinds.with_bytes(backend, recipe.unknown) if recipe.kind == "unigram" else backend


def _with_line_ends(read: Callable[[], Iterator[list[str]]], times: int) -> Callable[[], Iterator[list[str]]]:
    """Rows have no line ends inside, but a model of running text, character by character, meets them between rows."""

    def read_on() -> Iterator[list[str]]:
        has_text = False
        for texts in read():
            has_text = True
            yield texts
        if has_text:
            yield ["\n"] * times

    return read_on


def _trainer(recipe: Recipe) -> Any:
    from tokenizers import pre_tokenizers, trainers

    common = {"special_tokens": recipe.specials, "vocab_size": recipe.vocab_size, "show_progress": False}
    if recipe.kind == "unigram":
        common["vocab_size"] -= len(tokenizer_kinds.BYTES)
        alphabet = tokenizer_kinds.printable()
        return trainers.UnigramTrainer(unk_token=recipe.unknown, initial_alphabet=alphabet, **common)
    if recipe.kind == "bpe":
        common["initial_alphabet"] = pre_tokenizers.ByteLevel.alphabet()
        return trainers.BpeTrainer(min_frequency=recipe.min_frequency, **common)
    return trainers.WordLevelTrainer(min_frequency=recipe.min_frequency, **common)


def _train_wordpiece(read: Callable[[], Iterator[list[str]]], recipe: Recipe) -> Tokenizer:
    """Train twice, first for the letters alone: the trainer numbers `##` letters by chance, and ties follow numbers."""
    from tokenizers import models, trainers

    def train(size: int, first: list[str]) -> dict[str, int]:
        options = {"min_frequency": recipe.min_frequency, "show_progress": False}
        trainer = trainers.WordPieceTrainer(vocab_size=size, special_tokens=first, **options)
        return _train(read, recipe, trainer).get_vocab()

    letters = [token for token in train(1, recipe.specials) if token not in recipe.specials]
    vocab = train(recipe.vocab_size, recipe.specials + sorted(letters))
    if len(vocab) > recipe.vocab_size:
        raise ValueError(
            f"vocab_size {recipe.vocab_size} is too small for wordpiece: {len(recipe.specials)} special tokens and the "
            f"{len(letters)} letters at the start and inside of words must fit; ask for more, or use kind='bpe'"
        )
    backend = tokenizer_kinds.BACKENDS["wordpiece"](recipe.unknown, recipe.lowercase)
    backend.model = models.WordPiece(vocab, unk_token=recipe.unknown)
    return backend


def _train(read: Callable[[], Iterator[list[str]]], recipe: Recipe, trainer: Any) -> Tokenizer:
    backend = tokenizer_kinds.BACKENDS[recipe.kind](recipe.unknown, recipe.lowercase)
    try:
        backend.train_from_iterator(read(), trainer)
    except Exception as problem:  # the library raises no narrower one
        if "not large enough" not in str(problem):
            raise
        raise ValueError(
            f"vocab_size {recipe.vocab_size} is too small for {recipe.kind}: 256 bytes, {len(recipe.specials)} special "
            "tokens and every character of the corpus must fit; ask for more, or use kind='bpe'"
        ) from None
    return backend


def _wrap(backend: Tokenizer, task: str, model_max_length: int | None) -> PreTrainedTokenizerFast:
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    specials, template = SPECIAL_TOKENS[task], TEMPLATES[task]
    used = [(token, backend.token_to_id(token)) for token in specials.values() if token in template["pair"]]
    backend.post_processor = TemplateProcessing(special_tokens=used, **template)
    names = ["input_ids", "token_type_ids", "attention_mask"] if task == "bert" else ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_input_names=names,
        clean_up_tokenization_spaces=False,
        **{f"{role}_token": token for role, token in specials.items()},
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
    if not hasattr(data, "column_names"):
        return None
    there = data.column_names or list(next(iter(data)))
    names = list(columns) if columns is not None else [name for name in TEXT_COLUMNS if name in there]
    missing = [name for name in names if name not in there]
    if missing or not names:
        wanted = missing[0] if missing else "any column of text"
        raise ValueError(f"the corpus has no {wanted!r}; it has {', '.join(there)}; pass columns=[...]")
    return names


def _texts(data: Any, names: list[str] | None, rows: int = 1_000) -> Iterator[list[str]]:
    if names is None:
        yield from ([text] for text in data)
        return
    view = data.select_columns(names)
    for batch in view.iter(batch_size=rows):
        for name in names:
            for value in batch[name]:
                if value is None:
                    continue
                yield [value] if isinstance(value, str) else list(value)


def _task(task: str | None, rung: str | None, corpus: Any, columns: Iterable[str] | None) -> str:
    if rung is not None and rung not in RUNGS:
        raise ValueError(f"rung must be one of {', '.join(RUNGS)}; got {rung!r}")
    if task is not None and task not in TEMPLATES:
        raise ValueError(f"task must be one of {', '.join(TEMPLATES)}; got {task!r}")
    if task and rung and RUNGS[rung] != task:
        raise ValueError(f"rung {rung!r} has the task {RUNGS[rung]!r}, but task={task!r} was given; give one of them")
    if task or rung:
        return task or RUNGS[rung]
    names = _text_columns(_train_split(corpus), columns)
    return "seq2seq" if {"source", "target"} <= set(names or ()) else "language_modeling"
