"""Exercises of lesson 8, hierarchical attention."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..answers import same
from ..questions import Question


@torch.no_grad()
def _pool(pool: Callable) -> bool:
    from ...models.blocks_pooling import AttentionPooling

    layer, states = AttentionPooling(5, 4), torch.randn(7, 5)
    expected, _ = layer(states[None], None)
    return same(pool(states, layer.proj.weight, layer.proj.bias, layer.query_proj.weight[0]), expected[0, 0])


@torch.no_grad()
def _masked_weights(weights: Callable) -> bool:
    from ...models.blocks_pooling import AttentionPooling

    layer, states = AttentionPooling(5, 4), 3 * torch.randn(2, 7, 5)
    mask = torch.arange(7) < torch.tensor([[4], [7]])
    scores = layer.query_proj(torch.tanh(layer.proj(states))).squeeze(-1)
    _, expected = layer(states, mask)
    return all(same(weights(scores[row], mask[row]), expected[row, 0]) for row in range(2))


@torch.no_grad()
def _zero_query(answer: str) -> bool:
    """Whether attention with a query of zeros equals the pooling of this name."""
    from ...models.blocks_pooling import POOLINGS

    attention, states = POOLINGS["attention"](5, 4), torch.randn(1, 7, 5)
    attention.query_proj.weight.zero_()
    pooled, _ = attention(states, None)
    return answer in ("mean", "max", "last") and same(POOLINGS[answer](5)(states, None)[0], pooled)


EXERCISES = {
    "hierarchical 1": (_pool, "u_t = tanh(W h_t + b) for each row of h; softmax over u_t . u; the weighted sum of h."),
    "hierarchical 2": (_masked_weights, "Give padding the score minus infinity, then take the softmax."),
    "hierarchical 3": (_zero_query, "What is the softmax of scores that are all zero?"),
}

QUIZ = (
    Question(
        "In hierarchical attention, what are the states of the words compared with?",
        ("the state of a decoder", "a learnt vector, the same for every document", "the other words"),
        "a learnt vector, the same for every document",
        "Nothing is written, so no decoder asks; the question is a parameter.",
    ),
    Question(
        "A document has 10 sentences of 20 words. Over how many words is a softmax of the word attention taken?",
        ("20", "200", "10"),
        "20",
        "Each sentence has a softmax of its own; a second one weights the 10 sentences.",
    ),
    Question(
        "A word has the weight 0.9 in a sentence of weight 0.01. How much does it count for the document?",
        ("a lot: 0.9", "that cannot be known", "little: its whole sentence counts little"),
        "little: its whole sentence counts little",
        "The weights multiply, which is why a drawing shades words by both.",
    ),
)
