"""Attention in bfloat16 on a CPU, by matrix products: torch's `sdpa` is slower there, above all its backward pass.

Long sequences, whose weights would fill the memory, stay with `sdpa`, which never holds the weights of all pairs.

Shapes: B batch, H heads, T length of the queries, S length of the keys, K size of a head.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

_MAX_WEIGHTS = 2**24  # numbers in the weights of one layer, 32 MB


def prefers_products(query: Tensor, key: Tensor) -> bool:
    """Whether matrix products are the faster form for these."""
    if query.dtype is not torch.bfloat16 or query.device.type != "cpu" or torch.compiler.is_compiling():
        return False
    is_plain = type(query) is Tensor and type(key) is Tensor and query.dtype == key.dtype
    is_small = query.shape[:-1].numel() * key.shape[-2] <= _MAX_WEIGHTS and query.shape[:-2] == key.shape[:-2]
    has_kernels = torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return is_plain and is_small and has_kernels


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scaling: float,
    dropout: float,
    is_causal: bool = False,
) -> Tensor:
    """`scaled_dot_product_attention` (B, H, T, K), in its faster form.

    Args:
        mask: boolean, True for a visible key, or added to scores; (B or 1, H or 1, T or 1, S).
    """
    if not prefers_products(query, key):
        return F.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal, scale=scaling)
    with torch.autocast("cpu", enabled=False):  # it would compute the softmax in float32, and cast twice
        scores = query * scaling @ key.transpose(-2, -1)
        if is_causal:
            mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        if mask is not None:
            scores += _as_addend(mask, scores.dtype)
        weights = torch.dropout(scores.softmax(dim=-1), dropout, dropout > 0)
        return weights @ value


def _as_addend(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """0 for a visible key, the lowest number for a hidden one."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)
