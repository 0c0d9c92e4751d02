"""Unpadding: everything but attention itself runs on the real tokens of a batch alone.

Real tokens lie in one row of N instead of a padded rectangle; results are the same, and padding costs nothing.
Without gradients on a CPU the attention of an encoder, too, is computed for each row of the batch on its own tokens.

Shapes: B batch, T length, D hidden size, N real tokens.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


class GatherRows(torch.autograd.Function):
    """Select rows of a matrix, each at most once, so that the gradient is a copy and not a sum."""

    @staticmethod
    def forward(ctx, rows: Tensor, indices: Tensor) -> Tensor:
        ctx.save_for_backward(indices)
        ctx.count = len(rows)
        return rows.index_select(0, indices)

    @staticmethod
    def backward(ctx, grad: Tensor):
        (indices,) = ctx.saved_tensors
        return ScatterRows.apply(grad, indices, ctx.count), None


class ScatterRows(torch.autograd.Function):
    """Copy rows into a matrix of zeros: the inverse of `GatherRows`."""

    @staticmethod
    def forward(ctx, rows: Tensor, indices: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(indices)
        return rows.new_zeros(count, *rows.shape[1:]).index_copy_(0, indices, rows)

    @staticmethod
    def backward(ctx, grad: Tensor):
        (indices,) = ctx.saved_tensors
        return GatherRows.apply(grad, indices), None, None


@dataclass(frozen=True)
class Unpadding:
    """Where the real tokens of a padded batch are.

    Args:
        indices: (N,), the index of each real token in the flattened batch; None to leave the batch padded.
        batch, length: the shape of the batch.
        lengths: the real tokens of each row where attention may be computed row by row, else empty.
    """

    indices: Tensor | None = None
    batch: int = 0
    length: int = 0
    lengths: tuple[int, ...] = ()

    @property
    def extra(self) -> int:
        """Zeros behind the real tokens: for every new N, oneDNN compiles its products anew."""
        return -sum(self.lengths) % 16

    def unpad(self, states: Tensor) -> Tensor:
        """From a padded batch (B, T, ...) to its real tokens (N, ...)."""
        if self.indices is None:
            return states
        rows = GatherRows.apply(states.flatten(0, 1), self.indices)
        return torch.cat([rows, rows.new_zeros(self.extra, *rows.shape[1:])]) if self.extra else rows

    def pad(self, states: Tensor) -> Tensor:
        """From real tokens (N, ...) to the padded batch (B, T, ...), with zeros at padding."""
        if self.indices is None:
            return states
        states = states[: len(self.indices)]
        return ScatterRows.apply(states, self.indices, self.batch * self.length).unflatten(0, (self.batch, self.length))


PADDED = Unpadding()


def find_unpadding(
    attention_mask: Tensor | None, length: int, min_padding: float = 0.1, by_row: bool = False
) -> Unpadding:
    """Unpad if more than `min_padding` of the batch is padding; moving tokens has a cost, too.

    Args:
        by_row: let attention be computed row by row, without gradients on a CPU; a GPU prefers one call.
    """
    if attention_mask is None or attention_mask.ndim != 2 or torch.compiler.is_compiling():
        return PADDED
    if attention_mask.shape[1] != length:  # the rest is in a cache
        return PADDED
    indices = attention_mask.flatten().nonzero().squeeze(1)  # (N,)
    if len(indices) >= (1 - min_padding) * attention_mask.numel():
        return PADDED
    by_row = by_row and attention_mask.device.type == "cpu" and not torch.is_grad_enabled()
    lengths = tuple(attention_mask.count_nonzero(dim=1).tolist()) if by_row else ()
    batch, _ = attention_mask.shape
    return Unpadding(indices, batch, length, lengths)
