"""Batches of similar length: every row once, little padding, reproducible, equal counts for all processes."""

import datasets
import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import DataLoader

from hf_edu_models.data import LengthBucketSampler

LENGTHS = np.random.default_rng(0).integers(1, 60, 1_003)


def padding(sampler):
    tokens = sum(LENGTHS[batch].sum() for batch in sampler)
    return 1 - tokens / sum(LENGTHS[batch].max() * len(batch) for batch in sampler)


@pytest.mark.parametrize("options", [{"batch_size": 16}, {"max_tokens": 300}, {"batch_size": 16, "shuffle": False}])
def test_every_row_once(options):
    sampler = LengthBucketSampler(LENGTHS, **options)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        rows = [row for batch in sampler for row in batch]
        assert sorted(rows) == list(range(len(LENGTHS))) and len(sampler) == len(list(sampler))


def test_batch_size_and_max_tokens_are_respected():
    batches = list(LengthBucketSampler(LENGTHS, batch_size=16))
    assert max(map(len, batches)) == 16 and sum(len(batch) < 16 for batch in batches) <= 2
    tokens = [LENGTHS[batch].max() * len(batch) for batch in LengthBucketSampler(LENGTHS, max_tokens=300)]
    assert max(tokens) <= 300 and np.mean(tokens) > 240
    assert {len(batch) for batch in LengthBucketSampler(LENGTHS, batch_size=16, drop_last=True)} == {16}


def test_a_row_longer_than_max_tokens_is_a_batch_of_its_own():
    batches = list(LengthBucketSampler([5, 500, 5, 5], max_tokens=20))
    assert [1] in batches and sorted(row for batch in batches for row in batch) == [0, 1, 2, 3]


def test_buckets_reduce_padding():
    plain = padding(LengthBucketSampler(LENGTHS, batch_size=16, bucket_batches=1))
    bucketed = padding(LengthBucketSampler(LENGTHS, batch_size=16, bucket_batches=50))
    assert bucketed < 0.05 < 0.3 < plain


def test_batches_depend_on_seed_and_epoch_only():
    one, two = LengthBucketSampler(LENGTHS, batch_size=8, seed=4), LengthBucketSampler(LENGTHS, batch_size=8, seed=4)
    first = list(one)
    assert first == list(two) == list(one)
    one.set_epoch(1)
    assert list(one) != first
    one.set_epoch(0)
    assert list(one) == first
    assert list(LengthBucketSampler(LENGTHS, batch_size=8, seed=5)) != first
    lengths = [LENGTHS[batch].max() for batch in first]
    assert np.abs(np.diff(lengths)).mean() > 5, "batches are shuffled, not sorted"


@pytest.mark.parametrize("options", [{"batch_size": 16}, {"max_tokens": 300}])
@pytest.mark.parametrize("drop_last", [False, True])
def test_processes_get_equal_numbers_of_batches(options, drop_last):
    shards = [
        list(LengthBucketSampler(LENGTHS, **options, drop_last=drop_last, num_replicas=3, rank=rank))
        for rank in range(3)
    ]
    assert len({len(shard) for shard in shards}) == 1
    whole = list(LengthBucketSampler(LENGTHS, **options, drop_last=drop_last))
    together = [batch for step in zip(*shards, strict=True) for batch in step]
    assert together[: len(whole)] == whole[: len(together)] and abs(len(together) - len(whole)) < 3


def test_the_longer_of_source_and_target_counts():
    rows = {"input_ids": [[1] * n for n in (2, 9, 3)], "labels": [[1] * n for n in (8, 1, 3)]}
    sampler = LengthBucketSampler.from_dataset(datasets.Dataset.from_dict(rows), max_tokens=18)
    assert sampler.lengths.tolist() == [8, 9, 3]
    with pytest.raises(ValueError, match=r"none of x is a column; there are input_ids, labels"):
        LengthBucketSampler.from_dataset(datasets.Dataset.from_dict(rows), columns=["x"], max_tokens=18)


@pytest.mark.parametrize("options", [{"batch_size": 16}, {"max_tokens": 300}])
def test_works_as_batch_sampler_of_a_data_loader_and_of_accelerate(options):
    data = [torch.full((int(length),), row) for row, length in enumerate(LENGTHS)]
    sampler = LengthBucketSampler(LENGTHS, **options)
    loader = DataLoader(data, batch_sampler=sampler, collate_fn=list)
    seen = [int(row[0]) for batch in loader for row in batch]
    assert sorted(seen) == list(range(len(LENGTHS)))
    prepared = Accelerator(cpu=True).prepare(DataLoader(data, batch_sampler=sampler, collate_fn=list))
    prepared.set_epoch(1)
    assert sampler.epoch == 1
    assert sum(len(batch) for batch in prepared) == len(LENGTHS)


@pytest.mark.parametrize("options", [{"batch_size": 16}, {"max_tokens": 300}])
def test_accelerate_shards_the_batches_of_one_sampler(options):
    """What `Accelerator(even_batches=False)` does in each of two processes."""
    shards = [
        list(BatchSamplerShard(LengthBucketSampler(LENGTHS, **options), 2, rank, even_batches=False))
        for rank in range(2)
    ]
    rows = [row for shard in shards for batch in shard for row in batch]
    assert sorted(rows) == list(range(len(LENGTHS))) and abs(len(shards[0]) - len(shards[1])) <= 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "batch_size or max_tokens, one of them"),
        ({"batch_size": 2, "max_tokens": 3}, "one of them; got 2 and 3"),
        ({"batch_size": 0}, "batch_size must be 1 or more, got 0"),
        ({"batch_size": 2, "rank": 2, "num_replicas": 2}, "rank must be from 0 to 1, got 2"),
    ],
)
def test_invalid_arguments_raise(options, message):
    with pytest.raises(ValueError, match=message):
        LengthBucketSampler([1, 2, 3], **options)
    with pytest.raises(ValueError, match=r"no rows"):
        LengthBucketSampler([], batch_size=2)
