"""What a card says about one run, as sentences and rows that a template only has to place."""

from __future__ import annotations

import math
import shlex
from typing import Any

from .card_metadata import METRIC_NAMES, data_name, is_hub_id, languages, score_names
from .checkpoint import Checkpoint
from .loss_picture import has_curve
from .privacy import clean_command, clean_settings, clean_value
from .snippets import load_with_package, load_without_package, use

MOST_SAMPLES, LONGEST_SAMPLE = 8, 240
BUILTIN_TASKS = {
    "dates": "dates as people write them in many languages, and the same in ISO form",
    "numbers": "numbers in digits and in words",
    "copy": "symbols, and the same symbols again",
    "reverse": "symbols, and the same symbols from the last to the first",
    "stories": "short stories put together from a few sentences",
}
DOES = {
    "AutoModelForSeq2SeqLM": "turns one text into another",
    "AutoModelForCausalLM": "continues a text",
    "AutoModelForMaskedLM": "guesses hidden words",
    "AutoModelForPreTraining": "guesses hidden words, and whether one text follows another",
    "AutoModelForNextSentencePrediction": "says whether one text follows another",
    "AutoModelForSequenceClassification": "puts a text into a class",
    "AutoModelForTokenClassification": "gives every word of a text a tag",
    "AutoModelForQuestionAnswering": "finds the answer to a question in a text",
    "AutoModelForMultipleChoice": "chooses one of several continuations",
    "AutoModel": "turns a text into vectors",
}


def facts(checkpoint: Checkpoint, title: str, repo_id: str | None) -> dict[str, Any]:
    """Everything that a template may ask for under `run`."""
    results = checkpoint.results
    return {
        "title": title,
        "rung": checkpoint.rung.number,
        "paper": checkpoint.rung.paper,
        "auto": checkpoint.auto,
        "task": (results.get("task") or "").replace("_", " "),
        "generates": checkpoint.auto in ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM"),
        "vocabulary": f"{checkpoint.config['vocab_size']:,}",
        "version": (results.get("versions") or {}).get("hf_edu_models"),
        "summary": _summary(checkpoint),
        "load_with": load_with_package(checkpoint, repo_id),
        "load_without": load_without_package(checkpoint, repo_id),
        "use": use(checkpoint),
        "limits": _limits(checkpoint),
        "licence": _licence(results),
        "has_loss": has_curve(checkpoint.history),
        "has_attention": (checkpoint.folder / "pictures" / "attention.png").is_file(),
        "attention_command": _attention_command(results, repo_id),
        **_data(checkpoint),
        **_training(checkpoint),
        **_scores(results),
        **_published(results),
        **_samples(results),
    }


def _attention_command(results: dict[str, Any], repo_id: str | None) -> str | None:
    """What drew the picture of the attention, if the text that it shows can stand in a command."""
    text = results.get("attention_of")
    if not text or not text.isprintable() or "`" in text:
        return None
    return f"hf-edu explain attention {repo_id or 'path/to/this/folder'} {shlex.quote(text)} --out attention.png"


def _summary(checkpoint: Checkpoint) -> str:
    from babel import Locale

    does = "gives a text a number" if checkpoint.config.get("problem_type") == "regression" else DOES[checkpoint.auto]
    text = f"`{checkpoint.architecture}` {does}; it has {short_count(checkpoint.parameters)} parameters"
    data = data_name(checkpoint)
    if data is None:
        return f"{text}. How it was trained is not recorded in this folder."
    origin = clean_value(checkpoint.results.get("init_from"))
    start = f"fine-tuned from {_named(origin)}" if origin else "trained from scratch"
    sides = languages(checkpoint.results.get("data") or {})
    english = Locale("en").languages
    pair = f", {english[sides[0]]} to {english[sides[1]]}" if len(sides) == 2 else ""
    return f"{text} and was {start} on {_named(data)}{pair}."


def _data(checkpoint: Checkpoint) -> dict[str, Any]:
    data, name = checkpoint.results.get("data") or {}, data_name(checkpoint)
    if name is None:
        return {"data": None, "sizes": []}
    if is_hub_id(name):
        text = f"[{name}](https://huggingface.co/datasets/{name})"
    elif name in _builtins():
        what = f": {BUILTIN_TASKS[name]}" if name in BUILTIN_TASKS else ""
        text = f"`{name}`, a task that the package generates by itself{what}"
    else:
        text = f"`{name}`, files that the owner of this model had at hand"
    known = [f"{side} `{data[side]}`" for side in ("source", "target") if data.get(side)]
    text += f"; {', '.join(known)}." if known else "."
    sizes = [(split, f"{size:,}") for split, size in (data.get("sizes") or {}).items() if size is not None]
    return {"data": text, "sizes": sizes}


def _builtins() -> tuple[str, ...]:
    from ..data import BUILTINS

    return tuple(BUILTINS)


def _training(checkpoint: Checkpoint) -> dict[str, Any]:
    results = checkpoint.results
    if not results.get("steps"):
        return {"training": None, "command": None, "settings": []}
    epochs = results.get("epochs")
    parts = [f"{results['steps']:,} steps" + (f" ({epochs:g} epochs)" if epochs else "")]
    if results.get("seconds"):
        parts.append(f"in {duration(results['seconds'])}")
    if results.get("machine"):
        parts.append(f"on {_machine(results['machine'])}")
    text = " ".join(parts) + (f", with seed {results['seed']}" if results.get("seed") is not None else "") + "."
    versions = {name: version for name, version in (results.get("versions") or {}).items() if version}
    if versions:
        text += " Versions: " + ", ".join(f"{name} {version}" for name, version in versions.items()) + "."
    command = results.get("command")
    settings = [(f"`{name}`", cell(value)) for name, value in _flat(clean_settings(checkpoint.settings)).items()]
    return {"training": text, "command": clean_command(command) if command else None, "settings": settings}


