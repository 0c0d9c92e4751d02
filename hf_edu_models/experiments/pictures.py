"""Figures beside published results: ours in colour, the published ones in grey and in panels of their own."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ..plotting import GREY, INK, add_caption, colour, marker, new_figure
from .by_length import LengthScore
from .long_time_lags import CELLS, LAG_TASKS, LagTask
from .published import PUBLISHED, PublishedTable

_SCORE_LABELS = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "exact_match": "exact match (%)",
    "perplexity": "perplexity",
    "seconds": "seconds of training",
    "mlm_loss": "MLM loss",
    "mlm_accuracy": "MLM accuracy (%)",
    "downstream_accuracy": "accuracy after fine-tuning (%)",
}
_LOWER_IS_BETTER = ("perplexity", "mlm_loss", "seconds")


def draw_by_length(scores: Sequence[LengthScore], published: PublishedTable, unit: str = "words") -> Figure:
    """One line for each run with its 95% interval, sentence counts below, published scores beside."""
    ratios = {"width_ratios": [2.4, 1], "height_ratios": [3.4, 1]}
    figure, axes = new_figure(11.5, 5.6, rows=2, columns=2, **ratios)
    (curve, beside), (counts, caption) = axes
    runs = list(dict.fromkeys(score.run for score in scores))
    buckets = sorted({(score.low, score.high) for score in scores}, key=lambda bucket: bucket[0])
    bucket_index = {bucket: index for index, bucket in enumerate(buckets)}
    for number, run in enumerate(runs):
        own = sorted((score for score in scores if score.run == run), key=lambda score: score.low)
        x = [bucket_index[score.low, score.high] for score in own]
        _draw_curve(curve, x, own, number)
        shift = (number - (len(runs) - 1) / 2) * 0.8 / len(runs)
        counts.bar(np.array(x) + shift, [score.sentences for score in own], 0.8 / len(runs), color=colour(number))
    labels = [f"{low}+" if high is None else f"{low}-{high}" if low < high else str(low) for low, high in buckets]
    for axis in (curve, counts):
        axis.set_xticks(range(len(buckets)), labels)
        axis.set_xlim(-0.6, len(buckets) - 0.4)
    curve.set_ylim(bottom=0)
    curve.set_ylabel(_SCORE_LABELS[scores[0].score_name])
    curve.set_title("Ours: score by source length")
    curve.legend(frameon=False, fontsize=9)
    counts.set_ylabel("sentences")
    counts.set_xlabel(f"source length ({unit})")
    _draw_published(beside, published, published.metrics[0])
    _write_caption(caption, published)
    signature = scores[0].signature
    interval = "bootstrap" if signature else "Wilson"
    suffix = f" sacreBLEU {signature}" if signature else ""
    add_caption(figure, f"Bands: 95% confidence intervals ({interval}).{suffix}")
    return figure


def draw_sweep(
    title: str, rows: Sequence[Mapping[str, Any]], scores: Sequence[str], published: PublishedTable, about: str
) -> Figure:
    """A panel for each of our scores, with a bar for the mean over seeds and a point for each seed; then the published.

    Args:
        rows: One for each variant and seed, the result of `sweep`.
        about: The caption: data, sizes, seeds.
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
            _draw_published(axis, published, metric)
        else:
            _write_published(axis, published)
    figure.suptitle(title, fontsize=12)
    caption = f"Ours: {about} Published: {published.source}, {published.data}."
    add_caption(figure, textwrap.fill(caption, int(15 * figure.get_figwidth())))
    return figure


def _draw_published(axis: Any, published: PublishedTable, metric: str) -> None:
    """Grey bars with their numbers, to be told from ours."""
    values = [numbers[published.metrics.index(metric)] for numbers in published.rows.values()]
    # With the decimals that the paper prints.
    decimals = max(len(str(value).partition(".")[2]) for value in values)
    axis.bar(range(len(values)), values, 0.6, color=GREY, hatch="//", edgecolor="white")
    _label_bars(axis, list(published.rows), [f"{value:.{decimals}f}" for value in values], values)
    axis.set_ylabel(metric)
    axis.set_title("Published (other data)")


def _write_published(axis: Any, published: PublishedTable) -> None:
    """Many tasks: the table itself, because bars of similar numbers look alike."""
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
    values = [[row[score] for row in rows if row["variant"] == variant and score in row] for variant in variants]
    means = [np.mean(each) if each else np.nan for each in values]
    axis.bar(range(len(variants)), means, 0.6, color=[colour(number) for number in range(len(variants))], alpha=0.85)
    for x, each in enumerate(values):
        if len(each) > 1:
            axis.plot([x] * len(each), each, "o", color=INK, markersize=4, alpha=0.7)
    labels = [f"{mean:.1f}" if mean >= 10 else f"{mean:.2f}" for mean in means]
    _label_bars(axis, variants, labels, [max(each, default=np.nan) for each in values])
    axis.set_ylabel(_SCORE_LABELS.get(score, score) + (", lower is better" if score in _LOWER_IS_BETTER else ""))
    axis.set_title("Ours")


