"""What a folder with a model tells about itself: the rung, the head, the run behind it, and whether it is complete."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..auto import LADDER, Rung
from ..training.run_folder import RESULTS, log_history, read_results, read_settings

WEIGHTS, WEIGHTS_INDEX = "model.safetensors", "model.safetensors.index.json"


@dataclass(frozen=True)
class Checkpoint:
    """A folder that `from_pretrained` opens, with what the run wrote beside the weights.

    Args:
        auto: Name of the Auto class that loads the head that was saved.
        results: The run's `results.json`; empty where there was no run or it did not come to its end.
        history: What Trainer logged.
    """

    folder: Path
    config: dict[str, Any]
    generation: dict[str, Any]
    rung: Rung
    architecture: str
    auto: str
    results: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)

    @property
    def has_tokenizer(self) -> bool:
        return (self.folder / "tokenizer_config.json").is_file()

    @property
    def parameters(self) -> int:
        return self.results.get("parameters") or count_parameters(self.folder)


def read_checkpoint(folder: str | os.PathLike) -> Checkpoint:
    """Read the small files of a run or a checkpoint; no weights."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder; give the folder of a run or of a saved model")
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} has no config.json; give the folder of a run that came to its end")
    config = _read_json(folder / "config.json")
    rung = _rung_of(folder, config)
    architecture = (config.get("architectures") or ["none"])[0]
    autos = {name: auto for auto, name in rung.config.heads.items()}
    if architecture not in autos:
        raise ValueError(f"{folder} holds {architecture}, no head of {rung.model_type}; it has {', '.join(autos)}")
    generation = folder / "generation_config.json"
    results = read_results(folder) if (folder / RESULTS).is_file() else {}
    return Checkpoint(
        folder=folder,
        config=config,
        generation=_read_json(generation) if generation.is_file() else {},
        rung=rung,
        architecture=architecture,
        auto=autos[architecture],
        results=results,
        settings=results.get("settings") or read_settings(folder),
        history=log_history(folder),
    )


def check_complete(checkpoint: Checkpoint) -> None:
    """Raise unless a stranger could load this folder: weights that fit, and every file of code that they need."""
    weight_files(checkpoint.folder)
    code_files(checkpoint)
    _check_weights_fit(checkpoint)


def weight_files(folder: Path) -> list[Path]:
    """The files of weights, one or several; all there, and none cut short."""
    from safetensors import SafetensorError, safe_open

    names = [WEIGHTS]
    if (folder / WEIGHTS_INDEX).is_file():
        names = sorted(set(_read_json(folder / WEIGHTS_INDEX)["weight_map"].values()))
    for name in names:
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder} has no {name}; save the model there with save_pretrained")
        try:
            with safe_open(folder / name, framework="pt"):
                pass
        except SafetensorError:
            raise ValueError(f"{folder / name} is not a whole file of weights; save the model again") from None
    return [folder / name for name in names]


def count_parameters(folder: Path) -> int:
    """How many numbers the files of weights hold, by their headers alone; tied weights are saved, and counted, once."""
    from safetensors import safe_open

    total = 0
    for file in weight_files(folder):
        with safe_open(file, framework="pt") as weights:
            total += sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
    return total


def code_files(checkpoint: Checkpoint) -> list[Path]:
    """What `trust_remote_code=True` reads: from `auto_map`, by imports, from file to file; raises if one is missing."""
    from transformers.dynamic_module_utils import get_relative_imports

    auto_map = checkpoint.config.get("auto_map") or {}
    if checkpoint.auto not in auto_map:
        raise ValueError(
            f"{checkpoint.folder}/config.json names no code for {checkpoint.auto} in its auto_map; "
            "import hf_edu_models before saving the model, and save it again"
        )
    waiting = {reference.rpartition("--")[2].partition(".")[0] for reference in auto_map.values()}
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        file = checkpoint.folder / f"{name}.py"
        if not file.is_file():
            raise FileNotFoundError(
                f"{checkpoint.folder} lacks {name}.py, which its code needs; save the model again with save_pretrained"
            )
        waiting |= set(get_relative_imports(file)) - seen
    return sorted(checkpoint.folder / f"{name}.py" for name in seen)


def _check_weights_fit(checkpoint: Checkpoint) -> None:
    """Load it for good: the only check that finds a weight of the wrong name or shape."""
    head = checkpoint.rung.heads[checkpoint.auto]
    try:
        _, report = head.from_pretrained(checkpoint.folder, output_loading_info=True)
    except (RuntimeError, OSError) as problem:
        reason = str(problem).strip().partition("\n")[0]
        raise ValueError(f"{checkpoint.folder} does not load as {checkpoint.architecture}: {reason}") from None
    missing = sorted(report["missing_keys"])
    if missing:
        raise ValueError(
            f"{checkpoint.folder} lacks {len(missing)} weights of {checkpoint.architecture}, such as {missing[0]}; "
            "save the model that was trained, with all of its heads"
        )


def _rung_of(folder: Path, config: dict[str, Any]) -> Rung:
    for rung in LADDER:
        if rung.model_type == config.get("model_type"):
            return rung
    known = ", ".join(rung.model_type for rung in LADDER)
    raise ValueError(f"{folder} holds a model of type {config.get('model_type')!r}, no rung of the ladder: {known}")


def _read_json(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text("utf-8"))
    except json.JSONDecodeError as problem:
        raise ValueError(f"{file} is not JSON: {problem}; save the model again") from None
