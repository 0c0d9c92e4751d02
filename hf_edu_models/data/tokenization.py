"""Train a tokenizer on a corpus: five kinds, the special tokens of each rung, plain files that `AutoTokenizer` loads.

| kind      | a token is                                        | decode gives back                            |
|-----------|---------------------------------------------------|----------------------------------------------|
| bpe       | bytes, merged by frequency (GPT-2's way)          | every text, exactly                          |
| unigram   | a likely piece of text (SentencePiece's way)      | every text, but a space at its very start    |
| wordpiece | a word or `##` piece of one (BERT's way)          | the known words, one space between           |
| word      | a word or a mark, with the space before it        | every text of known words, as unigram        |
| char      | a character                                       | every text of known characters               |

`normalise` says it in code: decode(encode(text)) == normalise(text, tokenizer).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

KINDS = ("wordpiece", "bpe", "unigram", "word", "char")
SPACE_MARK = "▁"
BYTES = [f"<0x{number:02X}>" for number in range(256)]

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
            raise ValueError(f"joint=False needs the columns 'source' and 'target'; the corpus has {names or 'plain texts'}")
        sides = [_train(_texts(data, [name]), kind, vocab_size, lowercase, task, min_frequency) for name in ("source", "target")]
        return tuple(_wrap(side, task, model_max_length) for side in sides)
    backend = _train(_texts(data, names), kind, vocab_size, lowercase, task, min_frequency)
    return _wrap(backend, task, model_max_length)


def normalise(text: str, tokenizer: PreTrainedTokenizerFast) -> str:
    """What `decode(encode(text))` gives back, unknown words and characters left out, spelled out without encoding."""
    specials = sorted(tokenizer.all_special_tokens, key=len, reverse=True)
    # A special token written out in a text is that token; decode leaves it out.
    parts = re.split("|".join(map(re.escape, specials)), text)
    backend = tokenizer.backend_tokenizer
    parts = [backend.normalizer.normalize_str(part) if backend.normalizer else part for part in parts]
    return _REBUILD[kind_of(tokenizer)](parts, tokenizer)


def kind_of(tokenizer: PreTrainedTokenizerFast) -> str:
    """Which of the five kinds a tokenizer is, read from what it is made of."""
    backend = tokenizer.backend_tokenizer
    name = type(backend.model).__name__
    if name == "WordLevel":
        return "char" if type(backend.decoder).__name__ == "Fuse" else "word"
    return {"WordPiece": "wordpiece", "BPE": "bpe", "Unigram": "unigram"}[name]


def continuation_table(tokenizer: PreTrainedTokenizerFast) -> list[bool]:
    """For every token id, whether the token continues the word before it: what whole-word masking asks."""
    starts = {"wordpiece": None, "bpe": "Ġ", "unigram": SPACE_MARK, "word": ""}
    kind = kind_of(tokenizer)
    if kind not in starts:
        raise ValueError(f"a {kind} tokenizer does not know where words begin; use one of {', '.join(starts)}")
    table = [False] * len(tokenizer)
    for token, number in tokenizer.get_vocab().items():
        table[number] = token.startswith("##") if kind == "wordpiece" else not token.startswith(starts[kind])
    for number in tokenizer.all_special_ids:
        table[number] = False
    return table


def _train(texts: Iterator[list[str]], kind: str, vocab_size: int, lowercase: bool, task: str, min_frequency: int):
    from tokenizers import trainers

    specials = SPECIAL_TOKENS[task]
    backend = _BACKENDS[kind](specials["unk"], lowercase)
    names = list(specials.values())
    if vocab_size <= len(names) + SMALLEST.get(kind, 0):
        raise ValueError(
            f"vocab_size {vocab_size} is too small for {kind}: it needs more than {len(names) + SMALLEST.get(kind, 0)}"
        )
    common = {"special_tokens": names, "vocab_size": vocab_size, "show_progress": False}
    if kind == "unigram":
        common["vocab_size"] -= len(BYTES)
        trainer = trainers.UnigramTrainer(unk_token=specials["unk"], initial_alphabet=_printable(), **common)
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
            f"vocab_size {vocab_size} is too small for {kind}: 256 bytes, {len(names)} special tokens and every character "
            "of the corpus must fit; ask for more, or use kind='bpe'"
        ) from None
    _check_learned(backend, names)
    return _with_bytes(backend, specials["unk"]) if kind == "unigram" else backend


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


def _normalizer(lowercase: bool):
    from tokenizers import normalizers

    return normalizers.Sequence([normalizers.NFC(), *([normalizers.Lowercase(), normalizers.NFC()] if lowercase else [])])


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


_BACKENDS = {"wordpiece": _wordpiece, "bpe": _bpe, "unigram": _unigram, "word": _word, "char": _char}


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


def _with_bytes(backend: Tokenizer, unk: str) -> Tokenizer:
    """Add the 256 bytes, so that a character never seen is written by its bytes and not lost."""
    import json

    from tokenizers import models

    vocab = [tuple(each) for each in json.loads(backend.to_str())["model"]["vocab"]]
    lowest = min(score for _, score in vocab) - 100.0
    unk_id = [token for token, _ in vocab].index(unk)
    backend.model = models.Unigram([*vocab, *((token, lowest) for token in BYTES)], unk_id=unk_id, byte_fallback=True)
    return backend


def _printable() -> list[str]:
    return [chr(number) for number in range(0x21, 0x7F)] + [SPACE_MARK]


def _rebuild_exact(parts: list[str], tokenizer: PreTrainedTokenizerFast) -> str:
    return "".join(parts)


def _rebuild_spaces(parts: list[str], tokenizer: PreTrainedTokenizerFast) -> str:
    return "".join(parts).replace(SPACE_MARK, " ").removeprefix(" ")


def _rebuild_chars(parts: list[str], tokenizer: PreTrainedTokenizerFast) -> str:
    known = tokenizer.get_vocab()
    return "".join(character for character in "".join(parts) if character in known)


def _rebuild_words(parts: list[str], tokenizer: PreTrainedTokenizerFast) -> str:
    known = tokenizer.get_vocab()
    split = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str
    words = []
    for place, part in enumerate(parts):
        found = [word for word, _ in split(part)]
        if place and found and not part.startswith((" ", SPACE_MARK)):
            found[0] = found[0].removeprefix(SPACE_MARK)  # only the very first word gets a mark that was not there
        words += found
    return "".join(word for word in words if word in known).replace(SPACE_MARK, " ").removeprefix(" ")


def _rebuild_wordpieces(parts: list[str], tokenizer: PreTrainedTokenizerFast) -> str:
    backend = tokenizer.backend_tokenizer
    words = [word for part in parts for word, _ in backend.pre_tokenizer.pre_tokenize_str(part)]
    known = [word for word in words if _is_spellable(word, backend)]
    return " ".join(known)


def _is_spellable(word: str, backend: Tokenizer) -> bool:
    """Whether pieces of the vocabulary cover a word, the longest first, as WordPiece takes them."""
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
    "bpe": _rebuild_exact,
    "unigram": _rebuild_spaces,
    "char": _rebuild_chars,
    "word": _rebuild_words,
    "wordpiece": _rebuild_wordpieces,
}


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
