"""Scores of language models: perplexity over all tokens, accuracy on masked ones."""

from __future__ import annotations

import math

import numpy as np
from datasets import Features, List, Value

from .base import OfflineMetric


class Perplexity(OfflineMetric):
    """exp(total negative log-likelihood / number of tokens): rows weigh by their tokens, never by batches.

    Predictions are summed negative log-likelihoods in nats, references the numbers of tokens they are summed over.
    """

    def _info(self):
        features = Features(predictions=Value("float64"), references=Value("int64"))
        return self._describe("Perplexity from summed losses.", "Jelinek et al. 1977", features)

    def _compute(self, predictions, references, words: int | None = None):
        """`words` gives a perplexity a word as well, which is comparable between vocabularies."""
        total, tokens = math.fsum(predictions), int(sum(references))
        if tokens < 1:
            raise ValueError(f"a perplexity needs one token or more, got {tokens}")
        scores = {"perplexity": _exp(total / tokens), "nll": total / tokens, "tokens": tokens}
        return scores if words is None else scores | {"word_perplexity": _exp(total / words)}


class MlmAccuracy(OfflineMetric):
    """Share of masked tokens that were found; places with the label -100 do not count."""

    def _info(self):
        tokens = List(Value("int64"))
        features = Features(predictions=tokens, references=tokens)
        return self._describe("Accuracy on masked tokens.", "Devlin et al. 2019, arXiv:1810.04805", features)

    def _compute(self, predictions, references):
        found, masked = 0, 0
        for said, wanted in zip(predictions, references, strict=True):
            if len(said) != len(wanted):
                raise ValueError(f"a row has {len(said)} predictions and {len(wanted)} labels; they must be as many")
            said, wanted = np.asarray(said), np.asarray(wanted)
            kept = wanted != -100
            masked += int(kept.sum())
            found += int((said[kept] == wanted[kept]).sum())
        return {"mlm_accuracy": found / masked if masked else math.nan, "masked_tokens": masked}


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf
