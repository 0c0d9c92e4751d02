"""Metrics of named entities, by seqeval."""

from __future__ import annotations

from typing import Any

from datasets import Features, List, Value

from .base import OfflineMetric

_TAGS = List(Value("string"))
SCHEMES = ("IOB1", "IOB2", "IOE1", "IOE2", "IOBES", "BILOU")


class Seqeval(OfflineMetric):
    """Precision, recall and F1 of entities, overall and by type, and the accuracy of tags, by seqeval.

    An entity is correct if its borders and its type are.
    """

    paper = "Tjong Kim Sang & De Meulder 2003; Nakayama 2018, seqeval"
    inputs = Features(predictions=_TAGS, references=_TAGS)

    def _compute(self, predictions, references, scheme: str | None = None, mode: str | None = None, **options: Any):
        from seqeval.metrics import accuracy_score, classification_report

        options = {"zero_division": 0, "scheme": _scheme(scheme), "mode": mode} | options
        report = classification_report(y_true=references, y_pred=predictions, output_dict=True, **options)
        overall = report.pop("micro avg")
        for average in ("macro avg", "weighted avg"):
            report.pop(average, None)
        scores = {f"overall_{name}": score for name, score in _scores(overall).items()}
        scores["overall_accuracy"] = float(accuracy_score(references, predictions))
        return scores | {kind: _scores(row) | {"number": int(row["support"])} for kind, row in report.items()}


def _scores(row: dict[str, Any]) -> dict[str, float]:
    names = {"precision": "precision", "recall": "recall", "f1": "f1-score"}
    return {name: float(row[key]) for name, key in names.items()}


def _scheme(name: str | None) -> Any:
    if name is None:
        return None
    import seqeval.scheme

    if name not in SCHEMES:
        raise ValueError(f"scheme must be one of {', '.join(SCHEMES)}; got {name!r}")
    return getattr(seqeval.scheme, name)
