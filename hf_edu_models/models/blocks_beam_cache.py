"""The keys and values of decoding, for all beams of a sentence together.

A token of the prompt has one slot, which all beams see; later tokens have one slot for each beam. Beams are never
moved: all beams of a sentence attend over all of its slots, and a mask hides those that are not in a beam's own past.
Reordering beams reorders that mask. The memory grows by doubling.

Shapes: N sentences, M beams, H heads, K size of one head, P slots.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers.cache_utils import DynamicCache

_FIRST_TOKENS = 32  # a new cache has memory for so many


class Past(NamedTuple):
    """What one layer attends over.

    Args:
        new: the slots of the newest tokens, keys and values (2, N * H, M, K), for the layer to fill.
        keys, values: of all tokens (N * H, K, P) and (N * H, P, K).
    """

    new: Tensor
    keys: Tensor
    values: Tensor


class BeamCache:
    """
    Args:
        weight: has the dtype and the device of the states.
    """

    def __init__(self, weight: Tensor, num_layers: int, num_heads: int, head_size: int, num_beams: int):
        self.heads, self.beams = num_heads, num_beams
        self.used = self.prompt = 0  # slots that are filled, and those of the prompt
        self.states = weight.new_empty(num_layers, 2, 0, 0, head_size)  # keys and values (N * H, P, K) of each layer
        self.mask = self.nothing_hidden = weight.new_zeros(1, 1, 1)  # added to scores; (N, M, P) if it hides anything

    def extend(self, sentences: int, beams: int) -> tuple[list[Past], Tensor]:
        """Slots for a new token of each beam; the past of each layer, and what to add to scores (N * H, M, P)."""
        first, self.used = self.used, self.used + beams
        if self.used > self.states.shape[3]:
            self.allocate(sentences, 2 * first + _FIRST_TOKENS * beams)
        mask = self.nothing_hidden
        if self.mask is not self.nothing_hidden:
            self.mask.narrow(2, first, beams).diagonal(dim1=1, dim2=2).zero_()  # a beam sees its own new token
            mask = self.mask.narrow(2, 0, self.used)[:, None].expand(-1, self.heads, -1, -1).flatten(0, 1)
        new = self.states.narrow(3, first, beams).unbind()  # of all layers at once
        keys, values = self.states.narrow(3, 0, self.used).unbind(dim=1)
        return [Past(*parts) for parts in zip(new, keys.transpose(2, 3).unbind(), values.unbind(), strict=True)], mask

    def read_prompt(self, layers: list) -> None:
        """Keys and values of transformers' cache."""
        sentences, _, self.used, _ = layers[0].keys.shape
        self.allocate(sentences, self.used + _FIRST_TOKENS * self.beams)
        for states, layer in zip(self.states, layers, strict=True):
            states[0, :, : self.used], states[1, :, : self.used] = layer.keys.flatten(0, 1), layer.values.flatten(0, 1)

    def finish_prompt(self, attention_mask: Tensor | None) -> None:
        """From here on, each beam has a slot of its own; the prompt's are hidden where the mask (N, P) is 0."""
        self.prompt = self.used
        if self.beams == 1 and attention_mask is None:
            return
        sentences, slots = self.states.shape[2] // self.heads, self.states.shape[3]
        is_prompt = torch.arange(slots, device=self.states.device) < self.prompt
        self.mask = hide(~is_prompt, self.states.dtype).expand(sentences, self.beams, -1).clone()
        if attention_mask is not None:
            self.mask[:, :, : self.prompt] = hide(attention_mask == 0, self.states.dtype)[:, None]

    def allocate(self, sentences: int, slots: int) -> None:
        """Memory for so many slots; those in use are copied."""
        old, used = self.states, min(self.used, self.states.shape[3])
        self.states = old.new_empty(len(old), 2, sentences * self.heads, slots, old.shape[-1])
        if used:
            self.states[..., :used, :] = old[..., :used, :]
        if self.mask is not self.nothing_hidden:
            missing = slots - self.mask.shape[2]
            self.mask = F.pad(self.mask, (0, missing), value=torch.finfo(self.mask.dtype).min)

    def reorder(self, parents: Tensor) -> None:
        self.mask = self.mask.gather(1, parents[:, :, None].expand_as(self.mask))

    def keep(self, sentences: Tensor) -> None:
        self.states = keep_heads(self.states, sentences, self.heads, dim=2)
        if self.mask is not self.nothing_hidden:
            self.mask = self.mask[sentences]

    def to_transformers(self) -> DynamicCache:
        """Keys and values (N * M, H, T, K) of each beam's own past."""
        cache, states = DynamicCache(), self.states[..., : self.used, :].unflatten(2, (-1, self.heads))
        if self.beams > 1:
            is_own = self.mask[:, :, self.prompt : self.used] == 0
            own = is_own.flatten(0, 1).nonzero()[:, 1].view(len(is_own) * self.beams, -1) + self.prompt
            slots = torch.arange(self.prompt, device=own.device).expand(len(own), -1)
            slots = torch.cat([slots, own], dim=1)[:, None, :, None]
            states = states.repeat_interleave(self.beams, dim=2)
            states = states.gather(4, slots.expand(*states.shape[:4], -1, states.shape[-1]))
        for number, (keys, values) in enumerate(states):
            cache.update(keys, values, number)
        return cache


def hide(is_hidden: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to scores: 0, and the lowest number where a key is hidden."""
    return torch.zeros_like(is_hidden, dtype=dtype).masked_fill(is_hidden, torch.finfo(dtype).min)


def keep_heads(states: Tensor, sentences: Tensor, num_heads: int, dim: int) -> Tensor:
    """Some sentences of a dimension that has all heads of one sentence after another."""
    return states.unflatten(dim, (-1, num_heads)).index_select(dim, sentences).flatten(dim, dim + 1)
