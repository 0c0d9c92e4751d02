"""Exercises and quiz of lesson 1, kernel regression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..answers import same
from ..questions import Question


def _kernel_model(width: float, inputs: Tensor, labels: Tensor) -> Any:
    from ...models.configuration_kernel import EduKernelConfig
    from ...models.modeling_kernel import EduKernelForRegression

    model = EduKernelForRegression(EduKernelConfig(kernel="gaussian", width=width, input_size=inputs.shape[1])).eval()
    model.remember(inputs, labels)
    return model


@torch.no_grad()
def _kernel_predict(predict: Callable) -> bool:
    keys, values, queries = torch.randn(12), torch.randn(12), torch.randn(3)
    for width in (0.3, 1.0):
        expected = _kernel_model(width, keys[:, None], values)(queries[:, None]).logits[:, 0]
        if not same(torch.stack([torch.as_tensor(predict(query, keys, values, width)) for query in queries]), expected):
            return False
    return True


@torch.no_grad()
def _kernel_limit(answer: str) -> bool:
    keys, values, query = torch.tensor([0.0, 1.0, 3.0]), torch.tensor([5.0, 7.0, 12.0]), torch.tensor([[2.6]])
    limits = {"nearest": values[(keys - query[0]).abs().argmin()], "mean": values.mean(), "zero": torch.zeros(())}
    found = _kernel_model(1e-2, keys[:, None], values)(query).logits[0, 0]
    return answer in limits and same(limits[answer], found)


def leave_one_out(width: float, rows: int = 50, seed: int = 0) -> float:
    """The mean squared error of a Gaussian kernel on the corpus `curve`, each pair predicted from the others."""
    from ...data.builtin import curves

    split = curves.generate({"train": rows}, seed)["train"]
    inputs, labels = torch.tensor(split["features"]), torch.tensor(split["value"])
    with torch.no_grad():
        return _kernel_model(width, inputs, labels)(inputs, labels=labels, memory_ids=torch.arange(rows)).loss.item()


def _kernel_width(width: float) -> bool:
    return leave_one_out(width) <= 1.01 * min(leave_one_out(each / 100) for each in range(5, 200))


EXERCISES = {
    "kernel 1": (
        _kernel_predict,
        "Weights are softmax(-(query - keys)^2 / (2 width^2)); the prediction is their sum of values.",
    ),
    "kernel 2": (_kernel_limit, "With a small width, which key gets nearly all of the weight?"),
    "kernel 3": (_kernel_width, "Compute leave_one_out(width) for widths from 0.05 to 2; a smaller error exists."),
}

QUIZ = (
    Question(
        "What is the query of a kernel regression?",
        ("the values that were measured", "the point at which we predict", "the points that were measured"),
        "the point at which we predict",
        "The query is compared with every key, a point that was measured.",
    ),
    Question(
        "What do the weights of one prediction add up to?",
        ("the number of keys", "it depends on the width", "1"),
        "1",
        "They are a softmax, so the prediction is a weighted mean of the values.",
    ),
    Question(
        "The width grows without end. What is the prediction at every point?",
        ("the mean of all values", "the value of the nearest key", "0"),
        "the mean of all values",
        "All keys then get the same weight.",
    ),
)
