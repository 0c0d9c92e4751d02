"""Alignments as matrices: how much each target word looks at each source word, what was linked, what is right."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .alignment import Alignment
from .figure_style import COLOURS, INK, new_figure

LINK, SURE, POSSIBLE = COLOURS[1], COLOURS[0], COLOURS[5]
MOST_PANELS = 6


def draw_alignments(alignments: Sequence[Alignment], gold: Sequence[dict[str, Any]] | None = None) -> Any:
    """A figure with a panel for each sentence pair, six at most.

    Args:
        gold: rows with `sure` and `possible` links, to be drawn around the fields that they name.
    """
    if not 1 <= len(alignments) <= MOST_PANELS:
        raise ValueError(f"one figure holds 1 to {MOST_PANELS} sentence pairs, got {len(alignments)}; choose some")
    widths = [panel_width(pair) for pair in alignments]
    height = 1.9 + 0.3 * max(len(pair.target) for pair in alignments)
    figure, axes = new_figure(max(sum(widths), 4.5), height, columns=len(alignments), width_ratios=widths)
    axes = [axes] if len(alignments) == 1 else list(axes)
    for number, (axis, alignment) in enumerate(zip(axes, alignments, strict=True)):
        image = draw_panel(axis, alignment, gold[number] if gold is not None else None)
    figure.colorbar(image, ax=axes, label="attention", shrink=0.7, pad=0.02, panchor=False)
    handles = {}
    for axis in axes:
        handles |= dict(zip(*axis.get_legend_handles_labels()[::-1], strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower left", ncols=3, frameon=False, fontsize=9)
    return figure


def panel_width(alignment: Alignment) -> float:
    return 1.2 + 0.36 * max(len(alignment.source), 2)


def how_many_fit(alignments: Sequence[Alignment], inches: float = 24) -> int:
    """How many of the first alignments fit beside each other; one always does."""
    widths = [panel_width(each) for each in alignments[:MOST_PANELS]]
    return max(1, sum(sum(widths[: number + 1]) <= inches for number in range(len(widths))))


def draw_panel(axis: Any, alignment: Alignment, gold: dict[str, Any] | None) -> Any:
    axis.grid(False)
    shape = (-0.5, max(len(alignment.source), 1) - 0.5, max(len(alignment.target), 1) - 0.5, -0.5)
    weights = alignment.weights if alignment.weights.size else [[0.0]]
    image = axis.imshow(weights, cmap="Greys", vmin=0, vmax=1, aspect="equal", extent=shape)
    axis.set_anchor("N")
    axis.xaxis.tick_top()
    axis.set_xticks(range(len(alignment.source)), plain(alignment.source), rotation=90)
    axis.set_yticks(range(len(alignment.target)), plain(alignment.target))
    axis.spines[:].set_visible(False)
    axis.tick_params(length=0)
    if gold is not None:
        sure = {tuple(link) for link in gold["sure"]}
        possible = {tuple(link) for link in gold["possible"]} - sure
        mark(axis, sure, "gold, sure", marker="s", s=190, facecolors="none", edgecolors=SURE, linewidths=2)
        # A broken line as well as another colour: sure and possible differ in print too.
        dashes = {"facecolors": "none", "edgecolors": POSSIBLE, "linewidths": 1.6, "linestyles": "dashed"}
        mark(axis, possible, "gold, possible", marker="s", s=190, **dashes)
    mark(axis, alignment.links, "linked by attention", marker="o", s=45, c=LINK, edgecolors="white", linewidths=0.8)
    return image


def mark(axis: Any, links: Any, label: str, **look: Any) -> None:
    if links:
        columns, rows = zip(*sorted(links), strict=True)
        axis.scatter(columns, rows, label=label, zorder=3, **look)


def plain(words: Sequence[str]) -> list[str]:
    """Words as labels: matplotlib would read what stands between two dollar signs as a formula."""
    return [word.replace("$", r"\$") for word in words]


def draw_layers(scores: Sequence[Any], diagonal: float | None = None) -> Any:
    """Alignment error rate by layer, in both readings.

    Args:
        scores: what `best_layer` returns.
        diagonal: the error rate of the diagonal, as a line to be below.
    """
    figure, axis = new_figure(5, 3.4)
    for number, (shift, label) in enumerate(((False, "where the word is said"), (True, "where the word is read"))):
        chosen = sorted((score.layer, score.aer) for score in scores if score.shift == shift)
        layers, rates = zip(*chosen, strict=True)
        axis.plot(layers, rates, color=COLOURS[number], marker="os"[number], label=label)
    if diagonal is not None:
        axis.axhline(diagonal, color=INK, linestyle=":", label="the diagonal")
    axis.set(xlabel="layer of the decoder", ylabel="alignment error rate", ylim=(0, 1), xticks=layers)
    axis.legend(frameon=False, fontsize=9)
    return figure
