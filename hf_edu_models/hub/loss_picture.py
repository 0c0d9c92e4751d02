"""The loss and the main score of a run along its steps, as one picture."""

from __future__ import annotations

import math
from typing import Any


def points(history: list[dict[str, Any]], key: str) -> tuple[list[int], list[float]]:
    """Steps and finite values of one logged number; a step that was logged twice, after a resumed run, counts once."""
    found = {}
    for row in history:
        if isinstance(row.get(key), int | float) and math.isfinite(row[key]) and "step" in row:
            found[row["step"]] = row[key]
    return sorted(found), [found[step] for step in sorted(found)]


def has_curve(history: list[dict[str, Any]]) -> bool:
    return any(points(history, key)[0] for key in ("loss", "eval_loss"))


def draw_loss(history: list[dict[str, Any]], main_score: str | None) -> Any:
    """A figure with training and validation loss, and beside it the main score where it was logged."""
    from ..explain.figure_style import new_figure

    scored = f"eval_{main_score}" if main_score and main_score != "loss" else None
    both = scored is not None and bool(points(history, scored)[0])
    figure, axes = new_figure(9 if both else 5.5, 3.4, columns=2 if both else 1)
    losses, scores = axes if both else (axes, None)
    for number, (key, label) in enumerate((("loss", "training"), ("eval_loss", "validation"))):
        _line(losses, history, key, label, number)
    losses.set(xlabel="step", ylabel="loss", title="Loss")
    losses.set_ylim(bottom=0)
    losses.legend(frameon=False, fontsize=9)
    if both:
        _line(scores, history, scored, "validation", 2)
        scores.set(xlabel="step", ylabel=main_score.replace("_", " "), title="Score on the validation split")
    return figure


def _line(axis: Any, history: list[dict[str, Any]], key: str, label: str, number: int) -> None:
    from ..explain.figure_style import colour, marker

    steps, values = points(history, key)
    if steps:
        shown = marker(number) if len(steps) <= 30 else None
        axis.plot(steps, values, label=label, color=colour(number), marker=shown, markersize=4, linewidth=1.5)
