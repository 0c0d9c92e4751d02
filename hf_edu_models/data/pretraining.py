"""Sentence pairs for BERT's next sentence prediction (NSP). `masking.py` masks their tokens during training.

Paper: Devlin et al. 2019, arXiv:1810.04805, Section 3.1 and Appendix A.1, A.2.
Differs from the authors' code: pairs are masked during training, not ten times beforehand; the shorter length is drawn
per pair, not per document; the last sentence of a document is used as a second segment only, so that half of the pairs
are next, as the paper says; with several corpora, a random segment comes from the same corpus.
"""

from __future__ import annotations

import bisect
import os
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .cache import (
    build_once,
    cache_folder,
    code_version,
    content_of,
    fingerprint,
    rebuild_damaged,
    tokenizer_content,
    worker_count,
)
from .columns import by_split, is_stream, read_column
from .sentences import cut_sentences
from .streaming import SmallChunkError, StreamedExamples

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

IS_NEXT, IS_RANDOM = 0, 1  # as in BertForNextSentencePrediction
_SENTENCES_AT_ONCE = 2_000
_ARRAYS = ("tokens", "sentences", "documents", "corpora")
Span = tuple[int, int]  # first token, token after the last one


@rebuild_damaged
@by_split
def build_nsp_pairs(
    corpus: Any,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_length: int = 128,
    short_probability: float = 0.1,
    random_probability: float = 0.5,
    repeats: int = 1,
    split_sentences: bool = False,
    seed: int = 0,
    num_proc: int | None = None,
    cache_dir: str | os.PathLike | None = None,
) -> Any:
    """Pairs of segments from documents: `input_ids`, `token_type_ids`, `next_sentence_label` (0 next, 1 random).

    Of a stream: `StreamedExamples`, whose pairs are other ones in every epoch.

    Args:
        corpus: Rows of `text` with their `document`, in order; rows of `sentences`; or lines with an empty line between
            documents. With a column `corpus`, random segments are from the same corpus. A DatasetDict: every split.
        short_probability: Share of pairs with a random shorter length, so that the model sees short sequences too.
        repeats: How many times each document is split into pairs, each time differently.
        split_sentences: Whether rows are paragraphs, which are split into sentences first.
    """
    settings: dict[str, Any] = {"max_length": max_length, "repeats": repeats, "seed": seed}
    settings |= {"short_probability": short_probability, "random_probability": random_probability}
    _check_settings(settings, tokenizer)
    columns = [name for name in ("corpus", "document", "text", "sentences") if name in corpus.column_names]
    if is_stream(corpus):
        return _build_lazily(corpus.select_columns(columns), tokenizer, split_sentences, settings)
    content = content_of(corpus, columns), tokenizer_content(tokenizer)
    key = fingerprint(*content, settings, split_sentences, code_version(__name__))

    def build(folder: Path) -> None:
        for name, array in _tokenize(corpus, tokenizer, split_sentences).items():
            np.save(folder / f"{name}.npy", array)
        _write_pairs(folder, tokenizer, settings, num_proc)

    import datasets

    folder = build_once(cache_folder(cache_dir) / "nsp" / key, build)
    return datasets.load_from_disk(str(folder / "pairs"))


