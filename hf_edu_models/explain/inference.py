"""Run a model to look inside it: evaluation mode, eager implementations, padded batches of similar length."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

# By class name, because a model that was loaded with trust_remote_code has classes of its own.
CELLS = ("RNNCell", "GRUCell", "LSTMCell")
_SIDES = ("encoder", "decoder", "word_reader", "sentence_reader")  # parts of a model with layers of their own


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


@contextmanager
def use_eager_recurrence(model: Any) -> Iterator[None]:
    """Run recurrent layers step by step, so that every hidden state is a tensor of its own."""
    configs = {id(module.config): module.config for module in model.modules() if hasattr(module, "config")}
    chosen = [config for config in configs.values() if hasattr(config, "recurrent_implementation")]
    before = [config.recurrent_implementation for config in chosen]
    try:
        for config in chosen:
            config.recurrent_implementation = "eager"
        yield
    finally:
        for config, implementation in zip(chosen, before, strict=True):
            config.recurrent_implementation = implementation


def layer_name(name: str) -> str:
    """`model.encoder.stack.layers.0.backward_cell` is "encoder layer 1 backwards"."""
    parts = name.split(".")
    side = next((f"{part.removesuffix('_reader')} " for part in parts if part in _SIDES), "")
    if any(part.startswith("embed") for part in parts):
        return side + "embeddings"
    number = int(parts[parts.index("layers") + 1]) + 1 if "layers" in parts else 1
    return f"{side}layer {number}" + (" backwards" if parts[-1] == "backward_cell" else "")


def batches_by_length(sequences: Sequence[Sequence[int]], batch_size: int) -> Iterator[list[int]]:
    """Indices of the sequences in batches, the longest first, so that little of a batch is padding."""
    order = sorted(range(len(sequences)), key=lambda index: (-len(sequences[index]), index))
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def pad_batch(model: Any, sequences: Iterable[Sequence[int]]) -> dict[str, Tensor]:
    """`input_ids` and `attention_mask` (B, T), padded on the right, on the model's device."""
    rows = [list(sequence) for sequence in sequences]
    length = max(map(len, rows))
    pad_token_id = getattr(model.config, "pad_token_id", None) or 0  # the mask hides it: any id will do
    input_ids = torch.tensor([row + [pad_token_id] * (length - len(row)) for row in rows])
    attention_mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
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
