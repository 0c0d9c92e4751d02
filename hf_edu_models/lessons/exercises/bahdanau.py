"""Exercises and quiz of lesson 7, attention."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..answers import same
from ..questions import Question


@torch.no_grad()
def _additive_score(score: Callable) -> bool:
    from ...models.blocks_attention import AdditiveScore

    layer, query, annotations = AdditiveScore(4, 6, 5), torch.randn(4), torch.randn(7, 6)
    weights = layer.query_weight, layer.key_weight, layer.score_vector
    return same(score(query, annotations, *weights), layer(query[None], layer.prepare(annotations[None]))[0])


@torch.no_grad()
def _context(context: Callable) -> bool:
    from ...models.blocks_attention import NORMALIZERS, attend

    scores, annotations = torch.randn(2, 7), torch.randn(2, 7, 6)
    expected, _ = attend(scores, annotations, None, NORMALIZERS["softmax"]())
    return all(same(context(scores[row], annotations[row]), expected[row]) for row in range(2))


def _sharper_weights(answer: str) -> bool:
    """Whether a softmax of larger scores has the lower entropy."""
    scores = torch.randn(25)
    small, large = (torch.special.entr((factor * scores).softmax(-1)).sum() for factor in (1, 10))
    return answer == ("sharper" if large < small else "flatter")


EXERCISES = {
    "bahdanau 1": (_additive_score, "v . tanh(W s + U h_j) for each row h_j of the annotations."),
    "bahdanau 2": (_context, "Softmax over the scores, then the mean of the annotations with these weights."),
    "bahdanau 3": (_sharper_weights, "Compute the softmax of [1, 2] and of [10, 20]."),
}

QUIZ = (
    Question(
        "How many scores does attention compute for a source of S and a target of T tokens?",
        ("S + T", "S", "S times T"),
        "S times T",
        "Each target step compares its state with every annotation.",
    ),
    Question(
        "What is the context of a target step?",
        (
            "the last state of the encoder",
            "a weighted mean of the annotations",
            "the annotation with the highest score",
        ),
        "a weighted mean of the annotations",
        "The weights are the softmax of the scores.",
    ),
    Question(
        "All scores of a step grow by 3. What happens to its weights?",
        ("nothing", "they become sharper", "they become flatter"),
        "nothing",
        "exp(3) cancels in the softmax; a factor would sharpen them.",
    ),
)
