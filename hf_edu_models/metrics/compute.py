"""The scorer of a task as the arguments of `Trainer`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..tasks import find_task

if TYPE_CHECKING:
    from .scorers import Scorer


def compute_metrics_for(task: str, tokenizer: Any = None, **options: Any) -> Scorer:
    """The argument `compute_metrics` of `Trainer`: a function from `EvalPrediction` to scores.

    Args:
        task: a row of `tasks.TASKS` that has a scorer; language_modeling, masked_lm and pretraining also need
            `preprocess_logits_for(task)`.
        tokenizer: of the target side; translation needs it.
        options: `tag_names` (token_classification), `windows` and `examples` (question_answering), `lowercase` and
            `tokenize` for sacrebleu (translation).
    """
    scorer = find_task(task, "scorer").code("scorer")
    for option in options:
        if option not in scorer.options:
            allowed = ", ".join(scorer.options) or "none"
            raise TypeError(f"scores for {task} have no option {option!r}; allowed: {allowed}")
    return scorer(tokenizer, **options)


def preprocess_logits_for(task: str) -> Callable[[Any, Any], Any] | None:
    """The argument `preprocess_logits_for_metrics` of `Trainer`: it makes logits small enough to be gathered."""
    return find_task(task, "scorer").code("scorer").preprocess_logits
