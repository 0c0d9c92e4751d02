"""One figure style for the package, without pyplot or global settings; figures and their numbers as files."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from .run_folder import write_atomically

# Okabe & Ito's palette, safe for every kind of colour vision; black is for text and grey for published numbers.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5C00")
INK = "#222222"
GREY = "#8A8A8A"  # never used for our own numbers
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_EXTENSIONS = (".png", ".svg")


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, Any]:
    """A figure of `width` x `height` inches and its axes: one, or an array of them.

    Args:
        options: Arguments of `Figure.subplots`, such as `sharey` or `width_ratios`.
    """
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, **options)
    for axis in axes.flat:
        _style_axes(axis)
    return figure, axes[0, 0] if rows == columns == 1 else axes.squeeze()


def _style_axes(axis: Any) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(True, color="#E3E3E3", linewidth=0.6)
    axis.set_axisbelow(True)
    axis.tick_params(labelsize=9, colors=INK)
    axis.title.set_fontsize(11)
    axis.xaxis.label.set_fontsize(10)
    axis.yaxis.label.set_fontsize(10)


def log_axis(axis: Any, values: Iterable[float], which: str = "y") -> None:
    """Set a log scale that starts and ends at a power of ten, so that at least two ticks are labelled."""
    array = np.asarray(list(values), dtype=float)
    positive = array[np.isfinite(array) & (array > 0)]
    if not positive.size:
        return
    low, high = np.floor(np.log10(positive.min())), np.ceil(np.log10(positive.max()))
    getattr(axis, f"set_{which}scale")("log")
    getattr(axis, f"set_{which}lim")(10.0**low, 10.0 ** max(high, low + 1))
    getattr(axis, f"{which}axis").set_minor_formatter(NullFormatter())


def colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def marker(number: int) -> str:
    return _MARKERS[number % len(_MARKERS)]


def add_caption(figure: Figure, text: str) -> None:
    """A line of small print below the axes: data, sample sizes, intervals."""
    figure.supxlabel(text, fontsize=8, color=INK, x=0.01, ha="left")


def escape_dollars(texts: Iterable[str]) -> list[str]:
    """Labels that matplotlib prints as they are: it reads text between two dollar signs as a formula."""
    return [text.replace("$", r"\$") for text in texts]


def check_picture_path(path: str | os.PathLike) -> Path:
    """Return the path, or raise an error before any work is done if its file extension is not supported."""
    path = Path(path)
    if path.suffix.lower() not in _EXTENSIONS:
        raise ValueError(f"{path} does not end in {' or '.join(_EXTENSIONS)}; choose one, as in picture.png")
    return path


def save_figure(figure: Figure, path: str | os.PathLike) -> Path:
    """Write a PNG or SVG, by file extension; the file is replaced at once, so no reader sees half a picture."""
    path = check_picture_path(path)
    write_atomically(path, render_figure(figure, path.suffix.lower().removeprefix(".")))
    return path


def render_figure(figure: Figure, kind: str) -> bytes:
    """The content of a PNG or SVG file."""
    content = io.BytesIO()
    # No date inside, so that the same numbers give the same file.
    figure.savefig(content, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
    return content.getvalue()


def write_csv(path: str | os.PathLike, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write the numbers behind a figure; columns are in the order in which they first appear."""
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue())
    return Path(path)
