"""Word alignments from cross-attention, and their alignment error rate.

The weights of a decoder step give the alignment of the word that the step *predicts* (its output) or of the word that
it *reads* (its input). Chen et al. 2020, arXiv:2004.14837, find that a Transformer aligns far better by its input
(`shift=True`), and that the layer matters. Small models on monotone tasks may differ: they attend to the source of the
next word, and `best_layer` compares both. Bahdanau's attention is computed before the step reads anything (its query is
the previous state), so there the output is the right choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..inference import with_progress
from .cross_attention import WordAttention, word_cross_attention
from .links import Links, extract_links, merge_links, reverse_links, to_pharaoh


@dataclass(frozen=True)
class Alignment:
    """One sentence pair.

    Args:
        source, target: The words, split at spaces.
        weights: (target words, source words), attention weights; a row and its `outside` sum to one.
        links: Pairs (source word, target word), counted from 0.
    """

    source: list[str]
    target: list[str]
    weights: np.ndarray
    links: Links

    @property
    def outside(self) -> np.ndarray:
        """(target words,), the attention to EOS and spaces, which belong to no word."""
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
    """The alignment scores of one layer, by the decoder's output or (`shift`) by its input."""

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
    """Align the words of sentence pairs by teacher forcing, one `Alignment` for each pair.

    Args:
        layer: A decoder layer, counted from 0 (-1 is the last), or "mean" over all.
        head: A head, or "mean" over all.
        shift: Take the weights of the steps that read the target word, not of those that predict it.
        threshold: No link for a target word whose largest weight is below this.
        target_tokenizer: For a target side with its own vocabulary.
    """
    found: list[Any] = [None] * len(sources)
    options = {"target_tokenizer": target_tokenizer, "batch_size": batch_size}
    rows = word_cross_attention(model, tokenizer, sources, targets, **options)
    for row in with_progress(rows, "aligning", len(sources), progress):
        weights = _select(row, layer, head, shift)
        found[row.index] = Alignment(row.source, row.target, weights, extract_links(weights, threshold))
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
    """The alignment scores of every layer, with and without `shift`, the lowest error rate first.

    Args:
        rows: With `source`, `target`, `sure` and `possible`; not the rows that you report scores on.
    """
    rows = list(rows)
    if not rows:
        raise ValueError("there are no rows to choose a layer on; give some with source, target, sure and possible")
    attention: list[Any] = [None] * len(rows)
    sources, targets = [row["source"] for row in rows], [row["target"] for row in rows]
    options = {"target_tokenizer": target_tokenizer, "batch_size": batch_size}
    results = word_cross_attention(model, tokenizer, sources, targets, **options)
    for result in with_progress(results, "aligning", len(rows), progress):
        attention[result.index] = result
    scores = []
    for layer in range(len(attention[0].as_output)):
        for shift in (False, True):
            links = [extract_links(_select(each, layer, head, shift), threshold) for each in attention]
            scores.append(LayerScore(layer, shift, **score_links(links, rows)))
    return sorted(scores, key=lambda score: score.aer)


def score_links(links: Iterable[Links], rows: Iterable[dict[str, Any]]) -> dict[str, float]:
    """`aer`, `precision` and `recall` against the `sure` and `possible` links of the rows."""
    from ...metrics import load

    predictions = [[list(link) for link in each] for each in links]
    gold = [{name: [list(link) for link in row[name]] for name in ("sure", "possible")} for row in rows]
    return load("aer").compute(predictions=predictions, references=gold)


def symmetrize(
    forward: Sequence[Alignment], backward: Sequence[Alignment], method: str = "grow-diag"
) -> list[Alignment]:
    """Merge the alignments of two models, one for each direction.

    Args:
        backward: From the reverse model: its source is the target of `forward`.
        method: "intersect", "union", "grow-diag" or "grow-diag-final".
    """
    if len(forward) != len(backward):
        raise ValueError(f"the directions have {len(forward)} and {len(backward)} pairs; align the same pairs in both")
    merged = []
    for number, (there, back) in enumerate(zip(forward, backward, strict=True)):
        if (there.source, there.target) != (back.target, back.source):
            raise ValueError(
                f"pair {number} differs: the forward source is {' '.join(there.source)[:40]!r}, the backward target is "
                f"{' '.join(back.target)[:40]!r}; align the same pairs in both directions"
            )
        links = merge_links(there.links, reverse_links(back.links), method)
        merged.append(Alignment(there.source, there.target, (there.weights + back.weights.T) / 2, links))
    return merged


def _select(attention: WordAttention, layer: int | str, head: int | str, shift: bool) -> np.ndarray:
    """(T, S), the weights of one layer and head, or their mean."""
    weights = attention.as_input if shift else attention.as_output
    for axis, (name, choice) in enumerate((("layer", layer), ("head", head))):
        size = weights.shape[axis]
        is_index = isinstance(choice, int) and not isinstance(choice, bool)
        if choice != "mean" and not (is_index and -size <= choice < size):
            raise ValueError(f"{name} must be from {-size} to {size - 1}, or 'mean'; got {choice!r}")
    weights = weights.mean(axis=0) if layer == "mean" else weights[layer]
    return weights.mean(axis=0) if head == "mean" else weights[head]
