"""Run a model to look inside it: evaluation mode, eager attention, padded batches of similar length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


@contextmanager
def evaluation_mode(model: Any) -> Iterator[None]:
    """No dropout and no gradients; afterwards the model trains again if it did before."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


@contextmanager
def use_eager_attention(model: Any) -> Iterator[None]:
    """Evaluation mode with the eager attention implementation, the one that returns its weights."""
    implementation = model.config._attn_implementation
    has_other = implementation not in (None, "eager")
    with evaluation_mode(model):
        try:
            if has_other:
                model.set_attn_implementation("eager")
            yield
        finally:
            if has_other:
                model.set_attn_implementation(implementation)


def batches_by_length(sequences: Sequence[Sequence[int]], batch_size: int) -> Iterator[list[int]]:
    """Indices of the sequences in batches, the longest first, so that little of a batch is padding."""
    order = sorted(range(len(sequences)), key=lambda index: (-len(sequences[index]), index))
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def pad_batch(model: Any, sequences: Iterable[Sequence[int]]) -> dict[str, Tensor]:
    """`input_ids` and `attention_mask` (B, T), padded on the right, on the model's device."""
    rows = [torch.tensor(sequence) for sequence in sequences]
    pad_token_id = getattr(model.config, "pad_token_id", None) or 0  # the mask hides it: any id will do
    input_ids = pad_sequence(rows, batch_first=True, padding_value=pad_token_id)
    attention_mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    return {"input_ids": input_ids.to(model.device), "attention_mask": attention_mask.to(model.device)}


def decoder_start_token(model: Any) -> int:
    """The id that the decoder reads at its first step: its start token, or else BOS."""
    for name in ("decoder_start_token_id", "bos_token_id"):
        for config in (model.config, getattr(model, "generation_config", None)):
            if getattr(config, name, None) is not None:
                return getattr(config, name)
    raise ValueError("the decoder has no start token; set config.decoder_start_token_id to the first id it reads")


def with_progress(items: Iterable[Any], description: str, total: int, progress: bool) -> Iterable[Any]:
    """The items, with a progress bar if asked for."""
    if not progress:
        return items
    from rich.progress import track

    return track(items, description, total=total, transient=True)
