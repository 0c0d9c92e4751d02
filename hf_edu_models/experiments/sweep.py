"""A sweep: trains variants of one model over several seeds; finished trainings are read back, not repeated."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..plotting import write_csv
from ..run_folder import write_atomically

_FINISHED = "finished.json"


@dataclass(frozen=True)
class Variant:
    """One variant of a sweep: its name, and all the settings that `train` gets."""

    name: str
    settings: dict[str, Any]


def sweep(
    name: str,
    variants: Sequence[Variant],
    train: Callable[[dict[str, Any], int, Path], dict[str, float]],
    folder: str | os.PathLike,
    seeds: Sequence[int] = (0,),
    report: Callable[[str], None] = lambda line: None,
) -> list[dict[str, Any]]:
    """Train every variant with every seed; one row for each: `variant`, `seed` and its scores.

    A variant that is finished in `folder` with the same settings is read back. After every training `results.csv` and
    `results.json` hold the rows so far, so an interrupted sweep continues where it stopped.

    Args:
        train: Maps settings, a seed and an empty folder to scores.
        report: Called with one line before each training.
    """
    if len({variant.name for variant in variants}) < len(variants) or len(set(seeds)) < len(seeds):
        raise ValueError(f"variants and seeds of {name} must all differ; got {[v.name for v in variants]}, {seeds}")
    folder, rows = Path(folder), []
    # Seed by seed, so that an interrupted sweep has every variant.
    plan = [(variant, seed) for seed in seeds for variant in variants]
    for number, (variant, seed) in enumerate(plan, start=1):
        subfolder = folder / folder_of(variant.name, seed)
        settings = json.loads(json.dumps({"settings": variant.settings, "seed": seed}))
        scores = _read_finished(subfolder, settings)
        report(f"{name} {number} of {len(plan)}: {variant.name}, seed {seed}" + (" (read back)" if scores else ""))
        if scores is None:
            subfolder.mkdir(parents=True, exist_ok=True)
            scores = train(dict(variant.settings), seed, subfolder)
            _write_json(subfolder / _FINISHED, settings | {"scores": scores})
        rows.append({"variant": variant.name, "seed": seed} | scores)
        write_csv(folder / "results.csv", rows)
        _write_json(folder / "results.json", {"name": name, "rows": rows})
    return rows


def folder_of(name: str, seed: int) -> str:
    """The folder of one training, inside the folder of its sweep."""
    file_name = re.sub(r"[^\w.-]+", "-", name).strip("-")
    return f"{file_name}-seed{seed}"


def _read_finished(folder: Path, settings: dict[str, Any]) -> dict[str, float] | None:
    file = folder / _FINISHED
    if not file.is_file():
        return None
    finished = json.loads(file.read_text("utf-8"))
    is_same = all(finished.get(key) == value for key, value in settings.items())
    return finished["scores"] if is_same else None


def _write_json(path: Path, content: dict[str, Any]) -> None:
    write_atomically(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
