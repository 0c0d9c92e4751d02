"""Two processes equal one with the same global batch, and gradient accumulation equals one large batch."""

import json

import pytest
import tiny_runs
import torch
from safetensors.torch import load_file
from tiny_runs import KillAtStep, in_process, in_two_processes, run_case, run_without_dropout
from torch.testing import assert_close

from hf_edu_models.run_folder import log_history

# Adam would turn the last bit of a gradient near zero into a step of full length.
PLAIN = {"optim": "sgd", "learning_rate": 0.3, "logging_steps": 1}


def losses(run) -> dict[int, float]:
    return {line["step"]: line["loss"] for line in log_history(run) if "loss" in line}


def assert_same_learning(run, other) -> None:
    assert losses(run) == pytest.approx(losses(other), abs=1e-5)
    assert_close(load_file(run / "model.safetensors"), load_file(other / "model.safetensors"), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    "name, one, each, kill",
    [
        ("shared pairs", {"per_device_train_batch_size": 8, "save_steps": 2}, {"save_steps": 2}, 5),
        ("carried state", {}, {"per_device_train_batch_size": 2, "per_device_eval_batch_size": 2}, 8),
        ("shared buckets", {"gradient_accumulation_steps": 2, "num_train_epochs": 1}, {"num_train_epochs": 1}, 5),
    ],
)
def test_two_processes_equal_one(name, one, each, kill, tmp_path):
    """Killed and resumed, inside the second epoch if there is one: both must continue at the right batch."""
    alone, together = tmp_path / "alone", tmp_path / "together"
    assert in_process(run_without_dropout, name, alone, **PLAIN, **one) == 0
    again = {"resume": True, **PLAIN, **each}
    killed = in_two_processes(run_without_dropout, name, together, kill=KillAtStep(kill), **PLAIN, **each)
    assert killed == [-9, -9]
    assert in_two_processes(run_without_dropout, name, together, **again) == [0, 0]
    ends = [torch.load(together / f"process-{rank}.pt", weights_only=False) for rank in range(2)]
    assert [(end["world"], end["rank"]) for end in ends] == [(2, 0), (2, 1)]
    assert_same_learning(together, alone)
    end = torch.load(alone / "process-0.pt", weights_only=False)
    assert end["world"] == 1
    for other in ends:  # rows in their order, and a state of its own for each stream
        assert_close(torch.tensor(other["predictions"]), torch.tensor(end["predictions"]), atol=1e-4, rtol=1e-4)
        if name == "carried state":  # Trainer's loss of uneven batches is a mean of their means
            assert other["loss"] == pytest.approx(end["loss"], abs=1e-4)


def test_two_processes_read_a_stream_and_resume_exactly(tmp_path):
    """Each has chunks and a position of its own; with another world size the stream would be divided differently."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert in_two_processes(run_without_dropout, "streamed", whole) == [0, 0]
    assert in_two_processes(run_without_dropout, "streamed", killed, kill=KillAtStep(8)) == [-9, -9]
    assert in_two_processes(run_without_dropout, "streamed", killed, resume=True) == [0, 0]
    weights, expected = (load_file(run / "model.safetensors") for run in (killed, whole))
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
    places = [json.loads((killed / "checkpoint-18" / f"stream_{rank}.json").read_text()) for rank in range(2)]
    assert [place["reader"]["rank"] for place in places] == [0, 1] and places[0]["epoch"] != places[1]["epoch"]
    assert in_process(run_without_dropout, "streamed", killed, resume=True, max_steps=20) == 1


def accumulating(folder, **settings):
    tiny_runs.RECURRENT["dropout"] = tiny_runs.ATTENTION["dropout"] = 0.0
    tiny_runs.CASES["large"] = (lambda args: tiny_runs.translating(args, rows=64), {"num_train_epochs": 2})
    run_case("large", folder, **PLAIN, **settings)


def test_accumulated_steps_equal_one_large_batch(tmp_path):
    """The rows have different lengths, so that a mean of means would differ."""
    sizes = {
        "large": {"per_device_train_batch_size": 32},
        "small": {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4},
    }
    for name, size in sizes.items():
        assert in_process(accumulating, tmp_path / name, **size) == 0
    assert len(losses(tmp_path / "large")) == 4
    assert_same_learning(tmp_path / "small", tmp_path / "large")


class FastClock:
    """The clock of the second process is an hour ahead."""

    def arm(self, trainer, folder):
        trainer.run_state.seconds = 3600.0 * trainer.args.process_index

    def report(self):
        pass


def test_processes_stop_at_the_same_step(tmp_path):
    options = {"kill": FastClock(), "max_minutes": 30.0, "max_steps": 4, "wait": 100}
    assert in_two_processes(run_without_dropout, "shared pairs", tmp_path, **options) == [0, 0]
    assert max(losses(tmp_path)) == 4
