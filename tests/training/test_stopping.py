"""A run that cannot continue raises a one-sentence error, keeps its last good checkpoint, and can be resumed."""

import errno
import json
import os
import runpy
import shutil
import subprocess

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from tiny_runs import CASES, arguments, translating
from transformers import Trainer, TrainerCallback

from hf_edu_models.manifest import MANIFEST
from hf_edu_models.run_folder import (
    RESULTS,
    STATE,
    UNFINISHED,
    explain_full_disk,
    list_checkpoints,
    newest_checkpoint,
    write_results,
)
from hf_edu_models.training import RunStopped
from hf_edu_models.training import trainers as trainers_module
from hf_edu_models.training.presets import find_recipe
from hf_edu_models.training.run import launch

PAGE = 4096
STEPS = ["--save_strategy", "steps", "--save_steps", "3", "--eval_strategy", "no", "--logging_steps", "2"]
SMALL = ["--per_device_train_batch_size", "4", "--num_train_epochs", "3", "--learning_rate", "0.01"]


def run(folder, *flags, callback=None, change=None):
    """Run the case "random order" through `launch`; return the exit code."""

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
        launch(main, "2017_transformer.py", [*fixed, *STEPS, *SMALL, *flags])
    except SystemExit as end:
        return end.code
    return 0


def assert_kept(folder, step: int) -> None:
    """The last good checkpoint is complete; nothing unfinished is left."""
    assert newest_checkpoint(folder).name == f"checkpoint-{step}"
    weights = load_file(newest_checkpoint(folder) / "model.safetensors")
    assert weights and all(weight.isfinite().all() for weight in weights.values())
    assert torch.load(newest_checkpoint(folder) / "optimizer.pt", weights_only=True)["state"]
    assert not (folder / UNFINISHED).exists()


def assert_ends_as(folder, whole) -> None:
    expected = load_file(whole("random order")[0] / "model.safetensors")
    weights = load_file(folder / "model.safetensors")
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


def assert_resumes(folder, whole) -> None:
    assert run(folder, "--resume") == 0
    assert_ends_as(folder, whole)


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


