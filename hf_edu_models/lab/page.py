"""Pack runs into the lab: one HTML file with the weights, the tokenizers, the engine and the views.

The page opens from disk and makes no request. User text, tokens among it, is data: it is escaped in one block of JSON,
and scripts only ever set it as text.
"""

from __future__ import annotations

import ast
import json
import os
from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..auto import find_rung
from ..checkpoints import check_exists
from ..manifest import check_undamaged
from ..pages.document import data_block, json_block, package_text, write_document
from ..pages.modules import join_modules
from ..run_folder import list_checkpoints, read_predictions, step_of
from .support import check_config, check_tokenizer
from .weights import PRECISIONS, choose_precision, count_parameters, pack

_MOST_PARAMETERS = 25_000_000  # in one page, all models and checkpoints together
_MOST_CHECKPOINTS = 20  # of a run
_DEFAULT_TEXT = "The cat sat on the mat."


@dataclass(frozen=True)
class Lab:
    """A page that was written.

    Args:
        models: the name of each model.
        precision: how the weights are stored: float32, float16 or int8.
        checkpoints: the steps of the checkpoints of each model; the finished model is not among them.
        left_out: how many checkpoints found no room.
    """

    path: Path
    models: list[str]
    precision: str
    parameters: int
    checkpoints: dict[str, list[int]] = field(default_factory=dict)
    left_out: int = 0


def build_lab(
    runs: Sequence[str | os.PathLike],
    out: str | os.PathLike,
    checkpoints: bool = False,
    precision: str = "auto",
    text: str | None = None,
) -> Lab:
    """Write the lab of one or several runs.

    Args:
        runs: folders of runs or of saved models, or Hub ids.
        checkpoints: also pack the checkpoints of each run, for the slider that shows it learn.
        precision: float32, float16 or int8 (one scale per row of a matrix); auto chooses by size.
        text: what the page opens with; by default the first test example of a run that has predictions.
    """
    if precision not in ("auto", *PRECISIONS):
        raise ValueError(f"precision must be auto, {', '.join(PRECISIONS)}; got {precision!r}")
    out = Path(out)
    if out.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"{out} is no HTML file; name it lab.html")
    if not runs:
        raise ValueError("the lab needs at least one run; give the folder of a run or of a saved model")
    models = [_read(str(run)) for run in runs]
    folders, left_out = _choose_checkpoints(models, checkpoints)
    sizes = [count_parameters(folder) for model in models for folder in (*folders[model.name], model.folder)]
    chosen = choose_precision(sum(sizes)) if precision == "auto" else precision
    script = join_modules("lab/views/main.js")
    blocks: list[str] = []
    described = []
    for model in models:
        stages = [(f"step {step_of(folder):,}", folder) for folder in folders[model.name]]
        names = [_add_block(blocks, pack(folder, chosen)) for _, folder in [*stages, ("", model.folder)]]
        labels = [*(label for label, _ in stages), "finished"]
        described.append(model.describe() | {"stages": [list(each) for each in zip(labels, names, strict=True)]})
    data = {
        "text": text if text is not None else _first_text(models),
        "precision": chosen,
        "models": described,
        "sources": _source_lines(script),
    }
    write_document(
        out,
        package_text("lab/assets/page.html"),
        package_text("pages/assets/base.css") + package_text("lab/assets/page.css"),
        script,
        data=json_block(data),
        arrays="\n".join(blocks),
    )
    steps = {name: [step_of(folder) or 0 for folder in each] for name, each in folders.items()}
    return Lab(out, [model.name for model in models], chosen, sum(sizes), steps, left_out)


@dataclass(frozen=True)
class _Model:
    """A checkpoint that the page can run."""

    name: str
    folder: Path
    config: dict[str, Any]
    tokenizer: dict[str, Any]
    settings: dict[str, Any]
    generation: dict[str, Any]
    example: str | None

    def describe(self) -> dict[str, Any]:
        rung = find_rung(self.config["model_type"])
        return {
            "name": self.name,
            "idea": rung.idea if rung else "",
            "paper": rung.paper if rung else "",
            "config": self.config,
            "architecture": _picture(self.folder / "pictures" / "architecture.png"),
            "generation": self.generation,
            "tokenizer": self.tokenizer,
            "maxLength": _limit(self.settings.get("model_max_length")),
        }


