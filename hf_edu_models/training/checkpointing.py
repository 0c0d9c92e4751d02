"""Checkpoints that are complete or absent: written to a temporary folder with a manifest, flushed, then renamed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from ..data.notes import note
from ..manifest import MANIFEST, find_damage, write_manifest
from ..run_folder import UNFINISHED, clean_up_unfinished, list_checkpoints, newest_checkpoint, step_of


def checkpoint_to_resume(args: Any) -> Path | None:
    """The last good checkpoint of a run: its first process verifies them, the others look afterwards.

    Args:
        args: Trainer's arguments.
    """
    with args.main_process_first(local=False):
        is_first = args.process_index == 0
        found = last_checkpoint(args.output_dir) if is_first else newest_checkpoint(args.output_dir)
    if found is not None and is_first:
        _note_world_size(found, args)
    return found


def last_checkpoint(run: str | os.PathLike) -> Path | None:
    """The last checkpoint that is not damaged, after cleaning up what a crash left unfinished.

    Damaged ones are renamed, not deleted. If all are damaged, an error says what is wrong with each.
    """
    clean_up_unfinished(run)
    for folder in Path(run).glob("checkpoint-*"):
        if step_of(folder) is not None and folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
            note(f"removed {folder}, which was empty")
    damaged: dict[Path, str] = {}
    for folder in reversed(list_checkpoints(run)):
        problem = find_damage(folder, for_resuming=True)
        if problem is None:
            _set_aside(damaged, folder)
            return folder
        damaged[folder] = problem
    if damaged:
        reasons = "; ".join(f"{folder.name}: {problem}" for folder, problem in damaged.items())
        raise ValueError(
            f"every checkpoint of {run} is damaged ({reasons}); restore one from a copy, or start again with another "
            "--output_dir"
        )
    return None


def _set_aside(damaged: dict[Path, str], good: Path) -> None:
    if not (good / MANIFEST).is_file():
        note(f"{good} has no {MANIFEST}: only its form was checked, not its content")
    for folder, problem in damaged.items():
        others = len(list(folder.parent.glob(f"damaged-{folder.name}*")))
        aside = folder.with_name(f"damaged-{folder.name}" + (f"-{others + 1}" if others else ""))
        os.replace(folder, aside)
        note(f"{folder} is damaged: {problem}; it is kept as {aside.name}, and {good.name} is used instead")


def _note_world_size(checkpoint: Path, args: Any) -> None:
    """Say what changes if a run is resumed by another number of processes."""
    states = [*checkpoint.glob("rng_state_*.pth"), *checkpoint.glob("random_states_*.pkl")]
    before, now = max(len(states), 1), args.world_size
    if before != now:
        rows = args.per_device_train_batch_size * args.gradient_accumulation_steps
        note(
            f"{checkpoint.name} was saved by {before} process{'es' * (before > 1)} and is resumed by {now}: a step has "
            f"{now * rows} rows instead of {before * rows}, the rest of the epoch is in another order, and dropout "
            "differs, so the result is not that of an uninterrupted run"
        )


def replace_folder(unfinished: Path, folder: Path) -> None:
    """Rename a finished folder; an older one of that name is moved away first and never replaced file by file."""
    _set_modes(unfinished)
    write_manifest(unfinished)
    _flush(unfinished)
    if folder.exists():
        os.replace(folder, unfinished.with_name(f"replaced-{folder.name}"))
    os.replace(unfinished, folder)
    _flush_entries(folder.parent)


def replace_files(unfinished: Path, folder: Path) -> None:
    """Move finished files into a folder, config.json and the manifest last: without the first it does not load."""
    _set_modes(unfinished)
    write_manifest(unfinished)
    _flush(unfinished)
    (folder / MANIFEST).unlink(missing_ok=True)  # it would not fit a part of the new files
    last = ("config.json", MANIFEST)
    for file in sorted(unfinished.iterdir(), key=lambda file: last.index(file.name) if file.name in last else -1):
        os.replace(file, folder / file.name)
    _flush_entries(folder)


def rotate_checkpoints(run: str | os.PathLike, limit: int | None, best: str | None) -> None:
    """Delete all checkpoints but the last ones and the best one; each is renamed first, so none is half deleted.

    Args:
        limit: Number of last checkpoints to keep; None keeps all.
    """
    unfinished = Path(run) / UNFINISHED
    for folder in list_checkpoints(run)[:-limit] if limit else []:
        if best is None or folder.name != Path(best).name:
            unfinished.mkdir(exist_ok=True)
            os.replace(folder, unfinished / f"dropped-{folder.name}")
    clean_up_unfinished(run)


def _set_modes(folder: Path) -> None:
    """Give every file the permissions of a new file: safetensors lets only the owner read the weights."""
    mode = folder.stat().st_mode & 0o666  # a folder, too, is created with the user's umask
    for file in folder.rglob("*"):
        if file.is_file():
            file.chmod(mode)


def _flush(folder: Path) -> None:
    """Wait until every file is on the disk, so that a power failure leaves no empty files."""
    for file in folder.rglob("*"):
        if file.is_file():
            with open(file, "rb") as stream:
                os.fsync(stream.fileno())
    _flush_entries(folder)


def _flush_entries(folder: Path) -> None:
    if not hasattr(os, "O_DIRECTORY"):  # Windows cannot open folders
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def average_weights(folders: list[Path]) -> dict[str, torch.Tensor]:
    """Mean of the weights of several checkpoints (Vaswani et al. 2017 average their last ones, Section 6.1)."""
    total: dict[str, torch.Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    for folder in folders:
        problem = find_damage(folder)
        if problem:
            raise ValueError(f"{folder} is damaged: {problem}; leave out --average_checkpoints")
        for name, weight in _load_weights(folder).items():
            dtypes[name] = weight.dtype
            total[name] = total.get(name, 0) + weight.to(torch.float64)
    return {name: (value / len(folders)).to(dtypes[name]) for name, value in total.items()}


def _load_weights(folder: Path) -> dict[str, torch.Tensor]:
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise FileNotFoundError(f"{folder} has no model*.safetensors to average; leave out --average_checkpoints")
    return {name: weight for file in files for name, weight in load_file(file).items()}
