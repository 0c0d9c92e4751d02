"""Batches depend on seed, epoch and batch index alone, and every epoch has the same number of them."""

import pytest
import torch
from tiny_runs import arguments, masking, pairs, translating
from torch.utils.data import DataLoader

from hf_edu_models.data.bucketing import LengthBucketSampler
from hf_edu_models.training.resumable_batches import (
    ResumableBatchSampler,
    ResumableLengthGroupedSampler,
    SeededCollator,
)
from hf_edu_models.training.trainers import resume_position


class Plan:
    """A sampler whose epochs have 3, 5 and 2 batches."""

    def __init__(self):
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return [3, 5, 2][self.epoch]

    def __iter__(self):
        return iter([[10 * self.epoch + number] for number in range(len(self))])


def test_every_epoch_has_the_same_number_of_batches():
    sampler, seen = ResumableBatchSampler(Plan()), []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        assert len(sampler) == 3
        seen.append(list(sampler))
    assert seen == [[[0], [1], [2]], [[10], [11], [12]], [[20], [21], [20]]]


def test_the_buckets_of_two_processes_cover_all_rows():
    data = pairs(41)
    shares = [
        ResumableBatchSampler(LengthBucketSampler.from_dataset(data, max_tokens=40, num_replicas=2, rank=rank))
        for rank in (0, 1)
    ]
    assert len(shares[0]) == len(shares[1]) > 3
    rows = [row for share in shares for batch in share for row in batch]
    assert set(rows) == set(range(41))


def test_length_groups_depend_on_seed_and_epoch_alone():
    lengths = [number % 7 + 1 for number in range(40)]

    def orders(disturbance):
        sampler = ResumableLengthGroupedSampler(4, lengths=lengths, seed=3)
        found = []
        for epoch in range(3):
            torch.manual_seed(disturbance + epoch)
            sampler.set_epoch(epoch)
            found.append(list(sampler))
        return found

    one, other = orders(0), orders(100)
    assert one == other and one[0] != one[1] != one[2]
    assert all(sorted(order) == list(range(40)) for order in one)
    resumed = ResumableLengthGroupedSampler(4, lengths=lengths, seed=3)
    resumed.set_epoch(2)
    assert list(resumed) == one[2]


def draw(features):
    return torch.rand(3).tolist()


def test_a_seeded_collator_depends_on_epoch_and_batch_alone():
    collator = SeededCollator(draw, seed=5)
    collator.set_epoch(1)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    batches = [collator([]) for _ in range(4)]
    assert torch.equal(torch.get_rng_state(), before)  # the global generator has not advanced
    torch.manual_seed(99)
    collator.set_epoch(1, 2)
    assert [collator([]), collator([])] == batches[2:]
    collator.set_epoch(2)
    assert collator([]) not in batches
    assert len({tuple(batch) for batch in batches}) == 4
    other = SeededCollator(draw, seed=6)
    other.set_epoch(1)
    assert other([]) not in batches


def test_dataloader_workers_draw_the_same_numbers():
    loader = DataLoader(list(range(8)), batch_size=2, collate_fn=SeededCollator(draw, seed=5), num_workers=2)
    alone = SeededCollator(draw, seed=5)
    alone.set_epoch(0)
    assert list(loader) == [alone([]) for _ in range(4)]


@pytest.mark.parametrize("steps, batches, position", [(0, 5, (0, 0)), (3, 5, (1, 0)), (4, 5, (1, 2)), (7, 6, (2, 2))])
def test_resume_position(steps, batches, position):
    """Two batches per step; the last step of 5 batches has one."""
    from types import SimpleNamespace

    settings = SimpleNamespace(gradient_accumulation_steps=2)
    assert resume_position(settings, SimpleNamespace(global_step=steps), range(batches)) == position


def test_persistent_workers_raise_an_error(tmp_path):
    settings = arguments(tmp_path, dataloader_persistent_workers=True, dataloader_num_workers=1)
    with pytest.raises(ValueError, match="dataloader_persistent_workers is True"):
        translating(settings)


def test_evaluation_masks_the_same_tokens_every_time(tmp_path):
    trainer = masking(arguments(tmp_path))
    assert trainer.evaluate()["eval_loss"] == trainer.evaluate()["eval_loss"]


def test_predictions_are_in_the_order_of_the_rows(tmp_path):
    """With group_by_length Trainer would sort them, and every prediction would get another reference."""
    trainer = translating(arguments(tmp_path, train_sampling_strategy="group_by_length"))
    data = pairs(11, seed=4)
    output, scored = trainer.predict(data), []
    trainer.compute_metrics = lambda prediction: scored.append(prediction.label_ids.tolist()) or {}
    trainer.evaluate(data)
    assert scored == [output.label_ids.tolist()]
    labels = [[label for label in row if label != -100] for row in output.label_ids.tolist()]
    assert labels == list(data["labels"])
    model = trainer.model.eval()
    for row, logits in zip(data, torch.tensor(output.predictions), strict=True):
        ids, labels = torch.tensor([row["input_ids"]]), torch.tensor([row["labels"]])
        with torch.no_grad():
            expected = model(input_ids=ids, labels=labels).logits[0]
        torch.testing.assert_close(logits[: len(row["labels"])], expected, atol=1e-4, rtol=1e-4)


def test_evaluation_does_not_advance_the_random_state(tmp_path):
    trainer = translating(arguments(tmp_path))
    before = torch.get_rng_state()
    trainer.evaluate()
    assert torch.equal(torch.get_rng_state(), before)
