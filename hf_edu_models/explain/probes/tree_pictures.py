"""Pictures of the structural probe: its scores by layer, and gold and predicted trees as arcs over the words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...plotting import COLOURS, INK, add_caption, escape_dollars, new_figure
from .structural import ParseResult, Sentence

_RIGHT, _WRONG = COLOURS[2], COLOURS[1]
_LETTER = 0.085  # inches of a letter of 9 points


def draw_parse_probe(result: ParseResult, title: str = "") -> Any:
    """UUAS and Spearman correlations by layer beside random weights; below, the trees of a few sentences."""
    rows = 1 + len(result.sentences)
    widths = [_width(sentence.tokens) for sentence in result.sentences]
    heights = [3.4, *(_height(sentence) for sentence in result.sentences)]
    figure, _ = new_figure(max(9.0, *widths, 9.0), sum(heights) + 0.4)
    figure.clear()
    grid = figure.add_gridspec(rows, 2, height_ratios=heights)
    panels = (
        ("undirected edges found (UUAS)", (("uuas", "distance probe"),)),
        ("Spearman correlation", (("distance_spearman", "distances"), ("depth_spearman", "depths"))),
    )
    for column, (label, scores) in enumerate(panels):
        axis = figure.add_subplot(grid[0, column])
        _draw_scores(axis, result, scores)
        if column == 0:
            axis.axhline(result.chain, color=INK, linestyle=":", linewidth=1, label="each word joined to the next")
        axis.set(xlabel="layer (0: embeddings)", ylabel=label, xticks=[each.layer for each in result.layers])
        axis.set_ylim(0, 1)
        axis.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.24), ncols=2)
    for row, sentence in enumerate(result.sentences, start=1):
        _draw_arcs(figure.add_subplot(grid[row, :]), sentence)
    figure.suptitle(title, fontsize=11)
    caption = f"{result.train_sentences:,} training and {result.test_sentences:,} test sentences"
    if result.sentences:
        caption += f"; trees: gold above, layer {result.best.layer} below, green where it agrees; without punctuation"
    add_caption(figure, caption)
    return figure


def _draw_scores(axis: Any, result: ParseResult, scores: Sequence[tuple[str, str]]) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(True, color="#E3E3E3", linewidth=0.6)
    for number, (name, label) in enumerate(scores):
        style = {"color": COLOURS[number], "marker": "os"[number], "markersize": 5}
        axis.plot([each.layer for each in result.layers], [getattr(each, name) for each in result.layers], **style)
        axis.lines[-1].set_label(label)
        if result.untrained:
            values = [getattr(each, name) for each in result.untrained]
            axis.plot([each.layer for each in result.untrained], values, **style, linestyle="--", fillstyle="none")
            axis.lines[-1].set_label(f"{label}, random weights")


def draw_trees(sentences: Sequence[Sentence], title: str = "") -> Any:
    """The gold tree of each sentence above its words and the predicted one below."""
    heights = [_height(sentence) for sentence in sentences]
    width = max(_width(sentence.tokens) for sentence in sentences)
    figure, axes = new_figure(width, sum(heights) + 0.5, rows=len(sentences), height_ratios=heights)
    for axis, sentence in zip(np.atleast_1d(axes), sentences, strict=True):
        _draw_arcs(axis, sentence)
    figure.suptitle(title, fontsize=11)
    return figure


def _draw_arcs(axis: Any, sentence: Sentence) -> None:
    sizes = np.array([len(token) * _LETTER + 0.2 for token in sentence.tokens])
    places = np.cumsum(sizes) - sizes / 2  # inches
    for place, token in zip(places, escape_dollars(sentence.tokens), strict=True):
        axis.text(place, 0, token, ha="center", va="center", fontsize=9, color=INK)
    for edges, side in ((sentence.gold, 1), (sentence.predicted, -1)):
        for one, other in sorted(edges):
            is_right = (one, other) in sentence.gold
            colour = INK if side == 1 else _RIGHT if is_right else _WRONG
            style = "-" if side == 1 or is_right else "--"
            _draw_arc(axis, places[one], places[other], side * _level(other - one), side, colour, style)
    top = max((_level(other - one) for one, other in sentence.gold | sentence.predicted), default=0.5)
    axis.set_xlim(0, sizes.sum())
    axis.set_ylim(-top - 0.3, top + 0.3)
    axis.axis("off")


def _draw_arc(axis: Any, start: float, end: float, height: float, side: int, colour: str, style: str) -> None:
    angles = np.linspace(0, np.pi, 60)
    across = (start + end) / 2 - np.cos(angles) * (end - start) / 2
    axis.plot(across, side * 0.14 + height * np.sin(angles), color=colour, linestyle=style, linewidth=1.3)


def _level(distance: int) -> float:
    """The height of an arc in inches, by the number of words it spans."""
    return 0.22 * float(np.sqrt(distance)) + 0.06 * distance


def _width(tokens: Sequence[str]) -> float:
    return sum(len(token) * _LETTER + 0.2 for token in tokens)


def _height(sentence: Sentence) -> float:
    edges = sentence.gold | sentence.predicted
    return 2 * (max((_level(other - one) for one, other in edges), default=0.5) + 0.35)
