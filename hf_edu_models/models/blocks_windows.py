"""Windows: a text that is longer than the positions of a model is read in parts that overlap, whose vectors are pooled.

Inputs have the windows as their second dimension, (B, W, T). A window without a real token is padding: it is not read,
and it changes nothing. A text of one window has the vector that the model gives it without windows.

Shapes: B batch, W windows, T length, R real windows of the whole batch, D hidden size.
"""

import torch
from torch import Tensor


def has_windows(input_ids: Tensor | None, inputs_embeds: Tensor | None) -> bool:
    """Whether the inputs have windows: one dimension more than usual."""
    return getattr(input_ids, "ndim", 0) == 3 or getattr(inputs_embeds, "ndim", 0) == 4


def flatten_windows(inputs: tuple[Tensor | None, ...]) -> tuple[list[Tensor | None], Tensor]:
    """The inputs with the real windows as rows, and which windows are real, (B, W); the second input is the mask."""
    given = [tensor for tensor in inputs if tensor is not None]
    axes = given[0].shape[:3]
    for tensor in given:
        if tensor.shape[:3] != axes:
            raise ValueError(
                f"inputs with windows have the same (batch, windows, length); got {tuple(axes)} and "
                f"{tuple(tensor.shape)}"
            )
    attention_mask = inputs[1]
    if attention_mask is None:
        is_window = torch.ones(axes[:2], dtype=torch.bool, device=given[0].device)  # (B, W)
    else:
        is_window = attention_mask.bool().any(dim=-1)  # (B, W)
    flat = [None if tensor is None else tensor.flatten(0, 1) for tensor in inputs]
    if torch.compiler.is_compiling():  # the number of real windows depends on the data: all are read
        if attention_mask is not None:
            mask = attention_mask.flatten(0, 1)
            flat[1] = torch.where(is_window.flatten()[:, None], mask, torch.ones_like(mask))
        return flat, is_window
    rows = is_window.flatten()
    return [None if tensor is None else tensor[rows] for tensor in flat], is_window


def pool_windows(states: Tensor, is_window: Tensor, pooling: str) -> Tensor:
    """The mean or the maximum over the real windows of each text, (B, D), of their vectors."""
    is_real = is_window[:, :, None]  # (B, W, 1)
    fill = torch.finfo(states.dtype).min if pooling == "max" else 0.0
    if torch.compiler.is_compiling():
        windows = states.view(*is_window.shape, -1).masked_fill(~is_real, fill)
    else:
        windows = states.new_full((*is_window.shape, states.shape[-1]), fill)
        windows = windows.masked_scatter(is_real, states)
    if pooling == "max":
        return windows.amax(dim=1)
    return windows.sum(dim=1) / is_real.sum(dim=1).clamp(min=1)
