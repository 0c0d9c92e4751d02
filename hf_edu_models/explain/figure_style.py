"""One look for every picture, without pyplot and without a global setting: a figure is made, drawn on and saved."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

# Okabe & Ito's colours, which people with any kind of colour vision tell apart; black and grey are kept for text and
# for what others have published.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5C00")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
INK = "#222222"
PUBLISHED = "#8A8A8A"  # never used for our own numbers
ENDINGS = (".png", ".svg")


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, Any]:
    """A figure of so many inches and its axes: one, or a row or grid of them.

    Args:
        options: What `Figure.subplots` takes, such as `sharey` or `width_ratios`.
    """
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for axis in axes.flat:
        style_axes(axis)
    return figure, axes[0, 0] if rows == columns == 1 else axes.squeeze()


def style_axes(axis: Any) -> None:
    """Quiet frame, light grid behind the data."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(True, color="#E3E3E3", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=9, colors=INK)
    axis.title.set_fontsize(11)
    axis.xaxis.label.set_fontsize(10)
    axis.yaxis.label.set_fontsize(10)


def log_axis(axis: Any, values: Iterable[float], which: str = "y") -> None:
    """A log scale from one power of ten to another, so that its ticks can be read."""
    values = np.asarray(list(values), dtype=float)
    seen = values[np.isfinite(values) & (values > 0)]
    if not seen.size:
        return
    low, high = np.floor(np.log10(seen.min())), np.ceil(np.log10(seen.max()))
    getattr(axis, f"set_{which}scale")("log")
    getattr(axis, f"set_{which}lim")(10.0**low, 10.0 ** max(high, low + 1))
    getattr(axis, f"{which}axis").set_minor_formatter(NullFormatter())


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def marker(number: int) -> str:
    return MARKERS[number % len(MARKERS)]


def note(figure: Figure, text: str) -> None:
    """A line of small print below everything: where numbers come from, how many, what was counted."""
    figure.supxlabel(text, fontsize=8, color=INK, x=0.01, ha="left")


def check_picture_path(path: str | os.PathLike) -> Path:
    """The path, if it ends as a picture that can be written: asked before the work, not after it."""
    path = Path(path)
    if path.suffix.lower() not in ENDINGS:
        raise ValueError(f"{path} does not end in {' or '.join(ENDINGS)}; name the picture so, as in picture.png")
    return path


def save_figure(figure: Figure, path: str | os.PathLike) -> Path:
    """Write a PNG or SVG, by its ending; whoever looks meanwhile sees the old picture or the new one, never half."""
    path = check_picture_path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = path.suffix.lower().removeprefix(".")
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            # No date inside, so that the same numbers give the same file.
            figure.savefig(file, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
        os.chmod(draft, 0o666 & ~current_umask())
        os.replace(draft, path)
    finally:
        Path(draft).unlink(missing_ok=True)
    return path


def current_umask() -> int:
    """What new files are not allowed; `mkstemp` makes them private, and a picture is not."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
