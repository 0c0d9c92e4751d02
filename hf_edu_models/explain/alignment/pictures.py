"""Alignments as matrices: attention weights, links and gold links of sentence pairs; error rates by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...plotting import COLOURS, INK, escape_dollars, new_figure
from .word_alignment import Alignment, LayerScore

_LINK, _SURE, _POSSIBLE = COLOURS[1], COLOURS[0], COLOURS[5]
_MAX_PANELS = 6


def draw_alignments(alignments: Sequence[Alignment], gold: Sequence[dict[str, Any]] | None = None) -> Any:
    """A figure with one panel for each sentence pair, at most six.

    Args:
        gold: Rows with `sure` and `possible` links, drawn as frames.
    """
    if not 1 <= len(alignments) <= _MAX_PANELS:
        raise ValueError(f"one figure holds 1 to {_MAX_PANELS} sentence pairs, got {len(alignments)}; choose some")
    widths = [_panel_width(pair) for pair in alignments]
    height = 1.9 + 0.3 * max(len(pair.target) for pair in alignments)
    figure, axes = new_figure(max(sum(widths), 4.5), height, columns=len(alignments), width_ratios=widths)
    axes = [axes] if len(alignments) == 1 else list(axes)
    for number, (axis, alignment) in enumerate(zip(axes, alignments, strict=True)):
        image = _draw_panel(axis, alignment, gold[number] if gold is not None else None)
    figure.colorbar(image, ax=axes, label="attention weight", shrink=0.7, pad=0.02, panchor=False)
    handles: dict[str, Any] = {}
    for axis in axes:
        handles |= dict(zip(*axis.get_legend_handles_labels()[::-1], strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower left", ncols=3, frameon=False, fontsize=9)
    return figure


def _panel_width(alignment: Alignment) -> float:
    return 1.2 + 0.36 * max(len(alignment.source), 2)


def max_panels(alignments: Sequence[Alignment], inches: float = 24) -> int:
    """How many of the first alignments fit beside each other; at least one."""
    widths = [_panel_width(each) for each in alignments[:_MAX_PANELS]]
    return max(1, sum(sum(widths[: number + 1]) <= inches for number in range(len(widths))))


def _draw_panel(axis: Any, alignment: Alignment, gold: dict[str, Any] | None) -> Any:
    axis.grid(False)
    extent = (-0.5, max(len(alignment.source), 1) - 0.5, max(len(alignment.target), 1) - 0.5, -0.5)
    weights = alignment.weights if alignment.weights.size else [[0.0]]
    image = axis.imshow(weights, cmap="Greys", vmin=0, vmax=1, aspect="equal", extent=extent)
    axis.set_anchor("N")
    axis.xaxis.tick_top()
    axis.set_xticks(range(len(alignment.source)), escape_dollars(alignment.source), rotation=90)
    axis.set_yticks(range(len(alignment.target)), escape_dollars(alignment.target))
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    if gold is not None:
        sure = {tuple(link) for link in gold["sure"]}
        possible = {tuple(link) for link in gold["possible"]} - sure
        frame = {"marker": "s", "s": 190, "facecolors": "none"}
        _mark(axis, sure, "gold, sure", edgecolors=_SURE, linewidths=2, **frame)
        # Dashed as well as another colour: sure and possible differ in print too.
        _mark(axis, possible, "gold, possible", edgecolors=_POSSIBLE, linewidths=1.6, linestyles="dashed", **frame)
    _mark(axis, alignment.links, "linked by attention", marker="o", s=45, c=_LINK, edgecolors="white", linewidths=0.8)
    return image


def _mark(axis: Any, links: Any, label: str, **style: Any) -> None:
    if links:
        columns, rows = zip(*sorted(links), strict=True)
        axis.scatter(columns, rows, label=label, zorder=3, **style)


def draw_layers(scores: Sequence[LayerScore], diagonal: float | None = None) -> Any:
    """Alignment error rate by layer, with the target word as the decoder's output and as its input.

    Args:
        scores: The result of `best_layer`.
        diagonal: The error rate of `diagonal_links`, drawn as a baseline.
    """
    figure, axis = new_figure(5, 3.4)
    for number, (shift, label) in enumerate(((False, "target word as output"), (True, "target word as input"))):
        layers, rates = zip(*sorted((score.layer, score.aer) for score in scores if score.shift == shift), strict=True)
        axis.plot(layers, rates, color=COLOURS[number], marker="os"[number], label=label)
    if diagonal is not None:
        axis.axhline(diagonal, color=INK, linestyle=":", label="diagonal (baseline)")
    axis.set(xlabel="decoder layer", ylabel="alignment error rate", ylim=(0, 1), xticks=layers)
    axis.legend(frameon=False, fontsize=9)
    return figure
