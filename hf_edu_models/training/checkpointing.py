"""Checkpoints that are complete or absent: written to a temporary folder, flushed, then renamed."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from safetensors.torch import load_file

from ..run_folder import UNFINISHED, clean_up_unfinished, list_checkpoints, newest_checkpoint


def last_checkpoint(run: str | os.PathLike) -> Path | None:
    """The checkpoint to resume from, after cleaning up what a crash left unfinished."""
    clean_up_unfinished(run)
    return newest_checkpoint(run)


def replace_folder(unfinished: Path, folder: Path) -> None:
    """Rename a finished folder; an older one of that name is moved away first and never replaced file by file."""
    _flush(unfinished)
    if folder.exists():
        os.replace(folder, unfinished.with_name(f"replaced-{folder.name}"))
    os.replace(unfinished, folder)
    _flush_entries(folder.parent)


def replace_files(unfinished: Path, folder: Path) -> None:
    """Move finished files into a folder, config.json last: without it the folder does not load."""
    _flush(unfinished)
    for file in sorted(unfinished.iterdir(), key=lambda file: file.name == "config.json"):
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
        for name, weight in _load_weights(folder).items():
            dtypes[name] = weight.dtype
            total[name] = total.get(name, 0) + weight.to(torch.float64)
    return {name: (value / len(folders)).to(dtypes[name]) for name, value in total.items()}


def _load_weights(folder: Path) -> dict[str, torch.Tensor]:
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise FileNotFoundError(f"{folder} has no model*.safetensors to average; leave out --average_checkpoints")
    return {name: weight for file in files for name, weight in load_file(file).items()}
