"""The loss around trained weights, along two random directions that are filter-normalised.

Paper: Li et al. 2018, arXiv:1712.09913, Section 4. Each row of a matrix is a filter; the row of a direction gets the
norm of the row of weights, so that a flat surface does not only mean large weights. Biases and norms stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from ..explain.inference import evaluation_mode
from ..plotting import add_caption, colour, new_figure


@dataclass(frozen=True, eq=False)
class Landscape:
    """Losses on a grid: theta + a d_1 + b d_2.

    Args:
        steps: (P,), the values of a and of b.
        losses: (P, P), a by rows.
    """

    steps: np.ndarray
    losses: np.ndarray

    @property
    def center(self) -> float:
        """The loss of the weights as they are."""
        middle = len(self.steps) // 2
        return float(self.losses[middle, middle])

    def rows(self) -> list[dict[str, float]]:
        return [
            {"a": float(a), "b": float(b), "loss": float(self.losses[row, column])}
            for row, a in enumerate(self.steps)
            for column, b in enumerate(self.steps)
        ]


def filter_normalised(model: Any, generator: torch.Generator) -> dict[str, Tensor]:
    """A random direction, by parameter: d_i <- d_i ||theta_i|| / ||d_i|| for each row i, zero for biases and norms."""
    direction = {}
    for name, weights in model.named_parameters():
        values = torch.zeros_like(weights)
        if weights.ndim > 1:
            values = torch.randn(weights.shape, generator=generator).to(weights)
            own, drawn = (each.flatten(1).norm(dim=1) for each in (weights.detach(), values))
            values *= (own / drawn.clamp(min=1e-12)).view(-1, *[1] * (weights.ndim - 1))
        direction[name] = values
    return direction


def landscape(model: Any, batch: dict[str, Any], points: int = 21, distance: float = 1.0, seed: int = 0) -> Landscape:
    """The loss of one batch on a grid around the weights, which are put back afterwards.

    Args:
        points: of each axis, an odd number, so that the weights themselves are one.
        distance: how far the grid goes: 1 is as far as the weights are from zero.
    """
    if points < 3 or points % 2 == 0 or distance <= 0:
        raise ValueError(f"points must be odd and at least 3, distance above 0; got {points} and {distance}")
    generator = torch.Generator().manual_seed(seed)
    first, second = (filter_normalised(model, generator) for _ in range(2))
    start = {name: weights.detach().clone() for name, weights in model.named_parameters()}
    steps, losses = np.linspace(-distance, distance, points), np.empty((points, points))
    with evaluation_mode(model):
        try:
            for row, a in enumerate(steps):
                for column, b in enumerate(steps):
                    for name, weights in model.named_parameters():
                        weights.copy_(start[name] + a * first[name] + b * second[name])
                    losses[row, column] = _loss(model, batch)
        finally:
            for name, weights in model.named_parameters():
                weights.copy_(start[name])
    return Landscape(steps, losses)


def _loss(model: Any, batch: dict[str, Any]) -> float:
    loss = model(**batch).loss
    if loss is None:
        raise ValueError(
            f"{type(model).__name__} returns no loss for this batch; give a model with a head and its labels"
        )
    return float(loss)


def draw_landscape(found: Landscape, title: str, about: str) -> Figure:
    """Contour lines of the loss, and its two cross-sections."""
    figure, (left, right) = new_figure(11, 4.8, columns=2, width_ratios=[1.2, 1])
    levels = np.geomspace(max(found.losses.min(), 1e-6), found.losses.max(), 25)
    image = left.contourf(found.steps, found.steps, found.losses.T, levels=np.unique(levels), cmap="cividis")
    left.contour(found.steps, found.steps, found.losses.T, levels=levels[::3], colors="white", linewidths=0.6)
    left.plot(0, 0, "o", color="white", markersize=6)
    left.set(title=title, xlabel="a, along the first direction", ylabel="b, along the second direction")
    left.grid(False)
    figure.colorbar(image, ax=left, pad=0.02, label="loss", format="%.3g")
    middle = len(found.steps) // 2
    right.plot(found.steps, found.losses[:, middle], "o-", markersize=3, color=colour(0), label="a, with b = 0")
    right.plot(found.steps, found.losses[middle], "s-", markersize=3, color=colour(1), label="b, with a = 0")
    right.axhline(found.center, color="#8A8A8A", linewidth=1, linestyle="--")
    right.set(title=f"cross-sections; loss of the run {found.center:.3g}", xlabel="distance", ylabel="loss")
    right.legend(frameon=False, fontsize=9)
    add_caption(figure, f"{about} Directions are random and filter-normalised: 1 is the norm of each row of weights.")
    return figure
