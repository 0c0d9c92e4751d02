"""Score against sentence length for several checkpoints, as in Bahdanau et al. 2015, arXiv:1409.0473, Figure 2."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SCORES = ("bleu", "chrf", "exact_match")
UNITS = {"words": lambda text: len(text.split()), "characters": len}
WIDTHS = (1, 2, 3, 5, 10, 20, 50, 100)
MOST_BUCKETS = 8


@dataclass(frozen=True)
class LengthScore:
    """The score of one run's sentences of like length.

    Args:
        low: Shortest source length counted, in `unit`s.
        high: Longest; None for "and longer".
        sentences: How many there are.
        interval_low: The score's 95% interval: for BLEU and chrF by sacrebleu's bootstrap, for exact match Wilson's.
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
    """What a run said, what was right, and how it wants to be scored."""

    run: str
    rows: list[dict[str, str]]
    lowercase: bool = False


def scores_by_length(
    runs: Sequence[Predictions],
    edges: Sequence[int] | None = None,
    score: str = "bleu",
    unit: str = "words",
    resamples: int = 1000,
) -> list[LengthScore]:
    """One entry for each run and bucket that has sentences, the same buckets for all runs.

    Args:
        edges: Longest length of each bucket but the last, which has no end; chosen by the lengths unless given.
        unit: What the source's length is counted in: `words` (between spaces) or `characters`.
    """
    if score not in SCORES:
        raise ValueError(f"score '{score}' is not known; choose one of {', '.join(SCORES)}")
    if unit not in UNITS:
        raise ValueError(f"unit '{unit}' is not known; choose one of {', '.join(UNITS)}")
    measure = UNITS[unit]
    edges = bucket_edges([measure(row["source"]) for run in runs for row in run.rows], edges)
    found = []
    for run in runs:
        buckets: list[list[dict[str, str]]] = [[] for _ in range(len(edges) + 1)]
        for row in run.rows:
            buckets[sum(measure(row["source"]) > edge for edge in edges)].append(row)
        for rows, low, high in zip(buckets, [0, *edges], [*edges, None], strict=True):
            if rows:
                lengths = [measure(row["source"]) for row in rows]
                place = (low + 1, high, len(rows), sum(lengths) / len(rows))
                found.append(LengthScore(run.run, score, *place, *score_rows(rows, score, run.lowercase, resamples)))
    return found


def bucket_edges(lengths: Sequence[int], edges: Sequence[int] | None = None) -> list[int]:
    """The longest length of every bucket but the last: as given, or round numbers that make a few buckets."""
    if edges is not None:
        if list(edges) != sorted(set(edges)) or any(edge < 1 for edge in edges):
            raise ValueError(f"edges must be lengths that grow, as 10,20,30; got {list(edges)}")
        return list(edges)
    if not lengths:
        raise ValueError("there is no sentence to score")
    # One long sentence must not decide: the last bucket takes the longest twentieth.
    common = sorted(lengths)[int(0.95 * (len(lengths) - 1))]
    width = next((width for width in WIDTHS if common <= width * MOST_BUCKETS), WIDTHS[-1])
    first = (min(lengths) - 1) // width * width + width
    return list(range(first, common, width))


def score_rows(rows: Sequence[dict[str, str]], score: str, lowercase: bool, resamples: int) -> tuple:
    """The score of some rows from 0 to 100, the two ends of its 95% interval, and its signature."""
    said, right = [row["prediction"] for row in rows], [row["reference"] for row in rows]
    if score == "exact_match":
        return _exact_match(said, right, lowercase)
    from sacrebleu.metrics import BLEU, CHRF

    make = {"bleu": BLEU, "chrf": CHRF}[score]
    metric = make(lowercase=lowercase)
    value = metric.corpus_score(said, [right]).score
    signature = str(metric.get_signature())  # before the resampling, which would become part of it
    spread = metric.corpus_score(said, [right], n_bootstrap=resamples)
    low, high = max(0.0, spread._mean - spread._ci), min(100.0, spread._mean + spread._ci)
    return value, low, high, signature


