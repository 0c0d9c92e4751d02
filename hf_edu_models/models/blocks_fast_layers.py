"""The layers of `blocks_transformer.py` on one new token of each row, faster: functions of tensors alone.

Weights are read once, and every call of a torch function counts: a step of a small model takes less than a millisecond.

Shapes: N sentences, M beams, H heads, K size of one head, D hidden size, P slots of the cache, S length of the source.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from .blocks_beam_cache import Past, keep_heads
from .blocks_packed_linear import Function, read_columns
from .blocks_transformer import MultiHeadAttention, OutputProjection, PreNorm, TransformerLayer, concatenate

Read = Callable[[nn.Module], Function]  # makes a function of a linear layer


def _read_norm(norm: nn.LayerNorm) -> Function:
    shape, weight, bias, epsilon = list(norm.normalized_shape), norm.weight, norm.bias, norm.eps
    return lambda states: torch.layer_norm(states, shape, weight, bias, epsilon)


class FastLayer:
    """A layer as a function of hidden states (N * M, D).

    Args:
        source: the cross-attention of a `CrossAttentionLayer`.
    """

    def __init__(self, layer: TransformerLayer, read: Read, source: "SourceAttention | None" = None):
        self.is_pre_norm = isinstance(layer.self_residual, PreNorm)
        self.self_norm, self.feed_norm = _read_norm(layer.self_residual.norm), _read_norm(layer.feed_residual.norm)
        attention, feed = layer.self_attention, layer.feed_forward
        self.heads = Heads(attention)
        self.project, self.output = read(attention.qkv_proj), read(attention.output)
        self.inner, self.activation, self.outer = read(feed.inner_proj), feed.activation.forward, read(feed.outer_proj)
        self.source = source
        if source is not None:
            self.cross_norm = _read_norm(layer.cross_residual.norm)

    def __call__(self, hidden: Tensor, past: Past, mask: Tensor) -> Tensor:
        hidden = self.residual(hidden, self.self_norm, lambda states: self.attend_to_self(states, past, mask))
        if self.source is not None:
            hidden = self.residual(hidden, self.cross_norm, self.source)
        return self.residual(hidden, self.feed_norm, self.transform)

    def residual(self, hidden: Tensor, norm: Function, sublayer: Function) -> Tensor:
        """`PreNorm` or `PostNorm` around a sublayer."""
        if self.is_pre_norm:
            return hidden + sublayer(norm(hidden))
        return norm(hidden + sublayer(hidden))

    def attend_to_self(self, hidden: Tensor, past: Past, mask: Tensor) -> Tensor:
        beams = past.new.shape[2]
        projected = self.heads.split(self.project(hidden), 3, beams)  # queries, keys, values
        past.new.copy_(projected[1:])
        return self.output(self.heads.attend(projected[0], past.keys, past.values, mask))

    def transform(self, hidden: Tensor) -> Tensor:
        return self.outer(self.activation(self.inner(hidden)))


class Heads:
    """The heads of an attention layer: how states become heads, attend, and become states."""

    def __init__(self, attention: MultiHeadAttention):
        self.size, self.scaling, self.aggregate = attention.head_size, attention.scaling, attention.aggregate
        self.number = attention.config.num_attention_heads

    def split(self, states: Tensor, parts: int, beams: int) -> Tensor:
        """From (N * M, parts * D) to (parts, N * H, M, K)."""
        if len(states) == 1:
            return states.view(parts, self.number, 1, self.size)
        states = states.view(-1, beams, parts, self.number, self.size).permute(2, 0, 3, 1, 4)
        return states.reshape(parts, -1, beams, self.size)

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """Vaswani et al. 2017, Eq. (1), of queries (N * H, M, K); the aggregated heads (N * M, D)."""
        scores = torch.baddbmm(mask, queries, keys, alpha=self.scaling)
        heads = torch.bmm(scores.softmax(dim=-1), values)
        if heads.shape[1] == 1:
            return self.aggregate(heads.view(-1, self.number, self.size))
        heads = heads.view(-1, self.number, *heads.shape[1:]).transpose(1, 2)
        return self.aggregate(heads.flatten(0, 1))


class SourceAttention:
    """Cross-attention to the keys and values of the source, of which all beams of a sentence share one copy.

    Args:
        keys, values: (N, H, S, K).
        mask: (N * H, 1, S), added to scores.
    """

    def __init__(self, attention: MultiHeadAttention, read: Read, keys: Tensor, values: Tensor, mask: Tensor):
        self.heads, self.query, self.output = Heads(attention), read(attention.q_proj), read(attention.output)
        self.keys, self.values, self.mask = keys.flatten(0, 1).transpose(1, 2), values.flatten(0, 1), mask

    def __call__(self, hidden: Tensor) -> Tensor:
        beams = len(hidden) * self.heads.number // len(self.keys)
        queries = self.heads.split(self.query(hidden), 1, beams)[0]
        return self.output(self.heads.attend(queries, self.keys, self.values, self.mask))

    def keep(self, sentences: Tensor) -> None:
        self.keys = keep_heads(self.keys, sentences, self.heads.number, dim=0)
        self.values = keep_heads(self.values, sentences, self.heads.number, dim=0)
        if len(self.mask) > 1:
            self.mask = keep_heads(self.mask, sentences, self.heads.number, dim=0)


class FoldedSourceAttention(SourceAttention):
    """The same for one sentence, whose keys and values are multiplied with W^Q and W^O beforehand.

    (x W^Q) k^T = x (W^Q k^T) and (a V) W^O = a (V W^O): a step is two products with tables (D, H * S) and (H * S, D),
    which are smaller than the weights if the source has less than K tokens.
    """

    def __init__(self, attention: Any, keys: Tensor, values: Tensor, rows: int):
        heads, keys, values = Heads(attention), keys[0] * attention.scaling, values[0]
        query, output = attention.q_proj, attention.output
        to_queries = query.weight.view(heads.number, heads.size, -1)
        to_scores = torch.bmm(keys, to_queries).flatten(0, 1).t().contiguous()
        bias: Any = query.bias
        if bias is not None:
            bias = torch.bmm(keys, bias.view(heads.number, -1, 1)).flatten()
        from_heads = output.weight.t().reshape(heads.number, heads.size, -1)
        from_weights = torch.bmm(values, from_heads).flatten(0, 1)
        self.scores = read_columns(to_scores, bias, rows)
        self.output = read_columns(from_weights, output.bias, rows)
        self.shape = (-1, *keys.shape[:2])

    def __call__(self, hidden: Tensor) -> Tensor:
        weights = self.scores(hidden).view(self.shape).softmax(dim=-1)
        return self.output(weights.flatten(1))

    def keep(self, sentences: Tensor) -> None:
        """There is only one."""


def read_source(attention: MultiHeadAttention, read: Read, pair, mask: Tensor, rows: int) -> SourceAttention:
    """
    Args:
        pair: keys and values (N, H, S, K).
        rows: N * M, the number of hidden states in a step.
    """
    keys, values = pair
    is_one = len(keys) == 1 and len(mask) == 1 and mask.shape[-1] == 1  # and no padding
    is_linear = isinstance(attention.output, OutputProjection) and attention.aggregate is concatenate
    if is_one and is_linear and keys.shape[2] < attention.head_size:
        return FoldedSourceAttention(attention, keys, values, rows)
    return SourceAttention(attention, read, keys, values, mask)
