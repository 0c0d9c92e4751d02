"""Attention maps as pictures: one head with its tokens, or all heads side by side, on one scale of colour.

One hue from light to dark: told apart by everybody, in print too. Sizes are counted in inches and points, so that a
label always fits its row.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

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
    left, right, above, below = left + 0.45, 1.0, top + 0.85, 0.25
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
    size = min(8.0, tile / max(rows, columns) * POINTS * 0.85)
    named = size >= 4.5
    height = tile * float(np.clip(rows / columns, 0.5, 1.6))
    gap_x = 0.12
    left = 0.75 + (margin(each.query_tokens, size) if named else 0.0)
    above = 0.95 + (margin(each.key_tokens, size) if named else 0.0)
    right, below = 1.0, 0.25
    wide, high = len(heads) * (tile + gap_x), len(layers) * (height + gap_x)
    figure = blank(left + wide + right, above + high + below)
    top = each.weights[np.ix_(list(layers), list(heads))].max()
    for row, layer in enumerate(layers):
        for column, head in enumerate(heads):
            bottom = below + (len(layers) - 1 - row) * (height + gap_x)
            axis = place(figure, left + column * (tile + gap_x), bottom, tile, height)
            image = paint(axis, each.weights[layer, head], top, aspect="auto")
            label(
                axis,
                each.query_tokens if named and column == 0 else [],
                each.key_tokens if named and row == 0 else [],
                size,
            )
            if row == 0:
                axis.set_title(f"head {head}", fontsize=9, color=INK, pad=5)
            if column == 0:
                axis.set_ylabel(f"layer {layer}", fontsize=9, color=INK, labelpad=5)
    colour_bar(figure, image, left + wide + 0.1, below + max(0.0, (high - 4.0) / 2), min(high - gap_x, 4.0))
    write_title(figure, title, row_name(each))
    return figure


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


def paint(axis: Any, weights: np.ndarray, top: float, aspect: str = "auto") -> Any:
    image = axis.imshow(weights, cmap=COLOURS, vmin=0.0, vmax=top, aspect=aspect, interpolation="nearest")
    axis.spines[:].set_color("#BBBBBB")
    axis.spines[:].set_linewidth(0.6)
    return image


def label(axis: Any, rows: list[str], columns: list[str], size: float) -> None:
    """Tokens at the left and on top; none where the list is empty."""
    font = {"fontsize": size, "color": INK, "fontfamily": installed_fonts()}
    axis.tick_params(length=0, pad=2, labeltop=True, labelbottom=False, top=False, bottom=False)
    axis.set_yticks(range(len(rows)), [plain(token) for token in rows], **font)
    turned = 0 if columns and max(len(token) for token in columns) <= 2 else 90
    axis.set_xticks(range(len(columns)), [plain(token) for token in columns], rotation=turned, **font)


def colour_bar(figure: Figure, image: Any, left: float, bottom: float, height: float) -> None:
    axis = place(figure, left, bottom, 0.14, height)
    bar = figure.colorbar(image, cax=axis)
    bar.outline.set_visible(False)
    axis.tick_params(labelsize=8, colors=INK, length=2)
    axis.set_ylabel("weight", fontsize=8, color="#666666")


def write_title(figure: Figure, title: str, subtitle: str) -> None:
    width, height = figure.get_size_inches()
    left = 0.15 / width
    figure.text(left, 1 - 0.15 / height, plain(title), fontsize=11, color=INK, va="top", weight="bold")
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
