"""Rows of several tasks, in batches of one task each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from torch.utils.data import Dataset, Sampler


class TaskRows(Dataset):
    """The encoded rows of several tasks, one task after the other; each row has its `task`."""

    def __init__(self, datasets: Mapping[str, Any]):
        self.datasets = dict(datasets)
        self.sizes = {name: len(rows) for name, rows in self.datasets.items()}
        empty = [name for name, size in self.sizes.items() if size == 0]
        if empty or not self.sizes:
            raise ValueError(f"the task {empty[0]} has no rows; leave it out" if empty else "there are no tasks")
        self.starts = dict(zip(self.sizes, np.cumsum([0, *self.sizes.values()]), strict=False))

    def __len__(self) -> int:
        return sum(self.sizes.values())

    def __getitem__(self, index: int) -> dict[str, Any]:
        for name, rows in self.datasets.items():
            if index < len(rows):
                return rows[int(index)] | {"task": name}
            index -= len(rows)
        raise IndexError(f"there are {len(self)} rows")


class TaskBatchSampler(Sampler[list[int]]):
    """Batches of one task each; a task is drawn with a probability proportional to size^alpha.

    An epoch has as many batches as all rows fill. Of a task that is drawn more often than its rows last, they are
    shuffled and read again. With alpha 1 every row is as likely as any other, with 0 every task is (Stickland & Murray
    2019, arXiv:1902.02671).

    Args:
        sizes: number of rows of each task, in the order of `TaskRows`.
        num_replicas: number of processes; they get parts of the same batch, so that a step is of one task.
        rank: rank of this process.
    """

    def __init__(
        self,
        sizes: Mapping[str, int],
        batch_size: int,
        *,
        alpha: float = 1.0,
        seed: int = 0,
        num_replicas: int = 1,
        rank: int = 0,
    ):
        self.sizes, self.batch_size, self.seed = np.array([*sizes.values()]), batch_size, seed
        self.num_replicas, self.rank, self.epoch = num_replicas, rank, 0
        powers = self.sizes.astype(float) ** alpha
        self.probabilities = powers / powers.sum()
        self.drop_last = False

    def set_epoch(self, epoch: int) -> None:
        """Choose the batches of an epoch; a resumed run gets the same ones as an uninterrupted one."""
        self.epoch = epoch

    def __len__(self) -> int:
        return int(np.ceil(self.sizes / (self.batch_size * self.num_replicas)).sum())

    def __iter__(self) -> Iterator[list[int]]:
        rng = np.random.default_rng([self.seed, self.epoch])
        starts = np.cumsum([0, *self.sizes[:-1]])
        waiting: list[Any] = [np.empty(0, dtype=int) for _ in self.sizes]  # rows of each task, in the order of reading
        whole = self.batch_size * self.num_replicas
        for task in rng.choice(len(self.sizes), size=len(self), p=self.probabilities):
            while len(waiting[task]) < whole:
                waiting[task] = np.concatenate([waiting[task], starts[task] + rng.permutation(self.sizes[task])])
            batch, waiting[task] = np.split(waiting[task], [whole])
            yield batch[self.rank :: self.num_replicas].tolist()


class TaskCollator:
    """Collates a batch with the collator of its task, and adds the task's name for `forward`."""

    def __init__(self, collators: Mapping[str, Any]):
        self.collators = dict(collators)

    def __call__(self, features: list[dict[str, Any]]) -> dict[str, Any]:
        (task,) = {feature["task"] for feature in features}
        rows = [{name: value for name, value in feature.items() if name != "task"} for feature in features]
        return {**self.collators[task](rows), "task": task}
