"""Sentence embeddings: one vector per text, pooled over the hidden states of its tokens."""

import torch
from torch import Tensor, nn
from transformers.utils import logging

from .blocks_masks import first_token, last_token

_POOLINGS = ("mean", "max", "first", "last", "cls")


class SentenceEmbeddings:
    """Adds `encode` to an encoder with `layers`."""

    @torch.no_grad()
    def encode(
        self,
        texts: list[str] | str,
        tokenizer,
        pooling: str = "mean",
        layer: int = -1,
        batch_size: int = 32,
        normalize: bool = False,
        show_progress: bool = True,
    ) -> Tensor:
        """One vector for each text, in the order of the texts.

        Args:
            pooling: `mean` or `max` over the real tokens, `first` (also `cls`) or `last`, one token.
            layer: the layer whose hidden states are pooled: -1 the last, 0 the embeddings.
            normalize: scale each vector to length one.
        """
        check_pooling(pooling)
        if not -len(self.layers) - 1 <= layer <= len(self.layers):
            raise ValueError(f"layer {layer} is not there; choose {-len(self.layers) - 1} to {len(self.layers)}")
        texts = [texts] if isinstance(texts, str) else list(texts)
        limit = self.config.max_position_embeddings
        encoded = tokenizer(texts, truncation=True, max_length=limit) if texts else {"input_ids": []}
        longest_first = sorted(range(len(texts)), key=lambda index: -len(encoded["input_ids"][index]))
        is_last = layer in (-1, len(self.layers))  # the states of other layers are not kept then
        was_training = self.training
        self.eval()
        vectors = torch.empty(len(texts), self.config.hidden_size, dtype=self.dtype)
        starts = range(0, len(texts), batch_size)
        for start in logging.tqdm(starts, desc="encode", disable=not show_progress or len(starts) < 2):
            indices = longest_first[start : start + batch_size]
            rows = {name: [values[index] for index in indices] for name, values in encoded.items()}
            batch = tokenizer.pad(rows, return_tensors="pt").to(self.device)
            outputs = self(**batch, output_hidden_states=not is_last, return_dict=True)
            states = outputs.last_hidden_state if is_last else outputs.hidden_states[layer]
            vectors[indices] = pool(states, batch["attention_mask"], pooling).cpu()
        self.train(was_training)
        return nn.functional.normalize(vectors, dim=-1) if normalize else vectors


def check_pooling(pooling: str) -> None:
    if pooling not in _POOLINGS:
        raise ValueError(f"pooling '{pooling}' is not known; choose one of {', '.join(_POOLINGS)}")


def pool(hidden_states: Tensor, attention_mask: Tensor, pooling: str) -> Tensor:
    """One vector for each row of hidden states (B, T, D), over its real tokens."""
    if pooling in ("first", "cls"):
        return first_token(hidden_states, attention_mask)
    if pooling == "last":
        return last_token(hidden_states, attention_mask)
    mask = attention_mask[:, :, None].bool()
    if pooling == "max":
        return hidden_states.masked_fill(~mask, torch.finfo(hidden_states.dtype).min).amax(dim=1)
    return (hidden_states * mask).sum(dim=1) / mask.sum(dim=1)
