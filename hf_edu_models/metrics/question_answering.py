"""SQuAD's exact match and F1, from 0 to 100, also for questions without an answer.

Papers: Rajpurkar et al. 2016, arXiv:1606.05250, Section 6.1; Rajpurkar et al. 2018, arXiv:1806.03822.
"""

from __future__ import annotations

import re
import string
from collections import Counter

from datasets import Features, List, Value

from .base import OfflineMetric

TEXT = Value("string")


class Squad(OfflineMetric):
    """Best match over the answers that people gave, punctuation, case and articles aside."""

    def _info(self):
        answers = {"text": List(TEXT), "answer_start": List(Value("int32"))}
        features = Features(
            predictions={"id": TEXT, "prediction_text": TEXT},
            references={"id": TEXT, "answers": answers},
        )
        return self._describe(__doc__, "Rajpurkar et al. 2016, arXiv:1606.05250", features)

    def _compute(self, predictions, references):
        said = {row["id"]: row["prediction_text"] for row in predictions}
        exact, overlap = [], []
        for row in references:
            if row["id"] not in said:
                raise ValueError(f"there is no prediction for the question {row['id']!r}; give one for every reference")
            golds = answers_of(row)
            exact.append(max(plain(said[row["id"]]) == plain(gold) for gold in golds))
            overlap.append(max(word_f1(said[row["id"]], gold) for gold in golds))
        return {"exact_match": 100 * sum(exact) / len(exact), "f1": 100 * sum(overlap) / len(overlap)}


def answers_of(reference: dict) -> list[str]:
    """The gold answers that have a word left; a question without one has the empty answer."""
    return [text for text in reference["answers"]["text"] if plain(text)] or [""]


def plain(text: str) -> str:
    """Lower case, without punctuation and the articles a, an, the, one space between words."""
    text = "".join(character for character in text.lower() if character not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def word_f1(prediction: str, gold: str) -> float:
    """F1 of the bags of words; where one side is empty, whether both are."""
    said, right = plain(prediction).split(), plain(gold).split()
    if not said or not right:
        return float(said == right)
    common = sum((Counter(said) & Counter(right)).values())
    return 2 * common / (len(said) + len(right))
