"""A run that is killed at any moment goes on, and ends as if nothing had happened: bit for bit."""

import json
import random
from pathlib import Path

import pytest
import tiny_runs
from safetensors.torch import load_file
from tiny_runs import CASES, KillAtFile, KillAtStep, in_process, run_case
from torch import equal

from hf_edu_models.training.checkpoints import ASIDE, checkpoints_of
from hf_edu_models.training.run_folder import log_history

NOT_REPEATED = ("runtime", "per_second", "train_loss", "total_flos")  # times, and what only one of two parts has seen


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Every case once without a break, and the changes of files that it made."""
    runs = {}

    def get(name: str) -> tuple[Path, list[str]]:
        if name not in runs:
            folder = tmp_path_factory.mktemp("whole")
            names = folder / "changes.txt"
            assert in_process(run_case, name, folder / "run", kill=KillAtFile(names=str(names))) == 0
            runs[name] = folder / "run", names.read_text().split()
        return runs[name]

    return get


def losses(run: Path) -> list[dict]:
    kept = [{key: value for key, value in line.items() if not key.endswith(NOT_REPEATED)} for line in log_history(run)]
    return [line for line in kept if set(line) - {"step", "epoch"}]


def assert_same_end(run: Path, other: Path) -> None:
    weights, expected = load_file(run / "model.safetensors"), load_file(other / "model.safetensors")
    assert weights.keys() == expected.keys()
    assert [name for name in weights if not equal(weights[name], expected[name])] == []
    assert losses(run) == losses(other)
    assert [folder.name for folder in checkpoints_of(run)] == [folder.name for folder in checkpoints_of(other)]
    assert not (run / ASIDE).exists()


def assert_whole_checkpoints(run: Path) -> None:
    """Whatever is called a checkpoint can be read to its end."""
    import torch

    for folder in run.glob("checkpoint-*"):
        assert load_file(folder / "model.safetensors")
        assert json.loads((folder / "trainer_state.json").read_text())["global_step"] > 0
        for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"):
            torch.load(folder / name, weights_only=False)


def run_with_kills(name: str, folder: Path, kills: list, **settings) -> None:
    for number, kill in enumerate(kills):
        assert in_process(run_case, name, folder, resume=number > 0, kill=kill, **settings) == -9
        assert_whole_checkpoints(folder)
    assert in_process(run_case, name, folder, resume=True, **settings) == 0


# Checkpoints come every 3 steps. Killed before the first, inside an epoch, right after a border and near the end.
KILLS = {
    "random order": (2, 8, 17),
    "grouped by length": (11,),
    "length buckets": (11,),
    "masked words": (5, 14),
    "carried state": (8, 16),  # goes on from 6, inside epoch 2, and from 15, where epoch 4 begins
    "accumulated": (5, 11),
    "accumulated states": (7, 14),
    "early stopping": (5, 10),
    "unfreezing": (8,),
}
assert KILLS.keys() == CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_killed_in_training(name, whole, tmp_path):
    run_with_kills(name, tmp_path, [KillAtStep(step) for step in KILLS[name]])
    assert_same_end(tmp_path, whole(name)[0])
