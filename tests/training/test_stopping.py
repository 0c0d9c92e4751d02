"""A run that cannot go on says why in one sentence, keeps its last good checkpoint, and goes on when it can."""

import errno
import os
import shutil
import subprocess

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from tiny_runs import CASES, arguments, translating
from transformers import Trainer, TrainerCallback

from hf_edu_models.training import RunStopped
from hf_edu_models.training import trainers as trainers_module
from hf_edu_models.training.checkpoints import ASIDE, checkpoints_of, full_disk_is_said, newest
from hf_edu_models.training.run import launch
from hf_edu_models.training.run_folder import RESULTS, write_results

PAGE = 4096
STEPS = ["--save_strategy", "steps", "--save_steps", "3", "--eval_strategy", "no", "--logging_steps", "2"]
SMALL = ["--per_device_train_batch_size", "4", "--num_train_epochs", "3", "--learning_rate", "0.01"]


def run(folder, *flags, callback=None, change=None):
    """The run "random order" from the command line's side; returns the exit code."""

    def main(args, training_args):
        from hf_edu_models.training import start_run

        begun = start_run(args, training_args, "pretraining")
        trainer = translating(training_args)
        if callback is not None:
            trainer.add_callback(callback)
        if change is not None:
            change(trainer)
        trainer.train(resume_from_checkpoint=begun.checkpoint)
        trainer.save_final()

    fixed = ["--dataset", "reverse", "--output_dir", str(folder), "--use_cpu", "--disable_tqdm", "True"]
    try:
        launch(main, "05_transformer.py", [*fixed, *STEPS, *SMALL, *flags])
    except SystemExit as end:
        return end.code
    return 0


def assert_kept(folder, step: int) -> None:
    """The last good checkpoint is there and can be read; nothing half done is left."""
    assert newest(folder).name == f"checkpoint-{step}"
    weights = load_file(newest(folder) / "model.safetensors")
    assert weights and all(weight.isfinite().all() for weight in weights.values())
    assert torch.load(newest(folder) / "optimizer.pt", weights_only=True)["state"]
    assert not (folder / ASIDE).exists()


def assert_ends_as(folder, whole) -> None:
    expected = load_file(whole("random order")[0] / "model.safetensors")
    weights = load_file(folder / "model.safetensors")
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def assert_goes_on(folder, whole) -> None:
    assert run(folder, "--resume") == 0
    assert_ends_as(folder, whole)


@pytest.fixture
def small_disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


class Filler(TrainerCallback):
    """Before the second checkpoint, fills the disk so far that one of its files finds only half of its room."""

    def __init__(self, disk, file: str):
        self.disk, self.file = disk, file

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step != 5:
            return
        files = sorted((self.disk / "run" / "checkpoint-3").iterdir(), key=lambda file: file.stat().st_mtime_ns)
        names = [file.name for file in files]
        before = files[: names.index(self.file)]
        room = sum(-(-file.stat().st_size // PAGE) * PAGE for file in before) + files[len(before)].stat().st_size // 2
        free = shutil.disk_usage(self.disk).free
        with open(self.disk / "filler", "wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, free - room)


@pytest.mark.parametrize("file", ["blocks_seq2seq.py", "model.safetensors", "tokenizer.json", "optimizer.pt"])
def test_a_full_disk(file, small_disk, whole, capsys):
    """Python, safetensors, tokenizers and torch each raise their own kind of error."""
    folder = small_disk / "run"
    assert run(folder, callback=Filler(small_disk, file)) == 3
    said = capsys.readouterr().err.replace("\n", " ")
    assert f"no space is left on the disk of {folder}; the last good checkpoint is {folder}/checkpoint-3." in said
    assert "--resume" in said and "Traceback" not in said
    assert_kept(folder, 3)
    if file == "optimizer.pt":  # once is enough
        (small_disk / "filler").unlink()
        assert_goes_on(folder, whole)


TORCH = "[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0"
FULL = [
    OSError(errno.ENOSPC, "No space left on device"),
    OSError(errno.EDQUOT, "Disk quota exceeded"),
    SafetensorError('Error while serializing: IoError(Os { code: 28, message: "No space left on device" })'),
    RuntimeError(TORCH),
    RuntimeError("PytorchStreamWriter failed writing file data/0: file write failed"),
]


@pytest.fixture
def full_disk(monkeypatch):
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=100))


@pytest.mark.parametrize("problem", FULL, ids=lambda problem: type(problem).__name__)
def test_errors_of_a_full_disk_are_known(problem, full_disk, tmp_path):
    (tmp_path / ASIDE / "checkpoint-6").mkdir(parents=True)
    (tmp_path / "checkpoint-3").mkdir()
    with (
        pytest.raises(RunStopped, match=r"no space is left .*checkpoint-3\. Free some space"),
        full_disk_is_said(tmp_path),
    ):
        raise problem
    assert not (tmp_path / ASIDE).exists()
    with pytest.raises(RunStopped), full_disk_is_said(tmp_path):  # also where another error came of it
        try:
            raise problem
        except Exception as cause:
            raise KeyError("x") from cause


@pytest.mark.parametrize("problem", [RuntimeError(TORCH), ValueError("x"), OSError(errno.EACCES, "Permission denied")])
def test_other_errors_stay_what_they_are(problem, tmp_path):
    """torch says the same where a write fails for another reason: then there is room on the disk."""
    with pytest.raises(type(problem)) as seen, full_disk_is_said(tmp_path):
        raise problem
    assert seen.value is problem


@pytest.mark.parametrize("method, kept", [("_save_optimizer_and_scheduler", 3), ("save_model", 18)])
def test_a_disk_that_fills_up_in_a_run(method, kept, monkeypatch, whole, capsys, tmp_path):
    """In the second checkpoint, and at the very end."""
    real = getattr(Trainer, method)

    def fail(self, *given, **options):
        is_end = method == "save_model" and "final" in given[0]
        if is_end or (method != "save_model" and self.state.global_step == 6):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, *given, **options)

    with monkeypatch.context() as changed:
        changed.setattr(Trainer, method, fail)
        assert run(tmp_path) == 3
    assert f"checkpoint-{kept}. Free some space" in capsys.readouterr().err.replace("\n", " ")
    assert_kept(tmp_path, kept)
    assert_goes_on(tmp_path, whole)


