"""Scores of classes and of numbers, by scikit-learn and scipy."""

from __future__ import annotations

from typing import Any

import numpy as np
from datasets import Features, List, Value

from .base import OfflineMetric

NUMBER, FRACTION = Value("int64"), Value("float64")
ONE_CLASS = Features(predictions=NUMBER, references=NUMBER)
MANY_CLASSES = Features(predictions=List(NUMBER), references=List(NUMBER))


class Accuracy(OfflineMetric):
    """Share of right classes; configuration "multilabel": of rows where every 0 and 1 is right."""

    configs = ("multilabel",)

    def _info(self):
        features = MANY_CLASSES if self.config_name == "multilabel" else ONE_CLASS
        return self._describe("Accuracy by scikit-learn.", "scikit-learn: Pedregosa et al. 2011", features)

    def _compute(self, predictions, references, normalize: bool = True, sample_weight=None):
        from sklearn.metrics import accuracy_score

        score = accuracy_score(references, predictions, normalize=normalize, sample_weight=sample_weight)
        return {"accuracy": float(score)}


class F1(OfflineMetric):
    """Harmonic mean of precision and recall; configuration "multilabel": rows of 0 and 1."""

    configs = ("multilabel",)

    def _info(self):
        features = MANY_CLASSES if self.config_name == "multilabel" else ONE_CLASS
        return self._describe("F1 by scikit-learn.", "scikit-learn: Pedregosa et al. 2011", features)

    def _compute(self, predictions, references, average: str | None = "binary", **options: Any):
        from sklearn.metrics import f1_score

        score = f1_score(np.asarray(references), np.asarray(predictions), average=average, **options)
        return {"f1": score.tolist() if isinstance(score, np.ndarray) else float(score)}


class Matthews(OfflineMetric):
    """Matthews correlation of the classes, the score of CoLA."""

    def _info(self):
        return self._describe("Matthews correlation by scikit-learn.", "Matthews 1975", ONE_CLASS)

    def _compute(self, predictions, references, sample_weight=None):
        from sklearn.metrics import matthews_corrcoef

        return {"matthews": float(matthews_corrcoef(references, predictions, sample_weight=sample_weight))}


class PearsonSpearman(OfflineMetric):
    """Correlation of values and of ranks, the scores of STS-B; not a number where one side is constant."""

    def _info(self):
        return self._describe(
            "Pearson and Spearman correlation by scipy.",
            "scipy: Virtanen et al. 2020",
            Features(predictions=FRACTION, references=FRACTION),
        )

    def _compute(self, predictions, references):
        from scipy.stats import pearsonr, spearmanr

        if len(predictions) < 2:
            raise ValueError(f"a correlation needs two rows or more, got {len(predictions)}")
        pearson, spearman = pearsonr(predictions, references)[0], spearmanr(predictions, references)[0]
        return {"pearson": float(pearson), "spearman": float(spearman)}
