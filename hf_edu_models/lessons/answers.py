"""Compare an answer with what a model of the ladder computes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def same(answer: Any, expected: Any) -> bool:
    """Whether tensors, numbers or tuples of them are the same; a tensor of the wrong shape is not."""
    if isinstance(expected, (tuple, list)):
        return len(answer) == len(expected) and all(map(same, answer, expected))
    answer, expected = (torch.as_tensor(each, dtype=torch.float32) for each in (answer, expected))
    return answer.shape == expected.shape and torch.allclose(answer, expected, rtol=1e-4, atol=1e-5)


def count_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
