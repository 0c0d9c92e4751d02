"""SIGTERM saves and exits with 143; one folder has one run; another number of processes is announced."""

import os
import signal
import subprocess
import sys
import time

import pytest
from safetensors.torch import load_file
from test_stopping import assert_ends_as, run
from tiny_runs import KillAtStep, arguments, end_of, forks, in_process, in_two_processes, run_case
from transformers import TrainerCallback

from hf_edu_models.manifest import find_damage
from hf_edu_models.run_folder import LOCK, list_checkpoints, lock_run, newest_checkpoint, unlock_run
from hf_edu_models.training.presets import recipes_folder
from hf_edu_models.training.termination import SIGTERM_CODE, RunTerminated, defer_sigterm, explain_sigterm


class SendSigterm(TrainerCallback):
    def __init__(self, step: int, rank: int | None = None):
        self.step, self.rank = step, rank

    def arm(self, trainer, folder) -> None:
        trainer.add_callback(self)

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step + 1 == self.step and self.rank in (None, args.process_index):
            os.kill(os.getpid(), signal.SIGTERM)

    def report(self) -> None:
        raise AssertionError("the run was not stopped")


def test_sigterm_saves_and_the_resumed_run_ends_the_same(tmp_path, whole, capsys):
    """At a step that has no checkpoint of its own."""
    before = signal.getsignal(signal.SIGTERM)
    assert run(tmp_path, callback=SendSigterm(5)) == SIGTERM_CODE == 143
    error = capsys.readouterr().err
    assert f"stopped by SIGTERM, saved {tmp_path}/checkpoint-5; the same command with --resume continues" in error
    assert "Traceback" not in error and find_damage(tmp_path / "checkpoint-5") is None
    assert signal.getsignal(signal.SIGTERM) is before and not (tmp_path / LOCK).exists()
    assert run(tmp_path, "--resume") == 0
    assert "resumed from checkpoint-5" in capsys.readouterr().err
    assert_ends_as(tmp_path, whole)


def test_sigterm_to_one_of_two_processes_stops_both(tmp_path):
    kill = SendSigterm(5, rank=1)
    ends = in_two_processes(run_case_as, "shared pairs", tmp_path, kill=kill, wait=120)
    assert ends == [SIGTERM_CODE, SIGTERM_CODE]
    assert newest_checkpoint(tmp_path).name == "checkpoint-5" and find_damage(tmp_path / "checkpoint-5") is None


def run_case_as(name, folder, rank, world, port, **options):
    variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_PORT": port}
    os.environ.update({key: str(value) for key, value in variables.items()}, MASTER_ADDR="127.0.0.1")
    run_case(name, folder, ddp_backend="gloo", **options)


def test_sigterm_before_training_is_one_sentence(capsys):
    with pytest.raises(RunTerminated) as end, explain_sigterm():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)
    assert end.value.code == 143 and "stopped by SIGTERM; the same command" in capsys.readouterr().err


def test_a_worker_process_ends_at_sigterm_as_usual():
    """It inherits the handler, and the system's own would have ended it."""
    with defer_sigterm() as termination:
        started, start = os.pipe()
        worker = os.fork()
        if worker == 0:
            os.write(start, b"!")
            time.sleep(20)
            os._exit(0)
        os.read(started, 1)  # Python forgets signals that arrive while it forks
        os.kill(worker, signal.SIGTERM)
        _, status = os.waitpid(worker, 0)
    assert os.WTERMSIG(status) == signal.SIGTERM and not termination.is_requested


