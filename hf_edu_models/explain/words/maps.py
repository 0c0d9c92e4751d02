"""A map of words: their vectors in two dimensions, as a picture with labels and as a page that zooms.

PCA keeps the directions in which the vectors differ most, so that distances far apart mean something; t-SNE (van der
Maaten & Hinton 2008) keeps neighbours together, and distances between groups mean little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...pages.document import json_block, package_text, write_document
from ...plotting import INK, colour, escape_dollars, new_figure
from .analogies import WordTable

_ASSETS = "explain/words/assets"
METHODS = ("pca", "tsne")


@dataclass(frozen=True)
class WordMap:
    """Words at points (words, 2), with their group's number; `kept` is the share of the variance, of PCA alone."""

    words: list[str]
    points: np.ndarray
    groups: list[int]
    method: str
    kept: float | None = None


def map_words(
    table: WordTable, words: Sequence[str], method: str = "pca", groups: Sequence[int] | None = None, seed: int = 0
) -> WordMap:
    """Place words in the plane.

    Args:
        groups: a number for each word, its colour.
    """
    numbers = dict(zip(words, groups or [0] * len(words), strict=True))
    if len(numbers) < 3:
        raise ValueError(f"a map needs three words or more, got {len(numbers)}")
    points, kept = place_in_plane(table.vectors[[table.row(word) for word in numbers]], method, seed)
    return WordMap([*numbers], points, [*numbers.values()], method, kept)


def check_method(method: str) -> None:
    if method not in METHODS:
        raise ValueError(f"method must be one of {', '.join(METHODS)}; got {method!r}")


def place_in_plane(vectors: np.ndarray, method: str = "pca", seed: int = 0) -> tuple[np.ndarray, float | None]:
    """Points (rows, 2) for vectors, and the share of the variance that they keep, of PCA alone."""
    check_method(method)
    vectors = np.asarray(vectors, np.float64)
    centred = vectors - vectors.mean(axis=0)
    left, sizes, _ = np.linalg.svd(centred, full_matrices=False)
    points, kept = left[:, :2] * sizes[:2], float((sizes[:2] ** 2).sum() / max((sizes**2).sum(), 1e-12))
    # The sign of a component is arbitrary: the row farthest out is on the positive side.
    points = points * np.sign(points[np.abs(points).argmax(axis=0), [0, 1]])
    if method == "pca":
        return points, kept
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(vectors) - 1) / 3)
    start = points / max(float(points[:, 0].std()), 1e-12) * 1e-4
    found = TSNE(perplexity=perplexity, init=start, metric="cosine", random_state=seed).fit_transform(vectors)
    return found, None


def _describe_method(found: WordMap) -> str:
    """A line on how to read the map."""
    if found.kept is None:
        return "t-SNE of the vectors: neighbours stay together, distances between groups mean little"
    return f"the first two principal components of the vectors, {found.kept:.0%} of their variance"


def draw_map(found: WordMap, title: str, arrows: Sequence[tuple[str, str]] = ()) -> Any:
    """Points with labels that avoid each other where they can.

    Args:
        arrows: pairs of words joined by an arrow, such as man and woman.
    """
    side = float(np.clip(2.5 + 0.55 * len(found.words) ** 0.5, 5, 14))
    figure, axis = new_figure(1.3 * side, side)
    axis.scatter(*found.points.T, s=14, c=[colour(group) for group in found.groups], zorder=3)
    axis.set_xticks([])
    axis.set_yticks([])
    axis.margins(0.08)
    axis.set_title(title)
    axis.set_xlabel(_describe_method(found), fontsize=9)
    places = dict(zip(found.words, found.points, strict=True))
    for start, end in arrows:
        style = {"arrowstyle": "->", "color": "#8A8A8A", "lw": 0.9, "shrinkA": 4, "shrinkB": 4}
        axis.annotate("", xy=places[end], xytext=places[start], arrowprops=style)
    figure.canvas.draw()
    _place_labels(axis, found)
    return figure


def _place_labels(axis: Any, found: WordMap) -> None:
    """Each label on the first free side of its point, counted from the most frequent word on."""
    renderer = axis.figure.canvas.get_renderer()
    taken: list[Any] = []
    sides = [(5, 0, "left", "center"), (-5, 0, "right", "center"), (0, 5, "center", "bottom"), (0, -5, "center", "top")]
    for word, point, group in zip(escape_dollars(found.words), found.points, found.groups, strict=True):
        label = axis.annotate(
            word, point, (0, 0), textcoords="offset points", fontsize=8, color=INK if not group else colour(group)
        )
        crowded = []
        for dx, dy, horizontal, vertical in sides:
            label.set_position((dx, dy))
            label.set_ha(horizontal)
            label.set_va(vertical)
            box = label.get_window_extent(renderer)
            crowded.append((sum(box.overlaps(other) for other in taken), dx, dy, horizontal, vertical))
            if not crowded[-1][0]:
                break
        else:
            _, dx, dy, horizontal, vertical = min(crowded)
            label.set_position((dx, dy))
            label.set_ha(horizontal)
            label.set_va(vertical)
            box = label.get_window_extent(renderer)
        taken.append(box)


def write_map_page(found: WordMap, title: str, path: str | Path, table: WordTable, neighbours: int = 5) -> Path:
    """One HTML file, without network: drag to move, wheel or buttons to zoom, click a word for its neighbours."""
    span = np.ptp(found.points, axis=0).max() or 1.0
    points = (found.points - found.points.mean(axis=0)) / span
    rows = [table.row(word) for word in found.words]
    cosines = table.vectors[rows] @ table.vectors[rows].T
    np.fill_diagonal(cosines, -np.inf)
    nearest = np.argsort(-cosines, axis=1, kind="stable")[:, : min(neighbours, len(rows) - 1)]
    data = {
        "heading": title,
        "note": _describe_method(found),
        "words": [
            {
                "word": word,
                "x": round(float(point[0]), 5),
                "y": round(float(-point[1]), 5),
                "colour": colour(group),
                "near": [[found.words[other], round(float(cosines[row, other]), 3)] for other in nearest[row]],
            }
            for row, (word, point, group) in enumerate(zip(found.words, points, found.groups, strict=True))
        ],
    }
    style = package_text("pages/assets/base.css") + package_text(f"{_ASSETS}/map.css")
    template, script = package_text(f"{_ASSETS}/map.html"), package_text(f"{_ASSETS}/map.js")
    return write_document(path, template, style, script, data=json_block(data))
