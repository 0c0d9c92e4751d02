"""What the template of a card shows about one run, as sentences and table rows."""

from __future__ import annotations

import math
import re
import shlex
from typing import Any

from ...checkpoints import Checkpoint, code_files, weight_files
from ...manifest import read_manifest, sha256
from ...redaction import clean_command, clean_settings, clean_value
from ...tasks import task_of_head
from .loss_curve import has_curve
from .metadata import corpus_name, is_hub_id, languages, metric_name, score_names
from .snippets import PLACEHOLDER, loading_code, usage_example

_MAX_SAMPLES, _MAX_CHARACTERS = 8, 240


def template_values(
    checkpoint: Checkpoint, title: str, repo_id: str | None, space: str | None = None
) -> dict[str, Any]:
    """Everything that a template finds under `run`."""
    results = checkpoint.results
    return {
        "title": title,
        "space": space or results.get("space"),
        "paper": checkpoint.rung.paper,
        "auto": checkpoint.auto,
        "task": _cell((results.get("task") or "").replace("_", " ")),
        "version": _cell((results.get("versions") or {}).get("hf_edu_models") or ""),
        "summary": _summary(checkpoint),
        "load_with": loading_code(checkpoint, repo_id, trust_remote_code=False),
        "load_without": loading_code(checkpoint, repo_id, trust_remote_code=True),
        "usage": usage_example(checkpoint),
        "digests": _digests(checkpoint),
        "limitations": _limitations(checkpoint),
        "licence": _licence(results),
        "has_loss": has_curve(checkpoint.history),
        "has_architecture": (checkpoint.folder / "pictures" / "architecture.png").is_file(),
        "has_attention": (checkpoint.folder / "pictures" / "attention.png").is_file(),
        "attention_command": _attention_command(results, repo_id),
        **_data(checkpoint),
        **_training(checkpoint),
        **_scores(results),
        "published": _published(results),
        **_samples(results),
    }


def _attention_command(results: dict[str, Any], repo_id: str | None) -> str | None:
    """The command that draws the attention picture; None if its text cannot be part of a command."""
    text = results.get("attention_of")
    if not text or not text.isprintable() or "`" in text:
        return None
    return f"hf-edu explain attention {repo_id or PLACEHOLDER} {shlex.quote(text)} --out attention.png"


def _summary(checkpoint: Checkpoint) -> str:
    from babel import Locale

    is_regression = checkpoint.config.get("problem_type") == "regression"
    does = "predicts a number from a text" if is_regression else task_of_head(checkpoint.architecture).summary
    text = f"`{checkpoint.architecture}` {does}. It has {_short_count(checkpoint.parameters)} parameters"
    corpus = corpus_name(checkpoint)
    if corpus is None:
        return f"{text}. Its training is not recorded in this folder."
    origin = clean_value(checkpoint.results.get("init_from"))
    start = f"fine-tuned from {_code(origin)}" if origin else "trained from scratch"
    pair = [Locale("en").languages[code] for code in languages(checkpoint.results.get("data") or {})]
    others = checkpoint.results.get("trained_with") or []
    together = f", together with the tasks {', '.join(map(_code, others))}" if others else ""
    direction = f", {pair[0]} to {pair[1]}" if len(pair) == 2 else ""
    return f"{text} and was {start} on {_code(corpus)}{direction}{together}."


def _data(checkpoint: Checkpoint) -> dict[str, Any]:
    data, name = checkpoint.results.get("data") or {}, corpus_name(checkpoint)
    if name is None:
        return {"data": None, "sizes": []}
    description = _builtin_description(name)
    if is_hub_id(name):
        text = f"[{name}](https://huggingface.co/datasets/{name})"
    elif description:
        text = f"{_code(name)}, a synthetic corpus that `hf_edu_models` generates: {description}"
    else:
        text = f"{_code(name)}, local files that are not part of this repository"
    columns = [f"{side} {_code(data[side])}" for side in ("source", "target") if data.get(side)]
    text += f"; {', '.join(columns)}." if columns else "."
    sizes = [(_cell(split), f"{size:,}") for split, size in (data.get("sizes") or {}).items() if size is not None]
    return {"data": text, "sizes": sizes}


def _builtin_description(name: str | None) -> str | None:
    """What the rows of a built-in corpus are; None for any other corpus."""
    from ...data import BUILTINS

    return BUILTINS[name].description if name in BUILTINS else None


def _training(checkpoint: Checkpoint) -> dict[str, Any]:
    results = checkpoint.results
    if not results.get("steps"):
        return {"training": None, "command": None, "settings": []}
    text = f"{results['steps']:,} steps"
    if results.get("epochs"):
        text += f" ({results['epochs']:g} epoch{'s' if results['epochs'] != 1 else ''})"
    if results.get("seconds"):
        text += f" in {_duration(results['seconds'])}"
    if results.get("machine"):
        text += f" on {_machine(results['machine'])}"
    text += f", seed {_cell(results['seed'])}." if results.get("seed") is not None else "."
    versions = [
        f"{_cell(name)} {_cell(version)}" for name, version in (results.get("versions") or {}).items() if version
    ]
    if versions:
        text += f" Versions: {', '.join(versions)}."
    settings = [
        (_code(name).replace("|", "\\|"), _cell(value))
        for name, value in _flatten(clean_settings(checkpoint.settings)).items()
    ]
    return {"training": text, "command": _command(results), "settings": settings}


