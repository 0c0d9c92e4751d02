"""Runs the engine of the lab in Node, on saved models."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import torch
from tiny import logits_of

import hf_edu_models

ENGINE = Path(hf_edu_models.__file__).parent / "lab" / "engine"
NO_NODE = None if shutil.which("node") else "Node.js (node) is not installed"


def run_engine(jobs: list[dict], folder: Path) -> list:
    """The results of all calls of all jobs, with arrays as arrays: {"folder": ..., "calls": [["run", inputs], ...]}"""
    source, output = folder / "jobs.json", folder / "results"
    source.write_text(json.dumps(jobs, default=str))
    command = ["node", str(Path(__file__).with_name("run_engine.mjs")), str(ENGINE), str(source), str(output)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    numbers = np.fromfile(f"{output}.bin", dtype=np.float32)
    return _with_arrays(json.loads(Path(f"{output}.json").read_text()), numbers)


def _with_arrays(value, numbers: np.ndarray):
    if isinstance(value, list):
        return [_with_arrays(each, numbers) for each in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"at", "length"}:
        return numbers[value["at"] : value["at"] + value["length"]]
    found = {key: _with_arrays(each, numbers) for key, each in value.items()}
    if isinstance(found.get("data"), np.ndarray):
        found["data"] = found["data"].reshape(found["shape"])
    return found


def arrays_of(record: dict) -> dict[str, np.ndarray]:
    """The arrays of a record."""
    assert "error" not in record, record["error"]
    return {entry["name"]: entry["data"] for entry in record["entries"]}


def predictions_of(outputs) -> torch.Tensor:
    """What the engine calls `logits`: of ELMo those of both directions, (B, T, 2, V)."""
    logits = logits_of(outputs)
    return torch.stack([logits, outputs.backward_logits], dim=2) if "backward_logits" in outputs else logits
