"""Splits by a column, limits of their size, and missing ones cut from train.

Running text keeps its order and its documents whole.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from .columns import read_column
from .local_files import SPLIT_NAMES
from .notes import note


def split_by_column(raw: Mapping[str, Any], column: str = "split") -> Mapping[str, Any]:
    """The splits that a column names, such as train and dev, where all rows are in one split."""
    if len(raw) != 1:
        return raw
    [dataset] = raw.values()
    if column not in (dataset.column_names or ()):
        return raw
    if not hasattr(dataset, "__len__"):
        note(f"the column {column!r} is not used in a stream; load the data without streaming")
        return raw
    rows: dict[str, list[int]] = {}
    for number, value in enumerate(read_column(dataset, column)):
        name = str(value).strip().lower()
        rows.setdefault(SPLIT_NAMES.get(name, name), []).append(number)
    if "train" not in rows:
        return raw
    if "none" in rows:
        raise ValueError(f"the column {column!r} is empty in row {rows['none'][0]}; give every row a split")
    note(f"rows by the column {column!r}: {', '.join(f'{name} {len(found):,}' for name, found in rows.items())}")
    return {name: dataset.select(found).remove_columns(column) for name, found in rows.items()}


def resize_splits(
    corpus: Mapping[str, Any], sizes: Mapping[str, int | None], seed: int, streaming: bool
) -> dict[str, Any]:
    """Limit every split to its size (None: all rows); a split that does not exist is cut from train."""
    limits = {split: size for split, size in sizes.items() if size is not None}
    missing = {split: size for split, size in limits.items() if split not in corpus}
    corpus = cut_missing(corpus, missing, seed, streaming)
    for split in missing:  # whole documents, so it may have a few more rows; they would be in no split otherwise
        limits.pop(split)
    return {
        split: _limit(dataset, limits[split], seed, streaming) if split in limits else dataset
        for split, dataset in corpus.items()
    }


def cut_missing(corpus: Mapping[str, Any], sizes: Mapping[str, int], seed: int, streaming: bool) -> dict[str, Any]:
    """Cut the splits in `sizes` from the end of train (of a stream: its start), so that no row is in two splits."""
    corpus = dict(corpus)
    # Of a series the test split is the end, and validation comes before it.
    is_series = "train" in corpus and "date" in (corpus["train"].column_names or ())
    for split, size in reversed(list(sizes.items())) if is_series else sizes.items():
        if not size:
            continue
        if "train" not in corpus:
            raise ValueError(f"there is no train split to cut {split!r} from; there are {', '.join(corpus)}")
        train = corpus["train"]
        if streaming:
            _check_one_reader(train, split)
        corpus["train"], corpus[split] = (
            (train.skip(size), train.take(size)) if streaming else _cut(train, split, size, seed)
        )
    return corpus


def _check_one_reader(train: Any, split: str) -> None:
    """Each process would skip rows of its own files, not those that became the other split."""
    if train.num_shards > 1 and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ValueError(
            f"{split!r} cannot be cut from a stream of {train.num_shards} files that several processes divide; give it "
            f"a file of its own, such as {split}.txt"
        )


def _limit(dataset: Any, size: int, seed: int, streaming: bool) -> Any:
    """At most `size` rows: the first ones of running text and of streams, else a random sample."""
    if streaming:
        return dataset.take(size)
    if size >= len(dataset):
        return dataset
    return (dataset if _is_running_text(dataset) else dataset.shuffle(seed=seed)).select(range(size))


def _cut(train: Any, split: str, size: int, seed: int) -> tuple[Any, Any]:
    if size >= len(train):
        raise ValueError(f"{split}_size {size} leaves nothing of the {len(train)} rows of train; ask for fewer")
    if not _is_running_text(train):
        parts = train.train_test_split(test_size=size, seed=seed)
        return parts["train"], parts["test"]
    border = _document_start(train, len(train) - size)
    if border == 0:
        raise ValueError(f"{split}_size {size} would take every document of train; ask for fewer rows")
    return train.select(range(border)), train.select(range(border, len(train)))


def _is_running_text(dataset: Any) -> bool:
    names = set(dataset.column_names)
    return names <= {"text", "document"} or names == {"date", "values"}


def _document_start(train: Any, row: int) -> int:
    """The last row at or before `row` where a document starts."""
    if "document" not in train.column_names:
        return row
    documents = read_column(train, "document")
    while row > 0 and documents[row] == documents[row - 1]:
        row -= 1
    return row