def test_results_find_no_room(monkeypatch, tmp_path):
    def full(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    write_results(tmp_path, {"old": 1})
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunStopped, match="no space is left"):
        write_results(tmp_path, {"new": 1})
    assert [file.name for file in tmp_path.iterdir()] == [RESULTS] and '"old"' in (tmp_path / RESULTS).read_text()


def lose_the_loss(step: int):
    def change(trainer):
        real = trainer.compute_loss

        def compute_loss(*given, **options):
            return real(*given, **options) * (float("nan") if trainer.state.global_step + 1 == step else 1.0)

        trainer.compute_loss = compute_loss

    return change


def lose_the_gradient(step: int):
    """The loss is a number, its gradient is not: only the weights show it, and only after the step."""

    def change(trainer):
        weight = next(trainer.model.parameters())
        weight.register_hook(lambda grad: grad * float("nan") if trainer.state.global_step + 1 == step else grad)

    return change


@pytest.mark.parametrize(
    "change, reason, kept",
    [
        (lose_the_loss(5), "the loss is not a number at step 5", 3),
        (lose_the_loss(6), "the loss is not a number at step 6", 3),
        (lose_the_gradient(9), "weights are not numbers any more after step 9", 6),
    ],
    ids=["inside", "where a checkpoint is due", "in the gradient alone"],
)
def test_a_loss_that_is_not_a_number(change, reason, kept, whole, capsys, tmp_path):
    assert run(tmp_path, change=change) == 3
    said = capsys.readouterr().err.replace("\n", " ")
    assert f"{reason}; the last good checkpoint is {tmp_path}/checkpoint-{kept}." in said
    assert "--learning_rate (now 0.01)" in said and "Traceback" not in said
    assert_kept(tmp_path, kept)
    if kept == 6:  # once is enough
        assert_goes_on(tmp_path, whole)


def test_a_loss_is_looked_at_before_saving_on_devices_that_nobody_waits_for(tmp_path, monkeypatch):
    """On a GPU the loss of a step is not asked for at once; no checkpoint may come of it all the same."""
    trainer = translating(arguments(tmp_path, **CASES["random order"][1]))
    lose_the_loss(4)(trainer)
    real = trainers_module.SafeRun._check_loss
    waits = lambda self, step: None if step == self.state.global_step + 1 else real(self, step)  # noqa: E731
    monkeypatch.setattr(trainers_module.SafeRun, "_check_loss", waits)
    with pytest.raises(RunStopped, match="at step 4"):
        trainer.train()
    assert [folder.name for folder in checkpoints_of(tmp_path)] == ["checkpoint-3"]


def test_a_run_that_loses_its_loss_at_once_has_no_checkpoint(tmp_path, capsys):
    assert run(tmp_path, change=lose_the_loss(1)) == 3
    assert "at step 1; no checkpoint had been written" in capsys.readouterr().err.replace("\n", " ")


def test_the_clock_stops_a_run_which_goes_on_when_it_may(tmp_path, whole):
    """Time counts over resumptions: one that has used up its minutes does not get them again."""

    class Late(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            if state.global_step == 4:
                found[0].bookkeeping.seconds += 120

    found = []
    assert run(tmp_path, "--max_minutes", "2", callback=Late(), change=found.append) == 0
    assert newest(tmp_path).name == "checkpoint-5"
    seconds = found[0].bookkeeping.passed()
    assert run(tmp_path, "--max_minutes", "60", "--resume", change=found.append) == 0
    assert found[1].bookkeeping.passed() > seconds > 120
    assert_ends_as(tmp_path, whole)


def test_a_score_that_no_run_has_is_refused_with_those_that_it_has(tmp_path):
    trainer = translating(arguments(tmp_path, metric_for_best_model="blue"))
    with pytest.raises(ValueError, match="'blue' is no score of this run; it has loss, bleu"):
        trainer._determine_best_metric({"eval_loss": 1.0, "eval_bleu": 2.0, "eval_bleu_signature": "nrefs:1"}, None)


def test_the_log_holds_numbers(tmp_path):
    trainer = translating(arguments(tmp_path))
    trainer.log({"eval_bleu": 2.0, "eval_bleu_signature": "nrefs:1"})
    assert trainer.state.log_history == [{"eval_bleu": 2.0, "epoch": 0, "step": 0}]
