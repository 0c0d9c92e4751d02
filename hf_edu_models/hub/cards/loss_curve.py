"""The loss curve of a card: loss and main score by training step."""

from __future__ import annotations

import math
from typing import Any

_LABELS = {"loss": "training", "eval_loss": "validation"}


def points(history: list[dict[str, Any]], key: str) -> tuple[list[int], list[float]]:
    """Steps and finite values of one logged number; a step that a resumed run logs again counts once."""
    values = {
        row["step"]: row[key]
        for row in history
        if isinstance(row.get(key), int | float) and math.isfinite(row[key]) and "step" in row
    }
    return sorted(values), [values[step] for step in sorted(values)]


def has_curve(history: list[dict[str, Any]]) -> bool:
    return any(points(history, key)[0] for key in _LABELS)


def loss_curve_png(history: list[dict[str, Any]], main_score: str | None) -> bytes:
    """Training and validation loss, and the main score beside them if it was logged."""
    from ...plotting import colour, marker, new_figure, render_figure

    panels = [("loss", _LABELS)]
    if main_score and main_score != "loss" and points(history, f"eval_{main_score}")[0]:
        panels.append((main_score.replace("_", " "), {f"eval_{main_score}": "validation"}))
    figure, _ = new_figure(9 if len(panels) == 2 else 5.5, 3.4, columns=len(panels))
    for axis, (name, labels) in zip(figure.axes, panels, strict=True):
        for key, label in labels.items():
            number, (steps, values) = int(label == "validation"), points(history, key)
            if steps:
                shape = marker(number) if len(steps) <= 30 else None
                axis.plot(steps, values, label=label, color=colour(number), marker=shape, markersize=4, linewidth=1.5)
        axis.set(xlabel="step", ylabel=name)
        axis.legend(frameon=False, fontsize=9)
    figure.axes[0].set_ylim(bottom=0)
    return render_figure(figure, "png")
