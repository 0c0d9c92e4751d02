"""Alignment error rate with sure and possible links.

Paper: Och & Ney 2003, "A Systematic Comparison of Various Statistical Alignment Models", Computational Linguistics 29.
"""

from __future__ import annotations

from datasets import Features, List, Value

from ..data.map_columns import parse_links
from .base import OfflineMetric

LINKS, _TEXT = List(List(Value("int64"))), Value("string")


class Aer(OfflineMetric):
    """Alignment error rate: 1 - (|A and S| + |A and P|) / (|A| + |S|) over all rows; every sure link is possible too.

    Links are pairs [source word, target word], or a text such as "0-0 1-2". References have `sure` and `possible`.
    """

    paper = "Och & Ney 2003, Computational Linguistics 29(1)"
    inputs = [Features(predictions=links, references={"sure": links, "possible": links}) for links in (_TEXT, LINKS)]

    def _compute(self, predictions, references):
        num_links = num_sure = sure_found = possible_found = 0
        for links, reference in zip(predictions, references, strict=True):
            links, sure = _as_set(links), _as_set(reference["sure"])
            num_links += len(links)
            num_sure += len(sure)
            sure_found += len(links & sure)
            possible_found += len(links & (sure | _as_set(reference["possible"])))
        total = num_links + num_sure
        return {
            "aer": 1 - (sure_found + possible_found) / total if total else 0.0,
            "precision": possible_found / num_links if num_links else 0.0,
            "recall": sure_found / num_sure if num_sure else 0.0,
        }


def _as_set(links: str | list) -> set[tuple[int, ...]]:
    return {tuple(link) for link in parse_links(links)}
