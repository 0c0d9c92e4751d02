"""The metadata of a card, which the Hub reads: task, data, licence and scores."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from ...checkpoints import Checkpoint
from ...redaction import clean_value, is_local_path
from ...tasks import task_of_head

# Identifiers on the Hub, where they differ from our names.
_METRIC_TYPES = {"matthews": "matthews_correlation", "pearson": "pearsonr", "spearman": "spearmanr"}
_METRIC_NAMES = {
    **{"bleu": "BLEU", "chrf": "chrF", "wer": "word error rate", "f1": "F1", "aer": "alignment error rate"},
    **{"matthews": "Matthews correlation", "pearson": "Pearson correlation", "spearman": "Spearman correlation"},
    **{"mlm_accuracy": "MLM accuracy", "nsp_accuracy": "NSP accuracy"},
    **{"nll": "negative log-likelihood per token", "unknown": "share of unknown tokens"},
}
# Numbers of an evaluation that are not scores: times and counts.
_NOT_SCORES = re.compile(
    r"runtime$|per_second$|^epoch$|_signature$|_interval$|generated_length|^precisions$|brevity_penalty|"
    r"(?:prediction|reference)_length|preparation_time|^(?:tokens|documents|examples|windows|rows)$"
)
# fmt: off
_LICENCES = {
    "apache-2.0", "mit", "openrail", "bsd", "bsd-2-clause", "bsd-3-clause", "cc", "cc0-1.0", "cc-by-2.0", "cc-by-3.0",
    "cc-by-4.0", "cc-by-sa-3.0", "cc-by-sa-4.0", "cc-by-nc-2.0", "cc-by-nc-3.0", "cc-by-nc-4.0", "cc-by-nc-nd-4.0",
    "cc-by-nc-sa-3.0", "cc-by-nc-sa-4.0", "cc-by-nd-4.0", "afl-3.0", "artistic-2.0", "bsl-1.0", "epl-2.0", "eupl-1.1",
    "eupl-1.2", "agpl-3.0", "gfdl", "gpl", "gpl-2.0", "gpl-3.0", "lgpl", "lgpl-2.1", "lgpl-3.0", "isc", "mpl-2.0",
    "ms-pl", "odbl", "odc-by", "pddl", "unlicense", "wtfpl", "zlib", "unknown", "other",
}
# fmt: on


def make_metadata(
    checkpoint: Checkpoint, title: str, tags: str | Iterable[str] | None = None, **fields: Any
) -> ModelCardData:
    """The YAML block of a card; `tags` are added to ours, other fields replace them unless they are None."""
    results, rung = checkpoint.results, checkpoint.rung
    corpus, origin = corpus_name(checkpoint), results.get("init_from")
    scores = _evaluation_results(checkpoint)
    own_tags = ["hf_edu_models", "education", rung.model_type, rung.name, results.get("task")]
    more_tags = [tags] if isinstance(tags, str) else tags or []
    ours = {
        "language": languages(results.get("data") or {}) or None,
        **_licence(results.get("licence")),
        "library_name": "transformers",
        "pipeline_tag": task_of_head(checkpoint.architecture).pipeline_tag,
        "tags": list(dict.fromkeys(filter(None, [*own_tags, *more_tags]))),
        "datasets": [corpus] if is_hub_id(corpus) else None,
        "metrics": sorted({score.metric_type for score in scores}) or None,
        "base_model": origin if is_hub_id(origin) else None,
        "model_name": title,
        "eval_results": scores or None,
    }
    return ModelCardData(**ours | {name: value for name, value in fields.items() if value is not None})


def corpus_name(checkpoint: Checkpoint) -> str | None:
    """The training corpus, without local paths."""
    name = clean_value((checkpoint.results.get("data") or {}).get("name"))
    return name if name is None else " ".join(str(name).split())


def is_hub_id(name: str | None) -> bool:
    """Whether a name is `owner/name` on the Hub. A single word may as well be a folder or a built-in corpus."""
    return bool(name and re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name) and not is_local_path(name))


def languages(data: dict[str, Any]) -> list[str]:
    """The language codes among the names of source and target, which may be any column names."""
    from babel import Locale

    known = Locale("en").languages
    codes = [re.split(r"[-_]", str(data.get(side) or ""))[0].lower() for side in ("source", "target")]
    return list(dict.fromkeys(code for code in codes if code in known))


def metric_name(name: str | None) -> str:
    name = name or "score"
    return _METRIC_NAMES.get(name, name.replace("_", " "))


def score_names(splits: Iterable[dict[str, Any]], main_score: str | None) -> list[str]:
    """The names of the scores of some splits, the main score first."""
    names = dict.fromkeys(
        name
        for scores in splits
        for name, value in scores.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and not _NOT_SCORES.search(name)
    )
    return sorted(names, key=lambda name: name != main_score)


def _licence(name: str | None) -> dict[str, str]:
    """The fields of a licence; one that the Hub has no identifier for is `other` with a name."""
    if not name:
        return {}
    if name.lower() in _LICENCES:
        return {"license": name.lower()}
    return {"license": "other", "license_name": re.sub(r"[^\w.-]+", "-", name.lower()).strip("-")}


def _evaluation_results(checkpoint: Checkpoint) -> list[EvalResult]:
    """The test scores for `model-index`, or the validation scores if there are no others."""
    splits = checkpoint.results.get("scores") or {}
    split = next((name for name in ("test", "validation") if splits.get(name)), None)
    corpus = corpus_name(checkpoint)
    if split is None or corpus is None:
        return []
    scores = splits[split]
    return [
        EvalResult(
            task_type=task_of_head(checkpoint.architecture).pipeline_tag
            or checkpoint.results["task"].replace("_", "-"),
            dataset_type=corpus if is_hub_id(corpus) else re.sub(r"[^\w.-]+", "-", corpus),
            dataset_name=corpus,
            dataset_split=split,
            metric_type=_METRIC_TYPES.get(metric, metric),
            metric_name=metric_name(metric),
            metric_value=round(scores[metric], 6),
            metric_args=_metric_arguments(scores, metric),
        )
        for metric in score_names([scores], checkpoint.results.get("main_score"))
        if metric != "loss" and math.isfinite(scores[metric])  # the Hub stores metadata as JSON, which has no NaN
    ]


def _metric_arguments(scores: dict[str, Any], metric: str) -> dict[str, Any] | None:
    """What makes a score comparable: its sacreBLEU signature and its confidence interval."""
    signature, interval = scores.get(f"{metric}_signature"), scores.get(f"{metric}_interval")
    arguments = {"signature": signature, "interval": interval and [round(bound, 6) for bound in interval]}
    return {name: value for name, value in arguments.items() if value} or None
