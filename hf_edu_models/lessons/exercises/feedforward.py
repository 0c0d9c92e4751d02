"""Exercises of lesson 2, the feed-forward language model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..answers import count_parameters, same


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
