"""Hidden states of all layers for many texts, without padding: the input of probes and of words in context."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from .inference import batches_by_length, evaluation_mode, pad_batch
from .word_tokens import Encoded


def layer_states(model: Any, encoded: Sequence[Encoded], batch_size: int = 32) -> Iterator[tuple[int, Tensor]]:
    """For each text, the longest first, its index and its states (layers, tokens, size), the embeddings as layer 0.

    An encoder-decoder gives the states of its encoder. Layers of different sizes are padded with zeros.
    """
    body = model.get_encoder() if getattr(model.config, "is_encoder_decoder", False) else model.base_model
    sequences = [each.input_ids for each in encoded]
    with evaluation_mode(model):
        for batch in batches_by_length(sequences, batch_size):
            inputs = pad_batch(model, [sequences[index] for index in batch])
            outputs = body(**inputs, output_hidden_states=True, return_dict=True)
            layers = [layer.float().cpu() for layer in outputs.hidden_states]
            for row, index in enumerate(batch):
                yield index, _stack_layers([layer[row, : len(sequences[index])] for layer in layers])


def _stack_layers(layers: Sequence[Tensor]) -> Tensor:
    """(layers, tokens, size) from layers (tokens, size); embeddings are often smaller than hidden states."""
    size = max(layer.shape[-1] for layer in layers)
    return torch.stack([torch.nn.functional.pad(layer, (0, size - layer.shape[-1])) for layer in layers])


def check_layer(layer: int | str, count: int) -> int:
    """The index of a layer, counted from 0; negative indices count from the last."""
    if isinstance(layer, bool) or not isinstance(layer, int) or not -count <= layer < count:
        raise ValueError(f"layer must be from {-count} to {count - 1}, 0 the embeddings; got {layer!r}")
    return layer % count
