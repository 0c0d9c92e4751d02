"""Corpora larger than memory: rows are read, encoded and shuffled in chunks, from a position that can be saved.

A chunk is encoded like a small corpus of its own: its blocks end with it, and the random segments of its sentence pairs
come from it. The state of `datasets` does not include its own shuffle buffer; the position here is exact, because a
chunk is shuffled as a whole, and read again after resuming.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .columns import has_tables
from .notes import note

_Rows = dict[str, list]  # column to values, one per example


class SmallChunkError(ValueError):
    """A chunk of a corpus, such as its last one, that is too small to be encoded."""


@dataclass(frozen=True)
class Position:
    """Where a stream is read next.

    Args:
        rows: State of the `datasets` stream before the current chunk; None before the first one.
        chunk: Number of the current chunk in its epoch, of those that this process reads.
        taken: Number of examples that were taken from it.
    """

    epoch: int = 0
    chunk: int = 0
    taken: int = 0
    rows: dict[str, Any] | None = None


@dataclass
class StreamedExamples:
    """The encoded examples of a stream of rows.

    Args:
        dataset: The rows, a `datasets.IterableDataset`.
        encode: Function of a chunk (a `datasets.Dataset`) and a seed that is another for each chunk; returns columns.
        is_shuffled: Whether the examples of a chunk may be shuffled; False where each continues the one before.
    """

    dataset: Any
    encode: Callable[[Any, int], _Rows]
    is_shuffled: bool = True

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """The examples of one epoch, in order, in chunks of 1,000 rows."""
        for number, chunk in enumerate(_in_chunks(self.dataset, 1_000)):
            yield from _as_examples(self.encode(_as_dataset(chunk), number))

    def read(
        self,
        batch_size: int,
        buffer_size: int,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        start: Position | None = None,
    ) -> Iterator[tuple[list[dict[str, Any]], Position]]:
        """Batches of examples, each with the position after it, epoch after epoch without end.

        Args:
            buffer_size: Number of rows of a chunk.
            rank, world_size: Chunks are divided between processes: by files where their number allows it.
            start: The position to continue from.
        """
        from datasets.distributed import split_dataset_by_node

        chunks = split_dataset_by_node(_in_chunks(self.dataset, buffer_size), rank, world_size)
        batch: list[dict[str, Any]] = []
        for examples, position in self._read_epochs(chunks, start or Position(), seed):
            taken = position.taken
            while taken < len(examples):
                more = examples[taken : taken + batch_size - len(batch)]
                batch, taken = batch + more, taken + len(more)
                if len(batch) == batch_size:
                    yield batch, replace(position, taken=taken)
                    batch = []

    def _read_epochs(self, chunks: Any, position: Position, seed: int) -> Iterator[tuple[list[dict], Position]]:
        """The examples of each chunk from `position` on, and the position at which the chunk was entered."""
        first = chunks.state_dict()
        while True:
            chunks.load_state_dict(position.rows or first)
            is_whole, is_empty = position.rows is None, True
            for chunk in chunks:
                examples = self._examples(_as_dataset(chunk), position.epoch * 2**32 + position.chunk, seed)
                is_empty = is_empty and not examples
                yield examples, position
                position = replace(position, chunk=position.chunk + 1, taken=0, rows=chunks.state_dict())
            if is_whole and is_empty:
                raise ValueError(
                    "this process finds no chunk of the stream that can be encoded; use another --buffer_size, or "
                    "fewer processes"
                )
            position = Position(position.epoch + 1)

    def _examples(self, chunk: Any, number: int, seed: int) -> list[dict[str, Any]]:
        """The examples of a chunk, in an order that depends on seed and number alone."""
        try:
            examples = list(_as_examples(self.encode(chunk, number)))
        except SmallChunkError as error:
            note(f"a chunk of {len(chunk):,} rows is left out: {error}")
            return []
        if self.is_shuffled:
            order = np.random.default_rng((seed, number)).permutation(len(examples))
            examples = [examples[index] for index in order]
        return examples


def _in_chunks(dataset: Any, size: int) -> Any:
    return (dataset.with_format("arrow") if has_tables(dataset) else dataset).batch(size)


def _as_dataset(chunk: Any) -> Any:
    """The rows of a chunk, which is a table of one row with a list in each column, or a dict of lists."""
    import datasets
    import pyarrow as pa

    if isinstance(chunk, dict):
        return datasets.Dataset.from_dict(chunk)
    columns = {name: chunk.column(name).combine_chunks().flatten() for name in chunk.column_names}
    return datasets.Dataset(pa.table(columns))


def _as_examples(columns: _Rows) -> Iterator[dict[str, Any]]:
    return (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
