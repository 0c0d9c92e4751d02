"""The end of every run: each split scored on the texts as they are, with intervals, and rows to look at."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..data.columns import read_column
from ..data.language_modeling import token_stream
from ..data.question_answering import find_answers
from ..metrics import load
from ..metrics.question_answering import answers_of, word_f1

RESAMPLES = 1000
LOWER_IS_BETTER = ("loss", "perplexity", "nll", "wer", "aer")


@dataclass
class Scored:
    """A split's scores, and what was predicted row by row."""

    scores: dict[str, Any]
    rows: list[dict[str, Any]]


def main_score(task: str, given: str | None = None, corpus: Any = None) -> str:
    """The score that decides which checkpoint is the best: the user's choice, or the usual one for such labels."""
    usual = {
        "translation": "bleu",
        "alignment": "bleu",
        "token_classification": "f1",
        "question_answering": "f1",
        "language_modeling": "perplexity",
        "pretraining": "loss",
        "masked_lm": "loss",
    }
    return (given or _score_of_labels(task, corpus) or usual.get(task, "accuracy")).removeprefix("eval_")


def _score_of_labels(task: str, corpus: Any) -> str | None:
    """Tags without spans have no F1 of spans, numbers no accuracy, and several labels at once hardly one."""
    column = {"token_classification": "tags", "classification": "label"}.get(task)
    if corpus is None or column is None:
        return None
    names = _names(corpus["train"], column)
    if column == "tags":
        return None if any(name[:2] in ("B-", "I-") for name in names) else "accuracy"
    if names is None:
        return "spearman"
    return "f1_macro" if hasattr(corpus["train"].features[column], "feature") else None


def is_better_when_greater(score: str) -> bool:
    return score.removeprefix("eval_") not in LOWER_IS_BETTER


def evaluate_split(trainer: Any, task: str, encoded: Any, corpus: Any, tokenizer: Any, **options: Any) -> Scored:
    """Predict a split with the trainer's model and score it.

    Args:
        encoded: what the model reads; `corpus` has the same rows as people read them.
        options: `num_beams`, `max_new_tokens` and `lowercase` for translation.
    """
    scored = SCORERS[task](trainer, encoded, corpus, tokenizer, **options)
    scored.scores = {name: _plain(value) for name, value in scored.scores.items()}
    return scored