class PairBuilder:
    """Splits documents into pairs.

    Args:
        tokens: The folder of `_tokenize`'s arrays, memory-mapped so that worker processes share them, or the arrays.
    """

    def __init__(self, tokens: Path | dict[str, np.ndarray], tokenizer: Any, settings: dict[str, Any]):
        self.cls_id, self.sep_id, self.settings = tokenizer.cls_token_id, tokenizer.sep_token_id, settings
        self.max_tokens = settings["max_length"] - 3  # [CLS], [SEP], [SEP]
        self.tokens = tokens
        self._arrays: tuple[np.ndarray, ...] | None = None
        self._candidates: dict[int, np.ndarray] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_arrays": None, "_candidates": {}}

    def __call__(self, batch: Mapping[str, Sequence[int] | np.ndarray]) -> dict[str, list]:
        rows: dict[str, list] = {"input_ids": [], "token_type_ids": [], "next_sentence_label": []}
        for document, repeat in zip(batch["document"], batch["repeat"], strict=True):
            # One generator per document: the result does not depend on the number of processes.
            rng = random.Random(f"{self.settings['seed']}-{repeat}-{document}")
            for first, second, label in self._pairs(document, rng):
                input_ids, token_type_ids = self._encode(first, second, rng)
                rows["input_ids"].append(input_ids)
                rows["token_type_ids"].append(token_type_ids)
                rows["next_sentence_label"].append(label)
        return rows

    def _open(self) -> tuple[np.ndarray, ...]:
        """Token ids, the first token of every sentence, the first sentence of every document, the corpus of each."""
        if self._arrays is None:
            if isinstance(self.tokens, dict):
                arrays = list(self.tokens.values())
            else:
                files = [self.tokens / f"{name}.npy" for name in _ARRAYS]
                arrays = [np.asarray(np.load(file, mmap_mode="r")) for file in files]
            self._arrays = tuple(arrays)
        return self._arrays

    def _pairs(self, document: int, rng: random.Random) -> Iterator[tuple[Span, Span, int]]:
        """The two segments and the label of every pair, from the start of a document to its end."""
        _, sentences, documents, _ = self._open()
        position, last = int(documents[document]), int(documents[document + 1])
        while position < last - 1:
            is_short = rng.random() < self.settings["short_probability"]
            length = rng.randint(2, self.max_tokens) if is_short else self.max_tokens
            end = self._segment_end(position, length, last, min_sentences=2)
            border = rng.randint(position + 1, end - 1)
            first = int(sentences[position]), int(sentences[border])
            if rng.random() < self.settings["random_probability"]:
                second = self._random_segment(document, length - (first[1] - first[0]), rng)
                position, label = border, IS_RANDOM  # the sentences after the border are still unused
            else:
                second = int(sentences[border]), int(sentences[end])
                position, label = end, IS_NEXT
            yield first, second, label

    def _segment_end(self, position: int, length: int, last: int, min_sentences: int) -> int:
        """The sentence after the one with which a segment from `position` has `length` tokens."""
        _, sentences, _, _ = self._open()
        end = bisect.bisect_left(sentences, sentences[position] + length, position + 1, last)
        return min(max(end, position + min_sentences), last)

    def _random_segment(self, document: int, length: int, rng: random.Random) -> Span:
        """A segment that starts at any sentence of any *other* document of the same corpus.

        A speech and a review are told apart by their style: from another corpus, the pair would be too easy.
        """
        _, sentences, documents, _ = self._open()
        candidates = self._same_corpus(document)
        index = rng.randrange(len(candidates) - 1)
        other = int(candidates[index + (index >= bisect.bisect_left(candidates, document))])
        last = int(documents[other + 1])
        start = rng.randrange(int(documents[other]), last)
        return int(sentences[start]), int(sentences[self._segment_end(start, length, last, min_sentences=1)])

    def _same_corpus(self, document: int) -> np.ndarray:
        """All documents of the same corpus; all documents where it is the only one of its corpus."""
        _, _, _, corpora = self._open()
        corpus = int(corpora[document])
        if corpus not in self._candidates:
            found = np.flatnonzero(corpora == corpus)
            self._candidates[corpus] = found if len(found) > 1 else np.arange(len(corpora))
        return self._candidates[corpus]

    def _encode(self, first: Span, second: Span, rng: random.Random) -> tuple[np.ndarray, np.ndarray]:
        """`input_ids` and `token_type_ids` of [CLS] first [SEP] second [SEP], truncated to the maximum length."""
        tokens, _, _, _ = self._open()
        lengths = truncate_pair(first[1] - first[0], second[1] - second[0], self.max_tokens)
        first, second = (_truncate(*pair, rng) for pair in zip((first, second), lengths, strict=True))
        parts = [self.cls_id], tokens[slice(*first)], [self.sep_id], tokens[slice(*second)], [self.sep_id]
        input_ids = np.concatenate(parts, dtype=np.int32)
        token_type_ids = (np.arange(len(input_ids)) >= lengths[0] + 2).astype(np.int8)
        return input_ids, token_type_ids


def truncate_pair(first: int, second: int, max_tokens: int) -> tuple[int, int]:
    """Lengths after removing tokens one by one from the longer segment, from the second where they are equal."""
    while first + second > max_tokens:
        excess = first + second - max_tokens
        if first == second:
            return first - excess // 2, second - (excess - excess // 2)
        step = min(excess, abs(first - second))
        first, second = (first - step, second) if first > second else (first, second - step)
    return first, second


def _truncate(span: Span, length: int, rng: random.Random) -> Span:
    """Remove each token in excess from the front or the back, at random."""
    excess = span[1] - span[0] - length
    start = span[0] + (rng.getrandbits(excess).bit_count() if excess else 0)
    return start, start + length


def _tokenize(corpus: Any, tokenizer: PreTrainedTokenizerBase, split_sentences: bool) -> dict[str, np.ndarray]:
    """Token ids, and where sentences and documents start in them; the corpus of each document."""
    sentences, groups, corpora = _sentences_by_document(corpus, split_sentences)
    counted: list[int] = []
    chunks = []
    for start in range(0, len(sentences), _SENTENCES_AT_ONCE):
        encoded = tokenizer(
            sentences[start : start + _SENTENCES_AT_ONCE],
            add_special_tokens=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )["input_ids"]
        counted += map(len, encoded)
        chunks.append(np.fromiter((token for ids in encoded for token in ids), np.int32))
    lengths = np.asarray(counted, np.int64)
    has_tokens = lengths > 0  # a sentence of control characters only has none
    used, documents = np.unique(np.asarray(groups, np.int64)[has_tokens], return_inverse=True)
    counts = np.bincount(documents) if len(documents) else np.zeros(0, np.int64)
    if len(counts) < 2 or counts.max() < 2:
        raise SmallChunkError(
            f"next sentence prediction needs two documents or more, one of them of two sentences or more; found "
            f"{len(counts)} document(s) and {int(has_tokens.sum())} sentence(s)"
        )
    starts = [np.concatenate([[0], np.cumsum(each)]) for each in (lengths[has_tokens], counts)]
    return dict(zip(_ARRAYS, (np.concatenate(chunks), *starts, np.asarray(corpora, np.int64)[used]), strict=True))