def _exact_match(said: Sequence[str], right: Sequence[str], lowercase: bool) -> tuple:
    from scipy.stats import binomtest

    fold = str.lower if lowercase else str
    hits = sum(fold(one).strip() == fold(other).strip() for one, other in zip(said, right, strict=True))
    interval = binomtest(hits, len(said)).proportion_ci(method="wilson")
    return 100 * hits / len(said), 100 * interval.low, 100 * interval.high, ""


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
    """What a run predicted for its test split; a checkpoint that wrote nothing down translates `dataset` now.

    Args:
        run: A run's folder, or any checkpoint of a translating rung together with `dataset`.
        dataset: What to translate; given, it is translated even where predictions were written down.
        source: Columns of `dataset`, with `target`, where it needs them.
        rows: At most so many sentences.
        lowercase: Whether case counts; as the run's settings say unless it is given.
    """
    from ..training.run_folder import read_predictions

    folder = Path(run)
    about = _about(folder)
    if lowercase is None:
        lowercase = bool(about.get("settings", {}).get("lowercase", False))
    kept = [] if dataset else read_predictions(folder)
    if kept:
        _check_rows(kept, folder)
        return Predictions(folder.name, kept[:rows], lowercase)
    data = about.get("data", {})
    name = dataset or data.get("name")
    if name is None:
        raise ValueError(f"{run} has no predictions and does not say what to translate; add --dataset")
    source, target = (source, target) if dataset else (data.get("source"), data.get("target"))
    pairs = _pairs(name, source, target, split, rows)
    said = translate_all(str(run), [pair["source"] for pair in pairs], num_beams, batch_size)
    found = [
        {"source": pair["source"], "reference": pair["target"], "prediction": text}
        for pair, text in zip(pairs, said, strict=True)
    ]
    return Predictions(folder.name, found, lowercase)


def _about(folder: Path) -> dict[str, Any]:
    """A run's results; empty for a bare checkpoint."""
    from ..training.run_folder import RESULTS, read_results

    return read_results(folder) if (folder / RESULTS).is_file() else {}


def _check_rows(rows: list[dict[str, str]], folder: Path) -> None:
    wanted = ("source", "reference", "prediction")
    missing = [name for name in wanted if name not in rows[0]]
    if missing:
        raise ValueError(
            f"the predictions in {folder} have no {missing[0]!r}, so they are no translations; "
            "give runs of the seq2seq, bahdanau or transformer rung"
        )


def _pairs(name: str, source: str | None, target: str | None, split: str, rows: int | None) -> list[dict[str, str]]:
    from ..data import load_corpus

    corpus = load_corpus(name, **({"source": source, "target": target} if source or target else {}))
    if split not in corpus:
        raise ValueError(f"{name} has no split {split!r}; it has {', '.join(corpus)}")
    data = corpus[split]
    if "source" not in data.column_names or "target" not in data.column_names:
        raise ValueError(
            f"{name} has no source and target but {', '.join(data.column_names)}; give a translation corpus"
        )
    data = data.select(range(min(rows or len(data), len(data))))
    return [{"source": row["source"], "target": row["target"]} for row in data]


def translate_all(model_name: str, sources: Sequence[str], num_beams: int = 4, batch_size: int = 32) -> list[str]:
    """Translations in the order of `sources`; sentences of like length share a batch."""
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
    from transformers.utils import logging

    import hf_edu_models  # noqa: F401  registers every rung

    try:
        tokenizer = AutoTokenizer.from_pretrained(model_name)
        model = AutoModelForSeq2SeqLM.from_pretrained(model_name).eval()
    except OSError as problem:
        sentence = str(problem).strip().splitlines()[0]
        raise FileNotFoundError(f"no model with its tokenizer can be loaded from {model_name!r}: {sentence}") from None
    model.to("cuda" if torch.cuda.is_available() else "cpu")
    order = sorted(range(len(sources)), key=lambda number: -len(sources[number]))
    found = [""] * len(sources)
    for start in logging.tqdm(range(0, len(order), batch_size), desc=f"translate with {Path(model_name).name}"):
        numbers = order[start : start + batch_size]
        batch = tokenizer([sources[number] for number in numbers], padding=True, return_tensors="pt").to(model.device)
        limit = longest_target(model, batch["input_ids"].shape[1])
        ids = model.generate(**batch, num_beams=num_beams, **limit)
        for number, text in zip(numbers, tokenizer.batch_decode(ids, skip_special_tokens=True), strict=True):
            found[number] = text.strip()
    return found


def longest_target(model: Any, source_length: int) -> dict[str, int]:
    """How much the model may write: what it says itself, or else far more than the source, as positions allow."""
    if model.generation_config.max_length or model.generation_config.max_new_tokens:
        return {}
    wanted = 3 * source_length + 20
    if getattr(model.config, "position_embedding_type", None) == "learned":
        wanted = min(wanted, model.config.max_position_embeddings - 1)
    return {"max_new_tokens": wanted}


def as_rows(scores: Sequence[LengthScore]) -> list[dict[str, Any]]:
    """For a table: one dict a bucket."""
    return [asdict(score) for score in scores]


def write_json(path: str | os.PathLike, found: Any) -> Path:
    from ..training.run_folder import write_whole

    write_whole(path, json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    return Path(path)
