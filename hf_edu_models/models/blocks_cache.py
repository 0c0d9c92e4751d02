"""The recurrent state as a transformers `Cache`, so that `generate()` carries, reorders and accepts it.

Also the cross-attention cache of a source that several beams share.
"""

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicLayer, EncoderDecoderCache

from .blocks_base import EduPreTrainedModel
from .blocks_state_checks import RETURNED


class StateLayer(CacheLayerMixin):
    """The state of one layer: `keys` is its hidden state, `values` its cell state, if it has one.

    Batch first. The tensors are replaced and never written in place, so a state that was returned stays as it was.
    """

    is_sliding = False

    def __init__(self):
        super().__init__()
        self.seen_tokens = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor | None = None) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor | None = None, new_tokens: int = 1):
        self.lazy_initialization(key_states)
        self.keys, self.values = key_states, value_states
        self.seen_tokens += new_tokens
        return self.keys, self.values

    def get_seq_length(self) -> int:
        return self.seen_tokens

    def get_max_length(self) -> int:
        return -1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.seen_tokens + query_length, 0

    def replace(self, change) -> None:
        """Apply `change` to every tensor."""
        self.keys = None if self.keys is None else change(self.keys)
        self.values = None if self.values is None else change(self.values)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.replace(lambda states: states.index_select(0, beam_idx.to(states.device)))

    def batch_select_indices(self, indices: Tensor) -> None:
        self.replace(lambda states: states[indices])

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.replace(lambda states: states.repeat_interleave(repeats, dim=0))

    def crop(self, tokens_to_remove: int) -> None:
        if tokens_to_remove:
            raise ValueError(
                "a recurrent state cannot forget its last tokens, as assisted generation needs; choose an "
                "assistant_model with an attention cache (a Transformer or GPT)"
            )

    def offload(self) -> None:
        self.replace(lambda states: states.to("cpu", non_blocking=True))

    def prefetch(self) -> None:
        self.replace(lambda states: states.to(self.device, non_blocking=True))

    def reset(self) -> None:
        self.replace(torch.zeros_like)
        self.seen_tokens = 0


class RecurrentCache(Cache):
    """One `StateLayer` per layer of the model, created when it is first written."""

    def __init__(self):
        super().__init__(layer_class_to_replicate=StateLayer)

    def state(self, layer_idx: int) -> tuple[Tensor, ...] | None:
        """The state of one layer as its cell takes it, or None before the first token."""
        if layer_idx >= len(self.layers):
            return None
        layer = self.layers[layer_idx]
        return tuple(states for states in (layer.keys, layer.values) if states is not None)

    def write(self, layer_idx: int, state: tuple[Tensor, ...], new_tokens: int) -> None:
        self.update(state[0], state[1] if len(state) > 1 else None, layer_idx, new_tokens=new_tokens)

    def detach(self) -> "RecurrentCache":
        """A copy without gradient: truncated backpropagation through time carries it into the next batch."""
        copy = RecurrentCache()
        for layer_idx, layer in enumerate(self.layers):
            state = tuple(states.detach() for states in self.state(layer_idx))
            copy.write(layer_idx, state, layer.seen_tokens)
        return copy


def open_cache(past_key_values, num_states: int) -> RecurrentCache:
    """The caller's cache if it has the states of this model or none yet, or a new one."""
    if past_key_values is None:
        return RecurrentCache()
    if not callable(getattr(past_key_values, "state", None)):
        raise ValueError(
            f"past_key_values is of type {type(past_key_values).__name__}, but a RecurrentCache is needed; {RETURNED}"
        )
    if len(past_key_values.layers) not in (0, num_states):
        raise ValueError(
            f"past_key_values has {len(past_key_values.layers)} states, but the model has {num_states}; {RETURNED}"
        )
    return past_key_values


class SharedSourceLayer(DynamicLayer):
    """Keys and values of a source for cross-attention: read as one row for each beam, stored once for all of them."""

    def __init__(self, keys: Tensor, values: Tensor, num_beams: int):
        self.shared: dict[str, tuple[Tensor | None, int]] = {}
        super().__init__()
        self.dtype, self.device, self.is_initialized = keys.dtype, keys.device, True
        self.shared = {"keys": (keys, num_beams), "values": (values, num_beams)}

    def read(self, name: str) -> Tensor | None:
        states, num_beams = self.shared[name]
        return states if states is None or num_beams == 1 else states.repeat_interleave(num_beams, dim=0)

    def write(self, name: str, states: Tensor | None) -> None:
        self.shared[name] = states, 1

    keys = property(lambda self: self.read("keys"), lambda self, states: self.write("keys", states))
    values = property(lambda self: self.read("values"), lambda self, states: self.write("values", states))

    def get_seq_length(self) -> int:
        return self.shared["keys"][0].shape[-2] if self.is_initialized else 0

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Beams of one source change places among themselves: nothing to move."""
        num_beams = self.shared["keys"][1]
        sources = torch.arange(len(beam_idx), device=beam_idx.device) // num_beams
        if not torch.equal(beam_idx // num_beams, sources):
            super().reorder_cache(beam_idx)


def cache_source(
    cache: EncoderDecoderCache, keys_and_values: tuple[tuple[Tensor, Tensor], ...], num_beams: int
) -> None:
    """Fill the cross-attention cache with the keys and values of every layer."""
    for number, (keys, values) in enumerate(keys_and_values):
        cache.is_updated[number] = True
        if num_beams == 1:
            cache.cross_attention_cache.update(keys, values, number)
    if num_beams > 1:
        layers = [SharedSourceLayer(keys, values, num_beams) for keys, values in keys_and_values]
        cache.cross_attention_cache.layers = layers


class StatefulPreTrainedModel(EduPreTrainedModel):
    """What the models with a `RecurrentCache` declare to transformers."""

    _is_stateful = True

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False
