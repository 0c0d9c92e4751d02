"""Smaller splits, and splits cut out of train, without breaking the order of text or tearing a document apart."""

from __future__ import annotations

from typing import Any

from .columns import read_column


def limit(dataset: Any, size: int, seed: int, streaming: bool) -> Any:
    """At most `size` rows: the first ones of running text and of streams, else a seeded sample."""
    if streaming:
        return dataset.take(size)
    if size >= len(dataset):
        return dataset
    if _is_running_text(dataset):
        return dataset.select(range(size))
    return dataset.shuffle(seed=seed).select(range(size))


def cut_missing(found: dict[str, Any], wanted: dict[str, int], seed: int, streaming: bool) -> dict[str, Any]:
    """Make the splits in `wanted` from the end of train (a stream: its start), so that no row is in two splits."""
    wanted = {split: size for split, size in wanted.items() if size}
    if not wanted:
        return found
    if "train" not in found:
        missing = next(iter(wanted))
        raise ValueError(f"there is no train split to cut {missing!r} from; there are {', '.join(found)}")
    found = dict(found)
    for split, size in wanted.items():
        cut = _cut_stream if streaming else _cut
        found["train"], found[split] = cut(found["train"], split, size, seed)
    return found


def _cut_stream(train: Any, split: str, size: int, seed: int):
    return train.skip(size), train.take(size)


def _cut(train: Any, split: str, size: int, seed: int):
    if size >= len(train):
        raise ValueError(f"{split}_size {size} leaves nothing of the {len(train)} rows of train; ask for fewer")
    if not _is_running_text(train):
        parts = train.train_test_split(test_size=size, seed=seed)
        return parts["train"], parts["test"]
    border = _document_border(train, len(train) - size)
    if border == 0:
        raise ValueError(f"{split}_size {size} would take every document of train; ask for fewer rows")
    return train.select(range(border)), train.select(range(border, len(train)))


def _is_running_text(dataset: Any) -> bool:
    return set(dataset.column_names) <= {"text", "document"}


def _document_border(train: Any, border: int) -> int:
    """The last start of a document at or before `border`."""
    if "document" not in train.column_names:
        return border
    documents = read_column(train, "document")
    while border > 0 and documents[border] == documents[border - 1]:
        border -= 1
    return border
