"""Hidden states of many texts: of all layers without padding, for probes and words in context; pooled, as vectors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..auto import reads_documents
from ..batching import map_by_length, visible_length
from ..checkpoints import length_limit
from ..data.collators import DataCollatorForDocuments
from ..data.sentences import cut_sentences
from ..models.blocks_sentence_embeddings import check_pooling, pool
from .inference import batches_by_length, evaluation_mode, pad_batch
from .word_tokens import Encoded


def layer_states(model: Any, encoded: Sequence[Encoded], batch_size: int = 32) -> Iterator[tuple[int, Tensor]]:
    """For each text, the longest first, its index and its states (layers, tokens, size), the embeddings as layer 0.

    An encoder-decoder gives the states of its encoder. Layers of different sizes are padded with zeros.
    """
    body = _body(model)
    sequences = [each.input_ids for each in encoded]
    with evaluation_mode(model):
        for batch in batches_by_length(sequences, batch_size):
            inputs = pad_batch(model, [sequences[index] for index in batch])
            outputs = body(**inputs, output_hidden_states=True, return_dict=True)
            layers = [layer.float().cpu() for layer in outputs.hidden_states]
            for row, index in enumerate(batch):
                yield index, _stack_layers([layer[row, : len(sequences[index])] for layer in layers])


def _body(model: Any) -> Any:
    """The encoder of an encoder-decoder; the model without its head."""
    return model.get_encoder() if getattr(model.config, "is_encoder_decoder", False) else model.base_model


def _stack_layers(layers: Sequence[Tensor]) -> Tensor:
    """(layers, tokens, size) from layers (tokens, size); embeddings are often smaller than hidden states."""
    size = max(layer.shape[-1] for layer in layers)
    return torch.stack([torch.nn.functional.pad(layer, (0, size - layer.shape[-1])) for layer in layers])


def check_layer(layer: int | str, count: int) -> int:
    """The index of a layer, counted from 0; negative indices count from the last."""
    if isinstance(layer, bool) or not isinstance(layer, int) or not -count <= layer < count:
        raise ValueError(f"layer must be from {-count} to {count - 1}, 0 the embeddings; got {layer!r}")
    return layer % count


class TextEncoder:
    """Encodes texts as vectors: the hidden states of one layer, pooled over the tokens of a text.

    Args:
        pooling: `mean` or `max` over all tokens, `first` or `last`.
        layer: 0 the embeddings, -1 the last layer.
        normalize: Scale each vector to length one.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        pooling: str = "mean",
        layer: int = -1,
        normalize: bool = False,
        batch_size: int = 32,
    ):
        check_pooling(pooling)
        self.model, self.tokenizer, self.body = model, tokenizer, _body(model)
        self.pooling, self.layer, self.normalize, self.batch_size = pooling, layer, normalize, batch_size
        self.max_length = length_limit(model.config, tokenizer)
        self.num_truncated = 0
        self.reads_documents = reads_documents(model.config.model_type)
        first: Any = [[0]] if self.reads_documents else [0]
        outputs = self._run([first])[0]
        last = getattr(outputs, "last_hidden_state", None)  # of a few models it is not the last of `hidden_states`
        self._has_last = last is not None and torch.equal(last, outputs.hidden_states[-1])
        self.size = self._encode([first]).shape[-1]  # also checks the layer, before any text is read

    def __call__(self, texts: Iterable[str], is_interactive: bool = False) -> Iterator[tuple[str, np.ndarray]]:
        """Yield each text with its vector, in order; a text without tokens is a vector of zeros."""
        for text, vector in map_by_length(self._vectors, texts, self.batch_size, visible_length, is_interactive):
            yield text, np.zeros(self.size, np.float32) if vector is None else vector

    def save(self, texts: Iterable[str], file: str | os.PathLike, report: Callable[[str], Any] | None = None) -> None:
        """Write the vectors of all texts to a .npy file, which is complete or absent; `report` takes each text."""
        file, texts = Path(file), list(texts)
        unfinished = file.with_name(f".{file.name}")
        try:
            shape = (len(texts), self.size)
            vectors: Any = np.lib.format.open_memmap(unfinished, "w+", np.float32, shape)
            for row, (text, vector) in enumerate(self(texts)):
                vectors[row] = vector
                if report is not None:
                    report(text)
            vectors.flush()
            os.replace(unfinished, file)
        finally:
            unfinished.unlink(missing_ok=True)

    def _vectors(self, texts: list[str]) -> list[np.ndarray]:
        if self.reads_documents:
            rows: list = [self._tokenize(cut_sentences(text)) for text in texts]
        else:
            rows = self._tokenize(texts)
        vectors: np.ndarray = np.zeros((len(rows), self.size), np.float32)
        has_tokens = [index for index, ids in enumerate(rows) if ids]
        if has_tokens:
            vectors[has_tokens] = self._encode([rows[index] for index in has_tokens]).numpy()
        return list(vectors)

    def _tokenize(self, texts: list[str]) -> list[list[int]]:
        if self.max_length is None:
            return self.tokenizer(texts, verbose=False)["input_ids"]
        encoded = self.tokenizer(texts, truncation=True, max_length=self.max_length)
        self.num_truncated += sum(bool(each.overflowing) for each in encoded.encodings or ())
        return encoded["input_ids"]

    def _inputs(self, rows: list) -> dict[str, Tensor]:
        """A padded batch of texts, or of documents of sentences."""
        if not self.reads_documents:
            return pad_batch(self.model, rows)
        batch = DataCollatorForDocuments(self.tokenizer)([{"input_ids": row} for row in rows])
        return {name: values.to(self.model.device) for name, values in batch.items()}

    def _run(self, rows: list, has_all: bool = True) -> tuple[Any, Tensor]:
        inputs = self._inputs(rows)
        with evaluation_mode(self.model):
            return self.body(**inputs, output_hidden_states=has_all, return_dict=True), inputs["attention_mask"]

    def states(self, rows: list, last_only: bool = False) -> tuple[tuple[Tensor, ...], Tensor]:
        """The hidden states (B, T, D) of every layer for rows of token ids or documents, and their mask.

        With `last_only` those of the last layer alone, which most models compute faster.
        """
        has_all = not (last_only and self._has_last)
        outputs, mask = self._run(rows, has_all)
        states = outputs.hidden_states if has_all else (outputs.last_hidden_state,)
        if self.reads_documents:  # all tokens of a document: (B, N, T) as (B, N * T)
            states, mask = tuple(layer.flatten(1, 2) for layer in states), mask.flatten(1)
        return states, mask

    def _encode(self, rows: list) -> Tensor:
        states, mask = self.states(rows, last_only=self.layer == -1)
        vectors = pool(states[check_layer(self.layer, len(states))].float(), mask, self.pooling)  # (B, D)
        return (torch.nn.functional.normalize(vectors, dim=-1) if self.normalize else vectors).cpu()
