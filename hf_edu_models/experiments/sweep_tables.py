"""Titles, scores and captions of the sweeps' figures, and rows from finished runs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .sweep import Variant

SWEEP_TITLES = {
    "reversal": "Reversing the source sentence",
    "heads": "Number of attention heads",
    "positions": "Sinusoidal or learned positions",
    "scores": "Energy functions of attention",
    "masking": "BERT's masking strategy ([MASK] - same - random token, %)",
    "nsp": "BERT with and without next sentence prediction, and left-to-right",
}
SWEEP_SCORES = {
    "reversal": ("perplexity", "bleu"),
    "heads": ("perplexity", "exact_match"),
    "positions": ("perplexity", "exact_match"),
    "scores": ("perplexity", "exact_match", "seconds"),
    "masking": ("mlm_accuracy", "downstream_accuracy"),
    "nsp": ("mlm_accuracy", "downstream_accuracy"),
}


def about_sweep(variants: Sequence[Variant], seeds: int) -> str:
    """The caption of a sweep: data, model size, training."""
    settings = variants[0].settings
    model, corpus = settings["config"], Path(settings["dataset"]).name
    sizes = [f"hidden size {model['hidden_size']}", _count(model["num_hidden_layers"], "layer")]
    sizes += [_count(settings["epochs"], "epoch"), _count(seeds, "seed")]
    rows = f"{settings['pairs']:,} pairs" if "pairs" in settings else f"{settings['train_size']:,} training rows"
    text = f"{rows} of '{corpus}', {', '.join(sizes)}"
    if "downstream" in settings:
        task = f"'{Path(settings['downstream']).name}'" if settings["downstream"] else "same-story classification"
        text += f"; the same masked tokens (80-10-10) of held-out pairs for all; fine-tuned on {task}"
    return text + "."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def rows_of_runs(runs: Sequence[Path]) -> list[dict[str, Any]]:
    """One row for each finished run of the seq2seq rung, sorted by whether it reverses the source."""
    if len(runs) < 2:
        raise ValueError(f"one run ({runs[0]}) cannot be compared; give two or more, or --train")
    rows = [_row_of_run(run) for run in runs]
    if len({row["variant"] for row in rows}) < 2:
        raise ValueError(
            f"all {len(runs)} runs have '{rows[0]['variant']}'; give one with reverse_source=True and one with False"
        )
    return sorted(rows, key=lambda row: row["variant"])


def _row_of_run(run: Path) -> dict[str, Any]:
    from ..run_folder import read_results

    results = read_results(run)
    config = json.loads((run / "config.json").read_text("utf-8"))
    if "reverse_source" not in config:
        raise ValueError(f"{run} holds {config.get('model_type')}, not a seq2seq model; give runs of the seq2seq rung")
    scores = results["scores"].get("test") or results["scores"].get("validation") or {}
    chosen = {name: scores[name] for name in ("perplexity", "bleu", "chrf", "exact_match") if name in scores}
    if "perplexity" not in chosen and "loss" in scores:
        chosen["perplexity"] = math.exp(scores["loss"])
    variant = "source reversed" if config["reverse_source"] else "source as it is"
    return {"variant": variant, "seed": results.get("seed"), "run": run.name} | chosen