def _read(name: str) -> _Model:
    folder = _folder_of(name)
    check_undamaged(str(folder))
    config = json.loads((folder / "config.json").read_text("utf-8"))
    check_config(name, config)
    if not (folder / "tokenizer.json").is_file():
        raise FileNotFoundError(f"{name} has no tokenizer.json; save one there with tokenizer.save_pretrained")
    tokenizer = json.loads((folder / "tokenizer.json").read_text("utf-8"))
    check_tokenizer(name, tokenizer)
    files = {part: folder / f"{part}.json" for part in ("tokenizer_config", "generation_config")}
    settings, generation = (json.loads(each.read_text("utf-8")) if each.is_file() else {} for each in files.values())
    return _Model(folder.resolve().name, folder, config, tokenizer, settings, generation, _example(folder))


def _folder_of(name: str) -> Path:
    """The folder of a run, or of a Hub model that is downloaded."""
    if Path(name).is_dir():
        check_exists(name)
        return Path(name)
    check_exists(name)
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(name, allow_patterns=["*.json", "*.safetensors"]))


def _picture(file: Path) -> str | None:
    """What `hf-edu draw` made of a run when it ended, as an address that needs no request."""
    return f"data:image/png;base64,{b64encode(file.read_bytes()).decode()}" if file.is_file() else None


def _limit(length: Any) -> int | None:
    """The tokenizer's longest text; a huge number stands for none."""
    return length if isinstance(length, int) and length < 1_000_000 else None


def _example(folder: Path) -> str | None:
    """The first input that the run was tested with."""
    if not (folder / "predictions.jsonl").is_file():
        return None
    rows = read_predictions(folder)
    value = rows[0].get("source", rows[0].get("text")) if rows else None
    return value if isinstance(value, str) else None


def _first_text(models: list[_Model]) -> str:
    """What the page opens with: a test example, or a sentence, with a mask for a model that fills it."""
    if example := next((each.example for each in models if each.example), None):
        return example
    fills = models[0].config["architectures"][0].endswith(("ForMaskedLM", "ForPreTraining"))
    has_mask = any(token.get("content") == "[MASK]" for token in models[0].tokenizer.get("added_tokens", []))
    return _DEFAULT_TEXT.replace("mat", "[MASK]") if fills and has_mask else _DEFAULT_TEXT


def _choose_checkpoints(models: list[_Model], is_wanted: bool) -> tuple[dict[str, list[Path]], int]:
    """The checkpoints of each model that have room, evenly spaced, and how many have none."""
    names = [model.name for model in models]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"two runs are called {twice!r}; give folders with different names")
    sizes = {model.name: count_parameters(model.folder) for model in models}
    total = sum(sizes.values())
    if total > _MOST_PARAMETERS:
        raise ValueError(
            f"{' and '.join(names)} have {total:,} parameters, more than the {_MOST_PARAMETERS:,} that a page can "
            "hold; give fewer or smaller runs"
        )
    if not is_wanted:
        return {name: [] for name in names}, 0
    found = {model.name: list_checkpoints(model.folder) for model in models}
    if not any(found.values()):
        raise ValueError(
            f"{' and '.join(names)} have no checkpoints, which a run keeps if it is trained with --save_total_limit; "
            "leave out --checkpoints"
        )
    kept, left_out = {}, 0
    for name, folders in found.items():
        room = min((_MOST_PARAMETERS - total) // len(models) // max(sizes[name], 1), _MOST_CHECKPOINTS)
        places = sorted({round(place) for place in np.linspace(0, len(folders) - 1, min(room, len(folders)))})
        kept[name] = [folders[place] for place in places]
        left_out += len(folders) - len(places)
    return kept, left_out


def _add_block(blocks: list[str], content: bytes) -> str:
    name = f"weights-{len(blocks)}"
    blocks.append(data_block(name, content))
    return name


def _source_lines(script: str) -> dict[str, int]:
    """`models/file.py:Class.method` to its line, for what the engine names."""
    folder = Path(__file__).parents[1]
    lines = {}
    for file in sorted((folder / "models").glob("*.py")):
        path = file.relative_to(folder).as_posix()
        if path in script:
            found = _definitions(ast.parse(file.read_text("utf-8")))
            lines.update({f"{path}:{name}": line for name, line in found if name in script})
    return lines


def _definitions(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, node.lineno
        if isinstance(node, ast.ClassDef):
            methods = (each for each in node.body if isinstance(each, ast.FunctionDef))
            yield from ((f"{node.name}.{each.name}", each.lineno) for each in methods)
