"""Samplers and a collator that depend on seed, epoch and batch index alone: a resumed run sees the same batches."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info
from transformers.trainer_pt_utils import LengthGroupedSampler

from ..data.bucketing import LengthBucketSampler
from ..data.streaming import Position, StreamedExamples


class ResumableBatchSampler:
    """A batch sampler with the same number of batches in every epoch, since Trainer resumes by that number.

    An epoch that has fewer batches repeats its first ones; in an epoch that has more, the last ones are skipped.
    """

    def __init__(self, sampler: LengthBucketSampler):
        self.sampler = sampler
        self.drop_last = False
        self.num_batches = len(sampler)

    def set_epoch(self, epoch: int) -> None:
        self.sampler.set_epoch(epoch)

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self):
        batches = list(self.sampler)
        for index in range(self.num_batches):
            yield batches[index % len(batches)]


class ResumableLengthGroupedSampler(LengthGroupedSampler):
    """Groups rows of similar length in an order that depends on seed and epoch alone.

    transformers' sampler draws from the global generator, whose state differs after resuming and between processes.
    """

    def __init__(self, *args: Any, seed: int, **kwargs: Any):
        super().__init__(*args, generator=torch.Generator(), **kwargs)
        self.seed = seed
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self):
        self.generator.manual_seed(hash((self.seed, self.epoch)) % 2**63)
        return super().__iter__()


class SeededCollator:
    """A collator whose random choices depend on seed, epoch and batch index alone.

    Accelerate prefetches a batch before the previous step has run, so choices from the global generator could not be
    repeated after resuming.
    """

    def __init__(self, collator: Callable, seed: int):
        self.collator, self.seed = collator, seed
        self.set_epoch(0)

    def set_epoch(self, epoch: int, first_batch: int = 0) -> None:
        """Start an epoch at the batch with index `first_batch`."""
        self.epoch, self.first_batch, self.num_collated = epoch, first_batch, 0

    def __call__(self, features: list) -> Any:
        worker = get_worker_info()
        if worker is None:
            batch = self.first_batch + self.num_collated
        else:  # workers take turns
            batch = self.first_batch + self.num_collated * worker.num_workers + worker.id
        self.num_collated += 1
        with torch.random.fork_rng(devices=[]):
            # Not torch.manual_seed: it also seeds the GPUs, which draw dropout, and takes 0.5 ms even without one.
            torch.default_generator.manual_seed(hash((self.seed, self.epoch, batch)) % 2**63)
            return self.collator(features)


class StreamedBatches(IterableDataset):
    """The batches of a stream, without end; `save` and `load` its position.

    Args:
        reader: Options of `StreamedExamples.read`: sizes of batch and buffer, seed, rank and world size.
    """

    def __init__(self, examples: StreamedExamples, collator: Callable, reader: dict[str, int]):
        self.examples, self.collator, self.reader = examples, collator, reader
        self.start, self.first_batch = Position(), 0
        # Accelerate collates a batch before the previous step has run: the last positions by number of batches.
        self.positions: deque[tuple[int, Position]] = deque(maxlen=8)

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self.first_batch):
            yield {}  # Trainer skips the batches before the checkpoint; they are not read again
        batches = self.examples.read(**self.reader, start=self.start)
        for number, (features, position) in enumerate(batches, start=self.first_batch + 1):
            self.positions.append((number, position))
            yield self.collator(features)

    def save(self, file: Path, batches: int) -> None:
        """Save the position after so many batches."""
        position = dict(self.positions)[batches]
        file.write_text(json.dumps({"batches": batches, "reader": self.reader, **asdict(position)}))

    def load(self, file: Path) -> None:
        if not file.is_file():
            raise ValueError(f"{file.parent} has no position in the stream ({file.name}); resume with its world size")
        saved = json.loads(file.read_text())
        if (reader := saved.pop("reader")) != self.reader:
            raise ValueError(f"{file.parent} was read with {reader}, but now it is {self.reader}; use the same values")
        self.first_batch, self.start = saved.pop("batches"), Position(**saved)


def innermost_sampler(loader: Any) -> Any:
    """The sampler of rows inside the nested batch samplers."""
    sampler = loader.batch_sampler
    while hasattr(sampler, "batch_sampler"):
        sampler = sampler.batch_sampler
    return getattr(sampler, "sampler", None)
