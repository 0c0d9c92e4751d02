"""Metrics of generated text: BLEU and chrF by sacrebleu, word error rate by jiwer, exact match."""

from __future__ import annotations

import string
from typing import Any

from datasets import Features, List, Value

from .base import OfflineMetric

_TEXT = Value("string")
_ONE_REFERENCE = Features(predictions=_TEXT, references=_TEXT)
_ONE_OR_MANY = [_ONE_REFERENCE, Features(predictions=_TEXT, references=List(_TEXT))]


class Bleu(OfflineMetric):
    """Corpus BLEU from 0 to 100 by sacrebleu, on detokenised text, with the signature that makes it comparable."""

    paper = "Papineni et al. 2002; Post 2018, arXiv:1804.08771"
    inputs = _ONE_OR_MANY

    def _compute(self, predictions, references, n_bootstrap: int = 0, **options: Any):
        """`n_bootstrap` resamplings give `bleu_interval`, 95% by sacrebleu; other options are sacrebleu's own."""
        from sacrebleu.metrics import BLEU

        metric = BLEU(**options)
        score = metric.corpus_score(predictions, _by_reference(references))
        interval = {}
        if n_bootstrap > 1:
            # A second object, so that the signature does not mention the resampling.
            spread = BLEU(**options).corpus_score(predictions, _by_reference(references), n_bootstrap=n_bootstrap)
            interval = {"bleu_interval": [spread._mean - spread._ci, spread._mean + spread._ci]}
        return interval | {
            "bleu": score.score,
            "bleu_signature": str(metric.get_signature()),
            "precisions": score.precisions,
            "brevity_penalty": score.bp,
            "prediction_length": score.sys_len,
            "reference_length": score.ref_len,
        }


class Chrf(OfflineMetric):
    """Corpus chrF, the character n-gram F-score, from 0 to 100 by sacrebleu; `word_order=2` is chrF++."""

    paper = "Popović 2015, 2017; Post 2018, arXiv:1804.08771"
    inputs = _ONE_OR_MANY

    def _compute(self, predictions, references, **options: Any):
        from sacrebleu.metrics import CHRF

        metric = CHRF(**options)
        score = metric.corpus_score(predictions, _by_reference(references))
        return {"chrf": score.score, "chrf_signature": str(metric.get_signature())}


class Wer(OfflineMetric):
    """Word error rate by jiwer: edits per word of the references, over all rows."""

    paper = "Levenshtein 1966"
    inputs = _ONE_REFERENCE

    def _compute(self, predictions, references):
        import jiwer

        return {"wer": float(jiwer.wer(reference=list(references), hypothesis=list(predictions)))}


class ExactMatch(OfflineMetric):
    """Share of predictions that are equal to the reference, or to one of them."""

    inputs = _ONE_OR_MANY

    def _compute(self, predictions, references, ignore_case: bool = False, ignore_punctuation: bool = False):
        def normalise(text: str) -> str:
            text = text.lower() if ignore_case else text
            return text.translate(str.maketrans("", "", string.punctuation)) if ignore_punctuation else text

        rows = zip(predictions, references, strict=True)
        matches = [normalise(text) in map(normalise, _as_list(texts)) for text, texts in rows]
        return {"exact_match": sum(matches) / len(matches)}


def _as_list(references: str | list[str]) -> list[str]:
    return [references] if isinstance(references, str) else list(references)


def _by_reference(references: list) -> list[list[Any]]:
    """References by row to sacrebleu's lists: the first of every row, the second of every row, ...; missing: None."""
    rows = [_as_list(row) for row in references]
    if not all(rows):
        raise ValueError("every prediction needs one reference at least, which may be an empty text")
    return [[row[number] if number < len(row) else None for row in rows] for number in range(max(map(len, rows)))]
