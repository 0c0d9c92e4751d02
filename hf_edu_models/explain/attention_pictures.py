"""Attention maps as pictures: one head with its tokens, or all heads side by side, on one scale of colour.

One hue from light to dark: told apart by everybody, in print too. Sizes are counted in inches and points, so that a
label always fits its row.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from .attention import AttentionMap, AttentionMaps
from .figure_style import INK

COLOURS = "Blues"
POINTS = 72  # in an inch
# Scripts that the first font lacks; those that are not installed are left out.
FONTS = (
    "DejaVu Sans",
    "Noto Sans",
    "Noto Sans CJK JP",
    "Noto Sans CJK SC",
    "Noto Sans JP",
    "Noto Sans SC",
    "Noto Sans KR",
    "WenQuanYi Zen Hei",
    "IPAGothic",
    "Hiragino Sans",
    "PingFang SC",
    "Microsoft YaHei",
    "Yu Gothic",
    "Noto Sans Arabic",
    "Noto Sans Hebrew",
    "Noto Sans Devanagari",
    "Noto Sans Bengali",
    "Noto Sans Tamil",
    "Noto Sans Thai",
    "Noto Sans Georgian",
    "Noto Sans Armenian",
    "Noto Sans Ethiopic",
    "Arial Unicode MS",
)


def draw_attention(
    maps: AttentionMaps | AttentionMap, name: str | None = None, layer: int | None = None, head: int | None = None
) -> Figure:
    """A heat map of one head, or a grid of the heads of all layers, of one layer, or of one head in all layers.

    Args:
        name: which map, where there are several; default the cross-attention, where there is one.
        layer, head: counted from 0; default all of them.
    """
    each = maps if isinstance(maps, AttentionMap) else maps.main if name is None else maps[name]
    each.head(0 if layer is None else layer, head)  # or the choice is refused
    count = each.weights.shape
    layers = range(count[0]) if layer is None else [layer]
    heads = range(count[1]) if head is None else [head]
    title = f"{each.title}, {maps.model}" if isinstance(maps, AttentionMaps) else each.title
    if len(layers) == len(heads) == 1:
        return draw_one(each, layers[0], heads[0], title)
    return draw_grid(each, layers, heads, title)


def draw_one(each: AttentionMap, layer: int, head: int, title: str) -> Figure:
    """One head, large enough to read every token."""
    rows, columns = each.weights.shape[2:]
    cell = float(np.clip(9.5 / max(rows, columns), 0.16, 0.42))
    size = min(11.0, cell * POINTS * 0.72)
    left, top = (margin(tokens, size) for tokens in (each.query_tokens, each.key_tokens))
    shape = each.weights.shape[:2]
    subtitle = "" if shape == (1, 1) else f"layer {layer}, head {head}"
    left, right, above, below = left + 0.45, 1.0, top + (0.75 if subtitle else 0.5), 0.25
    width, height = max(columns * cell, 2.4), max(rows * cell, 1.6)
    figure = blank(left + width + right, above + height + below)
    axis = place(figure, left, below, width, height)
    image = paint(axis, each.weights[layer, head], each.weights[layer, head].max())
    label(axis, each.query_tokens, each.key_tokens, size)
    axis.set_ylabel(row_name(each), fontsize=9, color="#666666")
    colour_bar(figure, image, left + width + 0.2, below, height)
    write_title(figure, title, subtitle)
    return figure


def draw_grid(each: AttentionMap, layers: Any, heads: Any, title: str) -> Figure:
    """A tile a head, a line a layer; tokens are written out where tiles are large enough for them."""
    rows, columns = each.weights.shape[2:]
    tile = float(np.clip(11.0 / len(heads), 0.85, 2.6))
    height = tile * float(np.clip(rows / columns, 0.5, 1.6))
    size = min(8.0, tile / columns * POINTS * 0.85, height / rows * POINTS * 0.85)
    are_named = size >= 4.5
    left = 0.75 + (margin(each.query_tokens, size) if are_named else 0.0)
    above = 1.0 + (margin(each.key_tokens, size) if are_named else 0.0)
    right, below, gap = 0.9, 0.25, 0.12
    wide, high = len(heads) * (tile + gap) - gap, len(layers) * (height + gap) - gap
    figure = blank(left + wide + right, above + high + below)
    axis = place(figure, left, below, wide, high)
    chosen = each.weights[np.ix_(list(layers), list(heads))]
    tiles = Tiles(tile, height, gap)
    image = tiles.paint(axis, chosen)
    if are_named:
        tiles.label(axis, each, len(layers), len(heads), size)
    tiles.number(axis, layers, heads, left - 0.3, above - 0.85)
    bar = min(high, 4.0)
    colour_bar(figure, image, left + wide + 0.2, below + high - bar, bar)
    write_title(figure, title, row_name(each))
    return figure


@dataclass(frozen=True)
class Tiles:
    """Where the tiles of a grid lie in one pair of axes, counted in inches from the upper left."""

    width: float
    height: float
    gap: float

    def corner(self, row: int, column: int) -> tuple[float, float]:
        return column * (self.width + self.gap), row * (self.height + self.gap)

    def paint(self, axis: Any, weights: np.ndarray) -> Any:
        """All heads on one scale: axes for each would take seconds."""
        for row, column in np.ndindex(weights.shape[:2]):
            x, y = self.corner(row, column)
            extent = (x, x + self.width, y + self.height, y)
            image = paint(axis, weights[row, column], weights.max(), extent=extent)
            frame = {"fill": False, "edgecolor": "#BBBBBB", "linewidth": 0.6, "clip_on": False}
            axis.add_patch(Rectangle((x, y), self.width, self.height, **frame))
        axis.spines[:].set_visible(False)
        axis.set_xlim(0, x + self.width)
        axis.set_ylim(y + self.height, 0)
        axis.set_xticks([])
        axis.set_yticks([])
        return image

    def label(self, axis: Any, each: AttentionMap, layers: int, heads: int, size: float) -> None:
        """Tokens left of every line and on top of every column."""
        rows, columns = each.query_tokens, each.key_tokens
        down = [
            self.corner(row, 0)[1] + self.height * (i + 0.5) / len(rows)
            for row in range(layers)
            for i in range(len(rows))
        ]
        along = [
            self.corner(0, head)[0] + self.width * (i + 0.5) / len(columns)
            for head in range(heads)
            for i in range(len(columns))
        ]
        label(axis, rows * layers, columns * heads, size, down, along)

    def number(self, axis: Any, layers: Any, heads: Any, left: float, above: float) -> None:
        for row, layer in enumerate(layers):
            middle = self.corner(row, 0)[1] + self.height / 2
            axis.text(-left, middle, f"layer {layer}", rotation=90, ha="center", va="center", fontsize=9, color=INK)
        for column, head in enumerate(heads):
            middle = self.corner(0, column)[0] + self.width / 2
            axis.text(middle, -above, f"head {head}", ha="center", va="bottom", fontsize=9, color=INK)


def row_name(each: AttentionMap) -> str:
    return {"cross": "rows: the token written"}.get(each.name, "rows: the token that looks")


def blank(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def place(figure: Figure, left: float, bottom: float, width: float, height: float) -> Any:
    """Axes at a place given in inches."""
    full_width, full_height = figure.get_size_inches()
    return figure.add_axes((left / full_width, bottom / full_height, width / full_width, height / full_height))


def paint(axis: Any, weights: np.ndarray, top: float, extent: tuple[float, ...] | None = None) -> Any:
    scale = {"cmap": COLOURS, "vmin": 0.0, "vmax": top}
    image = axis.imshow(weights, aspect="auto", interpolation="nearest", extent=extent, **scale)
    axis.spines[:].set_color("#BBBBBB")
    axis.spines[:].set_linewidth(0.6)
    return image


def label(
    axis: Any,
    rows: list[str],
    columns: list[str],
    size: float,
    down: Sequence[float] | None = None,
    along: Sequence[float] | None = None,
) -> None:
    """Tokens at the left and on top, at the middle of each cell or at the places given."""
    font = {"fontsize": size, "color": INK, "fontfamily": installed_fonts()}
    axis.tick_params(length=0, pad=2, labeltop=True, labelbottom=False, top=False, bottom=False)
    axis.set_yticks(range(len(rows)) if down is None else down, [plain(token) for token in rows], **font)
    axis.set_xticks(range(len(columns)) if along is None else along, [plain(token) for token in columns], **font)
    for tick, token in zip(axis.get_xticklabels(), columns, strict=True):
        tick.set_rotation(0 if len(token) <= 2 else 90)


def colour_bar(figure: Figure, image: Any, left: float, bottom: float, height: float) -> None:
    axis = place(figure, left, bottom, 0.14, height)
    bar = figure.colorbar(image, cax=axis)
    bar.outline.set_visible(False)
    axis.tick_params(labelsize=8, colors=INK, length=2, labelfontfamily="sans-serif")
    axis.set_ylabel("weight", fontsize=8, color="#666666")


def write_title(figure: Figure, title: str, subtitle: str) -> None:
    width, height = figure.get_size_inches()
    left = 0.15 / width
    figure.text(left, 1 - 0.15 / height, title, fontsize=11, color=INK, va="top", weight="bold")
    figure.text(left, 1 - 0.40 / height, subtitle, fontsize=9, color="#666666", va="top")


def margin(tokens: list[str], size: float) -> float:
    """Inches that the longest token takes, nearly: a wide character counts as two."""
    longest = max((sum(2 if ord(letter) > 0x2E80 else 1 for letter in token) for token in tokens), default=1)
    return min(longest, 24) * size * 0.62 / POINTS + 0.1


def plain(token: str) -> str:
    """A dollar would begin a formula; a token longer than a label may be is cut."""
    token = token if len(token) <= 22 else token[:21] + "…"
    return token.replace("$", r"\$")


@functools.cache
def installed_fonts() -> list[str]:
    from matplotlib import font_manager

    there = {font.name for font in font_manager.fontManager.ttflist}
    return [name for name in FONTS if name in there] or ["sans-serif"]
