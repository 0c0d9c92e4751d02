"""Exercises and quiz of lesson 5, word vectors."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from ..answers import same
from ..questions import Question


@torch.no_grad()
def _pair_loss(loss: Callable) -> bool:
    from ...models.modeling_word_vectors import NegativeSamplingLosses

    lm_head, center = nn.Linear(5, 9, bias=False), torch.randn(5)
    context_id, negative_ids = torch.tensor([[3]]), torch.tensor([[1, 7, 4]])
    hidden_states = center[None, None]
    losses = NegativeSamplingLosses(lm_head, hidden_states, negative_ids, num_negatives=negative_ids.shape[1])
    answer = loss(center, lm_head.weight[3], lm_head.weight[negative_ids[0]])
    return same(answer, losses.at(hidden_states, context_id)[0, 0])


def _noise(noise: Callable) -> bool:
    from ...data import DataCollatorForWordVectors

    counts = torch.tensor([800.0, 100.0, 50.0, 30.0, 20.0])
    table = DataCollatorForWordVectors(None, counts.numpy()).table
    return same(noise(counts), table.bincount() / len(table))


def _analogy(analogy: Callable) -> bool:
    from ...explain.words.analogies import solve, word_table

    vectors = torch.randn(30, 4)
    table = word_table([str(row) for row in range(30)], vectors.numpy())
    for a, b, c in torch.randperm(30).view(10, 3).tolist():
        expected = solve(table, plus=[str(b), str(c)], minus=[str(a)], k=1)[0].word
        if int(analogy(vectors, a, b, c)) != int(expected):
            return False
    return True


EXERCISES = {
    "word_vectors 1": (
        _pair_loss,
        "-log sigmoid(context . center), and for each negative -log sigmoid(-negative . center): their sum.",
    ),
    "word_vectors 2": (_noise, "Raise the counts to the power 0.75, then divide by their sum."),
    "word_vectors 3": (
        _analogy,
        "Scale the vectors to length 1, take the largest product with b - a + c, and leave out a, b and c.",
    ),
}

QUIZ = (
    Question(
        "What does skip-gram predict?",
        ("a word from the words around it", "the words around a word from that word", "the next word"),
        "the words around a word from that word",
        "The word from those around it is CBOW.",
    ),
    Question(
        "What does negative sampling save?",
        ("the softmax over the whole vocabulary", "the table of output vectors", "the context window"),
        "the softmax over the whole vocabulary",
        "A few random words stand for all that are not there.",
    ),
    Question(
        "After training, how many vectors has a word with two meanings?",
        ("two", "one for each sentence", "one"),
        "one",
        "A static vector is a mixture of its meanings; ELMo (lesson 10) has one for each sentence.",
    ),
)