def _draw_curve(axis: Any, x: list[int], scores: list[LengthScore], number: int) -> None:
    lows, highs = [score.interval_low for score in scores], [score.interval_high for score in scores]
    axis.fill_between(x, lows, highs, color=colour(number), alpha=0.18, linewidth=0)
    line = {"color": colour(number), "marker": marker(number), "lw": 2, "label": scores[0].run}
    axis.plot(x, [score.score for score in scores], **line)


def _write_caption(axis: Any, published: PublishedTable) -> None:
    axis.set_axis_off()
    lines = [f"{published.source}: {published.data}.", published.note]
    text = "\n".join(part for line in lines for part in textwrap.wrap(line, 46))
    axis.text(0, 1, text, va="top", fontsize=8.5, transform=axis.transAxes)


def _label_bars(axis: Any, names: Sequence[str], labels: Sequence[str], tops: Sequence[float]) -> None:
    """Names below the bars, numbers above them; the axis starts at zero."""
    for x, (label, top) in enumerate(zip(labels, tops, strict=True)):
        if np.isfinite(top):
            axis.annotate(label, (x, top), (0, 4), textcoords="offset points", ha="center", fontsize=8.5)
    wrapped = [textwrap.fill(name, 11, break_long_words=False, break_on_hyphens=False) for name in names]
    is_crowded = len(names) * max(len(line) for name in wrapped for line in name.splitlines()) > 36
    rotation = {"rotation": 30, "ha": "right"} if is_crowded else {}
    axis.set_xticks(range(len(names)), names if is_crowded else wrapped, fontsize=8.5, **rotation)
    axis.grid(False, axis="x")
    axis.set_ylim(0, 1.12 * max((top for top in tops if np.isfinite(top)), default=1.0) or 1.0)


def draw_long_time_lags(rows: Sequence[dict[str, Any]]) -> Figure:
    """Success rate and sequences needed by task and cell; the paper's numbers of sequences in grey."""
    names = list(dict.fromkeys(row["task"] for row in rows))
    cells = [cell for cell in CELLS if any(row["cell"] == cell for row in rows)]
    published = PUBLISHED["long-time-lags"]
    figure, (left, right) = new_figure(12, 1.6 + 0.62 * len(names), columns=2, sharey=True, width_ratios=[1, 1.4])
    height = 0.8 / len(cells)
    for number, cell in enumerate(cells):
        for place, name in enumerate(names):
            trials = [row for row in rows if row["task"] == name and row["cell"] == cell]
            solved = [row["sequences"] for row in trials if row["success"]]
            y = place + (number - (len(cells) - 1) / 2) * height
            label = {"label": cell} if place == 0 else {}
            left.barh(y, 100 * len(solved) / max(len(trials), 1), 0.9 * height, color=colour(number), **label)
            left.text(101, y, f"{len(solved)}/{len(trials)}", va="center", fontsize=7.5, color=INK)
            if solved:
                right.plot(solved, [y] * len(solved), "o", color=colour(number), markersize=5, alpha=0.8)
            else:
                most = max(row["sequences"] for row in trials)
                right.text(1.12 * most, y, f"> {most:,}", va="center", fontsize=7.5, color=colour(number))
    for place, name in enumerate(names):
        if name in published.rows:
            needed = published.rows[name][0]
            right.plot([needed] * 2, [place - 0.45, place + 0.45], color=GREY, linewidth=2)
            right.text(needed * 1.06, place - 0.44, f"{needed:,.0f}", fontsize=7, color=GREY, va="center")
    left.set(xlim=(0, 115), xlabel="successful trials, %", yticks=range(len(names)), yticklabels=names)
    left.legend(frameon=False, fontsize=9, loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(cells))
    left.invert_yaxis()
    right.set_xscale("log")
    right.set_xlabel("sequences until success: each trial a point")
    right.set_title(f"grey: {published.source}", fontsize=9, color=GREY)
    noisy = LAG_TASKS["two sequences, noise"].wrong_at_most
    success = (
        f"Success: at most {LagTask.wrong_at_most} of the last 2,000 sequences wrong (two sequences, noise: {noisy})."
    )
    add_caption(figure, f"{success}\n{published.note}")
    return figure
