"""Exercises and quiz of lesson 3, the recurrent network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..answers import same
from ..questions import Question


def cell_of(name: str, input_size: int, hidden_size: int) -> Any:
    from ...models.blocks_recurrent import CELLS

    return CELLS[name](input_size, hidden_size)


@torch.no_grad()
def _rnn_step(step: Callable) -> bool:
    cell, inputs, hidden = cell_of("rnn", 3, 4), torch.randn(3), torch.randn(4)
    bias = cell.input_bias + cell.state_bias
    return same(step(inputs, hidden, cell.input_weight, cell.state_weight, bias), cell(inputs, (hidden,))[0])


def _rnn_jacobian(jacobian: Callable) -> bool:
    cell, inputs, hidden = cell_of("rnn", 3, 4), torch.randn(3), torch.randn(4)
    expected = torch.autograd.functional.jacobian(lambda state: cell(inputs, (state,))[0], hidden)
    new_hidden, weight = cell(inputs, (hidden,))[0].detach(), cell.state_weight.detach()
    return same(jacobian(new_hidden, weight), expected)


def _rnn_steps(steps: int) -> bool:
    gradients = torch.tensor(0.9, dtype=torch.float64) ** torch.arange(1000)
    return steps == int((gradients < 1e-3).nonzero()[0])


EXERCISES = {
    "recurrent 1": (_rnn_step, "tanh(W x + U h + b)"),
    "recurrent 2": (_rnn_jacobian, "The derivative of tanh(a) is 1 - tanh(a)^2; row i of U is multiplied by it at i."),
    "recurrent 3": (_rnn_steps, "Solve 0.9 ** n < 0.001 for the smallest whole n."),
}

QUIZ = (
    Question(
        "Which of these is the same at every time step?",
        ("the hidden state", "the gradient", "the weights"),
        "the weights",
        "One cell is applied again and again, with the same W and U.",
    ),
    Question(
        "Every step back in time halves the gradient. What is left of it after ten steps?",
        ("about a tenth", "about a thousandth", "a half"),
        "about a thousandth",
        "0.5 ** 10 is 0.00098: products vanish, or explode, exponentially.",
    ),
    Question(
        "What does gradient clipping help against?",
        ("exploding gradients", "vanishing gradients", "both"),
        "exploding gradients",
        "It shortens gradients that are too long; it cannot bring back one that is gone.",
    ),
)
