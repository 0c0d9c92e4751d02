"""Checks of what a model gets back from itself: caches, recurrent states and encoder outputs.

torch's fused kernels trust the sizes that they are given: a state of another batch makes them read and write memory
that is not theirs. The checks compare shapes and dtypes alone, so they wait for no device; they are skipped while
`torch.compile` or `torch.export` traces.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers.cache_utils import Cache, EncoderDecoderCache

from .blocks_checks import check_dtype, check_is_tensor, check_mask

RETURNED = "give what an earlier call of this model returned for the same rows"


def check_state(state: tuple[Tensor, ...], shapes: list[tuple[int, ...]], dtype: torch.dtype) -> None:
    """Reject a state of another cell, batch, size or dtype; `shapes` has one for each of its tensors."""
    if torch.compiler.is_compiling():
        return
    given = [tuple(part.shape) for part in state]
    if given != shapes:
        raise ValueError(f"the recurrent state has shapes {given}, but {shapes} is needed; {RETURNED}")
    is_mixed = any(part.dtype != dtype for part in state) and not torch.is_autocast_enabled(state[0].device.type)
    if is_mixed or not all(part.is_floating_point() for part in state):
        raise ValueError(f"the recurrent state has dtype {state[0].dtype}, but {dtype} is needed; {RETURNED}")


def check_memory(memories: Sequence[tuple[Tensor, ...] | None], embeddings: Tensor) -> None:
    """Reject the memory of a Transformer-XL if it is of another batch, size or dtype; None is an empty one."""
    if torch.compiler.is_compiling():
        return
    batch, _, size = embeddings.shape
    for memory in filter(None, memories):
        if len(memory) != 2:
            raise ValueError(f"past_key_values has {len(memory)} tensors for a layer, but a memory has 2; {RETURNED}")
        states, is_real = memory
        rows, length = states.shape[0], states.shape[1]
        if rows != batch:
            raise ValueError(f"past_key_values is the memory of {rows} rows, but the batch has {batch}; {RETURNED}")
        check_state((states, is_real), [(batch, length, size), (batch, length, 1)], embeddings.dtype)


def check_layer_input(inputs: Tensor, size: int, dtype: torch.dtype) -> None:
    """Reject an input of a recurrent layer that has another width or dtype than its weights."""
    if torch.compiler.is_compiling():
        return
    if inputs.ndim != 3 or inputs.shape[-1] != size:
        raise ValueError(
            f"a recurrent layer has an input of shape {tuple(inputs.shape)}, but (batch, length, {size}) is needed"
        )
    check_dtype("the input of a recurrent layer", inputs, dtype)


def known_length(cache) -> int | None:
    """The number of tokens in an attention cache; None for a static one, which has it on the device."""
    if cache is None:
        return 0
    if not isinstance(cache, Cache):
        raise ValueError(f"past_key_values is of type {type(cache).__name__}, but a Cache is needed; {RETURNED}")
    length = None if cache.is_compileable else cache.get_seq_length()
    return length


def check_attention_cache(cache, batch: int, num_layers: int, config, dtype: torch.dtype) -> None:
    """Reject a cache of another depth, batch, size or dtype; one that is still empty fits every model."""
    if cache is None or torch.compiler.is_compiling():
        return
    heads, head_size = config.num_attention_heads, config.hidden_size // config.num_attention_heads
    keys = [layer.keys for layer in cache.layers if isinstance(layer.keys, Tensor) and layer.keys.numel() > 0]
    if keys and len(keys) != num_layers:
        raise ValueError(f"past_key_values has {len(keys)} layers, but the model has {num_layers}; {RETURNED}")
    for key in keys:
        if key.ndim != 4 or (key.shape[0], key.shape[1], key.shape[3]) != (batch, heads, head_size):
            raise ValueError(
                f"past_key_values has keys of shape {tuple(key.shape)}, but ({batch}, {heads}, length, {head_size}) is "
                f"needed; {RETURNED}"
            )
        check_dtype("past_key_values", key, dtype)


def check_source_cache(cache, source_length: int) -> None:
    """Reject a cache without a place for the source, and one that holds the keys of another source."""
    if cache is None or torch.compiler.is_compiling():
        return
    if not isinstance(cache, EncoderDecoderCache):
        raise ValueError(
            f"past_key_values is of type {type(cache).__name__}, but an EncoderDecoderCache is needed; {RETURNED}"
        )
    length = cache.cross_attention_cache.get_seq_length() if cache.is_updated.get(0) else source_length
    if not isinstance(length, Tensor) and length != source_length:
        raise ValueError(f"past_key_values holds a source of {length} tokens, but this has {source_length}; {RETURNED}")


def first_output(encoder_outputs) -> Tensor:
    """The hidden states among the outputs of an encoder, ours or another."""
    if isinstance(encoder_outputs, tuple | list | dict) and len(encoder_outputs) > 0:
        states = encoder_outputs[0] if not isinstance(encoder_outputs, dict) else next(iter(encoder_outputs.values()))
        check_is_tensor("encoder_outputs[0]", states)
        return states
    raise ValueError(
        f"encoder_outputs is of type {type(encoder_outputs).__name__}, but the outputs of an encoder, or a tuple that "
        "begins with its hidden states, are needed; give what get_encoder() returns"
    )


def check_encoded(states: Tensor, source_mask: Tensor | None, size: int, dtype: torch.dtype) -> None:
    """Reject encoder outputs of another width or dtype, and a mask that does not fit them."""
    if torch.compiler.is_compiling():
        return
    if states.ndim != 3 or states.shape[-1] != size or states.numel() == 0:
        raise ValueError(
            f"encoder_outputs has hidden states of shape {tuple(states.shape)}, but (batch, length, {size}) is needed; "
            "give what get_encoder() of this model returns"
        )
    check_dtype("encoder_outputs", states, dtype)
    if source_mask is not None and source_mask.ndim <= 2:
        check_mask("attention_mask", source_mask, states.shape[0], (states.shape[1],))


def check_rows(target_rows: int, source_rows: int) -> None:
    """Reject a target of another batch than its source."""
    if not torch.compiler.is_compiling() and target_rows != source_rows:
        raise ValueError(
            f"the source has {source_rows} rows and the target {target_rows}, but each source needs one target; check "
            "input_ids or encoder_outputs against decoder_input_ids or labels"
        )
