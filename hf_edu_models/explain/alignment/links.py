"""Links between the words of two sentences: extracted from weights, symmetrized, written and read.

A link is a pair (source word, target word), counted from 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

Links = list[tuple[int, int]]
_NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def extract_links(weights: np.ndarray, threshold: float | None = None) -> Links:
    """Link each target word to the source word with its largest attention weight.

    Args:
        weights: (target words, source words).
        threshold: No link if the largest weight is below this.
    """
    if not weights.size:
        return []
    best = weights.argmax(axis=1)
    # A word without tokens (a control character, say) has no attention.
    least = np.finfo(float).tiny if threshold is None else threshold
    return sorted((int(i), j) for j, i in enumerate(best) if weights[j, i] >= least)


def diagonal_links(source_words: int, target_words: int) -> Links:
    """A baseline without a model: both sentences in the same order, at an even pace."""
    if not source_words:
        return []
    return sorted((int((j + 0.5) * source_words / target_words), j) for j in range(target_words))


def reverse_links(links: Iterable[tuple[int, int]]) -> Links:
    """The same links with source and target exchanged."""
    return sorted((j, i) for i, j in links)


def merge_links(forward: Iterable[tuple[int, int]], backward: Iterable[tuple[int, int]], method: str) -> Links:
    """Symmetrize the links of two directions.

    Koehn, Och & Marcu 2003, "Statistical Phrase-Based Translation", section on word alignment.

    Args:
        method: "intersect": links of both directions. "union": links of either. "grow-diag": start from the
            intersection and add links of the union that touch one, even at a corner, and reach a new word.
            "grow-diag-final": then also add the rest that reach a new word.
    """
    if method not in SYMMETRIZATIONS:
        raise ValueError(f"method must be one of {', '.join(SYMMETRIZATIONS)}; got {method!r}")
    return sorted(SYMMETRIZATIONS[method](set(forward), set(backward)))


def _grow_diag(forward: set, backward: set) -> set:
    links, union = forward & backward, forward | backward
    changed = True
    while changed:
        changed = False
        for i, j in sorted(links):
            for down, right in _NEIGHBOURS:
                near = (i + down, j + right)
                if near in union - links and _reaches_new_word(near, links):
                    links.add(near)
                    changed = True
    return links


def _grow_diag_final(forward: set, backward: set) -> set:
    links = _grow_diag(forward, backward)
    for direction in (forward, backward):
        for link in sorted(direction - links):
            if _reaches_new_word(link, links):
                links.add(link)
    return links


def _reaches_new_word(link: tuple[int, int], links: set) -> bool:
    return link[0] not in {i for i, _ in links} or link[1] not in {j for _, j in links}


SYMMETRIZATIONS: dict[str, Callable[[set, set], set]] = {
    "intersect": set.intersection,
    "union": set.union,
    "grow-diag": _grow_diag,
    "grow-diag-final": _grow_diag_final,
}


def to_pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """The format of most alignment tools: "0-0 1-2", source first."""
    return " ".join(f"{i}-{j}" for i, j in links)


def from_pharaoh(text: str) -> Links:
    try:
        return sorted((int(i), int(j)) for i, j in (pair.split("-") for pair in text.split()))
    except ValueError:
        raise ValueError(f'links are written "0-0 1-2", source word first; got {text[:60]!r}') from None