class Filler(TrainerCallback):
    """Before the second checkpoint, fills the disk until one of its files has half of the space that it needs."""

    def __init__(self, disk, file: str):
        self.disk, self.file = disk, file

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step != 5:
            return
        files = sorted((self.disk / "run" / "checkpoint-3").iterdir(), key=lambda file: file.stat().st_mtime_ns)
        names = [file.name for file in files]
        before = files[: names.index(self.file)]
        space = sum(-(-file.stat().st_size // PAGE) * PAGE for file in before) + files[len(before)].stat().st_size // 2
        free = shutil.disk_usage(self.disk).free
        with open(self.disk / "filler", "wb") as stream:
            os.posix_fallocate(stream.fileno(), 0, free - space)


@pytest.mark.parametrize("file", ["blocks_seq2seq.py", "model.safetensors", "tokenizer.json", "optimizer.pt"])
def test_a_full_disk(file, small_disk, whole, capsys):
    """Python, safetensors, tokenizers and torch each raise their own kind of error."""
    folder = small_disk / "run"
    assert run(folder, callback=Filler(small_disk, file)) == 3
    error = capsys.readouterr().err.replace("\n", " ")
    assert f"no space is left on the disk of {folder}; the last good checkpoint is {folder}/checkpoint-3." in error
    assert "--resume" in error and "Traceback" not in error
    assert_kept(folder, 3)
    if file == "optimizer.pt":  # once is enough
        (small_disk / "filler").unlink()
        assert_resumes(folder, whole)


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
def test_errors_of_a_full_disk_are_recognised(problem, full_disk, tmp_path):
    (tmp_path / UNFINISHED / "checkpoint-6").mkdir(parents=True)
    (tmp_path / "checkpoint-3").mkdir()
    (tmp_path / "checkpoint-3" / STATE).write_text("{}")
    with (
        pytest.raises(RunStopped, match=r"no space is left .*checkpoint-3\. Free some space"),
        explain_full_disk(tmp_path),
    ):
        raise problem
    assert not (tmp_path / UNFINISHED).exists()
    with pytest.raises(RunStopped), explain_full_disk(tmp_path):  # also where another error came of it
        try:
            raise problem
        except Exception as cause:
            raise KeyError("x") from cause


@pytest.mark.parametrize("problem", [RuntimeError(TORCH), ValueError("x"), OSError(errno.EACCES, "Permission denied")])
def test_other_errors_are_not_changed(problem, tmp_path):
    """torch raises the same error if a write fails for another reason: then the disk has free space."""
    with pytest.raises(type(problem)) as seen, explain_full_disk(tmp_path):
        raise problem
    assert seen.value is problem


@pytest.mark.parametrize("method, kept", [("_save_optimizer_and_scheduler", 3), ("save_model", 18)])
def test_a_disk_that_fills_up_during_a_run(method, kept, monkeypatch, whole, capsys, tmp_path):
    """In the second checkpoint, and at the end."""
    real = getattr(Trainer, method)

    def fail(self, *args, **kwargs):
        is_end = method == "save_model" and "final" in args[0]
        if is_end or (method != "save_model" and self.state.global_step == 6):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(self, *args, **kwargs)

    with monkeypatch.context() as changed:
        changed.setattr(Trainer, method, fail)
        assert run(tmp_path) == 3
    assert f"checkpoint-{kept}. Free some space" in capsys.readouterr().err.replace("\n", " ")
    assert_kept(tmp_path, kept)
    assert_resumes(tmp_path, whole)


def test_no_space_for_the_results(monkeypatch, tmp_path):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    write_results(tmp_path, {"old": 1})
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RunStopped, match="no space is left"):
        write_results(tmp_path, {"new": 1})
    assert [file.name for file in tmp_path.iterdir()] == [RESULTS] and '"old"' in (tmp_path / RESULTS).read_text()


def nan_loss_at(step: int):
    def change(trainer):
        real = trainer.compute_loss

        def compute_loss(*args, **kwargs):
            return real(*args, **kwargs) * (float("nan") if trainer.state.global_step + 1 == step else 1.0)

        trainer.compute_loss = compute_loss

    return change


def nan_gradient_at(step: int):
    """The loss is finite, its gradient is not: only the weights show it, after the step."""

    def change(trainer):
        weight = next(trainer.model.parameters())
        weight.register_hook(lambda grad: grad * float("nan") if trainer.state.global_step + 1 == step else grad)

    return change


@pytest.mark.parametrize(
    "change, reason, kept",
    [
        (nan_loss_at(5), "the loss is NaN or infinite at step 5", 3),
        (nan_loss_at(6), "the loss is NaN or infinite at step 6", 3),
        (nan_gradient_at(9), "weights are NaN or infinite after step 9", 6),
    ],
    ids=["inside", "where a checkpoint is due", "in the gradient alone"],
)
def test_a_nan_loss(change, reason, kept, whole, capsys, tmp_path):
    assert run(tmp_path, change=change) == 3
    error = capsys.readouterr().err.replace("\n", " ")
    assert f"{reason}; the last good checkpoint is {tmp_path}/checkpoint-{kept}." in error
    assert "--learning_rate (now 0.01)" in error and "Traceback" not in error
    assert_kept(tmp_path, kept)
    if kept == 6:  # once is enough
        assert_resumes(tmp_path, whole)


def test_on_a_gpu_the_loss_is_checked_before_saving(tmp_path, monkeypatch):
    """On a GPU the loss is not read at every step; still no checkpoint may be written after a NaN."""
    trainer = translating(arguments(tmp_path, **CASES["random order"][1]))
    nan_loss_at(4)(trainer)
    real = trainers_module.ResumableTrainerMixin._check_loss
    waits = lambda self, step: None if step == self.state.global_step + 1 else real(self, step)  # noqa: E731
    monkeypatch.setattr(trainers_module.ResumableTrainerMixin, "_check_loss", waits)
    with pytest.raises(RunStopped, match="at step 4"):
        trainer.train()
    assert [folder.name for folder in list_checkpoints(tmp_path)] == ["checkpoint-3"]


def test_a_nan_loss_before_the_first_checkpoint(tmp_path, capsys):
    assert run(tmp_path, change=nan_loss_at(1)) == 3
    assert "at step 1; there is no checkpoint yet" in capsys.readouterr().err.replace("\n", " ")


def test_max_minutes_stops_a_run_which_can_be_resumed(tmp_path, whole):
    """The time counts over all resumptions."""

    class Late(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            if state.global_step == 4:
                found[0].run_state.seconds += 120

    found = []
    assert run(tmp_path, "--max_minutes", "2", callback=Late(), change=found.append) == 0
    assert newest_checkpoint(tmp_path).name == "checkpoint-5"
    seconds = found[0].run_state.elapsed_seconds()
    assert run(tmp_path, "--max_minutes", "60", "--resume", change=found.append) == 0
    assert found[1].run_state.elapsed_seconds() > seconds > 120
    assert_ends_as(tmp_path, whole)


def test_the_time_of_a_run_saved_under_the_callbacks_former_name_counts(tmp_path):
    assert run(tmp_path, "--max_steps", "3") == 0
    file, found = tmp_path / "checkpoint-3" / STATE, []
    state = json.loads(file.read_text())
    state["stateful_callbacks"]["Bookkeeping"] = state["stateful_callbacks"].pop("RunStateCallback")
    state["stateful_callbacks"]["Bookkeeping"]["attributes"]["seconds"] = 500.0
    file.write_text(json.dumps(state))
    (tmp_path / "checkpoint-3" / MANIFEST).unlink()  # such a run had none
    assert run(tmp_path, "--max_steps", "4", "--resume", change=found.append) == 0
    assert found[0].run_state.elapsed_seconds() > 500


def test_an_unknown_metric_raises_an_error_with_the_known_ones(tmp_path):
    trainer = translating(arguments(tmp_path, metric_for_best_model="blue"))
    with pytest.raises(ValueError, match="'blue' is no score of this run; it has loss, bleu"):
        trainer._determine_best_metric({"eval_loss": 1.0, "eval_bleu": 2.0, "eval_bleu_signature": "nrefs:1"}, None)


def test_the_log_holds_numbers(tmp_path):
    trainer = translating(arguments(tmp_path))
    trainer.log({"eval_bleu": 2.0, "eval_bleu_signature": "nrefs:1"})
    assert trainer.state.log_history == [{"eval_bleu": 2.0, "epoch": 0, "step": 0}]


def test_node2vec_that_diverges_on_a_small_graph_names_the_learning_rate(tmp_path, capsys):
    command = ["--preset", "node2vec", "--dataset", "karate", "--learning_rate", "0.1", "--quiet"]
    recipe = find_recipe("word_vectors")
    module = runpy.run_path(str(recipe), run_name="recipe")
    with pytest.raises(SystemExit) as stopped:
        launch(module["main"], str(recipe), [*command, "--walks", "2", "--output_dir", str(tmp_path / "run")])
    error = " ".join(capsys.readouterr().err.split())
    assert stopped.value.code == 3 and "in many pairs of one update, and their gradients add up. Lower" in error
    assert "--learning_rate (now 0.1), then run the same command again" in error and "max_grad_norm" not in error
