"""Batches of like length: every row once, the size kept, little padding, the same by seed and epoch, shared fairly."""

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
    kept = sum(LENGTHS[batch].sum() for batch in sampler)
    return 1 - kept / sum(LENGTHS[batch].max() * len(batch) for batch in sampler)


@pytest.mark.parametrize("options", [{"batch_size": 16}, {"max_tokens": 300}, {"batch_size": 16, "shuffle": False}])
def test_every_row_once(options):
    sampler = LengthBucketSampler(LENGTHS, **options)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        rows = [row for batch in sampler for row in batch]
        assert sorted(rows) == list(range(len(LENGTHS))) and len(sampler) == len(list(sampler))


def test_sizes_are_kept():
    batches = list(LengthBucketSampler(LENGTHS, batch_size=16))
    assert max(map(len, batches)) == 16 and sum(len(batch) < 16 for batch in batches) <= 2
    tokens = [LENGTHS[batch].max() * len(batch) for batch in LengthBucketSampler(LENGTHS, max_tokens=300)]
    assert max(tokens) <= 300 and np.mean(tokens) > 240
    assert {len(batch) for batch in LengthBucketSampler(LENGTHS, batch_size=16, drop_last=True)} == {16}


def test_a_row_longer_than_the_limit_is_alone_and_not_lost():
    batches = list(LengthBucketSampler([5, 500, 5, 5], max_tokens=20))
    assert [1] in batches and sorted(row for batch in batches for row in batch) == [0, 1, 2, 3]


def test_buckets_save_padding():
    plain = padding(LengthBucketSampler(LENGTHS, batch_size=16, bucket_batches=1))
    bucketed = padding(LengthBucketSampler(LENGTHS, batch_size=16, bucket_batches=50))
    assert bucketed < 0.05 < 0.3 < plain


def test_the_same_by_seed_and_epoch():
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
def test_processes_share_the_batches(options, drop_last):
    shares = [
        list(LengthBucketSampler(LENGTHS, **options, drop_last=drop_last, num_replicas=3, rank=rank))
        for rank in range(3)
    ]
    assert len({len(share) for share in shares}) == 1
    whole = list(LengthBucketSampler(LENGTHS, **options, drop_last=drop_last))
    together = [batch for step in zip(*shares, strict=True) for batch in step]
    assert together[: len(whole)] == whole[: len(together)] and abs(len(together) - len(whole)) < 3


def test_both_sides_count():
    rows = {"input_ids": [[1] * n for n in (2, 9, 3)], "labels": [[1] * n for n in (8, 1, 3)]}
    sampler = LengthBucketSampler.from_dataset(datasets.Dataset.from_dict(rows), max_tokens=18)
    assert sampler.lengths.tolist() == [8, 9, 3]
    with pytest.raises(ValueError, match=r"none of x is a column; there are input_ids, labels"):
        LengthBucketSampler.from_dataset(datasets.Dataset.from_dict(rows), columns=["x"], max_tokens=18)


@pytest.mark.parametrize("options", [{"batch_size": 16}, {"max_tokens": 300}])
def test_loads_in_a_data_loader_and_in_accelerate(options):
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
def test_accelerate_shares_the_batches_of_one_sampler(options):
    """What `Accelerator(even_batches=False)` does in each of two processes."""
    shares = [
        list(BatchSamplerShard(LengthBucketSampler(LENGTHS, **options), 2, rank, even_batches=False))
        for rank in range(2)
    ]
    rows = [row for share in shares for batch in share for row in batch]
    assert sorted(rows) == list(range(len(LENGTHS))) and abs(len(shares[0]) - len(shares[1])) <= 1


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "batch_size or max_tokens, one of them"),
        ({"batch_size": 2, "max_tokens": 3}, "one of them; got 2 and 3"),
        ({"batch_size": 0}, "batch_size must be 1 or more, got 0"),
        ({"batch_size": 2, "rank": 2, "num_replicas": 2}, "rank must be from 0 to 1, got 2"),
    ],
)
def test_wrong_settings_are_refused_with_a_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        LengthBucketSampler([1, 2, 3], **options)
    with pytest.raises(ValueError, match=r"no rows"):
        LengthBucketSampler([], batch_size=2)
