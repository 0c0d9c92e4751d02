"""The exploding gradient lesson: an untrained RNN by the spectral radius of its recurrent matrix, and one clipped step.

A gradient that goes back k steps is multiplied k times by the recurrent matrix: with a spectral radius below 1 it
vanishes, above 1 it may explode. Clipping keeps the direction of a gradient g and limits its norm to a threshold:
g <- g threshold / ||g||.

Paper: Pascanu, Mikolov & Bengio 2013, arXiv:1211.5063.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .vanishing import flow_of_cell

_RADII = (0.5, 0.75, 1.0, 1.25, 1.5)


@dataclass(frozen=True)
class Step:
    """One step of gradient descent on the loss of a recurrent unit, with or without clipping.

    Args:
        weight, bias: the parameters after the step.
        loss, next_gradient_norm: the loss there, and the norm of its gradient.
    """

    step: str
    weight: float
    bias: float
    loss: float
    next_gradient_norm: float


@dataclass(frozen=True)
class ExplodingLesson:
    """Gradient norms by distance from the loss for each spectral radius, and what clipping does to one step.

    Args:
        norms: By radius: (length,), norm of dL/dh_t by the number of steps before the loss, 0 first.
        steps: The start, and where a step without and with clipping leads.
        threshold: The largest norm of a clipped gradient.
    """

    norms: dict[float, np.ndarray]
    steps: tuple[Step, ...]
    learning_rate: float
    threshold: float

    def rows(self) -> list[dict[str, Any]]:
        """One row for each radius and distance, then one for each step."""
        rows: list[dict[str, Any]] = [
            {"cell": "rnn", "radius": radius, "distance": distance, "gradient_norm": float(norm)}
            for radius, norms in self.norms.items()
            for distance, norm in enumerate(norms)
        ]
        return rows + [{"cell": "one unit"} | asdict(step) for step in self.steps]


def exploding_gradient_lesson(
    radii: Sequence[float] = _RADII,
    length: int = 100,
    hidden_size: int = 64,
    batch_size: int = 16,
    learning_rate: float = 0.2,
    threshold: float = 1.0,
    seed: int = 0,
) -> ExplodingLesson:
    """Measure the RNN of the vanishing gradient lesson, its recurrent matrix scaled to each spectral radius."""
    if not radii or min(radii) <= 0 or threshold <= 0 or learning_rate <= 0:
        raise ValueError(
            f"radii {tuple(radii)}, threshold {threshold} and learning_rate {learning_rate} must all be above 0"
        )
    sizes = (length, hidden_size, 0.0, batch_size, seed)
    norms = {radius: flow_of_cell("rnn", *sizes, radius=radius).by_distance() for radius in radii}
    return ExplodingLesson(norms, _clipped_and_not(learning_rate, threshold), learning_rate, threshold)


def unit_loss(weight: Tensor, bias: Tensor, num_steps: int = 50, start: float = 0.5, target: float = 0.7) -> Tensor:
    """(h_T - target)^2 of one recurrent unit without inputs, h_t = tanh(w h_{t-1} + b).

    Where the start is between two stable states of the unit, the loss has a wall: a little less bias, and the unit ends
    in the other state.
    """
    hidden = torch.full_like(weight, start)
    for _ in range(num_steps):
        hidden = torch.tanh(weight * hidden + bias)
    return (hidden - target) ** 2


def _clipped_and_not(learning_rate: float, threshold: float) -> tuple[Step, ...]:
    """From a point on the wall: stay, take a step, take a clipped step."""
    start = torch.tensor([1.3, -0.104], dtype=torch.float64)
    gradient = _loss_and_gradient(start)[1]
    clipped = gradient * min(1.0, threshold / gradient.norm().item())
    ends = {
        "start": start,
        "without clipping": start - learning_rate * gradient,
        "clipped": start - learning_rate * clipped,
    }
    steps = []
    for name, point in ends.items():
        loss, gradient = _loss_and_gradient(point)
        weight, bias = point.tolist()
        steps.append(Step(name, weight, bias, loss.item(), gradient.norm().item()))
    return tuple(steps)


def _loss_and_gradient(point: Tensor) -> tuple[Tensor, Tensor]:
    point = point.detach().requires_grad_()
    loss = unit_loss(point[0], point[1])
    return loss.detach(), torch.autograd.grad(loss, point)[0]