def _sentences_by_document(corpus: Any, split_sentences: bool) -> tuple[list[str], list[int], list[int]]:
    """All sentences, grouped by document and in order; the document of each sentence; the corpus of each document."""
    names = corpus.column_names
    if "sentences" in names:
        groups, texts = [[row] for row in range(len(corpus))], read_column(corpus, "sentences")
    elif "text" in names:
        groups, texts = _rows_by_document(corpus), [[text] for text in read_column(corpus, "text")]
    else:
        raise ValueError(f"pairs are built from 'text' or 'sentences'; the corpus has {', '.join(names)}")
    sentences, documents = [], []
    for number, rows in enumerate(groups):
        found = [text for row in rows for text in texts[row]]
        found = [sentence for text in found for sentence in cut_sentences(text)] if split_sentences else found
        found = [text for text in found if text and not text.isspace()]
        sentences += found
        documents += [number] * len(found)
    corpora = read_column(corpus, "corpus") if "corpus" in names else [0] * len(corpus)
    return sentences, documents, [corpora[rows[0]] for rows in groups]


def _rows_by_document(corpus: Any) -> list[list[int]]:
    if "document" in corpus.column_names:
        documents = read_column(corpus, "document")
    else:  # an empty row ends a document
        has_text = np.array([bool(text) and not text.isspace() for text in read_column(corpus, "text")], bool)
        if has_text.all():
            raise SmallChunkError(
                "pairs need to know where documents end: give a column 'document', or an empty row between documents"
            )
        documents = np.where(has_text, np.cumsum(~has_text), -1).tolist()
    groups: dict[Any, list[int]] = {}
    for row, document in enumerate(documents):
        groups.setdefault(document, []).append(row)
    return list(groups.values())


def _write_pairs(folder: Path, tokenizer: Any, settings: dict[str, Any], num_proc: int | None) -> None:
    import datasets

    work = datasets.Dataset.from_dict(_work(np.load(folder / "documents.npy"), settings["repeats"]))
    features = datasets.Features(
        input_ids=datasets.List(datasets.Value("int32")),
        token_type_ids=datasets.List(datasets.Value("int8")),
        next_sentence_label=datasets.ClassLabel(names=["next", "random"]),
    )
    pairs = work.map(
        PairBuilder(folder, tokenizer, settings),
        batched=True,
        batch_size=200,
        num_proc=worker_count(num_proc, len(work)),
        remove_columns=work.column_names,
        features=features,
        cache_file_name=str(folder / "work.arrow"),
        new_fingerprint=folder.name.strip("."),
        desc="sentence pairs",
    )
    pairs.save_to_disk(str(folder / "pairs"))
    for file in [*folder.glob("work*.arrow"), *folder.glob("*.npy")]:
        file.unlink()


def _work(documents: np.ndarray, repeats: int) -> dict[str, np.ndarray]:
    """The documents to split into pairs, all of them `repeats` times."""
    count = len(documents) - 1
    numbers = np.arange(count * repeats)
    return {"document": numbers % count, "repeat": numbers // count}


def _build_lazily(corpus: Any, tokenizer: Any, split_sentences: bool, settings: dict[str, Any]) -> StreamedExamples:
    def encode(chunk: Any, seed: int) -> dict[str, list]:
        tokens = _tokenize(chunk, tokenizer, split_sentences)
        pairs = PairBuilder(tokens, tokenizer, settings | {"seed": settings["seed"] + seed})
        rows = pairs(_work(tokens["documents"], settings["repeats"]))
        return {name: [np.asarray(each).tolist() for each in column] for name, column in rows.items()}

    return StreamedExamples(corpus, encode)


def _check_settings(settings: dict[str, Any], tokenizer: PreTrainedTokenizerBase) -> None:
    if settings["max_length"] < 5:
        raise ValueError(f"max_length must leave a token for both segments: 5 or more, got {settings['max_length']}")
    for name in ("short_probability", "random_probability"):
        if not 0 <= settings[name] <= 1:
            raise ValueError(f"{name} must be from 0 to 1, got {settings[name]}")
    if settings["repeats"] < 1:
        raise ValueError(f"repeats must be 1 or more, got {settings['repeats']}")
    if tokenizer.cls_token_id is None or tokenizer.sep_token_id is None:
        raise ValueError("pairs need a tokenizer with [CLS] and [SEP]; train one with rung='bert'")
