"""The part of a card that the Hub reads: what the model is for, what it learnt from, what it scored."""

from __future__ import annotations

import math
import re
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from .checkpoint import Checkpoint
from .privacy import clean_value, looks_local

PIPELINE_TAGS = {
    "AutoModelForSeq2SeqLM": "translation",
    "AutoModelForCausalLM": "text-generation",
    "AutoModelForMaskedLM": "fill-mask",
    "AutoModelForPreTraining": "fill-mask",
    "AutoModelForSequenceClassification": "text-classification",
    "AutoModelForTokenClassification": "token-classification",
    "AutoModelForQuestionAnswering": "question-answering",
    "AutoModelForMultipleChoice": "multiple-choice",
    "AutoModel": "feature-extraction",
}
# Ours to the identifiers that the Hub knows; other names are the same on both sides.
METRIC_TYPES = {"matthews": "matthews_correlation", "pearson": "pearsonr", "spearman": "spearmanr", "chrf": "chrf"}
METRIC_NAMES = {"bleu": "BLEU", "chrf": "chrF", "wer": "word error rate", "f1": "F1", "aer": "alignment error rate"}
# What an evaluation reports beside scores: how long it took, and how much it saw.
NOT_SCORES = re.compile(
    r"runtime$|per_second$|^epoch$|_signature$|_interval$|generated_length|^precisions$|brevity_penalty|"
    r"(?:prediction|reference)_length|preparation_time|^(?:tokens|documents|examples|windows|rows)$"
)
# fmt: off
KNOWN_LICENCES = {
    "apache-2.0", "mit", "openrail", "bsd", "bsd-2-clause", "bsd-3-clause", "cc", "cc0-1.0", "cc-by-2.0", "cc-by-3.0",
    "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cc-by-nc-2.0", "cc-by-nc-3.0", "cc-by-nc-4.0", "cc-by-nc-nd-4.0",
    "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0", "cc-by-nd-4.0", "afl-3.0", "artistic-2.0", "bsl-1.0", "epl-2.0", "eupl-1.1",
    "eupl-1.2", "agpl-3.0", "gfdl", "gpl", "gpl-2.0", "gpl-3.0", "lgpl", "lgpl-2.1", "lgpl-3.0", "isc", "mpl-2.0",
    "ms-pl", "odbl", "odc-by", "pddl", "unlicense", "wtfpl", "zlib", "unknown", "other",
}
# fmt: on


def metadata(checkpoint: Checkpoint, title: str) -> ModelCardData:
    """Everything above the second `---` of a card."""
    results = checkpoint.results
    data = data_name(checkpoint)
    scores = evaluations(checkpoint)
    return ModelCardData(
        language=languages(results.get("data") or {}) or None,
        **licence(results.get("licence")),
        library_name="transformers",
        pipeline_tag=PIPELINE_TAGS.get(checkpoint.auto),
        tags=tags(checkpoint),
        datasets=[data] if is_hub_id(data) else None,
        metrics=sorted({score.metric_type for score in scores}) or None,
        base_model=results.get("init_from") if is_hub_id(results.get("init_from")) else None,
        model_name=title,
        eval_results=scores or None,
    )


def tags(checkpoint: Checkpoint) -> list[str]:
    task = checkpoint.results.get("task")
    named = ["hf_edu_models", "education", checkpoint.rung.model_type, checkpoint.rung.stem, task]
    return list(dict.fromkeys(tag for tag in named if tag))


def data_name(checkpoint: Checkpoint) -> str | None:
    """What the model learnt from, as it may be shown."""
    return clean_value((checkpoint.results.get("data") or {}).get("name"))


def is_hub_id(name: str | None) -> bool:
    """Whether a name is one of the Hub's: owner and name. A single word may as well be a folder or a built-in task."""
    return bool(name) and bool(re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name)) and not looks_local(name)


def languages(data: dict[str, Any]) -> list[str]:
    """The language codes among source and target; a column may be called anything."""
    from babel import Locale

    known = Locale("en").languages
    codes = [re.split(r"[-_]", str(data.get(side) or ""))[0].lower() for side in ("source", "target")]
    return list(dict.fromkeys(code for code in codes if code in known))


def licence(name: str | None) -> dict[str, str]:
    """A licence that the Hub has no identifier for goes by its name."""
    if not name:
        return {}
    if name.lower() in KNOWN_LICENCES:
        return {"license": name.lower()}
    return {"license": "other", "license_name": re.sub(r"[^\w.-]+", "-", name.lower()).strip("-")}


def is_score(name: str, value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not NOT_SCORES.search(name)


def score_names(scores: dict[str, Any], main: str | None) -> list[str]:
    """The scores of a split, the main one first."""
    names = [name for name, value in scores.items() if is_score(name, value)]
    return sorted(names, key=lambda name: name != main)


def evaluations(checkpoint: Checkpoint) -> list[EvalResult]:
    """The scores of the test split, or of the validation split where there is no other, as `model-index` has them."""
    found = checkpoint.results.get("scores") or {}
    split = next((name for name in ("test", "validation") if found.get(name)), None)
    name = data_name(checkpoint)
    if split is None or name is None:
        return []
    scores = found[split]
    return [
        EvalResult(
            task_type=PIPELINE_TAGS.get(checkpoint.auto) or checkpoint.results["task"].replace("_", "-"),
            dataset_type=re.sub(r"[^\w./-]+", "-", name),
            dataset_name=name,
            dataset_split=split,
            metric_type=METRIC_TYPES.get(metric, metric),
            metric_name=METRIC_NAMES.get(metric, metric.replace("_", " ")),
            metric_value=round(scores[metric], 6),
            metric_args=_how_measured(scores, metric),
        )
        for metric in score_names(scores, checkpoint.results.get("main_score"))
        if metric != "loss" and math.isfinite(scores[metric])  # the Hub keeps metadata as JSON, which has no NaN
    ]


def _how_measured(scores: dict[str, Any], metric: str) -> dict[str, Any] | None:
    """What makes a score comparable: its signature, and the interval that it lies in."""
    parts = {name: scores.get(f"{metric}_{name}") for name in ("signature", "interval")}
    return {name: value for name, value in parts.items() if value} or None
