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


def draw_by_length(scores: Sequence[LengthScore], published: PublishedTable, unit: str = "words") -> Figure:
    """One line a run with its 95% interval, the number of sentences below, the published scores beside."""
    ratios = {"width_ratios": [2.4, 1], "height_ratios": [3.4, 1]}
    figure, axes = new_figure(11.5, 5.6, rows=2, columns=2, **ratios)
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
    for axis in (curve, counts):
        axis.set_xlim(-0.6, len(buckets) - 0.4)
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
    widths = [1.0] * len(scores) + [1.0 if isinstance(metric, str) else 2.2 for metric in shown]
    figure, axes = new_figure(max(9.0, 3.1 * sum(widths)), 4.6, columns=columns, width_ratios=widths)
    for axis, score in zip(axes, scores, strict=False):
        _draw_variants(axis, rows, score)
    for axis, metric in zip(axes[len(scores) :], shown, strict=True):
        if isinstance(metric, str):
            draw_published(axis, published, metric)
        else:
            _write_published(axis, published)
    figure.suptitle(title, fontsize=12)
    print_below = f"Ours: {about} Published: {published.source}, {published.data}."
    note(figure, textwrap.fill(print_below, int(15 * figure.get_figwidth())))
    return figure


def draw_published(axis: Any, published: PublishedTable, metric: str) -> None:
    """Bars in grey with their numbers, so that nobody takes them for ours."""
    values = [numbers[published.metrics.index(metric)] for numbers in published.rows.values()]
    places = np.arange(len(values))
    axis.bar(places, values, 0.6, color=GREY, hatch="//", edgecolor="white")
    _write_values(axis, places, _as_printed(values), values)
    _name_places(axis, places, list(published.rows))
    _frame(axis, values)
    axis.set_ylabel(metric)
    axis.set_title("Published (other data)")


def _write_published(axis: Any, published: PublishedTable) -> None:
    """Many tasks: the table itself, because bars of such near numbers would all look alike."""
    axis.set_axis_off()
    axis.set_title("Published (other data)")
    table = axis.table(
        cellText=[[f"{number:.1f}" for number in numbers] for numbers in published.rows.values()],
        rowLabels=[textwrap.fill(system, 14) for system in published.rows],
        colLabels=published.metrics,
        loc="center",
        cellLoc="center",
        bbox=[0.34, 0.3, 0.66, 0.45],
    )
    table.auto_set_font_size(False)
    table.set_fontsize(8.5)
    for cell in table.get_celld().values():
        cell.set_edgecolor(GREY)


def _draw_variants(axis: Any, rows: Sequence[Mapping[str, Any]], score: str) -> None:
    variants = list(dict.fromkeys(row["variant"] for row in rows))
    found = [[row[score] for row in rows if row["variant"] == variant and score in row] for variant in variants]
    means = [np.mean(values) if values else np.nan for values in found]
    places = np.arange(len(variants))
    axis.bar(places, means, 0.6, color=[colour(number) for number in range(len(variants))], alpha=0.85)
    for place, values in zip(places, found, strict=True):
        if len(values) > 1:
            axis.plot([place] * len(values), values, "o", color="#222222", markersize=4, alpha=0.7)
    labels = [f"{mean:.1f}" if mean >= 10 else f"{mean:.2f}" for mean in means]
    _write_values(axis, places, labels, [max(values, default=np.nan) for values in found])
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


def _write_values(axis: Any, places: Any, labels: Sequence[str], tops: Sequence[float]) -> None:
    for place, label, top in zip(places, labels, tops, strict=True):
        if np.isfinite(top):
            axis.annotate(label, (place, top), (0, 4), textcoords="offset points", ha="center", fontsize=8.5)


def _as_printed(values: Sequence[float]) -> list[str]:
    """Published numbers with the decimals of their column, no more and no fewer."""
    decimals = max(len(str(value).partition(".")[2]) for value in values)
    return [f"{value:.{decimals}f}" for value in values]


def _name_places(axis: Any, places: Any, names: Sequence[str]) -> None:
    folded = [textwrap.fill(name, 11, break_long_words=False, break_on_hyphens=False) for name in names]
    is_crowded = len(names) * max(len(line) for name in folded for line in name.splitlines()) > 36
    turn = {"rotation": 30, "ha": "right"} if is_crowded else {}
    axis.set_xticks(places, names if is_crowded else folded, fontsize=8.5, **turn)
    axis.grid(False, axis="x")


def _frame(axis: Any, values: Sequence[float]) -> None:
    """Bars start at zero, with room for their numbers."""
    values = [value for value in values if np.isfinite(value)]
    axis.set_ylim(0, 1.12 * max(values, default=1.0) or 1.0)
