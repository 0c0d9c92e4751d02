"""Pictures of gradient flow: along time and through layers, the vanishing-gradient lesson, and a whole training."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from .figure_style import INK, colour, log_axis, marker, new_figure, note
from .gradients import GradientFlow
from .vanishing import VanishingLesson

CELL_COLOURS = {"rnn": colour(1), "gru": colour(2), "lstm": colour(0)}
CELL_NAMES = {"rnn": "RNN (plain)", "gru": "GRU", "lstm": "LSTM"}
GATE_DASHES = {"gru": (0, (1, 1)), "lstm": (2, (4, 4))}  # one shows between the other's dashes where they meet
MOST_LABELS = 60


def draw_lesson(lesson: VanishingLesson) -> Figure:
    """Gradient norm by distance on a log axis, and beside it what the gates let through."""
    figure, (left, right) = new_figure(11, 4.6, columns=2, sharey=True)
    for cell, norms in lesson.norms.items():
        _line(left, norms / norms[0], CELL_COLOURS[cell], "-", CELL_NAMES[cell])
    for cell, products in lesson.gate_products.items():
        gate = "update" if cell == "gru" else "forget"
        norms = lesson.norms[cell]
        _line(right, norms / norms[0], CELL_COLOURS[cell], "-", f"{CELL_NAMES[cell]}: whole gradient", alpha=0.35)
        _line(right, products, CELL_COLOURS[cell], GATE_DASHES[cell], f"{CELL_NAMES[cell]}: product of {gate} gates")
    left.set_title("What reaches a state, by how far back it lies")
    right.set_title("The part that the gates alone let through")
    left.set_ylabel("‖∂L/∂h‖, relative to the step of the loss")
    for axis in (left, right):
        axis.set_yscale("log")
        axis.set_xlabel("distance from the loss (steps)")
        axis.legend(frameon=False, fontsize=9, loc="lower left")
    note(
        figure,
        f"New cells, not yet trained, hidden size {lesson.hidden_size}; gates that keep the state start with bias "
        f"{lesson.gate_bias:g}. Loss at the last of {lesson.length} steps; seed {lesson.seed}.",
    )
    return figure


def draw_gradient_flow(flow: GradientFlow, tokens: dict[str, Sequence[str]] | None = None, title: str = "") -> Figure:
    """One text: along time for a recurrent model, token by token through the layers for the others.

    Args:
        tokens: What stands at each position: `input` and, for the decoder's, `target`.
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
    note(figure, f"Norm of the gradient of the loss ({flow.loss:.3f}); log scale, pale where there is none.")
    return figure


def draw_training(rows: Sequence[dict[str, Any]]) -> Figure:
    """A training, as `GradientFlowCallback` wrote it: gradients by layer, and how much each update moved them."""
    if not rows:
        raise ValueError("no gradients were written; train for longer, or measure more often with every=1")
    names = list(rows[0]["gradient_norm"])
    height = 1.6 + 0.3 * len(names)
    figure, (left, right) = new_figure(12, max(4.0, height), columns=2, sharey=True)
    steps = [row["step"] for row in rows]
    for axis, key, title in (
        (left, "gradient_norm", "‖gradient‖ of each layer's weights, after clipping"),
        (right, "update_ratio", "‖update‖ / ‖weights‖ of each layer"),
    ):
        values = np.array([[row[key].get(name, np.nan) for row in rows] for name in names], dtype=float)
        image = _heat(axis, values, steps)
        axis.set_title(title)
        axis.set_xlabel("training step")
        figure.colorbar(image, ax=axis, pad=0.02)
    left.set_yticks(range(len(names)), names)
    note(figure, f"{len(rows)} measurements, steps {steps[0]} to {steps[-1]}; colours on a log scale.")
    return figure


def _line(axis: Any, values: np.ndarray, colour_name: str, style: Any, label: str, alpha: float = 1.0) -> None:
    # A zero has no place on a log axis; a gap says so better than a floor would.
    shown = np.where(values > 0, values, np.nan)
    axis.plot(np.arange(len(values)), shown, linestyle=style, color=colour_name, label=label, lw=2, alpha=alpha)


