"""BERT's pre-training data: sentence pairs for next sentence prediction. What is masked in them: `masking.py`.

Paper: Devlin et al. 2019, arXiv:1810.04805, Section 3.1 and Appendix A.1, A.2.
Differs from the authors' code: pairs are masked while training, not ten times beforehand; a shorter length is drawn for
a pair, not for a document; a last sentence without a next one serves only as somebody's second segment, so that half of
the pairs are next, as the paper says; where several corpora were joined, a random segment is from the same corpus.
"""

from __future__ import annotations

import bisect
import os
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from .cache import build_once, cache_folder, code_version, content_of, fingerprint, tokenizer_content
from .columns import check_in_memory, read_column

IS_NEXT, IS_RANDOM = 0, 1  # as in BertForNextSentencePrediction
ROWS = 2_000
SENTENCE = re.compile(r"\S.*?(?:[.!?。！？…]+[\"'”’»)\]]*(?=\s)|$)", re.DOTALL)  # noqa: RUF001


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

    Args:
        corpus: Rows of `text` with their `document`, in order; rows of `sentences`; or lines with an empty line between
            documents. With a column `corpus`, random segments are of the same one. A DatasetDict is built by split.
        short_probability: How many sequences aim at a random shorter length, so that the model sees short ones too.
        repeats: How many times each document is cut into pairs, each time elsewhere.
        split_sentences: Whether rows are paragraphs, to be cut at sentence ends first.
    """
    settings = {
        "max_length": max_length,
        "short_probability": short_probability,
        "random_probability": random_probability,
        "repeats": repeats,
        "seed": seed,
    }
    _check_settings(settings, tokenizer)
    if isinstance(corpus, dict):
        options = {"split_sentences": split_sentences, "num_proc": num_proc, "cache_dir": cache_dir}
        built = {split: build_nsp_pairs(dataset, tokenizer, **settings, **options) for split, dataset in corpus.items()}
        return type(corpus)(built)
    check_in_memory(corpus)
    columns = [name for name in ("corpus", "document", "text", "sentences") if name in corpus.column_names]
    key = fingerprint(
        content_of(corpus, columns),
        tokenizer_content(tokenizer),
        settings,
        split_sentences,
        code_version(_this_module()),
    )

    def build(folder: Path) -> None:
        _write_tokens(corpus, tokenizer, split_sentences, folder)
        _write_pairs(folder, tokenizer, settings, num_proc)

    import datasets

    folder = build_once(cache_folder(cache_dir) / "nsp" / key, build)
    return datasets.load_from_disk(str(folder / "pairs"))


class PairBuilder:
    """Cuts documents into pairs; token ids stay in files on disk, so workers share them and nothing is copied."""

    def __init__(self, folder: Path, cls_id: int, sep_id: int, settings: dict[str, Any]):
        self.folder, self.cls_id, self.sep_id, self.settings = folder, cls_id, sep_id, settings
        self.room = settings["max_length"] - 3  # [CLS], [SEP], [SEP]
        self._files: tuple | None = None
        self._peers: dict[int, np.ndarray] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_files": None, "_peers": {}}

    def open(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Token ids, the first token of every sentence, the first sentence of every document, the corpus of each."""
        if self._files is None:
            files = [self.folder / f"{name}.npy" for name in ("tokens", "sentences", "documents", "corpora")]
            self._files = tuple(np.asarray(np.load(file, mmap_mode="r")) for file in files)
        return self._files

    def __call__(self, batch: dict[str, list[int]]) -> dict[str, list]:
        rows: dict[str, list] = {"input_ids": [], "token_type_ids": [], "next_sentence_label": []}
        for document, repeat in zip(batch["document"], batch["repeat"], strict=True):
            # A generator a document: the result does not depend on how the work is shared out.
            rng = random.Random(f"{self.settings['seed']}-{repeat}-{document}")
            for first, second, label in self.spans(document, rng):
                input_ids, token_type_ids = self.join(first, second, rng)
                rows["input_ids"].append(input_ids)
                rows["token_type_ids"].append(token_type_ids)
                rows["next_sentence_label"].append(label)
        return rows

    def spans(self, document: int, rng: random.Random) -> Iterator[tuple[tuple[int, int], tuple[int, int], int]]:
        """First and last token of both segments, and the label, from the start of a document to its end."""
        _, sentences, documents, _ = self.open()
        position, last = int(documents[document]), int(documents[document + 1])
        while position < last - 1:
            wanted = self.wanted_length(rng)
            end = self.fill(position, wanted, last, at_least=2)
            border = rng.randint(position + 1, end - 1)
            first = int(sentences[position]), int(sentences[border])
            if rng.random() < self.settings["random_probability"]:
                second = self.elsewhere(document, wanted - (first[1] - first[0]), rng)
                position, label = border, IS_RANDOM  # what was not used is read again
            else:
                second = int(sentences[border]), int(sentences[end])
                position, label = end, IS_NEXT
            yield first, second, label

    def wanted_length(self, rng: random.Random) -> int:
        if rng.random() < self.settings["short_probability"]:
            return rng.randint(2, self.room)
        return self.room

    def fill(self, position: int, wanted: int, last: int, at_least: int) -> int:
        """The sentence after the one with which `wanted` tokens are reached."""
        _, sentences, _, _ = self.open()
        reached = bisect.bisect_left(sentences, sentences[position] + wanted, position + 1, last)
        return min(max(reached, position + at_least), last)

    def elsewhere(self, document: int, wanted: int, rng: random.Random) -> tuple[int, int]:
        """A span that starts at any sentence of any *other* document.

        Of several corpora, it comes from the same one: a speech and a review are told apart without reading on.
        """
        _, sentences, documents, _ = self.open()
        peers = self.peers(document)
        other = rng.randrange(len(peers) - 1)
        other = int(peers[other + (other >= bisect.bisect_left(peers, document))])
        last = int(documents[other + 1])
        start = rng.randrange(int(documents[other]), last)
        return int(sentences[start]), int(sentences[self.fill(start, wanted, last, at_least=1)])

    def peers(self, document: int) -> np.ndarray:
        """All documents of the same corpus, or all that there are where it is the only one of its corpus."""
        _, _, _, corpora = self.open()
        corpus = int(corpora[document])
        if corpus not in self._peers:
            found = np.flatnonzero(corpora == corpus)
            self._peers[corpus] = found if len(found) > 1 else np.arange(len(corpora))
        return self._peers[corpus]

    def join(
        self, first: tuple[int, int], second: tuple[int, int], rng: random.Random
    ) -> tuple[np.ndarray, np.ndarray]:
        """[CLS] first [SEP] second [SEP], cut to the length at the ends of the longer segment."""
        tokens, _, _, _ = self.open()
        keep_first, keep_second = share_room(first[1] - first[0], second[1] - second[0], self.room)
        left, right = self.cut(first, keep_first, rng), self.cut(second, keep_second, rng)
        input_ids = np.empty(keep_first + keep_second + 3, np.int32)
        input_ids[0], input_ids[keep_first + 1], input_ids[-1] = self.cls_id, self.sep_id, self.sep_id
        input_ids[1 : keep_first + 1] = tokens[left : left + keep_first]
        input_ids[keep_first + 2 : -1] = tokens[right : right + keep_second]
        token_type_ids = np.zeros(len(input_ids), np.int8)
        token_type_ids[keep_first + 2 :] = 1
        return input_ids, token_type_ids

    def cut(self, span: tuple[int, int], keep: int, rng: random.Random) -> int:
        """Where the kept tokens start: every token too many goes from the front or the back, by a coin."""
        excess = span[1] - span[0] - keep
        return span[0] + (rng.getrandbits(excess).bit_count() if excess else 0)


