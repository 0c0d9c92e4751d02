"""A picture of a model's architecture: its parts from bottom to top, encoder and decoder side by side.

Beside them panels: a recurrent cell unrolled over three steps, and which positions attention sees.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from ...plotting import GREY, INK, colour, new_figure
from .parts import POST_NORM, PRE_NORM, Part

# Inches.
_LINE, _CHARACTER, _PADDING, _GAP, _SKIP = 0.17, 0.072, 0.12, 0.24, 0.22
_TITLE_CHARACTER = 0.115
_COLUMNS = ("encoder", "decoder")
_SUMMED = ("Embedding", "Position")  # what is added up where it stands side by side
_ROW = "row"
_FACES = (  # the first that is in the name of a part's class gives its colour
    ("Embedding", 1),
    ("Position", 1),
    ("Cell", 0),
    ("Score", 3),
    ("Attention", 3),
    ("Pooling", 3),
    ("Norm", 4),
    ("Linear", 2),
    ("Projection", 2),
)


@dataclass
class _Box:
    """A part with its place; `skips` are pairs of children around which a residual connection leads."""

    part: Part
    width: float
    height: float
    children: list[_Box] = field(default_factory=list)
    skips: list[tuple[int, int]] = field(default_factory=list)
    in_columns: bool = False


def draw_architecture(root: Part, title: str) -> Figure:
    """Boxes for all parts, inputs at the bottom; the class and the sizes of each."""
    box = _measure(root)
    panels = _panels(root)
    panel_width = 4.4 if panels else 0.0
    height = max(box.height + 1.0, 2.6 * len(panels) + 0.6)
    width = 0.6 + max(box.width + panel_width, len(title) * _TITLE_CHARACTER)
    figure, axis = new_figure(width, height)
    figure.set_layout_engine("none")
    axis.set_position([0, 0, 1, 1])
    axis.set(xlim=(0, width), ylim=(0, height))
    axis.axis("off")
    axis.text(0.3, height - 0.25, title, fontsize=12, color=INK, va="center", weight="bold")
    _draw(axis, box, 0.3, 0.3, is_root=True)
    for number, (draw, part) in enumerate(panels):
        draw(axis, part, box.width + 0.7, height - 0.7 - 2.6 * number)
    return figure


def _measure(part: Part) -> _Box:
    text = [_heading(part), *part.lines]
    width = max(len(line) for line in text) * _CHARACTER + 2 * _PADDING
    height = len(text) * _LINE + _PADDING
    children = [_measure_row(row) for row in _rows(part.parts)]
    if not children:
        return _Box(part, max(width, 1.3), height)
    in_columns = tuple(child.part.name for child in children) == _COLUMNS
    skips = _find_skips(part)
    if in_columns:
        inner_width = sum(child.width for child in children) + 0.9
        inner_height = max(child.height for child in children)
    else:
        inner_width = max(child.width for child in children) + (2 * _SKIP if skips else 0)
        inner_height = sum(child.height for child in children) + _GAP * (len(children) - 1)
    width = max(width, inner_width + 2 * _PADDING)
    return _Box(part, width, height + inner_height + 2 * _PADDING, children, skips, in_columns)


def _rows(parts: list[Part]) -> list[list[Part]]:
    """Parts that do not read one another stand side by side: embeddings, directions, projections."""
    if len(parts) > 2 and parts[0].name == "model":  # several heads read the same model
        return [parts[:1], parts[1:]]
    rows: list[list[Part]] = []
    for part in parts:
        if rows and _is_beside(rows[-1][-1], part):
            rows[-1].append(part)
        else:
            rows.append([part])
    return rows


def _is_beside(first: Part, second: Part) -> bool:
    if first.parts or second.parts:
        return False
    if all(any(word in each.kind for word in _SUMMED) for each in (first, second)):
        return True
    names = [each.name.rpartition("_") for each in (first, second)]
    return all(prefix for prefix, _, _ in names) and names[0][2] == names[1][2]


def _measure_row(row: list[Part]) -> _Box:
    if len(row) == 1:
        return _measure(row[0])
    children = [_measure(part) for part in row]
    width = sum(child.width for child in children) + _GAP * (len(row) - 1)
    return _Box(Part("", _ROW), width, max(child.height for child in children), children)


def _find_skips(part: Part) -> list[tuple[int, int]]:
    """First and last child of each residual connection: a sublayer and its norm, in the order that the class has."""
    kinds = [row[0].kind for row in _rows(part.parts)]
    skips = [(number - 1, number) for number, kind in enumerate(kinds) if kind == POST_NORM and number]
    return skips + [(number, number + 1) for number, kind in enumerate(kinds) if kind == PRE_NORM]


def _heading(part: Part) -> str:
    name = part.title
    if part.kind == POST_NORM:
        return "add & norm"
    if part.kind == PRE_NORM:
        return "norm"
    kind = "" if part.kind.lower() in (part.name.replace("_", ""), part.name) else f" · {part.kind}"
    notes = f"  ×{part.repeats}" if part.repeats > 1 else ""  # noqa: RUF001
    notes += "  at every step" if part.steps and not part.kind.endswith("Cell") else ""
    notes += "  look-ahead mask" if part.is_causal else ""
    return f"{name}{kind}{notes}" if name != part.kind else f"{name}{notes}"


def _draw(axis: Any, box: _Box, left: float, bottom: float, is_root: bool = False) -> None:
    part = box.part
    if part.kind == _ROW:
        for child in box.children:
            _draw(axis, child, left, bottom)
            left += child.width + _GAP
            if child is not box.children[-1] and any(word in child.part.kind for word in _SUMMED):
                axis.text(left - _GAP / 2, bottom + box.height / 2, "+", ha="center", va="center", fontsize=11)
        return
    face = next((colour(number) for name, number in _FACES if name in part.kind), GREY)
    is_leaf = not box.children
    shape = "round,pad=0,rounding_size=0.06"
    axis.add_patch(
        FancyBboxPatch(
            (left, bottom),
            box.width,
            box.height,
            boxstyle=shape,
            facecolor=face if is_leaf else "white" if is_root else face,
            alpha=0.28 if is_leaf else 1.0 if is_root else 0.08,
            edgecolor="none",
        )
    )
    axis.add_patch(
        FancyBboxPatch((left, bottom), box.width, box.height, boxstyle=shape, fill=False, edgecolor=face, linewidth=1)
    )
    top = bottom + box.height - _PADDING / 2 - _LINE / 2
    for number, line in enumerate([_heading(part), *part.lines]):
        size, weight = (8.5, "bold" if not is_leaf else "normal") if not number else (7.5, "normal")
        middle = left + box.width / 2
        axis.text(middle, top - number * _LINE, line, ha="center", va="center", fontsize=size, color=INK, weight=weight)
    if box.in_columns:
        _draw_columns(axis, box, left, bottom)
    elif box.children:
        _draw_stack(axis, box, left, bottom)


def _draw_columns(axis: Any, box: _Box, left: float, bottom: float) -> None:
    encoder, decoder = box.children
    start = left + (box.width - encoder.width - decoder.width - 0.9) / 2
    _draw(axis, encoder, start, bottom + _PADDING)
    second = start + encoder.width + 0.9
    _draw(axis, decoder, second, bottom + _PADDING)
    middle = bottom + _PADDING + encoder.height - 0.15
    level = min(middle, bottom + _PADDING + decoder.height - 0.15)
    _arrow(axis, (start + encoder.width, level), (second, level))


def _draw_stack(axis: Any, box: _Box, left: float, bottom: float) -> None:
    shift = _SKIP if box.skips else 0.0
    middle = left + box.width / 2
    level, edges = bottom + _PADDING, []
    for number, child in enumerate(box.children):
        _draw(axis, child, middle - child.width / 2, level)
        edges.append((level, level + child.height))
        level += child.height
        if number + 1 < len(box.children):
            _arrow(axis, (middle, level), (middle, level + _GAP))
        level += _GAP
    widest = max(child.width for child in box.children)
    for first, last in box.skips:  # the residual connection
        start, side = edges[first][0] - _GAP / 2, middle - widest / 2 - shift / 2
        end = edges[last][1] - 0.1 if box.children[last].part.kind == POST_NORM else edges[last][1] + _GAP / 2
        target = middle - box.children[last].width / 2 if box.children[last].part.kind == POST_NORM else middle
        axis.plot([middle, side, side], [start, start, end], color=INK, linewidth=1, solid_joinstyle="round")
        _arrow(axis, (side, end), (target, end))
        if target == middle:
            axis.text(middle, end, "+", ha="center", va="center", fontsize=10, color=INK)


def _arrow(axis: Any, start: tuple[float, float], end: tuple[float, float], curve: float = 0.0) -> None:
    style = f"arc3,rad={curve}"
    axis.add_patch(
        FancyArrowPatch(
            start, end, arrowstyle="-|>", mutation_scale=8, color=INK, linewidth=1, shrinkA=0, shrinkB=0,
            connectionstyle=style,
        )
    )  # fmt: skip


def _panels(root: Part) -> list[tuple[Any, Part]]:
    """What is drawn beside the boxes: the first recurrent cell, and each kind of mask."""
    cells = [part for part in root if part.kind.endswith("Cell")]
    found: list[tuple[Any, Part]] = [(_draw_cell, cells[0]), (_draw_unrolled, cells[0])] if cells else []
    attention = [part for part in root if part.kind in ("MultiHeadAttention", "RelativeAttention")]
    seen = set()
    for part in attention:
        if (part.name, part.is_causal) not in seen:
            seen.add((part.name, part.is_causal))
            found.append((_draw_mask, part))
    return found


def _draw_unrolled(axis: Any, part: Part, left: float, top: float) -> None:
    """The same cell at three steps."""
    axis.text(left, top, f"{part.kind} unrolled", fontsize=9, color=INK, weight="bold", va="center")
    for step in range(3):
        middle, base = left + 0.45 + 1.0 * step, top - 1.3
        name = "t" if step == 1 else "t-1" if not step else "t+1"
        _labelled(axis, middle, base, part.kind.removeprefix("Projected").removesuffix("Cell"), colour(0))
        _arrow(axis, (middle, base - 0.55), (middle, base - 0.2))
        _arrow(axis, (middle, base + 0.2), (middle, base + 0.55))
        axis.text(middle, base - 0.68, f"$x_{{{name}}}$", ha="center", va="center", fontsize=10)
        axis.text(middle, base + 0.7, f"$h_{{{name}}}$", ha="center", va="center", fontsize=10)
        if step < 2:
            _arrow(axis, (middle + 0.27, base), (middle + 0.73, base))
            state = r"$h, c$" if part.kind.endswith("LSTMCell") else "$h$"
            axis.text(middle + 0.5, base + 0.12, state, ha="center", va="center", fontsize=8)


def _draw_cell(axis: Any, part: Part, left: float, top: float) -> None:
    """The gates of a cell: what they read, and where they multiply."""
    draw = {"LSTMCell": _draw_lstm, "GRUCell": _draw_gru}.get(part.kind.removeprefix("Projected"), _draw_rnn)
    axis.text(left, top, part.kind, fontsize=9, color=INK, weight="bold", va="center")
    draw(axis, left + 0.5, top - 0.55, top - 1.35, top - 1.85)


def _draw_gates(axis: Any, left: float, base: float, inputs: float, gates: tuple[str, ...]) -> list[float]:
    """Layers side by side that all read x_t and h_{t-1}; where each stands."""
    places = [left + 0.2 + 0.68 * number for number in range(len(gates))]
    axis.text(left - 0.08, inputs, "$x_t,\\, h_{t-1}$", fontsize=9, va="center", ha="right")
    axis.plot([left, places[-1]], [inputs, inputs], color=INK, linewidth=1)
    for place, gate in zip(places, gates, strict=True):
        _labelled(axis, place, base, gate, colour(2 if gate == "tanh" else 3), width=0.29)
        _arrow(axis, (place, inputs), (place, base - 0.18))
    return places


def _operation(axis: Any, place: float, level: float, sign: str) -> None:
    axis.text(
        place, level, sign, ha="center", va="center", fontsize=10, color=INK,
        bbox={"boxstyle": "circle,pad=0.1", "facecolor": "white", "edgecolor": INK, "linewidth": 0.8},
    )  # fmt: skip


def _draw_lstm(axis: Any, left: float, line: float, base: float, inputs: float) -> None:
    """c_t = f_t * c_{t-1} + i_t * g_t and h_t = o_t * tanh(c_t)."""
    forget, enter, candidate, out = _draw_gates(axis, left, base, inputs, ("forget", "input", "tanh", "output"))
    axis.text(left - 0.08, line, "$c_{t-1}$", fontsize=9, va="center", ha="right")
    middle = (enter + candidate) / 2
    end = out + 0.75
    _arrow(axis, (left, line), (end, line))
    axis.text(end + 0.05, line, "$c_t$", fontsize=9, va="center")
    _arrow(axis, (forget, base + 0.18), (forget, line - 0.09))
    _operation(axis, forget, line, "×")  # noqa: RUF001
    for place in (enter, candidate):
        axis.plot([place, place, middle], [base + 0.18, base + 0.42, base + 0.42], color=INK, linewidth=1)
    _arrow(axis, (middle, base + 0.42), (middle, line - 0.09))
    _operation(axis, middle, base + 0.42, "×")  # noqa: RUF001
    _operation(axis, middle, line, "+")
    exit_place, hidden = out + 0.42, base
    _arrow(axis, (exit_place, line), (exit_place, hidden + 0.09))
    axis.text(exit_place + 0.05, (line + hidden) / 2, "tanh", fontsize=8, va="center")
    _arrow(axis, (out + 0.29, hidden), (exit_place - 0.09, hidden))
    _arrow(axis, (exit_place, hidden), (end, hidden))
    _operation(axis, exit_place, hidden, "×")  # noqa: RUF001
    axis.text(end + 0.05, hidden, "$h_t$", fontsize=9, va="center")


def _draw_gru(axis: Any, left: float, line: float, base: float, inputs: float) -> None:
    """h_t = z_t * h_{t-1} + (1 - z_t) * h~_t, where h~_t reads r_t * h_{t-1}."""
    reset, candidate, update = _draw_gates(axis, left, base, inputs, ("reset", "tanh", "update"))
    axis.text(left - 0.08, line, "$h_{t-1}$", fontsize=9, va="center", ha="right")
    end = update + 1.0
    _arrow(axis, (left, line), (end, line))
    axis.text(end + 0.05, line, "$h_t$", fontsize=9, va="center")
    _arrow(axis, (reset + 0.29, base), (candidate - 0.29, base))
    _arrow(axis, (update, base + 0.18), (update, line - 0.09))
    axis.text(update - 0.05, (line + base) / 2 + 0.1, "$z_t$", fontsize=9, va="center", ha="right")
    _operation(axis, update, line, "×")  # noqa: RUF001
    place, level = update + 0.55, base + 0.42
    axis.plot([candidate, candidate, place], [base + 0.18, level, level], color=INK, linewidth=1)
    _arrow(axis, (place, level), (place, line - 0.09))
    _operation(axis, place, level, "×")  # noqa: RUF001
    axis.text(place + 0.12, level, "$1 - z_t$", fontsize=8, va="center")
    _operation(axis, place, line, "+")


def _draw_rnn(axis: Any, left: float, line: float, base: float, inputs: float) -> None:
    """h_t = tanh(W x_t + U h_{t-1} + b)."""
    (place,) = _draw_gates(axis, left, base, inputs, ("tanh",))
    axis.plot([place, place], [base + 0.18, line], color=INK, linewidth=1)
    _arrow(axis, (place, line), (place + 0.8, line))
    axis.text(place + 0.85, line, "$h_t$", fontsize=9, va="center")


def _draw_mask(axis: Any, part: Part, left: float, top: float) -> None:
    """Queries by keys: coloured where a query sees a key."""
    kind = "look-ahead mask" if part.is_causal else "every real token is seen"
    axis.text(left, top, f"{part.title}: {kind}", fontsize=9, color=INK, weight="bold", va="center")
    size, count = 0.24, 6
    memory = 4 if part.kind == "RelativeAttention" else 0  # keys of the segment before
    keys = memory + count
    is_seen: np.ndarray = np.tri(count, keys, memory, bool) if part.is_causal else np.ones((count, keys), dtype=bool)
    for row, column in np.ndindex(count, keys):
        corner = (left + 0.5 + column * size, top - 0.5 - row * size)
        face = colour(1 if column < memory else 3) if is_seen[row, column] else "#EEEEEE"
        axis.add_patch(
            FancyBboxPatch(corner, size - 0.03, size - 0.03, boxstyle="square,pad=0", facecolor=face, edgecolor="none")
        )
    middle = top - 0.5 - (count - 2) * size / 2
    axis.text(left + 0.3, middle, "queries", rotation=90, fontsize=8, ha="center", va="center")
    below = top - 0.62 - (count - 1) * size
    for first, last, name in ((0, memory, "memory"), (memory, keys, "keys")):
        if last > first:
            axis.text(left + 0.5 + (first + last) * size / 2, below, name, fontsize=8, ha="center", va="center")


def _labelled(axis: Any, middle: float, level: float, label: str, face: str, width: float = 0.27) -> None:
    axis.add_patch(
        FancyBboxPatch(
            (middle - width, level - 0.18),
            2 * width,
            0.36,
            boxstyle="round,pad=0,rounding_size=0.06",
            facecolor=face,
            edgecolor="none",
        )
    )
    axis.text(middle, level, label, ha="center", va="center", color="white", fontsize=8)
