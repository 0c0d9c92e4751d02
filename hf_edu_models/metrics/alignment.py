"""Alignment error rate with sure and possible links.

Paper: Och & Ney 2003, "A Systematic Comparison of Various Statistical Alignment Models", Computational Linguistics 29.
"""

from __future__ import annotations

from datasets import Features, List, Value

from .base import OfflineMetric

LINKS, TEXT = List(List(Value("int64"))), Value("string")


class Aer(OfflineMetric):
    """1 - (|A and S| + |A and P|) / (|A| + |S|) over all rows; every sure link is possible too.

    Links are pairs [source word, target word], or a text such as "0-0 1-2". References have `sure` and `possible`.
    """

    def _info(self):
        options = [
            Features(predictions=TEXT, references={"sure": TEXT, "possible": TEXT}),
            Features(predictions=LINKS, references={"sure": LINKS, "possible": LINKS}),
        ]
        return self._describe("Alignment error rate.", "Och & Ney 2003, Computational Linguistics 29(1)", options)

    def _compute(self, predictions, references):
        said = sure_links = sure_found = possible_found = 0
        for links, gold in zip(predictions, references, strict=True):
            links, sure = as_links(links), as_links(gold["sure"])
            possible = as_links(gold["possible"]) | sure
            said += len(links)
            sure_links += len(sure)
            sure_found += len(links & sure)
            possible_found += len(links & possible)
        total = said + sure_links
        return {
            "aer": 1 - (sure_found + possible_found) / total if total else 0.0,
            "precision": possible_found / said if said else 0.0,
            "recall": sure_found / sure_links if sure_links else 0.0,
        }


def as_links(links: str | list) -> set[tuple[int, int]]:
    if isinstance(links, str):
        links = [pair.split("-") for pair in links.split()]
    return {(int(i), int(j)) for i, j in links}
