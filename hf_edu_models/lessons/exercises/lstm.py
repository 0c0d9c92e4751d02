"""Exercises and quiz of lesson 4, the LSTM."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..answers import count_parameters, same
from ..questions import Question
from .recurrent import cell_of


@torch.no_grad()
def _lstm_step(step: Callable) -> bool:
    cell, inputs, state = cell_of("lstm", 3, 4), torch.randn(2, 3), (torch.randn(2, 4), torch.randn(2, 4))
    return same(step(cell.from_input(inputs) + cell.from_state(state[0]), state[1]), cell(inputs, state))


def _lstm_bias(bias: int) -> bool:
    kept = torch.sigmoid(torch.arange(20, dtype=torch.float64)) ** 1000
    return bias == int((kept >= 0.5).nonzero()[0])


def _lstm_parameters(count: Callable) -> bool:
    return all(count(*sizes) == count_parameters(cell_of("lstm", *sizes)) for sizes in ((30, 50), (7, 5)))


EXERCISES = {
    "lstm 1": (_lstm_step, "The four parts are input gate, forget gate, candidate, output gate, in this order."),
    "lstm 2": (_lstm_bias, "Find the smallest whole b with sigmoid(b) ** 1000 >= 0.5."),
    "lstm 3": (_lstm_parameters, "Four gates, each with W, U and two biases."),
}

QUIZ = (
    Question(
        "The forget gate is 1 and the input gate is 0. What is the new cell state?",
        ("the old cell state", "0", "the candidate"),
        "the old cell state",
        "c = f * c + i * g, and so does the gradient pass unchanged.",
    ),
    Question(
        "Why does the forget gate get a positive bias before training?",
        (
            "so that the cell state starts empty",
            "so that the gradient reaches far back from the first step on",
            "so that the output gate opens",
        ),
        "so that the gradient reaches far back from the first step on",
        "sigmoid(5) is 0.993: nearly everything stays, before anything is learnt.",
    ),
    Question(
        "How many times the parameters of a simple recurrent cell has an LSTM cell of the same sizes?",
        ("2", "3", "4"),
        "4",
        "Three gates and the candidate, each with the matrices of a simple cell.",
    ),
)
