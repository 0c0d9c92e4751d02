"""Checkpoints that are whole or not there: written aside, then put in place by one rename."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file

ASIDE = ".unfinished"  # where checkpoints are written, inside the run's folder
STEP = re.compile(r"checkpoint-(\d+)")


class RunStopped(RuntimeError):
    """A run that cannot go on, with one sentence for its user; what was saved before is kept."""


def checkpoints_of(run: str | os.PathLike) -> list[Path]:
    """The checkpoints of a run, the oldest first."""
    found = [folder for folder in Path(run).glob("checkpoint-*") if STEP.fullmatch(folder.name) and folder.is_dir()]
    return sorted(found, key=lambda folder: int(STEP.fullmatch(folder.name)[1]))


def last_checkpoint(run: str | os.PathLike) -> Path | None:
    """Where to resume from; first, what a crash left half done is finished or thrown away."""
    tidy(run)
    return newest(run)


def newest(run: str | os.PathLike) -> Path | None:
    return next(reversed(checkpoints_of(run)), None)


def tidy(run: str | os.PathLike) -> None:
    """Put a checkpoint that was being replaced back where none took its place, and drop the rest."""
    aside = Path(run) / ASIDE
    for folder in aside.glob("replaced-checkpoint-*"):
        place = Path(run) / folder.name.removeprefix("replaced-")
        if not place.exists():
            os.replace(folder, place)
    shutil.rmtree(aside, ignore_errors=True)


def put_in_place(unfinished: Path, place: Path) -> None:
    """Move a finished folder to its name; an older one of the same name is never half replaced."""
    flush(unfinished)
    if place.exists():
        os.replace(place, unfinished.with_name(f"replaced-{place.name}"))
    os.replace(unfinished, place)
    flush_folder(place.parent)


def put_files_in_place(unfinished: Path, folder: Path) -> None:
    """Move finished files over those of another folder, its config.json last: without it nothing loads the folder."""
    flush(unfinished)
    for file in sorted(unfinished.iterdir(), key=lambda file: file.name == "config.json"):
        os.replace(file, folder / file.name)
    flush_folder(folder)


def drop_old(run: str | os.PathLike, limit: int | None, best: str | None) -> None:
    """Keep the last checkpoints and the best one beside them; the others vanish at once, or a crash would leave a part.

    Args:
        limit: how many of the last ones; None keeps all.
    """
    aside = Path(run) / ASIDE
    for folder in checkpoints_of(run)[:-limit] if limit else []:
        if best is None or folder.name != Path(best).name:
            aside.mkdir(exist_ok=True)
            os.replace(folder, aside / f"dropped-{folder.name}")
    tidy(run)


def flush(folder: Path) -> None:
    """Wait until every file is on the disk, so that not even a power cut leaves a name without its content."""
    for file in folder.rglob("*"):
        if file.is_file():
            with open(file, "rb") as stream:
                os.fsync(stream.fileno())
    flush_folder(folder)


def flush_folder(folder: Path) -> None:
    if not hasattr(os, "O_DIRECTORY"):  # Windows cannot open folders
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def full_disk_is_said(run: str | os.PathLike) -> Iterator[None]:
    """A sentence instead of a traceback where the disk is full; what was half written is thrown away."""
    try:
        yield
    except Exception as problem:
        if not is_full_disk(problem, run):
            raise
        tidy(run)
        last = newest(run)
        kept = f"the last good checkpoint is {last}" if last else "there is no checkpoint yet"
        raise RunStopped(
            f"no space is left on the disk of {run}; {kept}. Free some space and run the same command with --resume"
        ) from problem


def is_full_disk(problem: BaseException | None, run: str | os.PathLike) -> bool:
    """Whether a full disk is behind an error: torch and safetensors raise their own kinds, without a number."""
    while problem is not None:
        words = str(problem).lower()
        if getattr(problem, "errno", None) in (errno.ENOSPC, errno.EDQUOT) or "no space left" in words:
            return True
        failed_to_write = "failed writing" in words or "unexpected pos" in words  # torch.save
        if failed_to_write and shutil.disk_usage(run).free < 2**20:
            return True
        problem = problem.__cause__ or problem.__context__
    return False


def average_weights(folders: list[Path]) -> dict[str, torch.Tensor]:
    """The mean of the weights of several checkpoints (Vaswani et al. 2017 average their last ones, Section 6.1)."""
    total: dict[str, torch.Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    for folder in folders:
        for name, weight in _weights(folder).items():
            kinds[name] = weight.dtype
            total[name] = total.get(name, 0) + weight.to(torch.float64)
    return {name: (value / len(folders)).to(kinds[name]) for name, value in total.items()}


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise FileNotFoundError(f"{folder} has no weights; average_checkpoints needs checkpoints that have")
    return {name: weight for file in files for name, weight in load_file(file).items()}
