"""A sweep: the same training with one thing changed at a time, over seeds; what is finished is never trained again."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .curves import write_json
from .tables import write_csv

FINISHED = "finished.json"
Train = Callable[[dict[str, Any], int, Path], dict[str, float]]


@dataclass(frozen=True)
class Variant:
    """One column of a figure: its name, and all the settings that `train` gets."""

    name: str
    settings: dict[str, Any]


def sweep(
    name: str,
    variants: Sequence[Variant],
    train: Train,
    folder: str | os.PathLike,
    seeds: Sequence[int] = (0,),
    report: Callable[[str], None] = lambda line: None,
) -> list[dict[str, Any]]:
    """Train every variant with every seed; one row for each: `variant`, `seed` and its scores.

    A variant that is finished in `folder`, with the same settings, is read back. `results.csv` and `results.json` hold
    the rows so far after every training, so a sweep that was stopped goes on where it was.

    Args:
        train: From settings, a seed and an empty folder to scores.
        report: Is told what begins.
    """
    if len({variant.name for variant in variants}) < len(variants) or len(set(seeds)) < len(seeds):
        raise ValueError(f"variants and seeds of {name} must all differ; got {[v.name for v in variants]}, {seeds}")
    folder, rows, total = Path(folder), [], len(variants) * len(seeds)
    for number, (variant, seed) in enumerate(_plan(variants, seeds), start=1):
        place = folder / f"{_file_name(variant.name)}-seed{seed}"
        wanted = json.loads(json.dumps({"settings": variant.settings, "seed": seed}))
        scores = _finished(place, wanted)
        report(f"{name} {number} of {total}: {variant.name}, seed {seed}" + (" (read back)" if scores else ""))
        if scores is None:
            place.mkdir(parents=True, exist_ok=True)
            scores = train(dict(variant.settings), seed, place)
            write_json(place / FINISHED, wanted | {"scores": scores})
        rows.append({"variant": variant.name, "seed": seed} | scores)
        write_csv(folder / "results.csv", rows)
        write_json(folder / "results.json", {"name": name, "rows": rows})
    return rows


def _plan(variants: Sequence[Variant], seeds: Sequence[int]) -> Iterator[tuple[Variant, int]]:
    """Seed by seed, so that a sweep that is stopped early has every variant."""
    return ((variant, seed) for seed in seeds for variant in variants)


def _finished(place: Path, wanted: dict[str, Any]) -> dict[str, float] | None:
    file = place / FINISHED
    if not file.is_file():
        return None
    found = json.loads(file.read_text("utf-8"))
    is_same = all(found.get(key) == value for key, value in wanted.items())
    return found["scores"] if is_same else None


def _file_name(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip("-")
