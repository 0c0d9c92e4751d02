"""The end of a run: each split predicted and scored, and which score decides between checkpoints."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..data.columns import label_names
from ..metrics.scorers import Scored, has_spans
from ..tasks import TASKS, find_task

_LOWER_IS_BETTER = ("loss", "perplexity", "nll", "wer", "aer", "mse", "mae")


def main_score(task: str, metric: str | None = None, corpus: Any = None) -> str:
    """The score that decides which checkpoint is the best: the user's `metric`, or the usual one for such labels."""
    return (metric or _score_of_labels(task, corpus) or TASKS[task].main_score).removeprefix("eval_")


def _score_of_labels(task: str, corpus: Any) -> str | None:
    """Tags without spans have no F1, numbers no accuracy, and sets of labels an accuracy that says little."""
    column = TASKS[task].label_column
    if corpus is None or column is None:
        return None
    names = label_names(corpus["train"], column)
    if column == "tags":
        return None if has_spans(names or []) else "accuracy"
    if names is None:
        return "spearman"
    return "f1_macro" if hasattr(corpus["train"].features[column], "feature") else None


def is_better_when_greater(score: str) -> bool:
    return score.removeprefix("eval_") not in _LOWER_IS_BETTER


def evaluate_split(
    trainer: Any,
    task: str,
    encoded: Any,
    corpus: Any,
    tokenizer: Any,
    *,
    lowercase: bool = False,
    **generation: Any,
) -> Scored:
    """Predict a split with the trainer's model and score it.

    Args:
        encoded: the split as token ids; `corpus` has the same rows as text.
        lowercase: score translations without case.
        generation: `num_beams` and `max_new_tokens`, for translation.
    """
    scorer_class = find_task(task, "scorer").code("scorer")
    options = {"lowercase": lowercase, "windows": encoded}
    options = {name: value for name, value in options.items() if name in scorer_class.options}
    scorer = scorer_class(tokenizer, corpus, **options)
    # The trainer's own scores belong to the validation split; this split gets a scorer of its own.
    compute_metrics, trainer.compute_metrics = trainer.compute_metrics, None
    try:
        if TASKS[task].auto_class == "AutoModelForSeq2SeqLM":
            output = _generate(trainer, encoded, generation)
        else:
            output = trainer.predict(encoded, metric_key_prefix="split")
    finally:
        trainer.compute_metrics = compute_metrics
    return scorer.score_split(output)


def _generate(trainer: Any, encoded: Any, generation: dict[str, Any]) -> Any:
    """Predict sorted by length, longest first, which leaves less padding; predictions return to the order of rows."""
    order = np.argsort([-len(ids) for ids in encoded["input_ids"]], kind="stable")
    output = trainer.predict(encoded.select(order), metric_key_prefix="split", **generation)
    return output._replace(predictions=output.predictions[np.argsort(order)])
