"""Links between the words of two sentences: chosen from weights, joined from two directions, written and read.

A link is a pair (source word, target word), counted from 0.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

Links = list[tuple[int, int]]
NEIGHBOURS = ((-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1))


def choose_links(weights: np.ndarray, threshold: float | None = None) -> Links:
    """Each target word with the source word that it looks at most.

    Args:
        weights: (target words, source words).
        threshold: no link where even the greatest weight is below this.
    """
    if not weights.size:
        return []
    best = weights.argmax(axis=1)
    # A word that no token spells (a control character, say) looks at nothing.
    least = np.finfo(float).tiny if threshold is None else threshold
    return sorted((int(i), j) for j, i in enumerate(best) if weights[j, i] >= least)


def diagonal_links(source_words: int, target_words: int) -> Links:
    """The baseline that has seen no words: both sentences in the same order, at even pace."""
    if not source_words:
        return []
    return sorted((int((j + 0.5) * source_words / target_words), j) for j in range(target_words))


def turned(links: Iterable[tuple[int, int]]) -> Links:
    """The same links with the target as the source."""
    return sorted((j, i) for i, j in links)


def merge_links(forward: Iterable[tuple[int, int]], backward: Iterable[tuple[int, int]], how: str) -> Links:
    """Join two directions (Koehn, Och & Marcu 2003, "Statistical Phrase-Based Translation", Section on word alignment).

    Args:
        how: "intersect" keeps what both say, "union" what either says; "grow-diag" starts from the first and adds
            links of the second that touch one, even at a corner, and reach a new word; "grow-diag-final" then adds the
            rest that reach a new word.
    """
    if how not in JOINS:
        raise ValueError(f"how must be one of {', '.join(JOINS)}; got {how!r}")
    return sorted(JOINS[how](set(forward), set(backward)))


def grow(forward: set, backward: set) -> set:
    links, union = forward & backward, forward | backward
    sources, targets = {i for i, _ in links}, {j for _, j in links}
    changed = True
    while changed:
        changed = False
        for i, j in sorted(links):
            for down, right in NEIGHBOURS:
                near = (i + down, j + right)
                if near in union - links and (near[0] not in sources or near[1] not in targets):
                    links.add(near)
                    sources.add(near[0])
                    targets.add(near[1])
                    changed = True
    return links


def grow_final(forward: set, backward: set) -> set:
    links = grow(forward, backward)
    sources, targets = {i for i, _ in links}, {j for _, j in links}
    for direction in (forward, backward):
        for i, j in sorted(direction - links):
            if i not in sources or j not in targets:
                links.add((i, j))
                sources.add(i)
                targets.add(j)
    return links


JOINS = {
    "intersect": set.intersection,
    "union": set.union,
    "grow-diag": grow,
    "grow-diag-final": grow_final,
}


def to_pharaoh(links: Iterable[tuple[int, int]]) -> str:
    """As most alignment tools write them: "0-0 1-2", source first."""
    return " ".join(f"{i}-{j}" for i, j in links)


def from_pharaoh(text: str) -> Links:
    try:
        return sorted((int(i), int(j)) for i, j in (pair.split("-") for pair in text.split()))
    except ValueError:
        raise ValueError(f'links are written "0-0 1-2", source word first; got {text[:60]!r}') from None