def run_noting(name, folder, log, rank=0, world=1, port=0, **options):
    """Run with stderr in a file."""
    handle = os.open(f"{log}-{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(handle, 2)
    if world > 1:
        run_case_as(name, folder, rank, world, port, **options)
    else:
        run_case(name, folder, **options)


def test_another_number_of_processes_resumes_with_a_sentence(tmp_path):
    folder, log = tmp_path / "run", tmp_path / "log"
    assert in_process(run_case, "shared pairs", folder, kill=KillAtStep(8)) == -9
    options = {"resume": True, "kill": KillAtStep(11), "save_steps": 1}
    assert in_two_processes(run_noting, "shared pairs", folder, log, **options) != [0, 0]
    text = (tmp_path / "log-0").read_text()
    assert "checkpoint-6 was saved by 1 process and is resumed by 2: a step has 8 rows instead of 4" in text
    assert "saved by" not in (tmp_path / "log-1").read_text()
    if newest_checkpoint(folder).name == "checkpoint-6":
        pytest.fail((tmp_path / "log-0").read_text())
    assert in_process(run_noting, "shared pairs", folder, log, resume=True) == 0
    text = (tmp_path / "log-0").read_text()
    assert "was saved by 2 processes and is resumed by 1: a step has 4 rows instead of 8" in text
    assert load_file(folder / "model.safetensors")


def hold(folder, is_held, may_end):
    lock_run(folder)
    is_held.set()
    may_end.wait(60)
    os._exit(0)  # as a killed process: the file stays


def test_a_folder_in_use_is_named_and_a_stale_lock_is_not_in_the_way(tmp_path, capsys):
    folder = tmp_path / "run"
    is_held, may_end = forks.Event(), forks.Event()
    holder = forks.Process(target=hold, args=(folder, is_held, may_end))
    holder.start()
    assert is_held.wait(100)
    assert run(folder, "--max_steps", "1") == 2
    error = capsys.readouterr().err.replace("\n", " ")
    assert f"process {holder.pid} on " in error and f"is writing to {folder}; wait until it ends" in error
    assert not list_checkpoints(folder)
    may_end.set()
    end_of(holder, 60)
    assert (folder / LOCK).exists()
    assert run(folder, "--max_steps", "1") == 0
    assert not (folder / LOCK).exists()


def test_a_process_may_lock_again_and_an_unused_folder_is_removed(tmp_path):
    folder = tmp_path / "new" / "run"
    lock_run(folder)
    lock_run(folder)
    unlock_run(folder)
    unlock_run(folder)
    assert not folder.exists()


def race(folder, start, ends):
    start.wait(100)
    try:
        lock_run(folder)
    except ValueError as error:
        ends.put(str(error))
    else:
        ends.put("mine")
        time.sleep(3)


def test_of_many_that_start_at_once_one_wins(tmp_path):
    start, ends = forks.Event(), forks.Queue()
    racers = [forks.Process(target=race, args=(tmp_path, start, ends)) for _ in range(4)]
    for racer in racers:
        racer.start()
    time.sleep(0.5)
    start.set()
    said = [ends.get(timeout=100) for _ in racers]
    for racer in racers:
        end_of(racer, 60)
    assert said.count("mine") == 1 and sum("is writing to" in each for each in said) == 3


def test_a_lock_is_not_held_by_workers_of_a_dead_process(tmp_path):
    """A worker of a data loader may live for some seconds after its parent was killed."""
    lock_run(tmp_path)
    worker = os.fork()
    if worker == 0:
        time.sleep(60)
        os._exit(0)
    unlock_run(tmp_path)
    try:
        lock_run(tmp_path)
        unlock_run(tmp_path)
    finally:
        os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)


def test_overwriting_keeps_the_lock(tmp_path):
    assert run(tmp_path, "--max_steps", "3") == 0
    seen = []
    assert (
        run(tmp_path, "--max_steps", "1", "--overwrite", change=lambda _: seen.append((tmp_path / LOCK).exists())) == 0
    )
    assert seen == [True] and [each.name for each in list_checkpoints(tmp_path)] == ["checkpoint-1"]


@pytest.mark.parametrize("make", ["file", "below a file"])
def test_a_folder_that_cannot_be_written_is_one_sentence(make, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    folder = tmp_path / "file" if make == "file" else tmp_path / "file" / "run"
    assert run(folder, "--max_steps", "1") == 2
    error = capsys.readouterr().err.replace("\n", " ")
    assert f"{folder} cannot be written to (" in error and "choose another --output_dir" in error


@pytest.mark.parametrize("name", ["os.replace", "pathlib.Path.mkdir"])
def test_missing_permissions_are_one_sentence(name, tmp_path, capsys, monkeypatch):
    """Of the folder at the start, and of the disk later."""

    def refuse(*args, **kwargs):
        raise PermissionError(13, "Permission denied", str(tmp_path))

    monkeypatch.setattr(name, refuse)
    assert run(tmp_path, "--max_steps", "1") == 2
    error = capsys.readouterr().err
    assert "Permission denied" in error and str(tmp_path) in error and "Traceback" not in error


def test_files_that_a_crash_left_are_deleted(tmp_path):
    assert run(tmp_path, "--max_steps", "1") == 0
    left = [tmp_path / ".unfinished-results.json-0a1b2c3d", tmp_path / ".unfinished" / "final" / "config.json"]
    for file in left:
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text("half")
    assert run(tmp_path, "--max_steps", "1", "--resume") == 0
    assert not any(file.exists() for file in left) and not (tmp_path / ".unfinished").exists()


@pytest.mark.slow
def test_a_recipe_is_terminated_from_outside(tmp_path):
    """As Slurm does it; and a second run in the same folder is rejected meanwhile."""
    steps = ["--save_strategy", "no", "--eval_strategy", "no", "--num_train_epochs", "300"]
    command = [sys.executable, str(recipes_folder() / "2015_bahdanau.py"), "--preset", "smoke", "--use_cpu", *steps]
    command += ["--logging_steps", "1", "--output_dir", str(tmp_path / "run")]
    first = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while "loss" not in (line := first.stdout.readline()):
        assert line or first.poll() is None
    second = subprocess.run(command, capture_output=True, text=True)
    assert second.returncode == 2 and f"process {first.pid} on" in second.stderr
    first.terminate()
    _, error = first.communicate(timeout=100)
    assert first.returncode == 143 and "stopped by SIGTERM, saved" in error
    assert find_damage(newest_checkpoint(tmp_path / "run")) is None


def test_arguments_without_a_launcher(tmp_path):
    """Trainer's own just-in-time checkpointing is replaced by ours."""
    assert not arguments(tmp_path, enable_jit_checkpoint=True).enable_jit_checkpoint
