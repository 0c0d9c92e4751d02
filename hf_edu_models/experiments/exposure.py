"""Exposure bias: how errors grow along the target when a model reads its own predictions, not the reference.

Under teacher forcing every position is predicted after the right tokens; running free, after what the model wrote. The
gap between the two is what scheduled sampling and professor forcing are to close (Bengio et al. 2015,
arXiv:1506.03099; Goyal et al. 2016, arXiv:1610.09038).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..checkpoints import load_model
from ..data.collators import collator_for
from ..data.corpora import load_corpus
from ..data.encoding import encode_corpus
from ..training.evaluate_checkpoint import EvaluationRequest, arguments_for

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FEWEST_ROWS = 10  # positions that fewer targets have are left out


@dataclass(frozen=True)
class PositionError:
    """The share of wrong tokens at one position of the target, counted from 1.

    Args:
        rows: number of targets that have the position.
        forced: after the reference's tokens; `free` after the model's own.
    """

    run: str
    position: int
    rows: int
    forced: float
    free: float


def exposure_of(
    run: str, split: str = "test", limit: int = 500, prompt: int = 8, **request: Any
) -> list[PositionError]:
    """The errors of a run by position, both with the most likely token.

    Args:
        limit: number of rows of the split.
        prompt: tokens that a language model gets before it writes; of an encoder-decoder the source is enough.
        request: further fields of `EvaluationRequest`: `dataset`, `source`, `target`.
    """
    model, tokenizer = load_model(run)
    if not model.can_generate():
        raise ValueError(f"{run} writes no text, so it never reads its own predictions; give a run that does")
    task = "translation" if model.config.is_encoder_decoder else "language_modeling"
    args = arguments_for(EvaluationRequest(checkpoint=run, split=split, **request))
    corpus = load_corpus(str(args.dataset), **args.corpus)
    if split not in corpus:
        raise ValueError(f"{args.dataset} has no split {split!r}; it has {', '.join(corpus)}")
    encoded = encode_corpus(corpus[split], tokenizer, task=task, max_length=args.max_length)
    rows, collator = encoded.select(range(min(limit, len(encoded)))), collator_for(task, tokenizer)
    errors: list[tuple[Tensor, Tensor, Tensor]] = []
    for start in range(0, len(rows), 32):
        batch = collator([rows[index] for index in range(start, min(start + 32, len(rows)))])
        errors.append(_errors_of(model, dict(batch), prompt))
    return _by_position(run, errors)


@torch.no_grad()
def _errors_of(model: Any, batch: dict[str, Tensor], prompt: int) -> tuple[Tensor, Tensor, Tensor]:
    """Where there is a token to predict, and where it is wrong when forced and when free; each (B, T)."""
    labels = batch.pop("labels")
    if model.config.is_encoder_decoder:
        forced = model(**batch, labels=labels, skip_logits=False).logits.argmax(dim=-1)  # (B, T)
        written = _write(model, batch, labels.shape[1])[:, 1:]
    else:
        if labels.shape[1] <= prompt:
            raise ValueError(f"blocks have {labels.shape[1]} tokens, so a prompt of {prompt} leaves none; give fewer")
        ids = batch["input_ids"]
        forced = model(input_ids=ids).logits[:, prompt - 1 : -1].argmax(dim=-1)  # (B, T)
        written = _write(model, {"input_ids": ids[:, :prompt]}, labels.shape[1] - prompt)[:, prompt:]
        labels = labels[:, prompt:]
    free = torch.full_like(labels, -1)  # nothing, after the end of what is written
    free[:, : written.shape[1]] = written[:, : labels.shape[1]]
    return labels != -100, forced != labels, free != labels


def _write(model: Any, inputs: dict[str, Tensor], count: int) -> Tensor:
    """Greedy; a language model writes all of its tokens."""
    least = {} if model.config.is_encoder_decoder else {"min_new_tokens": count}
    return model.generate(**inputs, do_sample=False, num_beams=1, max_new_tokens=count, **least)


def _by_position(run: str, errors: list[tuple[Tensor, Tensor, Tensor]]) -> list[PositionError]:
    longest = max(is_token.shape[1] for is_token, _, _ in errors)
    totals = torch.zeros(3, longest)  # rows, forced errors, free errors
    for is_token, forced, free in errors:
        for number, counted in enumerate((is_token, is_token & forced, is_token & free)):
            totals[number, : counted.shape[1]] += counted.sum(dim=0)
    return [
        PositionError(run, position, int(rows), float(forced / rows), float(free / rows))
        for position, (rows, forced, free) in enumerate(totals.t().tolist(), start=1)
        if rows >= min(_FEWEST_ROWS, int(totals[0, 0]))
    ]


def draw_exposure(runs: Sequence[list[PositionError]]) -> Figure:
    """A panel for each run: free-running and teacher-forced errors, and the gap between them."""
    from ..plotting import add_caption, colour, escape_dollars, new_figure

    names = [Path(errors[0].run).name for errors in runs]
    if len(set(names)) < len(names):
        names = [errors[0].run for errors in runs]
    figure, axes = new_figure(max(6.0, 4.2 * len(runs)), 4.4, columns=len(runs), sharey=True)
    axes = [axes] if len(runs) == 1 else list(axes)
    for axis, errors, name in zip(axes, runs, escape_dollars(names), strict=True):
        positions = [each.position for each in errors]
        free, forced = [100 * each.free for each in errors], [100 * each.forced for each in errors]
        axis.plot(positions, free, color=colour(1), marker=".", label="free-running")
        axis.plot(positions, forced, color=colour(0), marker=".", linestyle="--", label="teacher-forced")
        axis.fill_between(positions, forced, free, color=colour(1), alpha=0.12, linewidth=0)
        gap = sum((each.free - each.forced) * each.rows for each in errors) / sum(each.rows for each in errors)
        axis.set_title(f"{name}: gap {100 * gap:.1f} points")
        axis.set_xlabel("position in the target (tokens)")
        axis.xaxis.get_major_locator().set_params(integer=True)
    axes[0].set_ylabel("wrong tokens (%)")
    axes[0].set_ylim(bottom=0)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=2, frameon=False, fontsize=9)
    most = max(error.rows for errors in runs for error in errors)
    add_caption(figure, f"{most} targets at the first position; positions of fewer than {_FEWEST_ROWS} are left out.")
    return figure


def exposure_rows(runs: Sequence[list[PositionError]]) -> list[dict[str, Any]]:
    """One row for each run and position, with the standard errors of the two shares."""
    return [
        asdict(error)
        | {
            f"{name}_standard_error": math.sqrt(value * (1 - value) / error.rows)
            for name, value in (("forced", error.forced), ("free", error.free))
        }
        for errors in runs
        for error in errors
    ]
