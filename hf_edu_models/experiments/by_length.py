"""Translation scores by sentence length for several runs, as in Bahdanau et al. 2015, arXiv:1409.0473, Figure 2."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

_SCORES = ("bleu", "chrf", "exact_match")
_UNITS = {"words": lambda text: len(text.split()), "characters": len}
_WIDTHS = (1, 2, 3, 5, 10, 20, 50, 100)
MAX_BUCKETS = 8

_Rows = list[dict[str, str]]


@dataclass(frozen=True)
class LengthScore:
    """The score of one run on the sentences of one length bucket.

    Args:
        low: Shortest source length of the bucket, in `unit`s.
        high: Longest source length; None for the last bucket.
        sentences: Number of sentences.
        interval_low: With `interval_high` the 95% confidence interval: sacrebleu's bootstrap for BLEU and chrF,
            Wilson's for exact match.
    """

    run: str
    score_name: str
    low: int
    high: int | None
    sentences: int
    mean_length: float
    score: float
    interval_low: float
    interval_high: float
    signature: str = ""


@dataclass(frozen=True)
class Predictions:
    """The predictions of a run: rows with `source`, `reference` and `prediction`."""

    run: str
    rows: _Rows
    lowercase: bool = False


def scores_by_length(
    runs: Sequence[Predictions],
    edges: Sequence[int] | None = None,
    score: str = "bleu",
    unit: str = "words",
    resamples: int = 1000,
) -> list[LengthScore]:
    """One entry for each run and non-empty bucket; all runs have the same buckets.

    Args:
        edges: Longest length of each bucket but the last, which is open; chosen from the lengths by default.
        unit: Unit of the source length: `words` (between spaces) or `characters`.
        resamples: Bootstrap samples of the confidence intervals.
    """
    if score not in _SCORES:
        raise ValueError(f"unknown score '{score}'; choose one of {', '.join(_SCORES)}")
    if unit not in _UNITS:
        raise ValueError(f"unknown unit '{unit}'; choose one of {', '.join(_UNITS)}")
    length = _UNITS[unit]
    edges = bucket_edges([length(row["source"]) for run in runs for row in run.rows], edges)
    scores = []
    for run in runs:
        buckets: list[_Rows] = [[] for _ in range(len(edges) + 1)]
        for row in run.rows:
            buckets[sum(length(row["source"]) > edge for edge in edges)].append(row)
        for rows, low, high in zip(buckets, [0, *edges], [*edges, None], strict=True):
            if rows:
                mean_length = sum(length(row["source"]) for row in rows) / len(rows)
                values = _score_rows(rows, score, run.lowercase, resamples)
                scores.append(LengthScore(run.run, score, low + 1, high, len(rows), mean_length, *values))
    return scores


def bucket_edges(lengths: Sequence[int], edges: Sequence[int] | None = None) -> list[int]:
    """The longest length of every bucket but the last: `edges`, or round numbers that make a few buckets."""
    if edges is not None:
        if list(edges) != sorted(set(edges)) or any(edge < 1 for edge in edges):
            raise ValueError(f"edges must be increasing lengths, as 10,20,30; got {list(edges)}")
        return list(edges)
    if not lengths:
        raise ValueError("there is no sentence to score")
    # The open last bucket takes the longest 5%, so that one long sentence does not set the width.
    common = sorted(lengths)[int(0.95 * (len(lengths) - 1))]
    width = next((width for width in _WIDTHS if common <= width * MAX_BUCKETS), _WIDTHS[-1])
    first = (min(lengths) - 1) // width * width + width
    return list(range(first, common, width))


def _score_rows(rows: _Rows, score: str, lowercase: bool, resamples: int) -> tuple[float, float, float, str]:
    """The score from 0 to 100, both ends of its 95% confidence interval, and its signature."""
    predictions, references = [row["prediction"] for row in rows], [row["reference"] for row in rows]
    if score == "exact_match":
        return _exact_match(predictions, references, lowercase)
    from sacrebleu.metrics import BLEU, CHRF

    metric = {"bleu": BLEU, "chrf": CHRF}[score](lowercase=lowercase)
    value = metric.corpus_score(predictions, [references]).score
    signature = str(metric.get_signature())  # before the bootstrap, which would become part of it
    bootstrap = metric.corpus_score(predictions, [references], n_bootstrap=resamples)
    low, high = max(0.0, bootstrap._mean - bootstrap._ci), min(100.0, bootstrap._mean + bootstrap._ci)
    return value, low, high, signature


def _exact_match(
    predictions: Sequence[str], references: Sequence[str], lowercase: bool
) -> tuple[float, float, float, str]:
    from scipy.stats import binomtest

    fold = str.lower if lowercase else str
    pairs = zip(predictions, references, strict=True)
    matches = sum(fold(prediction).strip() == fold(reference).strip() for prediction, reference in pairs)
    interval = binomtest(matches, len(predictions)).proportion_ci(method="wilson")
    return 100 * matches / len(predictions), 100 * interval.low, 100 * interval.high, ""


def predictions_of(
    run: str | os.PathLike,
    dataset: str | None = None,
    *,
    source: str | None = None,
    target: str | None = None,
    split: str = "test",
    rows: int | None = None,
    num_beams: int = 4,
    batch_size: int = 32,
    lowercase: bool | None = None,
) -> Predictions:
    """The saved predictions of a run; a checkpoint without them translates `dataset`.

    Args:
        run: A run's folder, or any translation checkpoint together with `dataset`.
        dataset: A corpus to translate, even if there are saved predictions.
        source, target: Columns of `dataset`, if it needs them.
        rows: Maximum number of sentences.
        lowercase: Whether to ignore case; by default as in the run's settings.
    """
    from ..run_folder import RESULTS, read_predictions, read_results

    folder = Path(run)
    results = read_results(folder) if (folder / RESULTS).is_file() else {}
    if lowercase is None:
        lowercase = bool(results.get("settings", {}).get("lowercase", False))
    saved = [] if dataset else read_predictions(folder)
    if saved:
        _check_columns(saved, folder)
        return Predictions(folder.name, saved[:rows], lowercase)
    if dataset is None:
        data = results.get("data", {})
        dataset, source, target = data.get("name"), data.get("source"), data.get("target")
    if dataset is None:
        raise ValueError(f"{run} has no predictions and no corpus to translate; add --dataset")
    pairs = _load_pairs(dataset, source, target, split, rows)
    translations = translate_all(str(run), [pair["source"] for pair in pairs], num_beams, batch_size)
    predictions = [
        {"source": pair["source"], "reference": pair["target"], "prediction": text}
        for pair, text in zip(pairs, translations, strict=True)
    ]
    return Predictions(folder.name, predictions, lowercase)


def _check_columns(rows: _Rows, folder: Path) -> None:
    missing = [name for name in ("source", "reference", "prediction") if name not in rows[0]]
    if missing:
        raise ValueError(
            f"the predictions in {folder} have no {missing[0]!r}, so they are not translations; "
            "give runs of the seq2seq, bahdanau or transformer rung"
        )


def _load_pairs(name: str, source: str | None, target: str | None, split: str, rows: int | None) -> _Rows:
    from ..data import load_corpus

    corpus = load_corpus(name, **({"source": source, "target": target} if source or target else {}))
    if split not in corpus:
        raise ValueError(f"{name} has no split {split!r}; it has {', '.join(corpus)}")
    data = corpus[split]
    if not {"source", "target"} <= set(data.column_names):
        raise ValueError(
            f"{name} has the columns {', '.join(data.column_names)}, no source and target; give a translation corpus"
        )
    return list(data.select(range(min(rows or len(data), len(data)))))


def translate_all(model_name: str, sources: Sequence[str], num_beams: int = 4, batch_size: int = 32) -> list[str]:
    """Translations in the order of `sources`."""
    from transformers.utils import logging

    from ..generation import GenerationOptions, generate_lines, load_text_writer

    options = GenerationOptions(batch_size=batch_size, num_beams=num_beams)
    writer = load_text_writer(model_name, options, only_translation=True)
    description = f"translate with {Path(model_name).name}"
    outputs = logging.tqdm(generate_lines(writer, sources, options), desc=description, total=len(sources))
    return [texts[0].strip() for _, texts in outputs]
