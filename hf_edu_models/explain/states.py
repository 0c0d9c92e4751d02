"""The states of a model's layers for texts, without padding: what probes and pictures of words are made from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.utils.rnn import pad_sequence

from .words import Encoded


def layer_states(model: Any, encoded: Sequence[Encoded], batch_size: int = 32) -> Iterator[tuple[int, torch.Tensor]]:
    """For each text, long ones first, its number and its states (layers, tokens, size), the embeddings as layer 0.

    The encoder is read where there is an encoder and a decoder. Layers of different sizes are padded with zeros.
    """
    body = body_of(model)
    order = sorted(range(len(encoded)), key=lambda index: (-len(encoded[index].input_ids), index))
    with frozen(model):
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            rows = [torch.tensor(encoded[index].input_ids) for index in batch]
            states = run_body(body, rows, model.device, getattr(model.config, "pad_token_id", None) or 0)
            for place, index in enumerate(batch):
                yield index, stack_layers([layer[place, : len(rows[place])] for layer in states])


def body_of(model: Any) -> Any:
    """What reads a text: the encoder of an encoder-decoder, the model below its head, or the model itself."""
    if getattr(model.config, "is_encoder_decoder", False):
        return model.get_encoder()
    return model.base_model


@contextmanager
def frozen(model: Any) -> Iterator[None]:
    """No gradients, no dropout; the model goes back to training afterwards if it was."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)


def run_body(body: Any, rows: Sequence[torch.Tensor], device: Any, padding: int) -> tuple[torch.Tensor, ...]:
    mask = pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
    outputs = body(
        input_ids=pad_sequence(list(rows), batch_first=True, padding_value=padding).to(device),
        attention_mask=mask.to(device),
        output_hidden_states=True,
        return_dict=True,
    )
    return tuple(layer.float().cpu() for layer in outputs.hidden_states)


def stack_layers(layers: Sequence[torch.Tensor]) -> torch.Tensor:
    """(layers, tokens, size) of layers (tokens, size); word vectors are often smaller than states."""
    size = max(layer.shape[-1] for layer in layers)
    return torch.stack([torch.nn.functional.pad(layer, (0, size - layer.shape[-1])) for layer in layers])


def check_layer(layer: int, count: int) -> int:
    """The layer counted from 0."""
    if isinstance(layer, bool) or not isinstance(layer, int) or not -count <= layer < count:
        raise ValueError(f"layer must be from {-count} to {count - 1}, 0 the embeddings; got {layer!r}")
    return layer % count
