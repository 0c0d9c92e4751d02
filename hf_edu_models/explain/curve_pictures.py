"""Pictures of the papers' curves: ours in colour, what the papers published in grey and in a panel of its own."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from .curves import LengthScore
from .figure_style import PUBLISHED as GREY
from .figure_style import colour, marker, new_figure, note
from .published import PublishedTable

SCORE_LABELS = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "exact_match": "exact match (%)",
    "perplexity": "perplexity",
    "mlm_loss": "masked words: loss",
    "mlm_accuracy": "masked words: accuracy (%)",
    "downstream_accuracy": "after fine-tuning: accuracy (%)",
}
LOWER_IS_BETTER = ("perplexity", "mlm_loss")
SHADES = ("#8A8A8A", "#BDBDBD", "#5C5C5C", "#D9D9D9", "#3B3B3B")


def draw_by_length(scores: Sequence[LengthScore], published: PublishedTable, unit: str = "words") -> Figure:
    """One line a run with its 95% interval, the number of sentences below, the published scores beside."""
    ratios = {"width_ratios": [2.4, 1], "height_ratios": [3.4, 1]}
    figure, axes = new_figure(11.5, 5.4, rows=2, columns=2, **ratios)
    (curve, beside), (counts, words) = axes
    runs = list(dict.fromkeys(score.run for score in scores))
    buckets = sorted({(score.low, score.high) for score in scores}, key=lambda bucket: bucket[0])
    places = {bucket: place for place, bucket in enumerate(buckets)}
    for number, run in enumerate(runs):
        own = sorted((score for score in scores if score.run == run), key=lambda score: score.low)
        at = [places[score.low, score.high] for score in own]
        _curve(curve, at, own, number, run)
        shift = (number - (len(runs) - 1) / 2) * 0.8 / len(runs)
        sentences = [score.sentences for score in own]
        counts.bar([place + shift for place in at], sentences, 0.8 / len(runs), color=colour(number))
    labels = [f"{low}+" if high is None else _span(low, high) for low, high in buckets]
    curve.set_xticks(range(len(buckets)), labels)
    counts.set_xticks(range(len(buckets)), labels)
    curve.set_ylim(bottom=0)
    curve.set_ylabel(SCORE_LABELS[scores[0].score_name])
    curve.set_title("Ours: score by length of the source")
    curve.legend(frameon=False, fontsize=9)
    counts.set_ylabel("sentences")
    counts.set_xlabel(f"length of the source ({unit})")
    draw_published(beside, published, published.metrics[0])
    _words_beside(words, published)
    signature = scores[0].signature
    interval = "bootstrap" if signature else "Wilson"
    note(figure, f"Bands: 95% intervals ({interval})." + (f" sacreBLEU {signature}" if signature else ""))
    return figure


def draw_sweep(
    title: str, rows: Sequence[Mapping[str, Any]], scores: Sequence[str], published: PublishedTable, about: str
) -> Figure:
    """A panel for each of our scores, a point for each seed and a bar for their mean; then the published table's.

    Args:
        rows: One for each variant and seed, as `sweep` returns them.
        about: The small print: data, sizes, seeds.
    """
    scores = [score for score in scores if any(score in row for row in rows)]
    shown = published.metrics if len(published.metrics) <= 2 else (published.metrics,)
    columns = len(scores) + len(shown)
    figure, axes = new_figure(max(9.0, 3.3 * columns), 4.6, columns=columns)
    for axis, score in zip(axes, scores, strict=False):
        _draw_variants(axis, rows, score)
    for axis, metric in zip(axes[len(scores) :], shown, strict=True):
        if isinstance(metric, str):
            draw_published(axis, published, metric)
        else:
            _draw_published_groups(axis, published)
    figure.suptitle(title, fontsize=12)
    note(figure, "\n".join(textwrap.wrap(f"Ours: {about} Published: {published.source}, {published.data}.", 150)))
    return figure


def draw_published(axis: Any, published: PublishedTable, metric: str) -> None:
    """Bars in grey with their numbers, so that nobody takes them for ours."""
    values = [numbers[published.metrics.index(metric)] for numbers in published.rows.values()]
    places = np.arange(len(values))
    axis.bar(places, values, 0.6, color=GREY, hatch="//", edgecolor="white")
    _write_values(axis, places, values)
    _name_places(axis, places, list(published.rows))
    _frame(axis, values)
    axis.set_ylabel(metric)
    axis.set_title("Published (other data)")


def _draw_published_groups(axis: Any, published: PublishedTable) -> None:
    """Several tasks: a group for each, a shade of grey for each system."""
    places, systems = np.arange(len(published.metrics)), list(published.rows.items())
    width = 0.8 / len(systems)
    for number, (system, values) in enumerate(systems):
        at = places + (number - (len(systems) - 1) / 2) * width
        axis.bar(
            at, values, width, color=SHADES[number], hatch=("//", "", "..")[number % 3], edgecolor="white", label=system
        )
    _name_places(axis, places, list(published.metrics))
    _frame(axis, [value for _, values in systems for value in values])
    axis.set_ylim(top=axis.get_ylim()[1] + 0.3 * np.diff(axis.get_ylim())[0])  # room for the legend
    axis.legend(frameon=False, fontsize=7.5, loc="upper left")
    axis.set_ylabel("score")
    axis.set_title("Published (other data)")


def _draw_variants(axis: Any, rows: Sequence[Mapping[str, Any]], score: str) -> None:
    variants = list(dict.fromkeys(row["variant"] for row in rows))
    found = [[row[score] for row in rows if row["variant"] == variant and score in row] for variant in variants]
    means = [np.mean(values) if values else np.nan for values in found]
    places = np.arange(len(variants))
    axis.bar(places, means, 0.6, color=[colour(number) for number in range(len(variants))], alpha=0.85)
    for place, values in zip(places, found, strict=True):
        if len(values) > 1:
            axis.plot([place] * len(values), values, "o", color="#222222", markersize=4, alpha=0.7)
    _write_values(axis, places, means, [max(values, default=np.nan) for values in found])
    _name_places(axis, places, variants)
    _frame(axis, [value for values in found for value in values])
    axis.set_ylabel(SCORE_LABELS.get(score, score) + (", lower is better" if score in LOWER_IS_BETTER else ""))
    axis.set_title("Ours")


def _curve(axis: Any, at: list[int], own: list[LengthScore], number: int, run: str) -> None:
    lows, highs = [score.interval_low for score in own], [score.interval_high for score in own]
    axis.fill_between(at, lows, highs, color=colour(number), alpha=0.18, linewidth=0)
    line = {"color": colour(number), "marker": marker(number), "lw": 2, "label": run}
    axis.plot(at, [score.score for score in own], **line)


def _words_beside(axis: Any, published: PublishedTable) -> None:
    axis.set_axis_off()
    lines = [f"{published.source}: {published.data}.", published.note]
    text = "\n".join(part for line in lines for part in textwrap.wrap(line, 46))
    axis.text(0, 1, text, va="top", fontsize=8.5, transform=axis.transAxes)


def _span(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}-{high}"


def _write_values(axis: Any, places: Any, values: Sequence[float], tops: Sequence[float] | None = None) -> None:
    for place, value, top in zip(places, values, tops or values, strict=True):
        if np.isfinite(value):
            label = f"{value:.1f}" if value >= 10 else f"{value:.2f}"
            axis.annotate(label, (place, top), (0, 4), textcoords="offset points", ha="center", fontsize=8.5)


def _name_places(axis: Any, places: Any, names: Sequence[str]) -> None:
    long = max(len(name) for name in names) > 8 or len(names) > 4
    turn = {"rotation": 30, "ha": "right"} if long else {}
    axis.set_xticks(places, names, fontsize=8.5, **turn)
    axis.grid(False, axis="x")


def _frame(axis: Any, values: Sequence[float]) -> None:
    """Bars start at zero, with room for their numbers."""
    values = [value for value in values if np.isfinite(value)]
    axis.set_ylim(0, 1.12 * max(values, default=1.0) or 1.0)
