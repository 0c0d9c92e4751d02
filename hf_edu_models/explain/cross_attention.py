"""Cross-attention of many sentence pairs, merged from tokens to words.

Shapes: L layers, H heads, T target words, S source words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from .showing import weights_shown
from .words import Encoded, encode_words


@dataclass(frozen=True)
class WordAttention:
    """What a model looks at, word by word, in both readings.

    Args:
        index: which of the sentence pairs.
        as_output: (L, H, T, S), weights of the steps that say a target word.
        as_input: (L, H, T, S), weights of the steps that read it.
    """

    index: int
    source: list[str]
    target: list[str]
    as_output: np.ndarray
    as_input: np.ndarray


def read_cross_attention(
    model: Any,
    tokenizer: Any,
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    target_tokenizer: Any = None,
    batch_size: int = 32,
) -> Iterator[WordAttention]:
    """Run the model on its sentence pairs, long ones first, with the target given (teacher forcing)."""
    check_pairs(model, sources, targets, batch_size)
    pairs = [
        (encode_words(tokenizer, source), encode_words(target_tokenizer or tokenizer, target, is_target=True))
        for source, target in zip(sources, targets, strict=True)
    ]
    # Neighbours in length share a batch, so that little of it is padding.
    order = sorted(range(len(pairs)), key=lambda index: (-len(pairs[index][0].input_ids), index))
    with weights_shown(model):
        for start in range(0, len(order), batch_size):
            batch = order[start : start + batch_size]
            weights = run_batch(model, [pairs[index] for index in batch])
            for index, rows in zip(batch, weights, strict=True):
                yield merge(index, *pairs[index], rows)


@torch.no_grad()
def run_batch(model: Any, pairs: Sequence[tuple[Encoded, Encoded]]) -> list[torch.Tensor]:
    """For each pair the weights (L, H, decoder steps, source tokens) as a tensor on the CPU, without padding."""
    start, device = start_token(model), model.device
    source = [torch.tensor(encoded.input_ids) for encoded, _ in pairs]
    # One step for every token as input, the start before them: step i says token i and reads token i - 1.
    target = [torch.tensor([start, *encoded.input_ids]) for _, encoded in pairs]
    mask = pad_sequence([torch.ones_like(row) for row in source], batch_first=True)
    outputs = model(
        input_ids=pad_sequence(source, batch_first=True, padding_value=padding(model)).to(device),
        attention_mask=mask.to(device),
        # Padding stands at the end, where no earlier step looks: the decoder needs no mask.
        decoder_input_ids=pad_sequence(target, batch_first=True, padding_value=padding(model)).to(device),
        output_attentions=True,
        use_cache=False,
        return_dict=True,
    )
    layers = outputs.cross_attentions
    if not layers:
        raise ValueError(
            f"{type(model).__name__} does not attend over its source; alignment needs a model that does, such as "
            "EduBahdanauForConditionalGeneration or EduTransformerForConditionalGeneration"
        )
    weights = torch.stack([layer.float().cpu() for layer in layers], dim=1)
    sizes = [(len(steps), len(tokens)) for steps, tokens in zip(target, source, strict=True)]
    return [row[:, :, :steps, :tokens] for row, (steps, tokens) in zip(weights, sizes, strict=True)]


def merge(index: int, source: Encoded, target: Encoded, weights: torch.Tensor) -> WordAttention:
    """Sum over the tokens of a source word, mean over the tokens of a target word."""
    by_source_word = weights.double().numpy() @ source.membership  # (L, H, steps, S)
    counts = np.maximum(target.membership.sum(axis=0, keepdims=True), np.finfo(float).tiny)
    mean = (target.membership / counts).T  # (T, target tokens)
    return WordAttention(
        index, source.words, target.words, mean @ by_source_word[:, :, :-1], mean @ by_source_word[:, :, 1:]
    )


def start_token(model: Any) -> int:
    """What the decoder reads before the first word."""
    for config in (model.config, getattr(model, "generation_config", None)):
        if getattr(config, "decoder_start_token_id", None) is not None:
            return config.decoder_start_token_id
    raise ValueError(
        "the decoder has no start token: config.decoder_start_token_id is None; set it to the id that every target "
        "begins with"
    )


def padding(model: Any) -> int:
    """Any word will do where a mask hides it."""
    return getattr(model.config, "pad_token_id", None) or 0


def check_pairs(model: Any, sources: Sequence[str], targets: Sequence[str], batch_size: int) -> None:
    if not getattr(model.config, "is_encoder_decoder", False):
        raise ValueError(
            f"{type(model).__name__} has no encoder and decoder; alignment needs a translation model, such as "
            "EduBahdanauForConditionalGeneration or EduTransformerForConditionalGeneration"
        )
    if isinstance(sources, str) or isinstance(targets, str):
        raise ValueError("sources and targets are lists of sentences; put a single sentence into a list")
    if len(sources) != len(targets):
        raise ValueError(f"every source needs its target, got {len(sources)} sources and {len(targets)} targets")
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}")
