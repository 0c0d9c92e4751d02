"""Attention maps as heat maps: one head with its tokens, or a grid of heads on one colour scale.

The colour scale has one hue, from light to dark, readable with every colour vision and in print. Sizes are in inches
and points, so that a label always fits its row.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ...plotting import INK, escape_dollars
from .maps import AttentionMap, AttentionMaps

_POINTS = 72  # in an inch
_LONGEST = 20.0  # inches of a heat map: a long input gets smaller cells, not a larger picture
_LIGHT, _LINES = "#666666", "#BBBBBB"
# Fonts for the scripts that the first one lacks; those that are not installed are skipped.
_FONTS = (
    *("DejaVu Sans", "Noto Sans", "Noto Sans CJK JP", "Noto Sans CJK SC", "Noto Sans JP", "Noto Sans SC"),
    *("Noto Sans KR", "WenQuanYi Zen Hei", "IPAGothic", "Hiragino Sans", "PingFang SC", "Microsoft YaHei"),
    *("Yu Gothic", "Noto Sans Arabic", "Noto Sans Hebrew", "Noto Sans Devanagari", "Noto Sans Bengali"),
    *("Noto Sans Tamil", "Noto Sans Thai", "Noto Sans Georgian", "Noto Sans Armenian", "Noto Sans Ethiopic"),
    "Arial Unicode MS",
)


def draw_attention(
    maps: AttentionMaps | AttentionMap, name: str | None = None, layer: int | None = None, head: int | None = None
) -> Figure:
    """A heat map of one head, or a grid of heads: all, those of one layer, or one head in all layers.

    Args:
        name: Which map, if there are several; by default cross-attention, if there is one.
        layer, head: Counted from 0; by default all.
    """
    each = maps if isinstance(maps, AttentionMap) else maps.main if name is None else maps[name]
    each.head(layer or 0, head)  # raises an error if the layer or head does not exist
    layers = range(each.weights.shape[0]) if layer is None else [layer]
    heads = range(each.weights.shape[1]) if head is None else [head]
    title = f"{each.title}, {maps.model}" if isinstance(maps, AttentionMaps) else each.title
    if len(layers) == len(heads) == 1:
        return _draw_head(each, layers[0], heads[0], title)
    return _draw_grid(each, layers, heads, title)


def _draw_head(each: AttentionMap, layer: int, head: int, title: str) -> Figure:
    """One head, large enough to read every token."""
    rows, columns = each.weights.shape[2:]
    cell = min(float(np.clip(9.5 / max(rows, columns), 0.16, 0.42)), _LONGEST / max(rows, columns))
    step = math.ceil(0.16 / cell)  # of a long input every second, third, ... token is named
    size = min(11.0, cell * step * _POINTS * 0.72)
    left, top = (_margin(tokens[::step], size) for tokens in (each.query_tokens, each.key_tokens))
    subtitle = "" if each.weights.shape[:2] == (1, 1) else f"layer {layer}, head {head}"
    left, right, above, below = left + 0.45, 1.0, top + (0.75 if subtitle else 0.5), 0.25
    width, height = max(columns * cell, 2.4), max(rows * cell, 1.6)
    figure = _new_canvas(left + width + right, above + height + below)
    axis = _add_axes(figure, left, below, width, height)
    image = _heat_map(axis, each.weights[layer, head], each.weights[layer, head].max())
    places = range(0, rows, step), range(0, columns, step)
    _label_tokens(axis, each.query_tokens[::step], each.key_tokens[::step], size, *places)
    axis.set_ylabel(_row_name(each), fontsize=9, color=_LIGHT)
    _colour_bar(figure, image, left + width + 0.2, below, height)
    _write_title(figure, title, subtitle)
    return figure


def _draw_grid(each: AttentionMap, layers: Sequence[int], heads: Sequence[int], title: str) -> Figure:
    """One tile for each head, one row of tiles for each layer; token labels if the tiles are large enough."""
    rows, columns = each.weights.shape[2:]
    tile = float(np.clip(11.0 / len(heads), 0.85, 2.6))
    height = tile * float(np.clip(rows / columns, 0.5, 1.6))
    size = min(8.0, tile / columns * _POINTS * 0.85, height / rows * _POINTS * 0.85)
    has_labels = size >= 4.5
    left = 0.75 + (_margin(each.query_tokens, size) if has_labels else 0.0)
    above = 1.0 + (_margin(each.key_tokens, size) if has_labels else 0.0)
    right, below, gap = 0.9, 0.25, 0.12
    wide, high = len(heads) * (tile + gap) - gap, len(layers) * (height + gap) - gap
    figure = _new_canvas(left + wide + right, above + high + below)
    axis = _add_axes(figure, left, below, wide, high)
    tiles = _Tiles(tile, height, gap)
    image = tiles.draw(axis, each.weights[np.ix_(list(layers), list(heads))])
    if has_labels:
        tiles.label_tokens(axis, each, len(layers), len(heads), size)
    tiles.label_heads(axis, layers, heads, left - 0.3, above - 0.85)
    bar = min(high, 4.0)
    _colour_bar(figure, image, left + wide + 0.2, below + high - bar, bar)
    _write_title(figure, title, _row_name(each))
    return figure


@dataclass(frozen=True)
class _Tiles:
    """The tiles of a grid in one pair of axes, in inches from the upper left; axes for each would take seconds."""

    width: float
    height: float
    gap: float

    def corner(self, row: int, column: int) -> tuple[float, float]:
        return column * (self.width + self.gap), row * (self.height + self.gap)

    def draw(self, axis: Any, weights: np.ndarray) -> Any:
        """All heads on one colour scale."""
        for row, column in np.ndindex(weights.shape[:2]):
            x, y = self.corner(row, column)
            extent = (x, x + self.width, y + self.height, y)
            image = _heat_map(axis, weights[row, column], weights.max(), extent=extent)
            frame: dict[str, Any] = {"fill": False, "edgecolor": _LINES, "linewidth": 0.6, "clip_on": False}
            axis.add_patch(Rectangle((x, y), self.width, self.height, **frame))
        axis.spines[:].set_visible(False)
        axis.set(xlim=(0, x + self.width), ylim=(y + self.height, 0), xticks=[], yticks=[])
        return image

    def label_tokens(self, axis: Any, each: AttentionMap, layers: int, heads: int, size: float) -> None:
        """Query tokens at the left of every row of tiles, key tokens above every column."""
        rows, columns = each.query_tokens, each.key_tokens
        y = [
            self.corner(layer, 0)[1] + self.height * (i + 0.5) / len(rows)
            for layer in range(layers)
            for i in range(len(rows))
        ]
        x = [
            self.corner(0, head)[0] + self.width * (i + 0.5) / len(columns)
            for head in range(heads)
            for i in range(len(columns))
        ]
        _label_tokens(axis, rows * layers, columns * heads, size, y, x)

    def label_heads(self, axis: Any, layers: Sequence[int], heads: Sequence[int], left: float, above: float) -> None:
        for row, layer in enumerate(layers):
            middle = self.corner(row, 0)[1] + self.height / 2
            axis.text(-left, middle, f"layer {layer}", rotation=90, ha="center", va="center", fontsize=9, color=INK)
        for column, head in enumerate(heads):
            middle = self.corner(0, column)[0] + self.width / 2
            axis.text(middle, -above, f"head {head}", ha="center", va="bottom", fontsize=9, color=INK)


def _row_name(each: AttentionMap) -> str:
    return "rows: target tokens" if each.name == "cross" else "rows: query tokens"


def _new_canvas(width: float, height: float) -> Figure:
    """A figure without a layout engine: every part gets its own position."""
    figure = Figure(figsize=(width, height), facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def _add_axes(figure: Figure, left: float, bottom: float, width: float, height: float) -> Any:
    """Axes at a position in inches."""
    full_width, full_height = figure.get_size_inches()
    return figure.add_axes((left / full_width, bottom / full_height, width / full_width, height / full_height))


def _heat_map(axis: Any, weights: np.ndarray, top: float, extent: tuple[float, ...] | None = None) -> Any:
    scale = {"cmap": "Blues", "vmin": 0.0, "vmax": top}
    image = axis.imshow(weights, aspect="auto", interpolation="nearest", extent=extent, **scale)
    axis.spines[:].set(color=_LINES, linewidth=0.6)
    return image


def _label_tokens(
    axis: Any,
    rows: list[str],
    columns: list[str],
    size: float,
    y: Sequence[float] | None = None,
    x: Sequence[float] | None = None,
) -> None:
    """Tokens at the left and on top, at the middle of each cell unless `y` and `x` are given."""
    font = {"fontsize": size, "color": INK, "fontfamily": _installed_fonts()}
    axis.tick_params(length=0, pad=2, labeltop=True, labelbottom=False, top=False, bottom=False)
    axis.set_yticks(range(len(rows)) if y is None else y, _shorten(rows), **font)
    axis.set_xticks(range(len(columns)) if x is None else x, _shorten(columns), **font)
    for tick, token in zip(axis.get_xticklabels(), columns, strict=True):
        tick.set_rotation(0 if len(token) <= 2 else 90)


def _colour_bar(figure: Figure, image: Any, left: float, bottom: float, height: float) -> None:
    axis = _add_axes(figure, left, bottom, 0.14, height)
    figure.colorbar(image, cax=axis).outline.set_visible(False)
    axis.tick_params(labelsize=8, colors=INK, length=2, labelfontfamily="sans-serif")
    axis.set_ylabel("attention weight", fontsize=8, color=_LIGHT)


def _write_title(figure: Figure, title: str, subtitle: str) -> None:
    width, height = figure.get_size_inches()
    left = 0.15 / width
    figure.text(left, 1 - 0.15 / height, title, fontsize=11, color=INK, va="top", weight="bold")
    figure.text(left, 1 - 0.40 / height, subtitle, fontsize=9, color=_LIGHT, va="top")


def _margin(tokens: list[str], size: float) -> float:
    """Inches for the longest token, approximately: a wide character counts as two."""
    longest = max((sum(2 if ord(letter) > 0x2E80 else 1 for letter in token) for token in tokens), default=1)
    return min(longest, 24) * size * 0.62 / _POINTS + 0.1


def _shorten(tokens: list[str]) -> list[str]:
    return escape_dollars(token if len(token) <= 22 else token[:21] + "…" for token in tokens)


@functools.cache
def _installed_fonts() -> list[str]:
    from matplotlib import font_manager

    installed = {font.name for font in font_manager.fontManager.ttflist}
    return [name for name in _FONTS if name in installed] or ["sans-serif"]
