"""Gradient descent, stochastic gradient descent and momentum on a surface of two variables.

Momentum: Polyak 1964; as in Sutskever et al. 2013, v <- m v - a g and w <- w + v.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..plotting import INK, add_caption, colour, log_axis, marker, new_figure
from .attention_lessons import Lesson


@dataclass(frozen=True)
class Surface:
    """A function of (x, y), where its minimum is, and where the paths start."""

    formula: str
    height: Callable[[Tensor, Tensor], Tensor]
    minimum: tuple[float, float]
    start: tuple[float, float]


SURFACES = {
    # Twenty times steeper along y: a step that is short enough for y is slow along x.
    "ravine": Surface("(x² + 20 y²) / 2", lambda x, y: (x**2 + 20 * y**2) / 2, (0.0, 0.0), (-4.0, 1.0)),
    "cubic": Surface("x² + x - x y³ + y²", lambda x, y: x**2 + x - x * y**3 + y**2, (-0.5, 0.0), (0.9, 0.7)),
}


def descent(
    surface: str = "ravine",
    learning_rate: float = 0.08,
    momentum: float = 0.6,
    noise: float = 1.0,
    steps: int = 60,
    seed: int = 0,
) -> Lesson:
    """The paths of three optimisers from one start, and their distance from the minimum by step.

    Args:
        noise: Standard deviation of what is added to each gradient, as the choice of a batch does.
    """
    if surface not in SURFACES:
        raise ValueError(f"surface must be one of {', '.join(SURFACES)}, got {surface!r}")
    if learning_rate <= 0 or not 0 <= momentum < 1 or noise < 0 or steps < 1:
        raise ValueError(
            f"learning_rate {learning_rate} must be above 0, momentum {momentum} in [0, 1), noise {noise} 0 or more, "
            f"and steps {steps} at least 1"
        )
    chosen = SURFACES[surface]
    settings = {
        "gradient descent": (0.0, 0.0),
        "SGD (noisy gradients)": (0.0, noise),
        f"momentum {momentum:g}": (momentum, 0.0),
        f"SGD with momentum {momentum:g}": (momentum, noise),
    }
    paths = {name: _path(chosen, learning_rate, *each, steps, seed) for name, each in settings.items()}
    rows = [row for name, path in paths.items() for row in _rows(name, path, chosen)]
    diverged = next((row for row in rows if not row["distance"] < 1e6), None)
    if diverged:
        raise ValueError(
            f"{diverged['optimizer']} diverges on {surface} within {diverged['step']} steps; lower the learning rate "
            f"{learning_rate:g}, the momentum or the noise"
        )
    figure = _draw(chosen, paths, rows)
    add_caption(
        figure,
        f"f(x, y) = {chosen.formula}; learning rate {learning_rate:g}; noise of standard deviation {noise:g} on each "
        f"gradient of SGD; seed {seed}. The star is the minimum.",
    )
    return Lesson(figure, rows)


def _path(surface: Surface, learning_rate: float, momentum: float, noise: float, steps: int, seed: int) -> np.ndarray:
    """(steps + 1, 2), the points from the start on."""
    generator = torch.Generator().manual_seed(seed)
    point = torch.tensor(surface.start, dtype=torch.float64)
    velocity = torch.zeros_like(point)
    points = [point]
    for _ in range(steps):
        (gradient,) = torch.autograd.grad(surface.height(*point.requires_grad_()), point)
        gradient = gradient + noise * torch.randn(2, generator=generator, dtype=torch.float64)
        velocity = momentum * velocity - learning_rate * gradient
        point = (point + velocity).detach()
        points.append(point)
    return torch.stack(points).detach().numpy()


def _rows(name: str, path: np.ndarray, surface: Surface) -> list[dict[str, Any]]:
    heights = surface.height(*torch.from_numpy(path).T).tolist()
    distances = np.linalg.norm(path - surface.minimum, axis=1).tolist()
    return [
        {"optimizer": name, "step": step, "x": x, "y": y, "height": height, "distance": distance}
        for step, ((x, y), height, distance) in enumerate(zip(path.tolist(), heights, distances, strict=True))
    ]


def _draw(surface: Surface, paths: dict[str, np.ndarray], rows: list[dict[str, Any]]) -> Any:
    """Two paths a panel, without and with noise, so that they can be told apart; then the distances."""
    figure, axes = new_figure(15, 4.6, columns=3, width_ratios=(1.2, 1.2, 1))
    names = list(paths)
    panels = ((axes[0], (names[0], names[2]), "exact gradients"), (axes[1], (names[1], names[3]), "noisy gradients"))
    for axis, chosen, title in panels:
        _draw_contours(axis, surface, np.concatenate(list(paths.values())))
        for name in chosen:
            number = names.index(name)
            axis.plot(*paths[name].T, "-", marker=marker(number), color=colour(number), markersize=3, label=name)
        axis.plot(*surface.minimum, "*", color=INK, markersize=12)
        axis.set(title=title, xlabel="x", ylabel="y")
        axis.legend(fontsize=8, loc="upper right")
    for number, name in enumerate(names):
        values = [row["distance"] for row in rows if row["optimizer"] == name]
        axes[2].plot(values, color=colour(number), label=name)
    log_axis(axes[2], [row["distance"] for row in rows])
    axes[2].set(title="distance from the minimum", xlabel="step")
    axes[2].legend(fontsize=8)
    return figure


def _draw_contours(axis: Any, surface: Surface, points: np.ndarray) -> None:
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.15 * (high - low)
    grid = np.meshgrid(*(np.linspace(low[i] - margin[i], high[i] + margin[i], 200) for i in range(2)))
    heights = surface.height(*(torch.from_numpy(each) for each in grid)).numpy()
    above = heights - heights.min()
    levels = heights.min() + above.max() * np.linspace(0, 1, 16) ** 2  # closer together near the minimum
    axis.contour(*grid, heights, levels=levels[1:], colors="#B8C4CE", linestyles="solid", linewidths=0.8)
    axis.grid(False)
