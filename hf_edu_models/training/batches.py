"""Batches that are the same after a resumption, whatever was drawn before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import get_worker_info
from transformers.trainer_pt_utils import LengthGroupedSampler

from ..data.bucketing import LengthBucketSampler


class SteadyBatches:
    """A sampler of batches with as many in every epoch: Trainer counts them once, and resumes by that count.

    An epoch that was cut into fewer batches repeats its first ones; of more, a few are left for another epoch.
    """

    def __init__(self, sampler: LengthBucketSampler):
        self.sampler = sampler
        self.drop_last = False
        self.count = len(sampler)

    def set_epoch(self, epoch: int) -> None:
        self.sampler.set_epoch(epoch)

    def __len__(self) -> int:
        return self.count

    def __iter__(self):
        batches = list(self.sampler)
        for place in range(self.count):
            yield batches[place % len(batches)]


class SteadyLengthGroups(LengthGroupedSampler):
    """Rows of like length together, in an order that depends on the epoch alone; transformers' own draws it from the
    common generator, which stands elsewhere after a resumption and in another process."""

    def __init__(self, *given: Any, seed: int, **options: Any):
        super().__init__(*given, generator=torch.Generator(), **options)
        self.seed = seed
        self.set_epoch(0)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self):
        self.generator.manual_seed(hash((self.seed, self.epoch)) % 2**63)
        return super().__iter__()


class SeededCollator:
    """A collator whose random choices depend on the place of a batch in its epoch, and on nothing else.

    Accelerate makes a batch before the step of the one before has run, so choices from the common generator could not
    be repeated after a resumption.
    """

    def __init__(self, collator: Callable, seed: int):
        self.collator, self.seed = collator, seed
        self.epoch = self.first = self.made = 0

    def start(self, epoch: int, first: int) -> None:
        """Begin an epoch with the batch number `first`."""
        self.epoch, self.first, self.made = epoch, first, 0

    def __call__(self, features: list) -> Any:
        worker = get_worker_info()
        if worker is None:
            number = self.first + self.made
        else:  # workers take turns
            number = self.first + self.made * worker.num_workers + worker.id
        self.made += 1
        with torch.random.fork_rng(devices=[]):
            # Not torch.manual_seed: it seeds GPUs too, which draw dropout, and takes half a millisecond where none is.
            torch.default_generator.manual_seed(hash((self.seed, self.epoch, number)) % 2**63)
            return self.collator(features)


def innermost_sampler(loader: Any) -> Any:
    """The sampler of rows below the samplers of batches."""
    sampler = loader.batch_sampler
    while hasattr(sampler, "batch_sampler"):
        sampler = sampler.batch_sampler
    return getattr(sampler, "sampler", None)
