"""Padding masks of the recurrent models, and the reordering that moves padding to the end.

At the border `attention_mask` is 1 for a token and 0 for padding. Inside the recurrent models `mask` is boolean, True
for a real token, and None where nothing is padded, so that an unpadded batch costs nothing.

Shapes: B batch, T time steps, D hidden size.
"""

import torch
from torch import Tensor


def boolean_mask(attention_mask: Tensor | None, length: int) -> Tensor | None:
    """The last `length` columns of the mask: with a cache it also covers the past, which the input does not."""
    if attention_mask is None:
        return None
    if attention_mask.ndim != 2:
        raise ValueError(
            f"attention_mask has shape {tuple(attention_mask.shape)}, but this model attends to no pairs of tokens; "
            "give one of shape (batch, length), 1 for a token and 0 for padding"
        )
    mask = attention_mask[:, -length:].bool()  # (B, T)
    if torch.compiler.is_compiling() or not bool(mask.all()):
        return mask
    return None


def update_where(is_real: Tensor, new: tuple[Tensor, ...], old: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The new state where the step was a real token, the old state where it was padding."""
    return tuple(torch.where(is_real[:, None], after, before) for after, before in zip(new, old, strict=True))


def padding_last(mask: Tensor) -> Tensor:
    """The order of positions that moves each row's padding behind its real tokens."""
    real = mask.long()
    ranks = torch.where(mask, real.cumsum(dim=1), real.sum(dim=1, keepdim=True) + (1 - real).cumsum(dim=1)) - 1
    return _invert(ranks)


def _invert(order: Tensor) -> Tensor:
    """The inverse of each row's permutation; unlike a sort it has a form in ONNX."""
    positions = torch.arange(order.shape[1], device=order.device).expand_as(order)  # (B, T)
    return torch.zeros_like(order).scatter(1, order, positions)


def reorder(hidden_states: Tensor, order: Tensor) -> Tensor:
    """Permute the positions of each row."""
    return hidden_states.gather(1, order[:, :, None].expand_as(hidden_states))


def undo_reorder(hidden_states: Tensor, order: Tensor, mask: Tensor) -> Tensor:
    """Undo `reorder`; padding gets zeros."""
    hidden_states = reorder(hidden_states, _invert(order))  # (B, T, D)
    return hidden_states * mask[:, :, None]


def last_token(hidden_states: Tensor, mask: Tensor | None) -> Tensor:
    """The hidden state of each row's last real token."""
    if mask is None:
        return hidden_states[:, -1]
    if mask.ndim == 4:  # of queries and keys: padding does not attend to itself
        mask = (mask if mask.dtype == torch.bool else mask == 0)[:, 0].diagonal(dim1=1, dim2=2)
    positions = torch.arange(mask.shape[1], device=mask.device)  # (T,)
    return hidden_states[torch.arange(mask.shape[0], device=mask.device), (positions * mask).argmax(dim=1)]


def first_token(hidden_states: Tensor, mask: Tensor | None) -> Tensor:
    """The hidden state of each row's first real token."""
    if mask is None or mask.ndim != 2:
        return hidden_states[:, 0]
    return hidden_states[torch.arange(mask.shape[0], device=mask.device), mask.long().argmax(dim=1)]


def last_states(states: Tensor, mask: Tensor | None, count: int) -> Tensor:
    """The last `count` real entries of each row of `states`: `count` cached ones, then new ones with padding last."""
    if mask is None:
        return states[:, states.shape[1] - count :]
    positions = mask.sum(dim=1)[:, None] + torch.arange(count, device=states.device)
    return states.gather(1, positions[:, :, None].expand(-1, -1, states.shape[2]))
