"""Metrics of language models: perplexity over all tokens, accuracy on masked tokens."""

from __future__ import annotations

import math

import numpy as np
from datasets import Features, List, Value

from ..data.labels import IGNORE_INDEX
from .base import OfflineMetric

_TOKEN_IDS = List(Value("int64"))


class Perplexity(OfflineMetric):
    """exp(total negative log-likelihood / number of tokens): every token has the same weight, whatever its batch.

    Predictions are summed negative log-likelihoods in nats, references the numbers of tokens they are summed over.
    """

    paper = "Jelinek et al. 1977"
    inputs = Features(predictions=Value("float64"), references=Value("int64"))

    def _compute(self, predictions, references, words: int | None = None):
        """With `words`, the number of words, also a perplexity per word, comparable between vocabularies."""
        total, tokens = math.fsum(predictions), int(sum(references))
        if tokens < 1:
            raise ValueError(f"a perplexity needs one token or more, got {tokens}")
        scores = {"perplexity": _exp(total / tokens), "nll": total / tokens, "tokens": tokens}
        return scores if words is None else scores | {"word_perplexity": _exp(total / words)}


class MlmAccuracy(OfflineMetric):
    """Share of masked tokens that are predicted correctly; labels of -100 do not count."""

    paper = "Devlin et al. 2019, arXiv:1810.04805"
    inputs = Features(predictions=_TOKEN_IDS, references=_TOKEN_IDS)

    def _compute(self, predictions, references):
        correct, masked = 0, 0
        for ids, labels in zip(predictions, references, strict=True):
            if len(ids) != len(labels):
                raise ValueError(f"a row has {len(ids)} predictions and {len(labels)} labels; give equal numbers")
            ids, labels = np.asarray(ids), np.asarray(labels)
            is_masked = labels != IGNORE_INDEX
            masked += int(is_masked.sum())
            correct += int((ids == labels)[is_masked].sum())
        return {"mlm_accuracy": correct / masked if masked else math.nan, "masked_tokens": masked}


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf
