"""Dependency trees as distances between words, and back: gold trees, minimum spanning trees, and their scores.

A tree is a list of heads, counted from 1; the root's head is 0. Words without a letter or a digit are punctuation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

Edge = tuple[int, int]
_LENGTHS = range(5, 51)  # of the sentences whose Spearman correlations count (Hewitt & Manning 2019, Section 4)


def tree_depths(heads: Sequence[int]) -> np.ndarray:
    """(words,), the number of edges between each word and the root."""
    return np.array([len(_path(heads, word)) - 1 for word in range(len(heads))])


def tree_distances(heads: Sequence[int]) -> np.ndarray:
    """(words, words), the number of edges on the path between every two words."""
    paths = [_path(heads, word) for word in range(len(heads))]
    distances: np.ndarray = np.zeros((len(heads), len(heads)), np.float32)
    for one, path in enumerate(paths):
        places = {word: steps for steps, word in enumerate(path)}
        for other, other_path in enumerate(paths[:one]):
            steps, meeting = next((steps, word) for steps, word in enumerate(other_path) if word in places)
            distances[one, other] = distances[other, one] = steps + places[meeting]
    return distances


def _path(heads: Sequence[int], word: int) -> list[int]:
    """The words from one up to the root, both included."""
    path = [word]
    while heads[path[-1]]:
        path.append(heads[path[-1]] - 1)
    return path


def is_word(token: str) -> bool:
    return any(character.isalnum() for character in token)


def gold_edges(tokens: Sequence[str], heads: Sequence[int]) -> set[Edge]:
    """Undirected edges between words; those of punctuation are left out."""
    edges = {(min(word, head - 1), max(word, head - 1)) for word, head in enumerate(heads) if head}
    return {(one, other) for one, other in edges if is_word(tokens[one]) and is_word(tokens[other])}


def spanning_edges(tokens: Sequence[str], distances: np.ndarray) -> set[Edge]:
    """The minimum spanning tree of the words, without punctuation."""
    from scipy.sparse.csgraph import minimum_spanning_tree

    words = [number for number, token in enumerate(tokens) if is_word(token)]
    # scipy takes a distance of zero for no edge.
    tree = minimum_spanning_tree(np.triu(distances[np.ix_(words, words)].astype(np.float64) + 1e-9, 1)).tocoo()
    return {(words[min(pair)], words[max(pair)]) for pair in zip(tree.row.tolist(), tree.col.tolist(), strict=True)}


def chain_edges(tokens: Sequence[str]) -> set[Edge]:
    """Each word joined to the next: the tree that needs no model."""
    words = [number for number, token in enumerate(tokens) if is_word(token)]
    return set(pairwise(words))


def attachment_score(gold: Iterable[set[Edge]], predicted: Iterable[set[Edge]]) -> float:
    """UUAS, undirected unlabelled attachment score: the share of all gold edges that are predicted."""
    pairs = list(zip(gold, predicted, strict=True))
    return sum(len(one & other) for one, other in pairs) / max(sum(len(one) for one, _ in pairs), 1)


def mean_correlation(gold: Iterable[np.ndarray], predicted: Iterable[np.ndarray]) -> float:
    """Spearman correlation of each row, averaged over sentences of a length, then over the lengths 5 to 50."""
    from scipy.stats import rankdata

    by_length: dict[int, list[float]] = {}
    for one, other in zip(gold, predicted, strict=True):
        ranks = [rankdata(np.atleast_2d(each), axis=1) for each in (one, other)]
        first, second = (each - each.mean(axis=1, keepdims=True) for each in ranks)
        sizes = np.sqrt((first**2).sum(axis=1) * (second**2).sum(axis=1))
        if one.shape[-1] in _LENGTHS:
            correlations = (first * second).sum(axis=1) / np.maximum(sizes, 1e-12)
            by_length.setdefault(one.shape[-1], []).append(float(correlations.mean()))
    return float(np.mean([np.mean(each) for each in by_length.values()])) if by_length else float("nan")
