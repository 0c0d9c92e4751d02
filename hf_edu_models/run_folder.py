"""The folder of a run: its files and its checkpoints, each complete or absent, whatever ends the process."""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml

RESULTS, SETTINGS, PREDICTIONS, STATE = "results.json", "settings.yaml", "predictions.jsonl", "trainer_state.json"
PHRASES = "phrases.txt"  # what was masked together in pre-training with --masking phrases, a phrase a line
UNFINISHED = ".unfinished"  # the subfolder in which a checkpoint is written before it is renamed into place
LOCK = ".lock"  # held by the process that writes to the folder, whose number and machine it contains
_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


class RunStopped(RuntimeError):
    """A run that cannot continue, with one sentence for its user; what was saved before is kept."""


def write_atomically(file: str | os.PathLike, content: str | bytes) -> None:
    """Write a file so that a reader, or a run after a crash, sees the old content or the new one, never a part."""
    file = Path(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f"{UNFINISHED}-{file.name}-{secrets.token_hex(4)}")
    try:
        with open(unfinished, "xb") as stream:
            stream.write(content.encode() if isinstance(content, str) else content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(unfinished, file)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def read_results(run: str | os.PathLike) -> dict[str, Any]:
    """Results of a finished run."""
    file = Path(run) / RESULTS
    if not file.is_file():
        problem = "is not a folder" if not Path(run).is_dir() else f"has no {RESULTS}"
        raise FileNotFoundError(f"{run} {problem}; give the folder of a finished run")
    return json.loads(file.read_text("utf-8"))


def write_results(run: str | os.PathLike, results: dict[str, Any]) -> None:
    with explain_full_disk(run):
        write_atomically(
            Path(run) / RESULTS, json.dumps(results, indent=2, ensure_ascii=False, default=_to_json) + "\n"
        )


def read_settings(run: str | os.PathLike) -> dict[str, Any]:
    """Settings of a run that differ from their defaults; empty if there is no settings.yaml."""
    file = Path(run) / SETTINGS
    return yaml.safe_load(file.read_text("utf-8")) or {} if file.is_file() else {}


def write_settings(run: str | os.PathLike, settings: dict[str, Any]) -> None:
    with explain_full_disk(run):
        write_atomically(Path(run) / SETTINGS, yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))


def read_phrases(file: str | os.PathLike) -> list[str]:
    """The phrases of a file, or of a run's folder, a phrase a line."""
    file = Path(file) / PHRASES if Path(file).is_dir() else Path(file)
    if not file.is_file():
        raise FileNotFoundError(f"{file} does not exist; give a file with a phrase a line")
    phrases = [line.strip() for line in file.read_text("utf-8").split("\n") if line.strip()]
    if not phrases:
        raise ValueError(f"{file} has no phrase; write one a line")
    return phrases


def log_history(run: str | os.PathLike) -> list[dict[str, Any]]:
    """Log entries of Trainer; empty if there is no trainer_state.json."""
    file = Path(run) / STATE
    return json.loads(file.read_text("utf-8"))["log_history"] if file.is_file() else []


def write_predictions(run: str | os.PathLike, rows: list[dict[str, Any]]) -> None:
    lines = (json.dumps(row, ensure_ascii=False, default=_to_json) for row in rows)
    with explain_full_disk(run):
        write_atomically(Path(run) / PREDICTIONS, "\n".join(lines) + "\n")


def read_predictions(run: str | os.PathLike) -> list[dict[str, Any]]:
    """Predictions of a run for its test split; empty if there is no predictions.jsonl."""
    file = Path(run) / PREDICTIONS
    lines = (
        file.read_text("utf-8").split("\n") if file.is_file() else []
    )  # splitlines would also split at U+2028 inside a text
    return [json.loads(line) for line in lines if line]


def _to_json(value: Any) -> Any:
    """Convert numbers of numpy and torch to Python's own."""
    return value.item() if hasattr(value, "item") else str(value)