def _command(results: dict[str, Any]) -> str | None:
    """The command in one line; none if it could end the block of code around it."""
    command = clean_command(results.get("command") or "").replace("\n", "\\n")
    return None if not command or "```" in command else command


def _flatten(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted names."""
    rows: dict[str, Any] = {}
    for name, value in settings.items():
        rows |= _flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return rows


def _machine(machine: dict[str, Any]) -> str:
    device, threads, processes = (machine.get(key) for key in ("device", "threads", "processes"))
    kind = str(device or "an unknown device").partition(":")[0]
    text = {"cpu": "CPU", "cuda": "GPU", "mps": "Apple GPU"}.get(kind) or _cell(kind)
    if kind == "cpu" and threads:
        text += f" ({threads} thread{'s' if threads != 1 else ''})"
    return f"{processes} processes, each on one {text}" if processes and processes > 1 else f"one {text}"


def _scores(results: dict[str, Any]) -> dict[str, Any]:
    splits = {split: scores for split, scores in (results.get("scores") or {}).items() if scores}
    names = score_names(splits.values(), results.get("main_score"))
    return {
        "splits": list(map(_cell, splits)),
        "scores": [(_cell(metric_name(name)), [_score(scores, name) for scores in splits.values()]) for name in names],
        "main_score": _cell(metric_name(results.get("main_score"))),
        "score_notes": _score_notes(splits),
    }


def _score(scores: dict[str, Any], name: str) -> str:
    if scores.get(name) is None:
        return ""
    interval = scores.get(f"{name}_interval")
    return _short(scores[name]) + (f" ({_short(interval[0])} to {_short(interval[1])})" if interval else "")


def _score_notes(splits: dict[str, dict[str, Any]]) -> str:
    """What makes the scores comparable: confidence intervals and sacreBLEU signatures."""
    every = {name: value for scores in splits.values() for name, value in scores.items() if value}
    notes = ["In brackets: 95% bootstrap confidence interval."] if any(n.endswith("_interval") for n in every) else []
    notes += [
        f"{_cell(metric_name(name.removesuffix('_signature')))} by sacreBLEU, signature {_code(value)}."
        for name, value in every.items()
        if name.endswith("_signature")
    ]
    return "  \n".join(notes)


def _published(results: dict[str, Any]) -> list[dict[str, str]]:
    """Published scores of the same metric, after the score of this model."""
    main, scores = results.get("main_score"), results.get("scores") or {}
    rows = [
        {key: _cell(row.get(key) or "") for key in ("system", "source", "note")}
        | {"score": _cell(row["score"]) if isinstance(row["score"], str) else _short(row["score"])}
        for row in results.get("published") or []
        if row.get("metric", main) == main
    ]
    split = next((name for name in ("test", "validation") if main in (scores.get(name) or {})), None)
    if rows and split is not None:
        ours = {"system": "**this model**", "score": f"**{_short(scores[split][main])}**"}
        rows.insert(0, ours | {"source": f"this run, {split} split", "note": ""})
    return rows


def _samples(results: dict[str, Any]) -> dict[str, Any]:
    rows = (results.get("samples") or [])[:_MAX_SAMPLES]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return {
        "sample_columns": list(map(_cell, columns)),
        "samples": [[_cell(row.get(name, "")) for name in columns] for row in rows],
    }


def _digests(checkpoint: Checkpoint) -> list[tuple[str, str]]:
    """SHA-256 of the files of weights and code, by name."""
    manifest = read_manifest(checkpoint.folder) or {}
    files = weight_files(checkpoint.folder)
    if checkpoint.auto in (checkpoint.config.get("auto_map") or {}):
        files += code_files(checkpoint)
    return [(file.name, manifest.get(file.name, {}).get("sha256") or sha256(file)) for file in files]


def _limitations(checkpoint: Checkpoint) -> list[str]:
    """Limitations that do not depend on the rung."""
    limitations, name = [], corpus_name(checkpoint)
    if _builtin_description(name):
        limitations.append(
            f"It was trained only on the synthetic corpus {_code(name)} and cannot be used on other texts."
        )
    elif name is not None:
        limitations.append("It reproduces the errors and biases of its training data.")
    if checkpoint.results.get("scores"):
        limitations.append("The scores are from one run with one seed; another seed gives somewhat different scores.")
    limitations.append("It is meant for teaching and as a research baseline, not for use in production.")
    return limitations


def _licence(results: dict[str, Any]) -> str:
    weights = (
        f"Weights: {_cell(results['licence'])}." if results.get("licence") else "Weights: no licence was specified."
    )
    data = results.get("license_of_data")
    return f"{weights} Code in this repository: Apache-2.0." + (f" Training data: {_cell(data)}." if data else "")


def _short(value: float) -> str:
    """Four significant digits."""
    return f"{value:.4g}" if math.isfinite(value) and abs(value) < 10_000 else f"{value:,.0f}"


def _short_count(number: int) -> str:
    for size, unit in ((1e9, "billion"), (1e6, "million")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:,}"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.2g} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5_400 else f"{seconds / 3_600:.1f} hours"


def _code(value: Any) -> str:
    """A value as code inside a line, with a longer fence than any in it."""
    text = " ".join(str(value).split())
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"


def _cell(value: Any) -> str:
    """A value as a table cell: one line, truncated, with the special characters of Markdown and HTML escaped."""
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    text = " ".join(text.split())
    text = text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + "…"
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{character}" if character in "\\`*_[]|#~$" else character for character in text)