def share_room(first: int, second: int, room: int) -> tuple[int, int]:
    """Lengths after taking tokens one by one from the longer segment, from the second where they are equal."""
    while first + second > room:
        excess = first + second - room
        if first == second:
            return first - excess // 2, second - (excess - excess // 2)
        step = min(excess, abs(first - second))
        first, second = (first - step, second) if first > second else (first, second - step)
    return first, second


def _write_tokens(corpus: Any, tokenizer: PreTrainedTokenizerBase, split_sentences: bool, folder: Path) -> None:
    sentences, documents, corpora = _sentences_by_document(corpus, split_sentences)
    lengths, pieces = [], []
    for start in range(0, len(sentences), ROWS):
        encoded = tokenizer(
            sentences[start : start + ROWS],
            add_special_tokens=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )["input_ids"]
        lengths += map(len, encoded)
        pieces.append(np.fromiter((token for ids in encoded for token in ids), np.int32))
    lengths, documents = np.asarray(lengths, np.int64), np.asarray(documents, np.int64)
    spoken = lengths > 0  # a sentence of nothing but control characters has no token
    heard, documents = np.unique(documents[spoken], return_inverse=True)
    counts = np.bincount(documents) if len(documents) else np.zeros(0, np.int64)
    if len(counts) < 2 or counts.max() < 2:
        raise ValueError(
            f"next sentence prediction needs two documents or more, one of them of two sentences or more; found "
            f"{len(counts)} document(s) and {int(spoken.sum())} sentence(s)"
        )
    np.save(folder / "tokens.npy", np.concatenate(pieces))
    np.save(folder / "sentences.npy", np.concatenate([[0], np.cumsum(lengths[spoken])]))
    np.save(folder / "documents.npy", np.concatenate([[0], np.cumsum(counts)]))
    np.save(folder / "corpora.npy", np.asarray(corpora, np.int64)[heard])