def _flat(settings: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Settings of settings under their joined names."""
    rows = {}
    for name, value in settings.items():
        rows |= _flat(value, f"{before}{name}.") if isinstance(value, dict) else {before + name: value}
    return rows


def _machine(machine: dict[str, Any]) -> str:
    device, threads, processes = (machine.get(key) for key in ("device", "threads", "processes"))
    kind = str(device or "an unknown device").partition(":")[0]
    text = {"cpu": "CPU", "cuda": "GPU", "mps": "Apple GPU"}.get(kind, kind)
    if kind == "cpu" and threads:
        text += f" ({threads} thread{'s' if threads != 1 else ''})"
    return f"{processes} processes, each on {text}" if processes and processes > 1 else f"one {text}"


def _scores(results: dict[str, Any]) -> dict[str, Any]:
    found = {split: scores for split, scores in (results.get("scores") or {}).items() if scores}
    main = results.get("main_score")
    names = list(dict.fromkeys(name for scores in found.values() for name in score_names(scores, main)))
    names.sort(key=lambda name: name != main)
    rows = [(metric_name(name), [_score(scores, name) for scores in found.values()]) for name in names]
    return {"scores": rows, "splits": list(found), "main_score": metric_name(main), "score_notes": _notes(found)}


def _score(scores: dict[str, Any], name: str) -> str:
    if scores.get(name) is None:
        return ""
    low_high = scores.get(f"{name}_interval")
    interval = f" ({short(low_high[0])} to {short(low_high[1])})" if low_high else ""
    return f"{short(scores[name])}{interval}"


def _notes(found: dict[str, dict[str, Any]]) -> str:
    """What the numbers mean: intervals, and the signatures that make a score comparable."""
    notes = []
    if any(name.endswith("_interval") for scores in found.values() for name in scores):
        notes.append("In brackets: the interval by bootstrap over the examples.")
    signatures = {
        name.removesuffix("_signature"): value
        for scores in found.values()
        for name, value in scores.items()
        if name.endswith("_signature") and value
    }
    notes += [f"{metric_name(name)} by sacreBLEU, signature `{value}`." for name, value in signatures.items()]
    return "  \n".join(notes)


def _published(results: dict[str, Any]) -> dict[str, Any]:
    """Others' figures for the main score, ours first."""
    main = results.get("main_score")
    theirs = [row for row in results.get("published") or [] if row.get("metric", main) == main]
    if not theirs:
        return {"published": []}
    scores = results.get("scores") or {}
    split = next((name for name in ("test", "validation") if main in (scores.get(name) or {})), None)
    rows = [{key: cell(row.get(key) or "") for key in ("system", "source", "note")} for row in theirs]
    for row, given in zip(rows, theirs, strict=True):
        row["score"] = cell(given["score"]) if isinstance(given["score"], str) else short(given["score"])
    if split is not None:
        ours = {"system": "**this model**", "score": f"**{short(scores[split][main])}**"}
        rows.insert(0, ours | {"source": f"this run, {split} split", "note": ""})
    return {"published": rows}


def _samples(results: dict[str, Any]) -> dict[str, Any]:
    rows = (results.get("samples") or [])[:MOST_SAMPLES]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return {"sample_columns": columns, "samples": [[cell(row.get(name, "")) for name in columns] for row in rows]}


def _limits(checkpoint: Checkpoint) -> list[str]:
    """What holds on every rung."""
    results, name = checkpoint.results, data_name(checkpoint)
    limits = []
    if name in _builtins():
        limits.append(f"It knows the made-up texts of `{name}` and nothing else of any language.")
    elif name is not None:
        limits.append("It knows what its training data holds, with that data's errors and prejudices.")
    if results.get("scores"):
        limits.append("The scores are of one run with one seed; another seed gives somewhat different ones.")
    limits.append("It was made for teaching and as a baseline. Nothing of weight should depend on its answers.")
    return limits


def _licence(results: dict[str, Any]) -> str:
    weights = f"The weights: {results['licence']}." if results.get("licence") else "None was given for the weights."
    data = results.get("license_of_data")
    return f"{weights} The code beside them: Apache-2.0." + (f" The data: {cell(data)}." if data else "")


def _named(name: str) -> str:
    return f"`{name}`"


def metric_name(name: str | None) -> str:
    return METRIC_NAMES.get(name, (name or "score").replace("_", " "))


def short(value: float) -> str:
    """Four digits that count."""
    return f"{value:.4g}" if math.isfinite(value) and abs(value) < 10_000 else f"{value:,.0f}"


def short_count(number: int) -> str:
    for size, unit in ((1e9, "billion"), (1e6, "million")):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:,}"


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5_400 else f"{seconds / 3_600:.1f} hours"


def cell(value: Any) -> str:
    """A value inside a table: on one line, not too long, with nothing that Markdown or HTML would take as its own."""
    text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    text = " ".join(text.split())
    text = text if len(text) <= LONGEST_SAMPLE else text[: LONGEST_SAMPLE - 1] + "…"
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for sign in "\\`*_[]|#~$":
        text = text.replace(sign, f"\\{sign}")
    return text