def interval(statistic: Callable[[np.ndarray], float], rows: int, resamples: int = RESAMPLES) -> list[float] | None:
    """The middle 95% of a score over resampled rows, by scipy's bootstrap; None where there are too few rows.

    Args:
        statistic: the score of the rows with the given numbers.
    """
    from scipy.stats import bootstrap

    if rows < 2:
        return None
    found = bootstrap(
        (np.arange(rows),),
        lambda numbers: statistic(numbers.astype(int)),
        vectorized=False,
        n_resamples=resamples,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    return None if math.isnan(found.low) else [float(found.low), float(found.high)]


def _translation(trainer, encoded, corpus, tokenizer, num_beams=1, max_new_tokens=None, lowercase=False) -> Scored:
    # Like lengths together, the longest first: less padding to search through. The rows go back to their places below.
    order = np.argsort([-len(ids) for ids in encoded["input_ids"]], kind="stable")
    output = trainer.predict(
        encoded.select(order), metric_key_prefix="split", num_beams=num_beams, max_new_tokens=max_new_tokens
    )
    ids = np.where(output.predictions == -100, tokenizer.pad_token_id, output.predictions)[np.argsort(order)]
    said = [text.strip() for text in tokenizer.batch_decode(ids, skip_special_tokens=True)]
    sources, wanted = read_column(corpus, "source"), read_column(corpus, "target")
    scores = translation_scores(said, wanted, lowercase) | {"loss": output.metrics["split_loss"]}
    rows = [
        {"source": source, "reference": right, "prediction": text}
        for source, right, text in zip(sources, wanted, said, strict=True)
    ]
    return Scored(scores, rows)


def translation_scores(said: list[str], wanted: list[str], lowercase: bool = False) -> dict[str, Any]:
    """BLEU and chrF with signatures, BLEU with its interval, word error rate and exact match, on plain texts."""
    texts = {"predictions": said, "references": wanted}
    bleu = load("bleu").compute(**texts, lowercase=lowercase, n_bootstrap=RESAMPLES)
    scores = {name: bleu[name] for name in ("bleu", "bleu_interval", "bleu_signature", "brevity_penalty")}
    scores |= load("chrf").compute(**texts, lowercase=lowercase)
    scores |= load("wer").compute(**_lowered(texts, lowercase))
    scores |= load("exact_match").compute(**texts, ignore_case=lowercase)
    hits = np.array([_fold(a, lowercase) == _fold(b, lowercase) for a, b in zip(said, wanted, strict=True)])
    scores["exact_match_interval"] = interval(lambda rows: hits[rows].mean(), len(hits))
    return scores


def _fold(text: str, lowercase: bool) -> str:
    return text.lower() if lowercase else text


def _lowered(texts: dict[str, list[str]], lowercase: bool) -> dict[str, list[str]]:
    return {side: [_fold(text, lowercase) for text in given] for side, given in texts.items()}


def _classification(trainer, encoded, corpus, tokenizer) -> Scored:
    output = trainer.predict(encoded, metric_key_prefix="split")
    logits, labels = _first(output.predictions), np.asarray(output.label_ids)
    scores = _without_prefix(output.metrics)
    names = _names(corpus, "label")
    if labels.ndim == 2:
        said = [[names[place] for place in row.nonzero()[0]] for row in (logits > 0)]
        wanted = [[names[place] for place in row.nonzero()[0]] for row in labels.astype(bool)]
    elif np.issubdtype(labels.dtype, np.floating):
        said, wanted = logits.reshape(-1).tolist(), labels.tolist()
        scores["spearman_interval"] = interval(
            lambda rows: _spearman(logits.reshape(-1)[rows], labels[rows]), len(labels)
        )
    else:
        best = logits.argmax(-1)
        said, wanted = [_name(names, each) for each in best], [_name(names, each) for each in labels]
        scores["accuracy_interval"] = interval(lambda rows: (best[rows] == labels[rows]).mean(), len(labels))
    rows = [
        text | {"label": right, "prediction": guess}
        for text, right, guess in zip(_texts(corpus), wanted, said, strict=True)
    ]
    return Scored(scores, rows)


def _spearman(said: np.ndarray, wanted: np.ndarray) -> float:
    from scipy.stats import spearmanr

    return float(spearmanr(said, wanted).statistic)


def _multiple_choice(trainer, encoded, corpus, tokenizer) -> Scored:
    output = trainer.predict(encoded, metric_key_prefix="split")
    best, labels = _first(output.predictions).argmax(-1), np.asarray(output.label_ids)
    scores = _without_prefix(output.metrics)
    scores["accuracy_interval"] = interval(lambda rows: (best[rows] == labels[rows]).mean(), len(labels))
    rows = [
        {"context": context, "label": choices[right], "prediction": choices[guess]}
        for context, choices, right, guess in zip(
            read_column(corpus, "context"), read_column(corpus, "choices"), labels, best, strict=True
        )
    ]
    return Scored(scores, rows)


def _token_classification(trainer, encoded, corpus, tokenizer) -> Scored:
    output = trainer.predict(encoded, metric_key_prefix="split")
    best, labels = _first(output.predictions).argmax(-1), np.asarray(output.label_ids)
    scores = _without_prefix(output.metrics)
    kept = labels != -100
    names = _names(corpus, "tags")
    said, wanted = (
        [[names[tag] for tag in row[keep]] for row, keep in zip(tags, kept, strict=True)] for tags in (best, labels)
    )
    if "f1" in scores:
        from seqeval.metrics import f1_score

        scores["f1_interval"] = interval(
            lambda rows: f1_score([wanted[row] for row in rows], [said[row] for row in rows], zero_division=0),
            len(said),
            resamples=100,  # each counts all spans again
        )
    else:
        right, counted = ((best == labels) & kept).sum(1), kept.sum(1)
        scores["accuracy_interval"] = interval(lambda rows: right[rows].sum() / max(counted[rows].sum(), 1), len(right))
    rows = [
        {"tokens": tokens[: len(tags)], "tags": tags, "prediction": guess}
        for tokens, tags, guess in zip(read_column(corpus, "tokens"), wanted, said, strict=True)
    ]
    return Scored(scores, rows)


def _question_answering(trainer, encoded, corpus, tokenizer) -> Scored:
    # The trainer's own scores know the windows of the validation split only.
    own_scores, trainer.compute_metrics = trainer.compute_metrics, None
    try:
        output = trainer.predict(encoded, metric_key_prefix="split")
    finally:
        trainer.compute_metrics = own_scores
    answers = {row["id"]: row["prediction_text"] for row in find_answers(*output.predictions[:2], encoded, corpus)}
    rows, overlaps = [], []
    for row in corpus:
        golds = answers_of(row)
        overlaps.append(max(word_f1(answers[row["id"]], gold) for gold in golds))
        texts = {"question": row["question"], "context": row["context"]}
        rows.append(texts | {"reference": golds[0], "prediction": answers[row["id"]]})
    wanted = [{"id": row["id"], "answers": row["answers"]} for row in corpus]
    said = [{"id": name, "prediction_text": text} for name, text in answers.items()]
    scores = load("squad").compute(predictions=said, references=wanted)
    overlaps = 100 * np.array(overlaps)
    scores["f1_interval"] = interval(lambda picked: overlaps[picked].mean(), len(overlaps))
    return Scored(scores | {"loss": output.metrics["split_loss"]}, rows)


def _language_modeling(trainer, encoded, corpus, tokenizer) -> Scored:
    output = trainer.predict(encoded, metric_key_prefix="split")
    losses, counts = np.asarray(_first(output.predictions), np.float64).T
    tokens = counts.round().astype(int)
    scores = load("perplexity").compute(predictions=losses, references=tokens)
    scores |= by_word(losses.sum() / counts.sum(), corpus, tokenizer)
    scores["perplexity_interval"] = interval(lambda rows: np.exp(losses[rows].sum() / counts[rows].sum()), len(losses))
    return Scored(scores | {"loss": output.metrics["split_loss"]}, [])


def by_word(loss: float, corpus: Any, tokenizer: Any) -> dict[str, float]:
    """The loss of a token spread over what every vocabulary shares: words, with the ends of rows, and characters.

    `unknown` is the share of tokens that stand for a word outside the vocabulary. How those are spelt is never guessed,
    so the more there are, the better all perplexities look.
    """
    texts = [text or "" for text in read_column(corpus, "text")]
    tokens = token_stream(corpus, tokenizer)
    total = loss * len(tokens)  # as if no block had cut a word off from what came before
    words = sum(len(text.split()) + 1 for text in texts)
    characters = sum(len(text) + 1 for text in texts)
    unknown = float(np.mean(tokens == tokenizer.unk_token_id))
    return {
        "word_perplexity": math.exp(min(total / words, 700)),
        "bits_per_character": total / characters / math.log(2),
    } | ({"unknown": unknown} if unknown else {})


def _pretraining(trainer, encoded, corpus, tokenizer) -> Scored:
    output = trainer.predict(encoded, metric_key_prefix="split")
    scores = _without_prefix(output.metrics)
    labels = output.label_ids if isinstance(output.label_ids, tuple | list) else (output.label_ids, None)
    said, hidden = _first(output.predictions), labels[0] != -100
    right, counted = ((said == labels[0]) & hidden).sum(1), hidden.sum(1)
    scores["mlm_accuracy_interval"] = interval(lambda rows: right[rows].sum() / max(counted[rows].sum(), 1), len(right))
    if labels[1] is not None:
        hits = output.predictions[1].argmax(-1) == labels[1].reshape(-1)
        scores["nsp_accuracy_interval"] = interval(lambda rows: hits[rows].mean(), len(hits))
    return Scored(scores, [])


SCORERS: dict[str, Callable[..., Scored]] = {
    "translation": _translation,
    "alignment": _translation,
    "classification": _classification,
    "documents": _classification,
    "multiple_choice": _multiple_choice,
    "token_classification": _token_classification,
    "question_answering": _question_answering,
    "language_modeling": _language_modeling,
    "pretraining": _pretraining,
    "masked_lm": _pretraining,
}


def _without_prefix(metrics: dict[str, Any]) -> dict[str, Any]:
    """Trainer's metrics of a split, its timings left out."""
    timings = ("runtime", "per_second", "preparation_time")
    return {name.removeprefix("split_"): value for name, value in metrics.items() if not name.endswith(timings)}


def _first(predictions: Any) -> np.ndarray:
    return np.asarray(predictions[0] if isinstance(predictions, tuple | list) else predictions)


def _names(corpus: Any, column: str) -> list[str] | None:
    feature = corpus.features[column]
    return getattr(getattr(feature, "feature", feature), "names", None)


def _name(names: list[str] | None, number: int) -> Any:
    return int(number) if names is None else names[number]


def _texts(corpus: Any) -> list[dict[str, Any]]:
    columns = [name for name in ("text", "text_pair", "sentences") if name in corpus.column_names]
    values = [read_column(corpus, name) for name in columns]
    return [dict(zip(columns, row, strict=True)) for row in zip(*values, strict=True)]


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value
