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

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .tokenizer_kinds import BACKENDS, BYTES, printable, with_bytes

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
) -> PreTrainedTokenizerFast | tuple[PreTrainedTokenizerFast, PreTrainedTokenizerFast]:
    """Learn a vocabulary from the train split of `corpus`, or from an iterable of texts.

    Args:
        joint: One vocabulary for source and target. False gives two tokenizers, (source, target).
        rung: Name of the rung that the tokenizer is for; decides the special tokens and what is set around a text.
        task: The same by task: language_modeling, seq2seq or bert. Default: seq2seq where there is source and target.
        columns: Columns to learn from; default every column of text.
        min_frequency: How often a word or a merge must be seen.
    """
    _check_kind(kind, vocab_size)
    data = _train_split(corpus)
    names = _text_columns(data, columns)
    task = _task(task, rung, names)
    if not joint:
        if not {"source", "target"} <= set(names or ()):
            raise ValueError(
                f"joint=False needs the columns 'source' and 'target'; the corpus has {names or 'plain texts'}"
            )
        sides = [
            _train(_texts(data, [name]), kind, vocab_size, lowercase, task, min_frequency)
            for name in ("source", "target")
        ]
        return tuple(_wrap(side, task, model_max_length) for side in sides)
    backend = _train(_texts(data, names), kind, vocab_size, lowercase, task, min_frequency)
    return _wrap(backend, task, model_max_length)


def _train(texts: Iterator[list[str]], kind: str, vocab_size: int, lowercase: bool, task: str, min_frequency: int):
    from tokenizers import trainers

    specials = SPECIAL_TOKENS[task]
    backend = BACKENDS[kind](specials["unk"], lowercase)
    names = list(specials.values())
    if vocab_size <= len(names) + SMALLEST.get(kind, 0):
        raise ValueError(
            f"vocab_size {vocab_size} is too small for {kind}: it needs more than {len(names) + SMALLEST.get(kind, 0)}"
        )
    common = {"special_tokens": names, "vocab_size": vocab_size, "show_progress": False}
    if kind == "unigram":
        common["vocab_size"] -= len(BYTES)
        trainer = trainers.UnigramTrainer(unk_token=specials["unk"], initial_alphabet=printable(), **common)
    elif kind == "bpe":
        from tokenizers.pre_tokenizers import ByteLevel

        trainer = trainers.BpeTrainer(initial_alphabet=ByteLevel.alphabet(), min_frequency=min_frequency, **common)
    elif kind == "wordpiece":
        trainer = trainers.WordPieceTrainer(min_frequency=min_frequency, **common)
    else:
        trainer = trainers.WordLevelTrainer(min_frequency=min_frequency, **common)
    try:
        backend.train_from_iterator(texts, trainer)
    except Exception as problem:  # the library raises no narrower one
        if "not large enough" not in str(problem):
            raise
        raise ValueError(
            f"vocab_size {vocab_size} is too small for {kind}: 256 bytes, {len(names)} special tokens and "
            "every character of the corpus must fit; ask for more, or use kind='bpe'"
        ) from None
    _check_learned(backend, names)
    return with_bytes(backend, specials["unk"]) if kind == "unigram" else backend


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


def _task(task: str | None, rung: str | None, names: list[str] | None) -> str:
    if rung is not None and rung not in RUNGS:
        raise ValueError(f"rung must be one of {', '.join(RUNGS)}; got {rung!r}")
    if task is not None and task not in TEMPLATES:
        raise ValueError(f"task must be one of {', '.join(TEMPLATES)}; got {task!r}")
    if task and rung and RUNGS[rung] != task:
        raise ValueError(f"rung {rung!r} has the task {RUNGS[rung]!r}, but task={task!r} was given; give one of them")
    default = "seq2seq" if {"source", "target"} <= set(names or ()) else "language_modeling"
    return task or RUNGS.get(rung) or default


def _check_kind(kind: str, vocab_size: int) -> None:
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(KINDS)}; got {kind!r}")
    if not isinstance(vocab_size, int) or vocab_size < 1:
        raise ValueError(f"vocab_size must be a whole number above 0, got {vocab_size!r}")


def _check_learned(backend: Tokenizer, specials: list[str]) -> None:
    if backend.get_vocab_size() <= len(specials):
        raise ValueError("the corpus has no text to learn a vocabulary from; check its train split and columns")
