"""The folder of a run: what is in it, and how its files are written whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import yaml

from .checkpoints import full_disk_is_said

RESULTS, SETTINGS, PREDICTIONS, STATE = "results.json", "settings.yaml", "predictions.jsonl", "trainer_state.json"


def write_whole(file: str | os.PathLike, text: str) -> None:
    """Write a text file so that a reader, or a run after a crash, sees the old text or the new one, never a part."""
    file = Path(file)
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, unfinished = tempfile.mkstemp(prefix=f".{file.name}-", dir=file.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(unfinished, 0o644)  # mkstemp's files are for their owner alone
        os.replace(unfinished, file)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise


def read_results(run: str | os.PathLike) -> dict[str, Any]:
    """What a finished run wrote about itself."""
    file = Path(run) / RESULTS
    if not file.is_file():
        what = "is not a folder" if not Path(run).is_dir() else f"has no {RESULTS}"
        raise FileNotFoundError(f"{run} {what}; give the folder of a run that came to its end")
    return json.loads(file.read_text("utf-8"))


def write_results(run: str | os.PathLike, results: dict[str, Any]) -> None:
    with full_disk_is_said(run):
        write_whole(Path(run) / RESULTS, json.dumps(results, indent=2, ensure_ascii=False, default=_plain) + "\n")


def read_settings(run: str | os.PathLike) -> dict[str, Any]:
    """The settings of a run that differ from their defaults; empty where none were written."""
    file = Path(run) / SETTINGS
    return yaml.safe_load(file.read_text("utf-8")) or {} if file.is_file() else {}


def write_settings(run: str | os.PathLike, settings: dict[str, Any]) -> None:
    with full_disk_is_said(run):
        write_whole(Path(run) / SETTINGS, yaml.safe_dump(settings, sort_keys=False, allow_unicode=True))


def log_history(run: str | os.PathLike) -> list[dict[str, Any]]:
    """What Trainer logged, step by step; empty where it logged nothing."""
    file = Path(run) / STATE
    return json.loads(file.read_text("utf-8"))["log_history"] if file.is_file() else []


def write_predictions(run: str | os.PathLike, rows: list[dict[str, Any]]) -> None:
    lines = (json.dumps(row, ensure_ascii=False, default=_plain) for row in rows)
    with full_disk_is_said(run):
        write_whole(Path(run) / PREDICTIONS, "\n".join(lines) + "\n")


def read_predictions(run: str | os.PathLike) -> list[dict[str, Any]]:
    """What a run predicted for its test split; empty where it wrote nothing."""
    file = Path(run) / PREDICTIONS
    lines = file.read_text("utf-8").split("\n") if file.is_file() else []  # splitlines would also cut inside texts
    return [json.loads(line) for line in lines if line]


def _plain(value: Any) -> Any:
    """Numbers of numpy and torch as Python's own."""
    return value.item() if hasattr(value, "item") else str(value)
