"""Batches of rows of similar length: less padding, still random."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from torch.utils.data import Sampler


class LengthBucketSampler(Sampler[list[int]]):
    """A `batch_sampler`: shuffle the rows, sort them within buckets, split into batches, shuffle the batches.

    Args:
        lengths: The length of each row, or several (source, target), of which the longest counts.
        batch_size: Number of rows per batch; give this or `max_tokens`.
        max_tokens: Maximum number of tokens per batch, with padding. A longer row is a batch of its own.
        bucket_batches: Number of batches in a bucket: 1 is plain shuffling, more means less padding.
        shuffle: False gives the same batches in every epoch, longest first.
        num_replicas: Number of processes; each gets every `num_replicas`-th batch, equal counts.
        rank: Rank of this process.
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
        table = np.asarray(lengths)
        self.lengths = table.max(axis=1) if table.ndim == 2 else table
        self.batch_size, self.max_tokens = batch_size, max_tokens
        self.bucket_batches, self.shuffle, self.drop_last = bucket_batches, shuffle, drop_last
        self.seed, self.num_replicas, self.rank = seed, num_replicas, rank
        self.epoch = 0
        self._cached: tuple[int, list[list[int]]] | None = None
        self._check()

    @classmethod
    def from_dataset(cls, dataset: Any, columns: Sequence[str] = ("input_ids", "labels"), **options: Any):
        """Take the lengths from the list columns `columns` of an encoded dataset."""
        import pyarrow.compute as pc

        names = [name for name in columns if name in dataset.column_names]
        if not names:
            raise ValueError(f"none of {', '.join(columns)} is a column; there are {', '.join(dataset.column_names)}")
        table = dataset.select_columns(names).with_format("arrow")[:]
        return cls(np.stack([pc.list_value_length(table[name]).to_numpy() for name in names], axis=1), **options)

    def set_epoch(self, epoch: int) -> None:
        """Choose the shuffle of an epoch; a run resumed in epoch 3 gets the same batches as an uninterrupted one."""
        self.epoch = epoch

    def __len__(self) -> int:
        return len(self._batches())

    def __iter__(self) -> Iterator[list[int]]:
        yield from self._batches()

    def _batches(self) -> list[list[int]]:
        if self._cached is None or self._cached[0] != self.epoch:
            self._cached = self.epoch, self._shard(self._make_batches())
        return self._cached[1]

    def _make_batches(self) -> list[list[int]]:
        rng = np.random.default_rng([self.seed, self.epoch])
        rows = rng.permutation(len(self.lengths)) if self.shuffle else np.arange(len(self.lengths))
        bucket_size = self._bucket_size() if self.shuffle else len(rows)
        batches = []
        for start in range(0, len(rows), bucket_size):
            bucket = rows[start : start + bucket_size]
            bucket = bucket[np.argsort(-self.lengths[bucket], kind="stable")]
            batches += self._split(bucket.tolist())
        if self.drop_last and self.batch_size:
            batches = [batch for batch in batches if len(batch) == self.batch_size]
        if self.shuffle:
            batches = [batches[index] for index in rng.permutation(len(batches))]
        return batches

    def _bucket_size(self) -> int:
        mean = max(float(self.lengths.mean()), 1.0)
        rows = self.batch_size or max(1, int(self.max_tokens / mean))
        return rows * self.bucket_batches

    def _split(self, bucket: list[int]) -> list[list[int]]:
        """Batches of a bucket; it is sorted, so the first row of a batch is the longest."""
        if self.batch_size:
            return [bucket[start : start + self.batch_size] for start in range(0, len(bucket), self.batch_size)]
        batches: list[list[int]] = []
        longest = 0
        for row in bucket:
            if not batches or longest * (len(batches[-1]) + 1) > self.max_tokens:
                batches.append([])
                longest = int(self.lengths[row])
            batches[-1].append(row)
        return batches

    def _shard(self, batches: list[list[int]]) -> list[list[int]]:
        """The batches of this process; the first ones are repeated, or the last dropped, to give all equal counts."""
        if self.drop_last:
            batches = batches[: len(batches) - len(batches) % self.num_replicas]
        else:
            extra = -len(batches) % self.num_replicas
            batches = batches + [batches[index % len(batches)] for index in range(extra)]
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
