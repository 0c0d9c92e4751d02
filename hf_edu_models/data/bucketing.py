"""Batches of sentences of like length: less padding, still random."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from torch.utils.data import Sampler


class LengthBucketSampler(Sampler[list[int]]):
    """A `batch_sampler`: shuffle, sort within buckets of many batches, cut, shuffle the batches.

    Args:
        lengths: One a row, or rows of them (source, target): the longest counts.
        batch_size: Rows in a batch; or else
        max_tokens: Most tokens in a batch, padding counted. A longer row is a batch by itself, none is lost.
        bucket_batches: How many batches are sorted together: 1 is plain shuffling, more is less padding.
        shuffle: False keeps every epoch the same, longest first.
        num_replicas: Number of processes; each takes every so-manieth batch, all as many as each other.
        rank: Which of the processes this is.
    """

    def __init__(
        self,
        lengths: Sequence[int] | np.ndarray,
        *,
        batch_size: int | None = None,
        max_tokens: int | None = None,
        bucket_batches: int = 50,
        shuffle: bool = True,
        drop_last: bool = False,
        seed: int = 0,
        num_replicas: int = 1,
        rank: int = 0,
    ):
        self.lengths = _longest(lengths)
        self.batch_size, self.max_tokens = batch_size, max_tokens
        self.bucket_batches, self.shuffle, self.drop_last = bucket_batches, shuffle, drop_last
        self.seed, self.num_replicas, self.rank = seed, num_replicas, rank
        self.epoch = 0
        self._plan: tuple[int, list[list[int]]] | None = None
        self._check()

    @classmethod
    def from_dataset(cls, dataset: Any, columns: Sequence[str] = ("input_ids", "labels"), **options: Any):
        """Measure the lists in `columns` of an encoded data set."""
        import pyarrow.compute as pc

        names = [name for name in columns if name in dataset.column_names]
        if not names:
            raise ValueError(f"none of {', '.join(columns)} is a column; there are {', '.join(dataset.column_names)}")
        table = dataset.select_columns(names).with_format("arrow")[:]
        return cls(np.stack([pc.list_value_length(table[name]).to_numpy() for name in names], axis=1), **options)

    def set_epoch(self, epoch: int) -> None:
        """Choose the shuffle of an epoch; resuming in epoch 3 sees what a run through epoch 3 saw."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self._batches())

    def __iter__(self) -> Iterator[list[int]]:
        yield from self._batches()

    def _batches(self) -> list[list[int]]:
        if self._plan is None or self._plan[0] != self.epoch:
            self._plan = self.epoch, self._share(self._make())
        return self._plan[1]

    def _make(self) -> list[list[int]]:
        rng = np.random.default_rng([self.seed, self.epoch])
        rows = rng.permutation(len(self.lengths)) if self.shuffle else np.arange(len(self.lengths))
        width = self._bucket_rows() if self.shuffle else len(rows)
        batches = []
        for start in range(0, len(rows), width):
            bucket = rows[start : start + width]
            bucket = bucket[np.argsort(-self.lengths[bucket], kind="stable")]
            batches += self._cut(bucket.tolist())
        if self.drop_last and self.batch_size:
            batches = [batch for batch in batches if len(batch) == self.batch_size]
        if self.shuffle:
            batches = [batches[place] for place in rng.permutation(len(batches))]
        return batches

    def _bucket_rows(self) -> int:
        mean = max(float(self.lengths.mean()), 1.0)
        rows = self.batch_size or max(1, int(self.max_tokens / mean))
        return rows * self.bucket_batches

    def _cut(self, bucket: list[int]) -> list[list[int]]:
        """Longest first, so the first row of a batch sets its width."""
        if self.batch_size:
            return [bucket[start : start + self.batch_size] for start in range(0, len(bucket), self.batch_size)]
        batches: list[list[int]] = []
        width = 0
        for row in bucket:
            if not batches or width * (len(batches[-1]) + 1) > self.max_tokens:
                batches.append([])
                width = int(self.lengths[row])
            batches[-1].append(row)
        return batches

    def _share(self, batches: list[list[int]]) -> list[list[int]]:
        """This process's batches; the first ones are repeated (or the last ones dropped) until all have as many."""
        extra = -len(batches) % self.num_replicas
        if extra and self.drop_last:
            batches = batches[: len(batches) - len(batches) % self.num_replicas]
        elif extra:
            batches = batches + [batches[place % len(batches)] for place in range(extra)]
        return batches[self.rank :: self.num_replicas]

    def _check(self) -> None:
        if (self.batch_size is None) == (self.max_tokens is None):
            raise ValueError(f"give batch_size or max_tokens, one of them; got {self.batch_size} and {self.max_tokens}")
        for name in ("batch_size", "max_tokens", "bucket_batches", "num_replicas"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be 1 or more, got {value}")
        if not 0 <= self.rank < self.num_replicas:
            raise ValueError(f"rank must be from 0 to {self.num_replicas - 1}, got {self.rank}")
        if len(self.lengths) == 0:
            raise ValueError("there are no rows to make batches of")


def _longest(lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    lengths = np.asarray(lengths)
    return lengths.max(axis=1) if lengths.ndim == 2 else lengths
