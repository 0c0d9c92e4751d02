"""SQuAD's exact match and F1.

Papers: Rajpurkar et al. 2016, arXiv:1606.05250, Section 6.1; Rajpurkar et al. 2018, arXiv:1806.03822.
"""

from __future__ import annotations

import re
import string
from collections import Counter

from datasets import Features, List, Value

from .base import OfflineMetric

_TEXT = Value("string")


class Squad(OfflineMetric):
    """SQuAD's exact match and F1, from 0 to 100: the best over all reference answers, also for unanswerable questions.

    Punctuation, case and articles do not count.
    """

    paper = "Rajpurkar et al. 2016, arXiv:1606.05250"
    inputs = Features(
        predictions={"id": _TEXT, "prediction_text": _TEXT},
        references={"id": _TEXT, "answers": {"text": List(_TEXT), "answer_start": List(Value("int32"))}},
    )

    def _compute(self, predictions, references):
        texts = {row["id"]: row["prediction_text"] for row in predictions}
        exact, overlap = [], []
        for row in references:
            if row["id"] not in texts:
                raise ValueError(f"there is no prediction for the question {row['id']!r}; give one for every reference")
            prediction, answers = texts[row["id"]], answers_of(row)
            exact.append(max(_normalise(prediction) == _normalise(answer) for answer in answers))
            overlap.append(max(word_f1(prediction, answer) for answer in answers))
        return {"exact_match": 100 * sum(exact) / len(exact), "f1": 100 * sum(overlap) / len(overlap)}


def answers_of(reference: dict) -> list[str]:
    """The reference answers that are not empty when normalised; the empty answer where there are none."""
    return [text for text in reference["answers"]["text"] if _normalise(text)] or [""]


def word_f1(prediction: str, answer: str) -> float:
    """F1 of the bags of words; where one side is empty, whether both are."""
    predicted, correct = _normalise(prediction).split(), _normalise(answer).split()
    if not predicted or not correct:
        return float(predicted == correct)
    common = sum((Counter(predicted) & Counter(correct)).values())
    return 2 * common / (len(predicted) + len(correct))


def _normalise(text: str) -> str:
    """Lower case, without punctuation and the articles a, an, the, one space between words."""
    text = "".join(character for character in text.lower() if character not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())
