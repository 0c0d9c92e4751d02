"""A run that is killed at any moment resumes and ends with the same weights, bit for bit."""

import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file
from tiny_runs import KillAtFile, KillAtStep, in_process, run_case
from torch import equal

from hf_edu_models.run_folder import UNFINISHED, list_checkpoints, log_history, read_results
from hf_edu_models.training.presets import recipes_folder

IGNORED = ("runtime", "per_second", "train_loss", "total_flos")  # times, and totals since the last start


def losses(run: Path) -> list[dict]:
    kept = [{key: value for key, value in line.items() if not key.endswith(IGNORED)} for line in log_history(run)]
    return [line for line in kept if set(line) - {"step", "epoch"}]


def assert_same_end(run: Path, other: Path) -> None:
    weights, expected = load_file(run / "model.safetensors"), load_file(other / "model.safetensors")
    assert weights.keys() == expected.keys()
    assert [name for name in weights if not equal(weights[name], expected[name])] == []
    assert losses(run) == losses(other)
    assert [folder.name for folder in list_checkpoints(run)] == [folder.name for folder in list_checkpoints(other)]
    assert not (run / UNFINISHED).exists()


def assert_whole_checkpoints(run: Path) -> None:
    """Every folder with the name of a checkpoint is complete."""
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
    "masked language modelling": (14,),
    "carried state": (8, 16),  # resumes from 6, inside epoch 2, and from 15, where epoch 4 begins
    "carried memory": (8, 16),
    "AWD-LSTM": (8,),
    "accumulated": (11,),
    "accumulated states": (8,),
    "early stopping": (10,),
    "tasks": (2, 8),
    "teacher forcing": (8,),
    "professor forcing": (8,),
    "unfreezing": (8,),
    "streamed": (2, 8, 17),
    "streamed states": (8,),
    "streamed and accumulated": (5,),
}


@pytest.mark.parametrize("name", KILLS)
def test_killed_in_training(name, whole, tmp_path):
    run_with_kills(name, tmp_path, [KillAtStep(step) for step in KILLS[name]])
    assert_same_end(tmp_path, whole(name)[0])


def test_killed_while_saving(whole, tmp_path):
    """In the first checkpoint, before and after its rename, while old ones are deleted, and at the end."""
    draw = random.Random(0)
    kills = [
        KillAtFile(draw.randrange(1, 22)),
        KillAtFile(0, "os.rename", "checkpoint-3"),
        KillAtFile(1, "shutil.rmtree"),
        KillAtFile(draw.randrange(1, 22)),
        KillAtFile(0, "os.rename", "checkpoint-6"),
        KillAtFile(0, "os.rename", "/checkpoint-3"),  # checkpoint-9 is there, checkpoint-3 is about to be dropped
        KillAtFile(4, "os.remove"),  # some of a dropped checkpoint's files are gone
        KillAtFile(draw.randrange(1, 22), part="/final"),
        KillAtFile(draw.randrange(1, 12), "os.rename", "/final/"),
        KillAtFile(0, "os.rename", "/final/config.json"),
    ]
    run_with_kills("random order", tmp_path, kills)
    assert_same_end(tmp_path, whole("random order")[0])


@pytest.mark.slow
@pytest.mark.parametrize("start", range(4))
def test_killed_at_every_file_change(start, whole, tmp_path):
    expected, changes = whole("random order")
    for number in range(start, len(changes), 4):
        run_with_kills("random order", tmp_path / str(number), [KillAtFile(number)])
        assert_same_end(tmp_path / str(number), expected)


def test_resuming_a_finished_run_changes_nothing(whole, tmp_path):
    """Also one that was stopped early, and one that reads a stream, which has no end."""
    for name in ("random order", "early stopping", "streamed"):
        folder = tmp_path / name
        shutil.copytree(whole(name)[0], folder)
        assert in_process(run_case, name, folder, resume=True) == 0
        assert_same_end(folder, whole(name)[0])


def test_the_best_checkpoint_and_early_stopping_are_restored(whole):
    """The marks were 1, 3, 2, 2.5: the second is the best, and two more were the patience."""
    run, _ = whole("early stopping")
    state = json.loads((list_checkpoints(run)[-1] / "trainer_state.json").read_text())
    assert state["global_step"] == 12 and state["best_global_step"] == 6 and state["best_metric"] == 3.0
    best = load_file(run / "checkpoint-6" / "model.safetensors")
    assert all(equal(weight, best[name]) for name, weight in load_file(run / "model.safetensors").items())


def test_a_higher_patience_continues_training(whole, tmp_path):
    shutil.copytree(whole("early stopping")[0], tmp_path / "run")
    assert in_process(run_case, "early stopping", tmp_path / "run", resume=True, early_stopping_patience=3) == 0
    marks = [line["eval_mark"] for line in log_history(tmp_path / "run") if "eval_mark" in line]
    assert marks[:5] == [1.0, 3.0, 2.0, 2.5, 5.0]


def test_resuming_takes_the_new_learning_rate(whole, tmp_path):
    """The advice after a NaN loss is to lower it."""
    shutil.copytree(whole("random order")[0], tmp_path / "run")
    for folder in list_checkpoints(tmp_path / "run")[1:]:
        shutil.rmtree(folder)
    (first,) = list_checkpoints(tmp_path / "run")
    done = int(first.name.partition("-")[2])
    assert in_process(run_case, "random order", tmp_path / "run", resume=True, learning_rate=0.005) == 0
    before, after = (
        {line["step"]: line["learning_rate"] for line in log_history(run) if "loss" in line}
        for run in (whole("random order")[0], tmp_path / "run")
    )
    assert before.keys() == after.keys()
    for step, lr in before.items():
        assert after[step] == pytest.approx(lr / 2 if step > done else lr)


def test_the_loss_between_two_logs_is_not_lost(whole):
    """Checkpoints come every 3 steps and logs every 2."""
    steps = [line["step"] for line in losses(whole("random order")[0])]
    assert steps == list(range(2, 19, 2))


@pytest.mark.slow
def test_a_recipe_is_killed_from_outside(tmp_path):
    """The recipe as users start it, killed at random moments and resumed."""
    steps = ["--save_strategy", "steps", "--save_steps", "2", "--eval_strategy", "no", "--num_train_epochs", "3"]
    command = [sys.executable, str(recipes_folder() / "2015_bahdanau.py"), "--preset", "smoke", "--use_cpu", *steps]
    draw = random.Random(0)
    subprocess.run([*command, "--output_dir", str(tmp_path / "whole")], check=True)
    killed = [*command, "--output_dir", str(tmp_path / "killed"), "--resume"]
    for least in (1, 8, 14):
        process = subprocess.Popen(killed)
        while (
            max((int(each.name.partition("-")[2]) for each in list_checkpoints(tmp_path / "killed")), default=0) < least
        ):
            assert process.poll() is None
            time.sleep(0.01)
        time.sleep(draw.random() / 4)
        process.kill()
        process.wait()
        assert_whole_checkpoints(tmp_path / "killed")
    subprocess.run(killed, check=True)
    assert_same_end(tmp_path / "killed", tmp_path / "whole")
    assert read_results(tmp_path / "killed")["scores"] == read_results(tmp_path / "whole")["scores"]
