"""Extractive question answering: contexts as overlapping windows, answers as token positions, logits to answers."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from .row_encoders import truncate_texts

NOT_CONTEXT = (-1, -1)


def encode_question_answering(
    batch: dict[str, list], tokenizer: Any, max_length: int = 384, stride: int = 128, max_question_length: int = 64
) -> dict[str, list]:
    """Windows of (question, context) with `start_positions` and `end_positions`; outside answers are [CLS], 0.

    `example_id` and `offset_mapping` (characters of the context, -1 elsewhere) map a window back to its text.
    """
    # Each window must have at least one token of context that the window before did not have.
    longest = max_length - tokenizer.num_special_tokens_to_add(pair=True) - stride - 1
    if stride < 0 or longest < 1:
        raise ValueError(
            f"max_length {max_length} has no room for a question and a stride of {stride}; use a smaller stride"
        )
    windows = tokenizer(
        truncate_texts(batch["question"], tokenizer, min(longest, max_question_length)),
        batch["context"],
        truncation="only_second",
        max_length=max_length,
        stride=stride,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    examples = windows.pop("overflow_to_sample_mapping")
    all_offsets = windows.pop("offset_mapping")
    rows: dict[str, list] = {name: list(values) for name, values in windows.items()}
    extra: dict[str, list] = {"example_id": [], "offset_mapping": [], "start_positions": [], "end_positions": []}
    for window, (example, offsets) in enumerate(zip(examples, all_offsets, strict=True)):
        sides = windows.sequence_ids(window)
        offsets = [tuple(pair) if side == 1 else NOT_CONTEXT for pair, side in zip(offsets, sides, strict=True)]
        positions = answer_positions(offsets, batch["answers"][example])
        values = (batch["id"][example], [list(pair) for pair in offsets], *positions)
        for name, value in zip(extra, values, strict=True):
            extra[name].append(value)
    return rows | extra


def answer_positions(offsets: list[tuple[int, int]], answers: dict[str, list]) -> tuple[int, int]:
    """First and last token of the first answer, or (0, 0) if this window does not contain all of it."""
    if not answers["text"]:
        return 0, 0
    first, last = answers["answer_start"][0], answers["answer_start"][0] + len(answers["text"][0])
    context = [position for position, pair in enumerate(offsets) if pair != NOT_CONTEXT]
    if not context or offsets[context[0]][0] > first or offsets[context[-1]][1] < last:
        return 0, 0
    answer = [position for position in context if offsets[position][0] < last and offsets[position][1] > first]
    return (answer[0], answer[-1]) if answer else (0, 0)


def find_answers(
    start_logits: np.ndarray,
    end_logits: np.ndarray,
    windows: Any,
    examples: Any,
    *,
    best: int = 20,
    max_answer_length: int = 30,
    null_threshold: float | None = None,
) -> list[dict[str, str]]:
    """The best span of every example over all its windows, as the metric `squad` takes it: id and prediction_text.

    Args:
        windows: The encoded data, for its `example_id` and `offset_mapping`.
        max_answer_length: In tokens.
        null_threshold: The empty answer is returned if it scores this much more than the best span; None: never.
    """
    if len(start_logits) != len(windows):
        raise ValueError(f"{len(start_logits)} rows of logits do not belong to {len(windows)} windows")
    contexts = {example["id"]: example["context"] for example in examples}
    spans: dict[str, list] = defaultdict(list)
    empty: dict[str, float] = defaultdict(lambda: float("inf"))
    for starts, ends, window in zip(start_logits, end_logits, windows, strict=True):
        example_id, offsets = window["example_id"], window["offset_mapping"]
        empty[example_id] = min(empty[example_id], float(starts[0] + ends[0]))
        spans[example_id] += _spans(starts, ends, offsets, best, max_answer_length)
    answers = []
    for example_id, context in contexts.items():
        score, (first, last) = max(spans[example_id], default=(float("-inf"), (0, 0)))
        is_empty = null_threshold is not None and empty[example_id] - score > null_threshold
        answers.append({"id": example_id, "prediction_text": "" if is_empty else context[first:last]})
    return answers


def _spans(starts, ends, offsets, best: int, max_answer_length: int) -> list[tuple[float, tuple[int, int]]]:
    length = len(offsets)  # logits may be padded further
    context = np.array([tuple(pair) != NOT_CONTEXT for pair in offsets])
    start_scores = np.where(context, starts[:length], -np.inf)
    end_scores = np.where(context, ends[:length], -np.inf)
    first, last = (np.argsort(-scores, kind="stable")[:best] for scores in (start_scores, end_scores))
    scores = start_scores[first][:, None] + end_scores[last][None, :]
    lengths = last[None, :] - first[:, None] + 1
    fits = (lengths >= 1) & (lengths <= max_answer_length) & np.isfinite(scores)
    return [
        (float(scores[i, j]), (int(offsets[first[i]][0]), int(offsets[last[j]][1])))
        for i, j in zip(*np.nonzero(fits), strict=True)
    ]
