"""The truncation lesson: what backpropagation through the last k steps alone misses of the whole gradient.

Truncated backpropagation through time carries the hidden state on, but not the gradient: what happened more than k
steps before the loss changes no weight (Williams & Peng 1990).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from .vanishing import untrained_model

_SHARES = (0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class TruncationLesson:
    """The gradient of the recurrent matrix after k steps, beside the one after all steps.

    Args:
        lengths: The values of k; the last one is the whole sequence.
        cosines: By cell and k, the cosine between the two gradients.
        missing: By cell and k, the norm of their difference, relative to the whole gradient's.
    """

    lengths: tuple[int, ...]
    cosines: dict[str, list[float]]
    missing: dict[str, list[float]]

    def rows(self) -> list[dict[str, Any]]:
        """One row for each cell and k."""
        return [
            {"cell": cell, "truncation": length, "cosine": cosine, "missing": missing}
            for cell in self.cosines
            for length, cosine, missing in zip(self.lengths, self.cosines[cell], self.missing[cell], strict=True)
        ]


def truncation_lesson(
    cells: Sequence[str] = ("rnn", "gru", "lstm"),
    length: int = 100,
    hidden_size: int = 64,
    gate_bias: float = 1.0,
    batch_size: int = 16,
    seed: int = 0,
) -> TruncationLesson:
    """Measure the cells of the vanishing gradient lesson, with the loss at the last step alone."""
    lengths = tuple(sorted({max(1, round(share * length)) for share in _SHARES}))
    cosines: dict[str, list[float]] = {}
    missing: dict[str, list[float]] = {}
    for cell in cells:
        model, input_ids = untrained_model(cell, length, hidden_size, gate_bias, batch_size, seed)
        gradients = [_truncated_gradient(model, input_ids, each) for each in lengths]
        whole = gradients[-1]
        cosines[cell] = [float(F.cosine_similarity(each.flatten(), whole.flatten(), dim=0)) for each in gradients]
        missing[cell] = [float((each - whole).norm() / whole.norm()) for each in gradients]
    return TruncationLesson(lengths, cosines, missing)


def _truncated_gradient(model: Any, input_ids: Tensor, length: int) -> Tensor:
    """The gradient of the recurrent matrix through the last `length` steps."""
    steps, past = input_ids[:, :-1], None
    model.eval()
    if length < steps.shape[1]:
        with torch.no_grad():
            past = model(input_ids=steps[:, :-length], use_cache=True).past_key_values.detach()
    logits = model(input_ids=steps[:, -length:], past_key_values=past).logits[:, -1]
    loss = F.cross_entropy(logits, input_ids[:, -1])
    return torch.autograd.grad(loss, model.model.stack.layers[0].forward_cell.state_weight)[0]
