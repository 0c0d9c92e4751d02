"""Where the real tokens of a padded batch are. Every mask of the recurrent rungs is built here.

At the border `attention_mask` has 1 for a token and 0 for padding. Inside, `keep` is boolean, True for a token, and
None where nothing is padded, so that an unpadded batch pays nothing.

Shapes: B batch, T time steps, D hidden size.
"""

import torch
from torch import Tensor


def keep_from(attention_mask: Tensor | None, length: int) -> Tensor | None:
    """The mask of the last `length` columns: with a cache the mask covers the past, the input does not."""
    if attention_mask is None:
        return None
    keep = attention_mask[:, -length:].bool()  # (B, T)
    if torch.compiler.is_compiling() or not bool(keep.all()):
        return keep
    return None


def keep_where(is_real: Tensor, new: tuple[Tensor, ...], old: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The new state where the step was a real token, the old one where it was padding."""
    return tuple(torch.where(is_real[:, None], after, before) for after, before in zip(new, old, strict=True))


def real_first(keep: Tensor) -> Tensor:
    """The order that brings each row's real tokens to its front, themselves in order."""
    order = (~keep).to(torch.uint8).argsort(dim=1, stable=True)  # (B, T)
    return order


def reorder(hidden_states: Tensor, order: Tensor) -> Tensor:
    """Take the positions of each row in the given order."""
    return hidden_states.gather(1, order[:, :, None].expand_as(hidden_states))


def put_back(hidden_states: Tensor, order: Tensor, keep: Tensor) -> Tensor:
    """Undo `reorder`; padding gets zeros."""
    hidden_states = reorder(hidden_states, order.argsort(dim=1))  # (B, T, D)
    return hidden_states * keep[:, :, None]


def last_real(keep: Tensor) -> Tensor:
    """The position of each row's last real token."""
    positions = torch.arange(keep.shape[1], device=keep.device)  # (T,)
    return (positions * keep).argmax(dim=1)


def last_states(states: Tensor, keep: Tensor | None, count: int) -> Tensor:
    """The last `count` entries of each row of `states`: `count` old ones, then new ones with the real ones in front."""
    if keep is None:
        return states[:, states.shape[1] - count :]
    places = keep.sum(dim=1)[:, None] + torch.arange(count, device=states.device)
    return states.gather(1, places[:, :, None].expand(-1, -1, states.shape[2]))