def step_of(folder: str | os.PathLike) -> int | None:
    """The step of a checkpoint by its folder's name; None for other folders."""
    found = _CHECKPOINT.fullmatch(Path(folder).name)
    return int(found.group(1)) if found else None


def list_checkpoints(run: str | os.PathLike) -> list[Path]:
    """Checkpoints of a run, oldest first; an empty folder is none."""
    found = [each for each in Path(run).glob("checkpoint-*") if step_of(each) is not None and each.is_dir()]
    return sorted((each for each in found if any(each.iterdir())), key=lambda folder: step_of(folder) or 0)


def newest_checkpoint(run: str | os.PathLike) -> Path | None:
    return next(reversed(list_checkpoints(run)), None)


def clean_up_unfinished(run: str | os.PathLike) -> None:
    """Restore a checkpoint whose replacement was interrupted, and delete everything else that is unfinished."""
    run = Path(run)
    for folder in (run / UNFINISHED).glob("replaced-checkpoint-*"):
        checkpoint = run / folder.name.removeprefix("replaced-")
        if not checkpoint.exists():
            os.replace(folder, checkpoint)
    shutil.rmtree(run / UNFINISHED, ignore_errors=True)
    for file in [*run.glob(f"{UNFINISHED}-*"), *run.glob(f"pictures/{UNFINISHED}-*")]:
        file.unlink(missing_ok=True)


_held: dict[tuple[int, Path], Any] = {}  # by process, since a forked one has a copy of its parent's


def lock_run(run: str | os.PathLike) -> None:
    """Reserve a folder for this process; an error if another process writes to it.

    The system releases the lock of a process that was killed. A process that has the lock may ask for it again.
    """
    from filelock import FileLock, Timeout

    run = Path(run)
    if (os.getpid(), run.resolve()) in _held:
        return
    try:
        run.mkdir(parents=True, exist_ok=True)
        lock = FileLock(run / LOCK, timeout=0)
        lock.acquire()
    except Timeout:
        owner = (run / LOCK).read_text("utf-8").strip() or "another process"
        raise ValueError(f"{owner} is writing to {run}; wait until it ends, or choose another --output_dir") from None
    except OSError as error:
        raise PermissionError(
            f"{run} cannot be written to ({error.strerror}); choose another --output_dir, or change its permissions"
        ) from None
    _held[os.getpid(), run.resolve()] = lock
    (run / LOCK).write_text(f"process {os.getpid()} on {socket.gethostname()}\n", "utf-8")


def unlock_run(run: str | os.PathLike) -> None:
    """Release the lock of this process, if it has one; a folder that is empty is removed."""
    lock = _held.pop((os.getpid(), Path(run).resolve()), None)
    if lock is None:
        return
    (Path(run) / LOCK).unlink(missing_ok=True)
    lock.release()
    with suppress(OSError):  # it has files
        Path(run).rmdir()


@contextmanager
def explain_full_disk(run: str | os.PathLike) -> Iterator[None]:
    """Raise RunStopped with one sentence if the disk is full; unfinished files are deleted."""
    try:
        yield
    except Exception as error:
        if not _is_full_disk(error, run):
            raise
        clean_up_unfinished(run)
        last = newest_checkpoint(run)
        kept = f"the last good checkpoint is {last}" if last else "there is no checkpoint yet"
        raise RunStopped(
            f"no space is left on the disk of {run}; {kept}. Free some space and run the same command with --resume"
        ) from error


def _is_full_disk(error: BaseException | None, run: str | os.PathLike) -> bool:
    """Whether a full disk caused an error: torch and safetensors raise their own types, without an errno."""
    while error is not None:
        message = str(error).lower()
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "no space left" in message:
            return True
        failed_to_write = "failed writing" in message or "unexpected pos" in message  # torch.save
        if failed_to_write and shutil.disk_usage(run).free < 2**20:
            return True
        error = error.__cause__ or error.__context__
    return False
