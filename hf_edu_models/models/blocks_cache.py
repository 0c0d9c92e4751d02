"""The recurrent state as a transformers `Cache`, so that `generate()` carries, reorders and accepts it.

Shapes: B batch, D hidden size.
"""

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class StateLayer(CacheLayerMixin):
    """What one layer remembers: `keys` is its hidden state, `values` its cell memory, if it has one.

    Batch comes first. The tensors are replaced and never written to, so a state that was handed out stays as it was.
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
        """Put every tensor through `change`."""
        self.keys = None if self.keys is None else change(self.keys)
        self.values = None if self.values is None else change(self.values)

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.replace(lambda states: states.index_select(0, beam_idx.to(states.device)))

    def batch_select_indices(self, indices: Tensor) -> None:
        self.replace(lambda states: states[indices])

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.replace(lambda states: states.repeat_interleave(repeats, dim=0))

    def offload(self) -> None:
        self.replace(lambda states: states.to("cpu", non_blocking=True))

    def prefetch(self) -> None:
        self.replace(lambda states: states.to(self.device, non_blocking=True))

    def reset(self) -> None:
        self.replace(torch.zeros_like)
        self.seen_tokens = 0


class RecurrentCache(Cache):
    """One `StateLayer` a level; levels appear as the model writes them."""

    def __init__(self):
        super().__init__(layer_class_to_replicate=StateLayer)

    def state(self, layer_idx: int) -> tuple[Tensor, ...] | None:
        """The state of one level as its cell takes it, or None before the first token."""
        if layer_idx >= len(self.layers):
            return None
        layer = self.layers[layer_idx]
        return tuple(states for states in (layer.keys, layer.values) if states is not None)

    def write(self, layer_idx: int, state: tuple[Tensor, ...], new_tokens: int) -> None:
        self.update(state[0], state[1] if len(state) > 1 else None, layer_idx, new_tokens=new_tokens)

    def detach(self) -> "RecurrentCache":
        """A copy cut from the graph: truncated backpropagation carries it into the next batch."""
        copy = RecurrentCache()
        for layer_idx, layer in enumerate(self.layers):
            state = tuple(states.detach() for states in self.state(layer_idx))
            copy.write(layer_idx, state, layer.seen_tokens)
        return copy
