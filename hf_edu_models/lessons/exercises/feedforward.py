"""Exercises and quiz of lesson 2, the feed-forward language model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..answers import count_parameters, same
from ..questions import Question


def _window_layer(embedding_size: int, window_size: int, hidden_size: int) -> Any:
    from ...models.modeling_feedforward import WindowLayer

    return WindowLayer(embedding_size, window_size, hidden_size, direct_connections=False)


def _window_parameters(count: Callable) -> bool:
    return all(count(*sizes) == count_parameters(_window_layer(*sizes)) for sizes in ((30, 4, 50), (7, 3, 5)))


@torch.no_grad()
def _window_features(features: Callable) -> bool:
    layer, window = _window_layer(5, 3, 4), torch.randn(3, 5)
    return same(features(window, layer.hidden_proj.weight, layer.hidden_proj.bias), layer(window[None])[0, 0])


def _perplexity(perplexity: Callable) -> bool:
    from ...models.modeling_feedforward import EduFeedForwardConfig, EduFeedForwardForCausalLM

    model = EduFeedForwardForCausalLM(EduFeedForwardConfig(vocab_size=20, window_size=2, hidden_size=8)).eval()
    with torch.no_grad():
        input_ids = torch.randint(3, 20, (1, 9))
        outputs = model(input_ids, labels=input_ids)
    found = outputs.logits[:, :-1].softmax(-1).gather(-1, input_ids[:, 1:, None]).flatten()
    return same(perplexity(found), outputs.loss.exp())


EXERCISES = {
    "feedforward 1": (
        _window_parameters,
        "H has hidden_size rows, one column for each number of the window; d is a vector.",
    ),
    "feedforward 2": (_window_features, "Flatten the window to one vector x, then tanh(weight @ x + bias)."),
    "feedforward 3": (_perplexity, "The exponential of the mean of -log p."),
}

QUIZ = (
    Question(
        "The window has four words. What does the prediction know of the fifth word back?",
        ("a weakened trace of it", "nothing", "only whether it occurred"),
        "nothing",
        "The window is all that enters the network.",
    ),
    Question(
        "A model gives each of V tokens the same probability. What is its perplexity?",
        ("1", "log V", "V"),
        "V",
        "exp(-log(1 / V)) = V: as if it had to choose among V tokens.",
    ),
    Question(
        "Why does it help that words are vectors?",
        (
            "words that behave alike share what is learnt",
            "vectors need fewer parameters than words",
            "the softmax becomes cheaper",
        ),
        "words that behave alike share what is learnt",
        "What is learnt about one word moves its neighbours too; a count of n-grams shares nothing.",
    ),
)