def _sentences_by_document(corpus: Any, split_sentences: bool) -> tuple[list[str], list[int], list[int]]:
    """All sentences, those of one document together and in order; the number of each one's document; the corpus of
    each document."""
    names = corpus.column_names
    if "sentences" in names:
        rows, texts = [[row] for row in range(len(corpus))], read_column(corpus, "sentences")
    elif "text" in names:
        rows, texts = _rows_by_document(corpus), [[text] for text in read_column(corpus, "text")]
    else:
        raise ValueError(f"pairs are built from 'text' or 'sentences'; the corpus has {', '.join(names)}")
    sentences, documents = [], []
    for number, group in enumerate(rows):
        found = [text for row in group for text in texts[row]]
        cut = [part for text in found for part in cut_sentences(text)] if split_sentences else found
        cut = [text for text in cut if text and not text.isspace()]
        sentences += cut
        documents += [number] * len(cut)
    corpora = read_column(corpus, "corpus") if "corpus" in names else [0] * len(corpus)
    return sentences, documents, [corpora[group[0]] for group in rows]


def cut_sentences(text: str) -> list[str]:
    """A paragraph at its sentence ends; segments need not be sentences of a grammar (the paper's Section 3)."""
    return SENTENCE.findall(text.rstrip())


def _rows_by_document(corpus: Any) -> list[list[int]]:
    groups: dict[Any, list[int]] = {}
    if "document" in corpus.column_names:
        for row, document in enumerate(read_column(corpus, "document")):
            groups.setdefault(document, []).append(row)
        return list(groups.values())
    has_text = [bool(text) and not text.isspace() for text in read_column(corpus, "text")]
    if all(has_text):
        raise ValueError(
            "pairs need to know where documents end: give a column 'document', or an empty row between documents"
        )
    number = 0
    for row, is_spoken in enumerate(has_text):
        if is_spoken:
            groups.setdefault(number, []).append(row)
        else:
            number += 1
    return list(groups.values())


def _write_pairs(
    folder: Path, tokenizer: PreTrainedTokenizerBase, settings: dict[str, Any], num_proc: int | None
) -> None:
    import datasets

    count = len(np.load(folder / "documents.npy")) - 1
    numbers = np.arange(count * settings["repeats"])
    work = datasets.Dataset.from_dict({"document": numbers % count, "repeat": numbers // count})
    features = datasets.Features(
        input_ids=datasets.List(datasets.Value("int32")),
        token_type_ids=datasets.List(datasets.Value("int8")),
        next_sentence_label=datasets.ClassLabel(names=["next", "random"]),
    )
    pairs = work.map(
        PairBuilder(folder, tokenizer.cls_token_id, tokenizer.sep_token_id, settings),
        batched=True,
        batch_size=200,
        num_proc=num_proc if num_proc and 1 < num_proc <= len(work) else None,
        remove_columns=work.column_names,
        features=features,
        cache_file_name=str(folder / "work.arrow"),
        new_fingerprint=folder.name.strip("."),
        desc="sentence pairs",
    )
    pairs.save_to_disk(str(folder / "pairs"))
    for file in [*folder.glob("work*.arrow"), *folder.glob("*.npy")]:
        file.unlink()


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


def _this_module():
    import sys

    return sys.modules[__name__]
