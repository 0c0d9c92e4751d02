"""What the figures of the sweeps show and say, and rows for them out of finished runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .sweeps import Variant

TITLES = {
    "reversal": "Reading the source backwards",
    "heads": "How many attention heads",
    "positions": "Positions: sinusoids or learned",
    "masking": "What BERT's chosen words become ([MASK] - same - random, %)",
    "nsp": "BERT with and without next sentence prediction",
}
SCORES = {
    "reversal": ("perplexity", "bleu"),
    "heads": ("perplexity", "exact_match"),
    "positions": ("perplexity", "exact_match"),
    "masking": ("mlm_accuracy", "downstream_accuracy"),
    "nsp": ("mlm_accuracy", "downstream_accuracy"),
}
TOLD_APART = "to tell whether two sentences are of one story"


def about_sweep(variants: Sequence[Variant], seeds: int) -> str:
    """The small print of a sweep."""
    settings = variants[0].settings
    model, corpus = settings["config"], Path(settings["dataset"]).name
    sizes = [f"hidden size {model['hidden_size']}", _count(model["num_hidden_layers"], "layer")]
    sizes += [_count(settings["epochs"], "epoch"), _count(seeds, "seed")]
    rows = f"{settings['pairs']:,} pairs" if "pairs" in settings else f"{settings['train_size']:,} training rows"
    text = f"{rows} of '{corpus}', {', '.join(sizes)}"
    if "downstream" in settings:
        task = f"on '{Path(settings['downstream']).name}'" if settings["downstream"] else TOLD_APART
        text += f"; masked words of held-out pairs, hidden alike for all (80-10-10); fine-tuned {task}"
    return text + "."


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def rows_of_runs(runs: Sequence[Path]) -> list[dict[str, Any]]:
    """Finished runs of the seq2seq rung, by whether they read the source backwards; a seed each."""
    if len(runs) < 2:
        raise ValueError(f"one run ({runs[0]}) cannot be compared; give two or more, or --train")
    rows = [_row_of_run(run) for run in runs]
    if len({row["variant"] for row in rows}) < 2:
        raise ValueError(
            f"all {len(runs)} runs have '{rows[0]['variant']}'; give one with reverse_source=True and one with False"
        )
    return sorted(rows, key=lambda row: row["variant"])


def _row_of_run(run: Path) -> dict[str, Any]:
    from ..training.run_folder import read_results

    results = read_results(run)
    config = json.loads((run / "config.json").read_text("utf-8"))
    if "reverse_source" not in config:
        raise ValueError(f"{run} holds {config.get('model_type')}, which cannot reverse; give runs of the seq2seq rung")
    scores = results["scores"].get("test") or results["scores"].get("validation") or {}
    kept = {name: scores[name] for name in ("perplexity", "bleu", "chrf", "exact_match") if name in scores}
    if "perplexity" not in kept and "loss" in scores:
        import math

        kept["perplexity"] = math.exp(scores["loss"])
    variant = "source reversed" if config["reverse_source"] else "source as it is"
    return {"variant": variant, "seed": results.get("seed"), "run": run.name} | kept
