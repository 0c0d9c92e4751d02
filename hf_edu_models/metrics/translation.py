"""Scores of generated text: BLEU and chrF by sacrebleu, word error rate by jiwer, exact match."""

from __future__ import annotations

import string
from typing import Any

from datasets import Features, List, Value

from .base import OfflineMetric

TEXT = Value("string")
ONE_OR_MANY = [
    Features(predictions=TEXT, references=TEXT),
    Features(predictions=TEXT, references=List(TEXT)),
]


class Bleu(OfflineMetric):
    """Corpus BLEU from 0 to 100, with the signature that makes it comparable."""

    def _info(self):
        return self._describe(
            "Corpus BLEU by sacrebleu, on plain (detokenised) text.",
            "Papineni et al. 2002; Post 2018, arXiv:1804.08771",
            ONE_OR_MANY,
        )

    def _compute(self, predictions, references, n_bootstrap: int = 0, **options: Any):
        """`n_bootstrap` resamplings give `bleu_interval`, 95% by sacrebleu; other options are sacrebleu's own."""
        from sacrebleu.metrics import BLEU

        metric = BLEU(**options)
        score = metric.corpus_score(predictions, by_position(references))
        interval = {}
        if n_bootstrap > 1:
            # Another object: the signature shall be that of the score, not of the resampling.
            spread = BLEU(**options).corpus_score(predictions, by_position(references), n_bootstrap=n_bootstrap)
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
    """Character n-gram F-score from 0 to 100, with its signature; `word_order=2` is chrF++."""

    def _info(self):
        return self._describe(
            "Corpus chrF by sacrebleu.", "Popović 2015, 2017; Post 2018, arXiv:1804.08771", ONE_OR_MANY
        )

    def _compute(self, predictions, references, **options: Any):
        from sacrebleu.metrics import CHRF

        metric = CHRF(**options)
        score = metric.corpus_score(predictions, by_position(references))
        return {"chrf": score.score, "chrf_signature": str(metric.get_signature())}


class Wer(OfflineMetric):
    """Word error rate: edits for a word of reference, over all rows."""

    def _info(self):
        return self._describe(
            "Word error rate by jiwer.", "Levenshtein 1966", Features(predictions=TEXT, references=TEXT)
        )

    def _compute(self, predictions, references):
        import jiwer

        return {"wer": float(jiwer.wer(reference=list(references), hypothesis=list(predictions)))}


class ExactMatch(OfflineMetric):
    """Share of rows where the prediction is the reference, or one of them."""

    def _info(self):
        return self._describe("Share of predictions equal to a reference.", "", ONE_OR_MANY)

    def _compute(self, predictions, references, ignore_case: bool = False, ignore_punctuation: bool = False):
        def plain(text: str) -> str:
            text = text.lower() if ignore_case else text
            return text.translate(str.maketrans("", "", string.punctuation)) if ignore_punctuation else text

        rows = zip(predictions, references, strict=True)
        hits = [plain(said) in {plain(right) for right in as_list(wanted)} for said, wanted in rows]
        return {"exact_match": sum(hits) / len(hits)}


def as_list(references: str | list[str]) -> list[str]:
    return [references] if isinstance(references, str) else list(references)


def by_position(references: list) -> list[list[str | None]]:
    """Row by row to sacrebleu's first references, second references, ...; missing ones are None."""
    rows = [as_list(row) for row in references]
    most = max(len(row) for row in rows)
    if most == 0 or not all(rows):
        raise ValueError("every prediction needs one reference at least, which may be an empty text")
    return [[row[place] if place < len(row) else None for row in rows] for place in range(most)]
