"""Word alignments out of cross-attention, and how good they are.

The weights of a decoder step can be read in two ways: as the alignment of the word that the step *says*, or of the word
that it *reads*. Chen et al. 2020, arXiv:2004.14837, find that a Transformer aligns far better in the second reading
(`shift=True`), and that the layer matters. Small models of monotone tasks need not: they look where the next word comes
from, and `best_layer` tells. Bahdanau's attention is decided before the step has read anything (its query is the state
of the step before), so there the first reading is the right one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .cross_attention import WordAttention, read_cross_attention
from .links import Links, choose_links, merge_links, to_pharaoh, turned


@dataclass(frozen=True)
class Alignment:
    """One sentence pair.

    Args:
        source, target: the words, split at spaces.
        weights: (target words, source words), each row the share of attention; with `outside` it sums to one.
        links: pairs (source word, target word), counted from 0.
    """

    source: list[str]
    target: list[str]
    weights: np.ndarray
    links: Links

    @property
    def outside(self) -> np.ndarray:
        """(target words,), the attention that fell on no word: on the end of the sentence, or on spaces."""
        return 1 - self.weights.sum(axis=1)

    def pharaoh(self) -> str:
        """The links as "0-0 1-2"."""
        return to_pharaoh(self.links)

    def to_dict(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "target": self.target,
            "links": [list(link) for link in self.links],
            "weights": self.weights.tolist(),
        }


@dataclass(frozen=True)
class LayerScore:
    """How well one layer aligns in one of the two readings."""

    layer: int
    shift: bool
    aer: float
    precision: float
    recall: float


def align(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    layer: int | str = -1,
    head: int | str = "mean",
    shift: bool = False,
    threshold: float | None = None,
    target_tokenizer: Any = None,
    batch_size: int = 32,
    progress: bool = False,
) -> list[Alignment]:
    """Align the words of translations that are given, one `Alignment` for each pair.

    Args:
        layer: a layer of the decoder from 0, from -1 backwards, or "mean" of them all.
        head: a head, or "mean" of them all.
        shift: read the weights where the target word is the decoder's input, not where it is the output.
        threshold: leave a target word without a link when it looks at no source word as much as this.
        target_tokenizer: where the target has a vocabulary of its own.
    """
    found: list[Any] = [None] * len(sources)
    rows = read_cross_attention(
        model, tokenizer, sources, targets, target_tokenizer=target_tokenizer, batch_size=batch_size
    )
    for row in tracked(rows, len(sources), progress):
        weights = pick(row.as_input if shift else row.as_output, layer, head)
        found[row.index] = Alignment(row.source, row.target, weights, choose_links(weights, threshold))
    return found


def best_layer(
    model: Any,
    tokenizer: Any,
    rows: Iterable[dict[str, Any]],
    *,
    head: int | str = "mean",
    threshold: float | None = None,
    target_tokenizer: Any = None,
    batch_size: int = 32,
    progress: bool = False,
) -> list[LayerScore]:
    """Every layer in both readings, the lowest alignment error rate first.

    Args:
        rows: with `source`, `target`, `sure` and `possible`; not the rows that you report scores on.
    """
    rows = list(rows)
    sources, targets = [row["source"] for row in rows], [row["target"] for row in rows]
    attended: list[Any] = [None] * len(rows)
    read = read_cross_attention(
        model, tokenizer, sources, targets, target_tokenizer=target_tokenizer, batch_size=batch_size
    )
    for row in tracked(read, len(rows), progress):
        attended[row.index] = row
    if not attended:
        raise ValueError("there are no rows to choose a layer on; give some with source, target, sure and possible")
    scores = [
        layer_score(attended, rows, layer, head, shift, threshold)
        for layer in range(len(attended[0].as_output))
        for shift in (False, True)
    ]
    return sorted(scores, key=lambda score: score.aer)


def layer_score(
    attended: list[WordAttention],
    rows: list[dict[str, Any]],
    layer: int,
    head: int | str,
    shift: bool,
    threshold: float | None,
) -> LayerScore:
    weights = [pick(row.as_input if shift else row.as_output, layer, head) for row in attended]
    return LayerScore(layer, shift, **score_links([choose_links(each, threshold) for each in weights], rows))


def score_links(links: Iterable[Links], rows: Iterable[dict[str, Any]]) -> dict[str, float]:
    """`aer`, `precision` and `recall` against the `sure` and `possible` links of the rows."""
    from ..metrics import load

    predictions = [[list(link) for link in each] for each in links]
    gold = [{name: [list(link) for link in row[name]] for name in ("sure", "possible")} for row in rows]
    return load("aer").compute(predictions=predictions, references=gold)


def symmetrize(forward: Sequence[Alignment], backward: Sequence[Alignment], how: str = "grow-diag") -> list[Alignment]:
    """Join the alignments of two models, one for each direction.

    Args:
        backward: of the model that translates back: its source is the target of `forward`.
        how: "intersect", "union", "grow-diag" or "grow-diag-final".
    """
    if len(forward) != len(backward):
        raise ValueError(f"the directions have {len(forward)} and {len(backward)} pairs; align the same ones both ways")
    joined = []
    for number, (there, back) in enumerate(zip(forward, backward, strict=True)):
        if (there.source, there.target) != (back.target, back.source):
            raise ValueError(
                f"pair {number} differs: forward goes from {' '.join(there.source)[:40]!r}, backward goes to "
                f"{' '.join(back.target)[:40]!r}; align the same pairs both ways"
            )
        links = merge_links(there.links, turned(back.links), how)
        joined.append(Alignment(there.source, there.target, (there.weights + back.weights.T) / 2, links))
    return joined


def pick(weights: np.ndarray, layer: int | str, head: int | str) -> np.ndarray:
    """(T, S) out of (L, H, T, S)."""
    for axis, (name, choice) in enumerate((("layer", layer), ("head", head))):
        size = weights.shape[axis]
        is_number = isinstance(choice, int) and not isinstance(choice, bool)
        if choice != "mean" and not (is_number and -size <= choice < size):
            raise ValueError(f"{name} must be from {-size} to {size - 1}, or 'mean'; got {choice!r}")
    weights = weights.mean(axis=0) if layer == "mean" else weights[layer]
    return weights.mean(axis=0) if head == "mean" else weights[head]


def tracked(rows: Iterable[WordAttention], total: int, progress: bool) -> Iterable[WordAttention]:
    from rich.progress import track

    return track(rows, "aligning", total=total, transient=True) if progress else rows
