"""Extractive question answering: long contexts as overlapping windows, answers as token positions, and back to text."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

NOT_CONTEXT = (-1, -1)


def encode_question_answering(
    batch: dict[str, list], tokenizer: Any, max_length: int = 384, stride: int = 128, max_question_length: int = 64
) -> dict[str, list]:
    """Windows of (question, context) with `start_positions` and `end_positions`; an answer outside is [CLS], place 0.

    `example_id` and `offset_mapping` (characters of the context, -1 elsewhere) lead from a window back to its text.
    """
    # Each window must bring a token of context that the one before had not.
    room = max_length - tokenizer.num_special_tokens_to_add(pair=True) - stride - 1
    if stride < 0 or room < 1:
        raise ValueError(
            f"max_length {max_length} has no room for a question and a stride of {stride}; take a shorter stride"
        )
    windows = tokenizer(
        _cut_questions(batch["question"], tokenizer, min(room, max_question_length)),
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
    extra = {"example_id": [], "offset_mapping": [], "start_positions": [], "end_positions": []}
    for window, (example, offsets) in enumerate(zip(examples, all_offsets, strict=True)):
        sides = windows.sequence_ids(window)
        kept = [tuple(pair) if side == 1 else NOT_CONTEXT for pair, side in zip(offsets, sides, strict=True)]
        start, end = answer_positions(kept, batch["answers"][example])
        for name, value in zip(extra, (batch["id"][example], [list(pair) for pair in kept], start, end), strict=True):
            extra[name].append(value)
    return rows | extra


def _cut_questions(questions: list[str], tokenizer: Any, longest: int) -> list[str]:
    """Questions of at most `longest` tokens: a longer one would leave no room for its context."""
    questions = [question.strip() for question in questions]
    encoded = tokenizer(questions, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    ends = [offsets[longest - 1][1] if len(offsets) > longest else None for offsets in encoded["offset_mapping"]]
    return [question[:end] for question, end in zip(questions, ends, strict=True)]


def answer_positions(offsets: list[tuple[int, int]], answers: dict[str, list]) -> tuple[int, int]:
    """First and last token of the first answer, or (0, 0) where this window does not hold all of it."""
    if not answers["text"]:
        return 0, 0
    first, last = answers["answer_start"][0], answers["answer_start"][0] + len(answers["text"][0])
    inside = [place for place, pair in enumerate(offsets) if pair != NOT_CONTEXT]
    if not inside or offsets[inside[0]][0] > first or offsets[inside[-1]][1] < last:
        return 0, 0
    touched = [place for place in inside if offsets[place][0] < last and offsets[place][1] > first]
    return (touched[0], touched[-1]) if touched else (0, 0)


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
    """The best span of every example over all its windows, as `squad` takes it: id and prediction_text.

    Args:
        windows: The encoded data, for its `example_id` and `offset_mapping`.
        max_answer_length: In tokens.
        null_threshold: How much better than a span the empty answer must score to be given; None never gives it.
    """
    if len(start_logits) != len(windows):
        raise ValueError(f"{len(start_logits)} rows of logits do not belong to {len(windows)} windows")
    contexts = {example["id"]: example["context"] for example in examples}
    spans, empty = defaultdict(list), defaultdict(lambda: float("inf"))
    for starts, ends, window in zip(start_logits, end_logits, windows, strict=True):
        identity, offsets = window["example_id"], window["offset_mapping"]
        empty[identity] = min(empty[identity], float(starts[0] + ends[0]))
        spans[identity] += _spans(starts, ends, offsets, best, max_answer_length)
    answers = []
    for identity, context in contexts.items():
        score, (first, last) = max(spans[identity], default=(float("-inf"), (0, 0)))
        is_empty = null_threshold is not None and empty[identity] - score > null_threshold
        answers.append({"id": identity, "prediction_text": "" if is_empty else context[first:last]})
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
