"""Metrics that work offline: each is an `evaluate.Metric` on the library that defines the score.

metric = hf_edu_models.metrics.load("bleu")
metric.compute(predictions=["a cat"], references=[["a cat"]])
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ..lazy import lazy_names

_CLASSES = {
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
_HOMES = {"compute_metrics_for": "compute", "preprocess_logits_for": "compute"}
METRICS = tuple(_CLASSES)

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
__all__ += ["METRICS", "load"]


def load(name: str, config_name: str | None = None, **options: Any) -> Any:
    """A metric by name, ready for `compute`, `add_batch` and `evaluate.combine`.

    Args:
        config_name: `f1` and `accuracy`: "multilabel" for rows of several classes.
        options: Options of every evaluate module, such as `cache_dir`, `num_process`, `experiment_id`.
    """
    if name not in _CLASSES:
        raise ValueError(f"metric must be one of {', '.join(METRICS)}; got {name!r}")
    module, class_name = _CLASSES[name]
    metric = getattr(import_module(f".{module}", __name__), class_name)
    if config_name is not None and config_name not in metric.configs:
        allowed = ", ".join(metric.configs) or "none"
        raise ValueError(f"{name} has no configuration {config_name!r}; it has: {allowed}")
    return metric(config_name=config_name, **options)
