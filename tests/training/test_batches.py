"""Batches that can be found again: as many in every epoch, drawn by the place in the epoch and by nothing else."""

import pytest
import torch
from tiny_runs import arguments, masking, pairs, translating
from torch.utils.data import DataLoader

from hf_edu_models.data.bucketing import LengthBucketSampler
from hf_edu_models.training.batches import SeededCollator, SteadyBatches, SteadyLengthGroups
from hf_edu_models.training.trainers import place_in_epoch


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


def test_every_epoch_has_as_many_batches_as_the_first():
    steady, seen = SteadyBatches(Plan()), []
    for epoch in range(3):
        steady.set_epoch(epoch)
        assert len(steady) == 3
        seen.append(list(steady))
    assert seen == [[[0], [1], [2]], [[10], [11], [12]], [[20], [21], [20]]]


def test_buckets_of_two_processes_have_every_row_between_them():
    data = pairs(41)
    shares = [
        SteadyBatches(LengthBucketSampler.from_dataset(data, max_tokens=40, num_replicas=2, rank=rank))
        for rank in (0, 1)
    ]
    assert len(shares[0]) == len(shares[1]) > 3
    rows = [row for share in shares for batch in share for row in batch]
    assert set(rows) == set(range(41))


def test_length_groups_depend_on_the_epoch_alone():
    lengths = [number % 7 + 1 for number in range(40)]

    def orders(disturbance):
        sampler = SteadyLengthGroups(4, lengths=lengths, seed=3)
        found = []
        for epoch in range(3):
            torch.manual_seed(disturbance + epoch)
            sampler.set_epoch(epoch)
            found.append(list(sampler))
        return found

    one, other = orders(0), orders(100)
    assert one == other and one[0] != one[1] != one[2]
    assert all(sorted(order) == list(range(40)) for order in one)
    resumed = SteadyLengthGroups(4, lengths=lengths, seed=3)
    resumed.set_epoch(2)
    assert list(resumed) == one[2]


def draw(features):
    return torch.rand(3).tolist()


def test_a_collator_draws_by_its_place():
    collator = SeededCollator(draw, seed=5)
    collator.start(1, 0)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    batches = [collator([]) for _ in range(4)]
    assert torch.equal(torch.get_rng_state(), before)  # nobody else's numbers are used up
    torch.manual_seed(99)
    collator.start(1, 2)
    assert [collator([]), collator([])] == batches[2:]
    collator.start(2, 0)
    assert collator([]) not in batches
    assert len({tuple(batch) for batch in batches}) == 4
    other = SeededCollator(draw, seed=6)
    other.start(1, 0)
    assert other([]) not in batches


def test_workers_draw_what_one_process_draws():
    loader = DataLoader(list(range(8)), batch_size=2, collate_fn=SeededCollator(draw, seed=5), num_workers=2)
    alone = SeededCollator(draw, seed=5)
    alone.start(0, 0)
    assert list(loader) == [alone([]) for _ in range(4)]


@pytest.mark.parametrize("steps, batches, place", [(0, 5, (0, 0)), (3, 5, (1, 0)), (4, 5, (1, 2)), (7, 6, (2, 2))])
def test_the_place_in_an_epoch(steps, batches, place):
    """Two batches a step; the last step of 5 batches has one."""
    from types import SimpleNamespace

    settings = SimpleNamespace(gradient_accumulation_steps=2)
    assert place_in_epoch(settings, SimpleNamespace(global_step=steps), range(batches)) == place


def test_workers_that_stay_are_refused(tmp_path):
    settings = arguments(tmp_path, dataloader_persistent_workers=True, dataloader_num_workers=1)
    with pytest.raises(ValueError, match="dataloader_persistent_workers is True"):
        translating(settings)


def test_evaluation_masks_the_same_words_every_time(tmp_path):
    trainer = masking(arguments(tmp_path))
    assert trainer.evaluate()["eval_loss"] == trainer.evaluate()["eval_loss"]


def test_predictions_stand_in_the_order_of_their_rows(tmp_path):
    """Trainer would sort them by length where training does, and every text would be scored against another."""
    trainer = translating(arguments(tmp_path, train_sampling_strategy="group_by_length"))
    data = pairs(11, seed=4)
    output, scored = trainer.predict(data), []
    trainer.compute_metrics = lambda prediction: scored.append(prediction.label_ids.tolist()) or {}
    trainer.evaluate(data)
    assert scored == [output.label_ids.tolist()]
    wanted = [[label for label in row if label != -100] for row in output.label_ids.tolist()]
    assert wanted == list(data["labels"])
    model = trainer.model.eval()
    for row, logits in zip(data, torch.tensor(output.predictions), strict=True):
        ids, labels = torch.tensor([row["input_ids"]]), torch.tensor([row["labels"]])
        with torch.no_grad():
            expected = model(input_ids=ids, labels=labels).logits[0]
        torch.testing.assert_close(logits[: len(row["labels"])], expected, atol=1e-4, rtol=1e-4)


def test_evaluating_draws_nothing_from_training(tmp_path):
    trainer = translating(arguments(tmp_path))
    before = torch.get_rng_state()
    trainer.evaluate()
    assert torch.equal(torch.get_rng_state(), before)
