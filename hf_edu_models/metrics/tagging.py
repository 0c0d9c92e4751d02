"""Scores of entities, by seqeval: a span counts when its borders and its type are right."""

from __future__ import annotations

from typing import Any

from datasets import Features, List, Value

from .base import OfflineMetric

TAGS = List(Value("string"))


class Seqeval(OfflineMetric):
    """Precision, recall and F1 of entities over all types, of each type, and the accuracy of tags."""

    def _info(self):
        return self._describe(
            "Entity scores by seqeval.",
            "Tjong Kim Sang & De Meulder 2003; Nakayama 2018, seqeval",
            Features(predictions=TAGS, references=TAGS),
        )

    def _compute(self, predictions, references, scheme: str | None = None, mode: str | None = None, **options: Any):
        from seqeval.metrics import accuracy_score, classification_report

        options = {"zero_division": 0} | options
        report = classification_report(
            y_true=references, y_pred=predictions, output_dict=True, scheme=_scheme(scheme), mode=mode, **options
        )
        overall = report.pop("micro avg")
        for average in ("macro avg", "weighted avg"):
            report.pop(average, None)
        scores = {f"overall_{name}": float(overall[key]) for name, key in _NAMES.items()}
        scores["overall_accuracy"] = float(accuracy_score(references, predictions))
        kinds = {kind: {name: float(row[key]) for name, key in _NAMES.items()} for kind, row in report.items()}
        return scores | {kind: row | {"number": int(report[kind]["support"])} for kind, row in kinds.items()}


_NAMES = {"precision": "precision", "recall": "recall", "f1": "f1-score"}


def _scheme(name: str | None) -> Any:
    if name is None:
        return None
    import seqeval.scheme

    allowed = ("IOB1", "IOB2", "IOE1", "IOE2", "IOBES", "BILOU")
    if name not in allowed:
        raise ValueError(f"scheme must be one of {', '.join(allowed)}; got {name!r}")
    return getattr(seqeval.scheme, name)
