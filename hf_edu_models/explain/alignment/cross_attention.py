"""Cross-attention of many sentence pairs, merged from tokens to words.

Shapes: L layers, H heads, T target words, S source words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from ..inference import batches_by_length, decoder_start_token, pad_batch, use_eager_attention
from ..word_tokens import Encoded, encode_words

_NEEDED = "EduBahdanauForConditionalGeneration or EduTransformerForConditionalGeneration"


@dataclass(frozen=True)
class WordAttention:
    """The cross-attention of one sentence pair, word by word.

    Args:
        index: Which sentence pair.
        as_output: (L, H, T, S), weights of the steps that predict a target word.
        as_input: (L, H, T, S), weights of the steps that read it.
    """

    index: int
    source: list[str]
    target: list[str]
    as_output: np.ndarray
    as_input: np.ndarray


def word_cross_attention(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    target_tokenizer: Any = None,
    batch_size: int = 32,
) -> Iterator[WordAttention]:
    """Run the model on sentence pairs with teacher forcing, the longest source first."""
    _check_pairs(model, sources, targets, batch_size)
    pairs = [
        (encode_words(tokenizer, source), encode_words(target_tokenizer or tokenizer, target, is_target=True))
        for source, target in zip(sources, targets, strict=True)
    ]
    with use_eager_attention(model):
        for batch in batches_by_length([source.input_ids for source, _ in pairs], batch_size):
            weights = _run_batch(model, [pairs[index] for index in batch])
            for index, rows in zip(batch, weights, strict=True):
                yield _merge_words(index, *pairs[index], rows)


def _run_batch(model: Any, pairs: Sequence[tuple[Encoded, Encoded]]) -> list[Tensor]:
    """For each pair the weights (L, H, decoder steps, source tokens) without padding, on the CPU."""
    import torch

    start = decoder_start_token(model)
    sources = [source.input_ids for source, _ in pairs]
    # Every target token is an input, after the start token: step i predicts token i and reads token i - 1.
    targets = [[start, *target.input_ids] for _, target in pairs]
    outputs = model(
        **pad_batch(model, sources),
        # No mask for the decoder: padding is at the end, where no earlier step sees it.
        decoder_input_ids=pad_batch(model, targets)["input_ids"],
        output_attentions=True,
        use_cache=False,
        return_dict=True,
    )
    if not outputs.cross_attentions:
        raise ValueError(f"{type(model).__name__} has no cross-attention; alignment needs it, as in {_NEEDED}")
    weights = torch.stack([layer.float().cpu() for layer in outputs.cross_attentions], dim=1)
    lengths = [(len(target), len(source)) for source, target in zip(sources, targets, strict=True)]
    return [row[:, :, :steps, :tokens] for row, (steps, tokens) in zip(weights, lengths, strict=True)]


def _merge_words(index: int, source: Encoded, target: Encoded, weights: Tensor) -> WordAttention:
    """Sum over the tokens of a source word, mean over the tokens of a target word."""
    by_source_word = weights.double().numpy() @ source.membership  # (L, H, steps, S)
    counts = np.maximum(target.membership.sum(axis=0, keepdims=True), np.finfo(float).tiny)
    mean = (target.membership / counts).T  # (T, target tokens)
    return WordAttention(
        index, source.words, target.words, mean @ by_source_word[:, :, :-1], mean @ by_source_word[:, :, 1:]
    )


def _check_pairs(model: Any, sources: Sequence[str], targets: Sequence[str], batch_size: int) -> None:
    if not getattr(model.config, "is_encoder_decoder", False):
        raise ValueError(f"{type(model).__name__} has no encoder and decoder; alignment needs both, as in {_NEEDED}")
    if isinstance(sources, str) or isinstance(targets, str):
        raise ValueError("sources and targets are lists of sentences; put a single sentence into a list")
    if len(sources) != len(targets):
        raise ValueError(f"every source needs its target, got {len(sources)} sources and {len(targets)} targets")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
