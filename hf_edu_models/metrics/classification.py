"""Metrics of classes and of numbers, by scikit-learn and scipy."""

from __future__ import annotations

from typing import Any

import numpy as np
from datasets import Features, List, Value

from .base import OfflineMetric

CLASS, NUMBER = Value("int64"), Value("float64")
_ONE_CLASS = Features(predictions=CLASS, references=CLASS)
_MULTILABEL = {"multilabel": Features(predictions=List(CLASS), references=List(CLASS))}


class Accuracy(OfflineMetric):
    """Share of correct classes; configuration "multilabel": share of rows whose 0s and 1s are all correct."""

    paper = "scikit-learn: Pedregosa et al. 2011"
    inputs, configs = _ONE_CLASS, _MULTILABEL

    def _compute(self, predictions, references, normalize: bool = True, sample_weight=None):
        from sklearn.metrics import accuracy_score

        score = accuracy_score(references, predictions, normalize=normalize, sample_weight=sample_weight)
        return {"accuracy": float(score)}


class F1(OfflineMetric):
    """Harmonic mean of precision and recall; configuration "multilabel": rows of 0 and 1."""

    paper = "scikit-learn: Pedregosa et al. 2011"
    inputs, configs = _ONE_CLASS, _MULTILABEL

    def _compute(self, predictions, references, average: str | None = "binary", **options: Any):
        from sklearn.metrics import f1_score

        score = f1_score(np.asarray(references), np.asarray(predictions), average=average, **options)
        return {"f1": score.tolist() if isinstance(score, np.ndarray) else float(score)}


class Matthews(OfflineMetric):
    """Matthews correlation of the classes, the metric of CoLA."""

    paper = "Matthews 1975"
    inputs = _ONE_CLASS

    def _compute(self, predictions, references, sample_weight=None):
        from sklearn.metrics import matthews_corrcoef

        return {"matthews": float(matthews_corrcoef(references, predictions, sample_weight=sample_weight))}


class PearsonSpearman(OfflineMetric):
    """Pearson and Spearman correlation, the metrics of STS-B; NaN where one side is constant."""

    paper = "scipy: Virtanen et al. 2020"
    inputs = Features(predictions=NUMBER, references=NUMBER)

    def _compute(self, predictions, references):
        from scipy.stats import pearsonr, spearmanr

        if len(predictions) < 2:
            raise ValueError(f"a correlation needs two rows or more, got {len(predictions)}")
        pearson, spearman = pearsonr(predictions, references)[0], spearmanr(predictions, references)[0]
        return {"pearson": float(pearson), "spearman": float(spearman)}