def _names_of(flow: GradientFlow, side: str) -> list[str]:
    if side:
        return [name for name in flow.layers if name.startswith(side)]
    return [name for name in flow.layers if not name.startswith(("encoder ", "decoder "))]


def _draw_time(figure: Figure, axis: Any, flow: GradientFlow, side: str, labels: Sequence[str] | None) -> None:
    """Lines of dL/dh_t, one for each recurrent layer; the first row of the batch."""
    seen: list[float] = []
    for number, (name, state) in enumerate(flow.states.items()):
        if not name.startswith(side):
            continue
        for what, style in (("hidden", "-"), ("memory", ":")):
            norms = getattr(state, what)
            if norms is not None:
                symbol = "∂L/∂h" if what == "hidden" else "∂L/∂c"
                shown = np.where(norms[0] > 0, norms[0], np.nan)
                seen.extend(shown)
                style_of = {"color": colour(number), "marker": marker(number), "markersize": 3.5}
                axis.plot(state.positions, shown, style, label=f"{name.removeprefix(side)}, ‖{symbol}‖", **style_of)
    log_axis(axis, seen)
    axis.set_ylabel("‖gradient‖ at each step")
    axis.set_title(f"{side.strip().capitalize()} along time".strip().capitalize())
    axis.legend(frameon=False, fontsize=8)
    _label_positions(axis, labels)


def _draw_positions(figure: Figure, axis: Any, flow: GradientFlow, side: str, labels: Sequence[str] | None) -> None:
    """A heat map of positions by layers; the first row of the batch."""
    names = [name for name in _names_of(flow, side) if name in flow.positions]
    if not names:
        raise ValueError("a padded batch has no picture by position; measure one text, or rows of the same length")
    values = np.stack([flow.positions[name][0] for name in names])
    image = _heat(axis, values, range(values.shape[1]))
    axis.set_yticks(range(len(names)), [name.removeprefix(side) for name in names])
    axis.set_title(f"{side.strip()} layers by position".strip().capitalize())
    figure.colorbar(image, ax=axis, pad=0.02, label="‖∂L/∂state‖")
    _label_positions(axis, labels)


def _draw_layers(axis: Any, flow: GradientFlow, side: str) -> None:
    names = _names_of(flow, side)
    values = [flow.layers[name] for name in names]
    # Points, not bars: a log axis has no zero for a bar to start from.
    axis.plot(values, range(len(names)), "o-", color=colour(0), markersize=7)
    axis.set_yticks(range(len(names)), [name.removeprefix(side) for name in names])
    axis.set_ylim(-0.5, len(names) - 0.5)
    log_axis(axis, values, "x")
    axis.set_xlabel("‖∂L/∂states‖, all positions")
    axis.set_title(f"{side.strip()} layers".strip().capitalize())


def _heat(axis: Any, values: np.ndarray, steps: Sequence[int]) -> Any:
    seen = values[np.isfinite(values) & (values > 0)]
    low, high = (seen.min(), seen.max()) if seen.size else (1e-12, 1.0)
    norm = LogNorm(max(low, high * 1e-8), high if high > low else low * 10)
    shown = np.ma.masked_where(~(values > 0), values)
    image = axis.imshow(shown, aspect="auto", norm=norm, cmap="cividis", interpolation="nearest", origin="lower")
    axis.set_facecolor("#EFEFEF")
    axis.grid(False)
    places = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), 8)).round().astype(int))
    axis.set_xticks(places, [str(steps[place]) for place in places])
    return image


def _label_positions(axis: Any, labels: Sequence[str] | None) -> None:
    if labels is None or len(labels) > MOST_LABELS:
        axis.set_xlabel("position")
        return
    # "$" starts mathematics in matplotlib, and a token may be one.
    axis.set_xticks(range(len(labels)), [label.replace("$", r"\$") for label in labels], rotation=60, ha="right")
    axis.tick_params(axis="x", labelsize=8)
