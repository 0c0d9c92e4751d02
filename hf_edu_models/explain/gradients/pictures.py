"""Figures of gradient flow: through time and layers, vanishing and exploding gradients, and a training run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from ...plotting import GREY, INK, add_caption, colour, escape_dollars, log_axis, marker, new_figure
from .exploding import ExplodingLesson, Step, unit_loss
from .flow import GradientFlow
from .truncation import TruncationLesson
from .vanishing import VanishingLesson

_CELL_COLOURS = {"rnn": colour(1), "gru": colour(2), "lstm": colour(0)}
_CELL_NAMES = {"rnn": "vanilla RNN", "gru": "GRU", "lstm": "LSTM"}
_GATE_DASHES = {"gru": (0, (1, 1)), "lstm": (2, (4, 4))}  # one shows between the dashes of the other
_RELATIVE_NORM = "‖∂L/∂h‖, relative to the step with the loss"
_LOWEST_NORM = 1e-8
_MAX_LABELS = 60


def draw_lesson(
    lesson: VanishingLesson, exploding: ExplodingLesson | None = None, truncation: TruncationLesson | None = None
) -> Figure:
    """Gradient norm by distance on a log axis, and beside it the product of the gates.

    Args:
        exploding: Drawn below: the RNN by spectral radius, and one step with and without clipping.
        truncation: Drawn below: the gradient of truncated backpropagation through time beside the whole one.
    """
    rows = 1 + (exploding is not None) + (truncation is not None)
    figure, axes = new_figure(11, 4.6 * rows, rows=rows, columns=2)
    axes = np.reshape(axes, (rows, 2))
    left, right = axes[0]
    right.sharey(left)
    for cell, norms in lesson.norms.items():
        _line(left, norms / norms[0], _CELL_COLOURS[cell], "-", _CELL_NAMES[cell])
    for cell, products in lesson.gate_products.items():
        name, gate, norms = _CELL_NAMES[cell], "update" if cell == "gru" else "forget", lesson.norms[cell]
        _line(right, norms / norms[0], _CELL_COLOURS[cell], "-", f"{name}: full gradient", alpha=0.35)
        _line(right, products, _CELL_COLOURS[cell], _GATE_DASHES[cell], f"{name}: product of {gate} gates")
    left.set_title("Gradient norm by distance")
    left.set_ylabel(_RELATIVE_NORM)
    right.set_title("Gradient through the gates alone")
    for axis in (left, right):
        _label_distances(axis)
    right.tick_params(labelleft=False)
    caption = (
        f"Untrained cells, hidden size {lesson.hidden_size}; forget and update gates have initial bias "
        f"{lesson.gate_bias:g}. Loss at the last of {lesson.length} steps; seed {lesson.seed}."
    )
    if exploding is not None:
        _draw_radii(axes[1, 0], exploding)
        _draw_clipping(figure, axes[1, 1], exploding)
        caption += (
            f"\nClipping: one unit, h_t = tanh(w h_(t-1) + b), after 50 steps; learning rate "
            f"{exploding.learning_rate:g}, gradients clipped to the norm {exploding.threshold:g}."
        )
    if truncation is not None:
        _draw_truncation(list(axes[-1]), truncation)
        caption += (
            "\nTruncation: gradient of the recurrent matrix; the state is carried on, the gradient stops k steps back."
        )
    add_caption(figure, caption)
    return figure


def _draw_truncation(axes: Sequence[Any], lesson: TruncationLesson) -> None:
    """How much of the gradient is left after k steps: its direction, and what is missing."""
    direction, size = axes
    for cell, cosines in lesson.cosines.items():
        style = {"color": _CELL_COLOURS[cell], "label": _CELL_NAMES[cell], "lw": 2, "markersize": 4}
        direction.plot(lesson.lengths, cosines, "o-", **style)
        size.plot(lesson.lengths[:-1], lesson.missing[cell][:-1], "o-", **style)
    for axis in axes:
        axis.set_xscale("log")
        axis.set_xlabel("truncation length k (steps)")
        axis.legend(frameon=False, fontsize=9)
    direction.set_title("Truncated BPTT: direction of the gradient")
    direction.set_ylabel("cosine with the whole gradient")
    size.set_title("Truncated BPTT: what is missing")
    size.set_ylabel("‖g_k - g‖ / ‖g‖")
    size.set_yscale("log")
    size.set_ylim(bottom=1e-6)


def _label_distances(axis: Any) -> None:
    axis.set_yscale("log")
    axis.set_xlabel("distance from the loss (steps)")
    axis.legend(frameon=False, fontsize=9, loc="lower left")


def _draw_radii(axis: Any, lesson: ExplodingLesson) -> None:
    """From vanishing to exploding."""
    for number, (radius, norms) in enumerate(lesson.norms.items()):
        _line(axis, norms / norms[0], colour(number), "-", f"spectral radius {radius:g}")
    axis.axhline(1, color=GREY, linewidth=1, linestyle="--")
    axis.set_title("Vanilla RNN by spectral radius")
    _label_distances(axis)
    axis.legend(frameon=False, fontsize=9, loc="lower right")
    axis.set_ylabel(_RELATIVE_NORM)
    axis.set_ylim(bottom=_LOWEST_NORM)  # the vanishing half is drawn above


def _draw_clipping(figure: Figure, axis: Any, lesson: ExplodingLesson) -> None:
    """The loss around the wall, and where the two steps lead."""
    start, step, clipped = lesson.steps
    weights = np.linspace(start.weight - 0.3, start.weight + 0.4, 300)
    biases = np.linspace(start.bias - 0.2, start.bias + 0.4, 300)
    grid = torch.meshgrid(torch.from_numpy(weights), torch.from_numpy(biases), indexing="xy")
    heights = unit_loss(grid[0], grid[1]).numpy()
    image = axis.pcolormesh(weights, biases, heights, cmap="cividis", shading="nearest", rasterized=True)
    figure.colorbar(image, ax=axis, pad=0.02, label="loss")
    axis.set(title="One step from the wall of the loss", xlabel="w", ylabel="b")
    axis.set(xlim=(weights.min(), weights.max()), ylim=(biases.min(), biases.max()))
    axis.grid(False)
    # Both steps have the same direction; the one without clipping ends far outside the picture.
    axis.plot((start.weight, step.weight), (start.bias, step.bias), ":", color="white", linewidth=2)
    arrow = {"arrowstyle": "-|>", "color": "white", "linewidth": 2.5}
    axis.annotate("", (clipped.weight, clipped.bias), (start.weight, start.bias), arrowprops=arrow)
    axis.plot(start.weight, start.bias, "o", color="white", markersize=6)
    _note(axis, (0.03, 0.05), "start", start)
    _note(axis, (0.03, 0.82), f"without clipping\nto w = {step.weight:.0f}, b = {step.bias:.0f}", step)
    _note(axis, (0.6, 0.5), "clipped", clipped)


def _note(axis: Any, place: tuple[float, float], name: str, step: Step) -> None:
    text = f"{name}\nloss {step.loss:.2f}, ‖g‖ = {step.next_gradient_norm:.4g}"
    box = {"facecolor": INK, "alpha": 0.8, "edgecolor": "none"}
    axis.text(*place, text, transform=axis.transAxes, color="white", fontsize=8, bbox=box)


def draw_gradient_flow(
    flow: GradientFlow, tokens: Mapping[str, Sequence[str]] | None = None, title: str = ""
) -> Figure:
    """One text: norms by time step for a recurrent model, by layer and position for the others.

    Args:
        tokens: Labels of the positions: `input` and, for the decoder, `target`.
    """
    tokens = tokens or {}
    longest = max((len(each) for each in tokens.values()), default=20)
    width = float(np.clip(6 + 0.28 * longest, 10, 22))
    sides = [side for side in ("", "encoder ", "decoder ") if _names_of(flow, side)]
    figure, axes = new_figure(width, 0.6 + 3.4 * len(sides), rows=len(sides), columns=2, width_ratios=[3, 1])
    for side, (left, right) in zip(sides, np.reshape(axes, (-1, 2)), strict=True):
        labels = tokens.get("target" if side == "decoder " else "input")
        draw = _draw_time if any(name.startswith(side) for name in flow.states) else _draw_positions
        draw(figure, left, flow, side, labels)
        _draw_layers(right, flow, side)
    if title:
        figure.suptitle(title, fontsize=12, color=INK)
    add_caption(figure, f"Norm of the gradient of the loss ({flow.loss:.3f}); log scale; grey where it is zero.")
    return figure


def draw_training(rows: Sequence[dict[str, Any]]) -> Figure:
    """The rows of a `GradientFlowCallback`: gradient norms and relative updates by layer and training step."""
    if not rows:
        raise ValueError("there are no measurements; train for longer, or measure more often with every=1")
    names = list(rows[0]["gradient_norm"])
    height = 1.6 + 0.3 * len(names)
    figure, (left, right) = new_figure(12, max(4.0, height), columns=2, sharey=True)
    steps = [row["step"] for row in rows]
    for axis, key, title in (
        (left, "gradient_norm", "‖gradient‖ by layer, after clipping"),
        (right, "update_ratio", "‖update‖ / ‖weights‖ by layer"),
    ):
        values = np.array([[row[key].get(name, np.nan) for row in rows] for name in names], dtype=float)
        image = _heat_map(axis, values, steps)
        axis.set_title(title)
        axis.set_xlabel("training step")
        figure.colorbar(image, ax=axis, pad=0.02)
    left.set_yticks(range(len(names)), names)
    add_caption(figure, f"{len(rows)} measurements, steps {steps[0]} to {steps[-1]}; colours on a log scale.")
    return figure


def _line(axis: Any, values: np.ndarray, colour_name: str, style: Any, label: str, alpha: float = 1.0) -> None:
    # A log axis has no zero: leave a gap there.
    axis.plot(np.where(values > 0, values, np.nan), linestyle=style, color=colour_name, label=label, lw=2, alpha=alpha)


def _names_of(flow: GradientFlow, side: str) -> list[str]:
    if side:
        return [name for name in flow.layers if name.startswith(side)]
    return [name for name in flow.layers if not name.startswith(("encoder ", "decoder "))]


def _draw_time(figure: Figure, axis: Any, flow: GradientFlow, side: str, labels: Sequence[str] | None) -> None:
    """Lines of dL/dh_t and dL/dc_t, for each recurrent layer; the first row of the batch."""
    drawn: list[float] = []
    for number, (name, state) in enumerate(flow.states.items()):
        if not name.startswith(side):
            continue
        for norms, symbol, line in ((state.hidden, "h", "-"), (state.cell_state, "c", ":")):
            if norms is not None:
                values = np.where(norms[0] > 0, norms[0], np.nan)
                drawn.extend(values)
                style = {"color": colour(number), "marker": marker(number), "markersize": 3.5}
                axis.plot(state.positions, values, line, label=f"{name.removeprefix(side)}, ‖∂L/∂{symbol}‖", **style)
    log_axis(axis, drawn)
    axis.set_ylabel("‖gradient‖ at each time step")
    axis.set_title(f"{side}time steps".capitalize())
    axis.legend(frameon=False, fontsize=8)
    _label_positions(axis, labels)


def _draw_positions(figure: Figure, axis: Any, flow: GradientFlow, side: str, labels: Sequence[str] | None) -> None:
    """A heat map of positions by layers; the first row of the batch."""
    names = [name for name in _names_of(flow, side) if name in flow.positions]
    if not names:
        raise ValueError("a padded batch cannot be drawn by position; measure one text, or rows of equal length")
    values = np.stack([flow.positions[name][0] for name in names])
    image = _heat_map(axis, values, range(values.shape[1]))
    axis.set_yticks(range(len(names)), [name.removeprefix(side) for name in names])
    axis.set_title(f"{side}layers by position".capitalize())
    figure.colorbar(image, ax=axis, pad=0.02, label="‖∂L/∂h‖")
    _label_positions(axis, labels)


def _draw_layers(axis: Any, flow: GradientFlow, side: str) -> None:
    names = _names_of(flow, side)
    values = [flow.layers[name] for name in names]
    # Points, not bars: a log axis has no zero for a bar to start from.
    axis.plot(values, range(len(names)), "o-", color=colour(0), markersize=7)
    axis.set_yticks(range(len(names)), [name.removeprefix(side) for name in names])
    axis.set_ylim(-0.5, len(names) - 0.5)
    log_axis(axis, values, "x")
    axis.set_xlabel("‖∂L/∂h‖, all positions")
    axis.set_title(f"{side}layers".capitalize())


def _heat_map(axis: Any, values: np.ndarray, steps: Sequence[int]) -> Any:
    positive = values[np.isfinite(values) & (values > 0)]
    low, high = (positive.min(), positive.max()) if positive.size else (1e-12, 1.0)
    norm = LogNorm(max(low, high * 1e-8), high if high > low else low * 10)
    masked = np.ma.masked_where(~(values > 0), values)
    image = axis.imshow(masked, aspect="auto", norm=norm, cmap="cividis", interpolation="nearest", origin="lower")
    axis.set_facecolor("#EFEFEF")
    axis.grid(False)
    ticks = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), 8)).round().astype(int))
    axis.set_xticks(ticks, [str(steps[tick]) for tick in ticks])
    return image


def _label_positions(axis: Any, labels: Sequence[str] | None) -> None:
    if labels is None or len(labels) > _MAX_LABELS:
        axis.set_xlabel("position")
        return
    axis.set_xticks(range(len(labels)), escape_dollars(labels), rotation=60, ha="right")
    axis.tick_params(axis="x", labelsize=8)
