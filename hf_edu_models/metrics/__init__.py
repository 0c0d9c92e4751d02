"""Metrics that work with no network: each an `evaluate.Metric`, on the library that defines the score.

metric = hf_edu_models.metrics.load("bleu")
metric.compute(predictions=["a cat"], references=[["a cat"]])
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "bleu": ("translation", "Bleu"),
    "chrf": ("translation", "Chrf"),
    "wer": ("translation", "Wer"),
    "exact_match": ("translation", "ExactMatch"),
    "accuracy": ("classification", "Accuracy"),
    "f1": ("classification", "F1"),
    "matthews": ("classification", "Matthews"),
    "pearson_spearman": ("classification", "PearsonSpearman"),
    "seqeval": ("tagging", "Seqeval"),
    "squad": ("question_answering", "Squad"),
    "perplexity": ("language_modeling", "Perplexity"),
    "mlm_accuracy": ("language_modeling", "MlmAccuracy"),
    "aer": ("alignment", "Aer"),
}
METRICS = tuple(_HOMES)

__all__ = ["METRICS", "compute_metrics_for", "load", "preprocess_logits_for"]


def load(name: str, config_name: str | None = None, **options: Any) -> Any:
    """A metric by name, ready for `compute`, `add_batch` and `evaluate.combine`.

    Args:
        config_name: `f1` and `accuracy`: "multilabel" for rows of several classes.
        options: What every evaluate module takes, such as `cache_dir`, `num_process`, `experiment_id`.
    """
    if name not in _HOMES:
        raise ValueError(f"metric must be one of {', '.join(METRICS)}; got {name!r}")
    home, title = _HOMES[name]
    metric = getattr(importlib.import_module(f".{home}", __name__), title)
    if config_name is not None and config_name not in metric.configs:
        allowed = ", ".join(metric.configs) or "none"
        raise ValueError(f"{name} has no configuration {config_name!r}; it has: {allowed}")
    return metric(config_name=config_name, **options)


def __getattr__(name: str) -> Any:
    if name in ("compute_metrics_for", "preprocess_logits_for"):
        return getattr(importlib.import_module(".trainer", __name__), name)
    raise AttributeError(f"hf_edu_models.metrics has no {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__
