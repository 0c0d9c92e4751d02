"""Attention without recurrence: the layers of the Transformer, GPT and BERT.

Attention goes through transformers' own interface, so `sdpa`, `flash_attention_2` and `flex_attention` are a setting;
`eager` is written out below and returns its weights. Masks are built by transformers' `masking_utils`, because the
interface needs them in that form. `unpadding` (`blocks_unpadding.py`) is the identity unless a batch has much padding.

Shapes: B batch, T length of the queries, S length of the keys, N real tokens, D hidden size, H heads, K size of a head.
"""

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .blocks_bfloat16_attention import attend, prefers_products
from .blocks_dropout import Dropout
from .blocks_unpadding import PADDED, Unpadding


def eager_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs,
) -> tuple[Tensor, Tensor]:
    """Vaswani et al. 2017, Eq. (1): Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V"""
    scores = query @ key.transpose(-2, -1) * scaling  # (B, H, T, S)
    if attention_mask is not None and attention_mask.dtype == torch.bool:  # the caller's own
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    elif attention_mask is not None:
        scores = scores + attention_mask  # 0 for a visible key, the lowest number for a hidden one
    weights = scores.softmax(dim=-1)  # (B, H, T, S)
    dropped = nn.functional.dropout(weights, dropout, module.training)
    heads = (dropped @ value).transpose(1, 2)  # (B, T, H, K)
    return heads, weights


class OutputProjection(nn.Linear):
    """The last linear layer of a sublayer, before the residual connection; GPT initialises it with smaller weights."""


def concatenate(heads: Tensor) -> Tensor:
    """Concat(head_1, ..., head_h) (Section 3.2.2)."""
    return heads.flatten(-2)


def average(heads: Tensor) -> Tensor:
    """The mean of the heads."""
    return heads.mean(dim=-2)


# The paper's is `project`: MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O; `concat` leaves out W^O.
_AGGREGATIONS = {"project": concatenate, "concat": concatenate, "mean": average}


class MultiHeadAttention(nn.Module):
    """Vaswani et al. 2017, Section 3.2.2: head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V), for several heads at once.

    Self-attention takes Q, K and V from one sequence; cross-attention takes K and V from another.
    """

    def __init__(self, config, layer_idx: int, is_causal: bool = False, is_cross: bool = False):
        super().__init__()
        size, bias = config.hidden_size, getattr(config, "attention_bias", True)
        self.config = config  # transformers' attention functions ask the module for these three
        self.layer_idx = layer_idx
        self.is_causal = is_causal
        self.head_size = size // config.num_attention_heads
        self.scaling = self.head_size**-0.5
        self.dropout = Dropout(config.attention_dropout)  # of the weights; a module, so that clients find it
        if is_cross:
            self.q_proj = nn.Linear(size, size, bias=bias)  # W^Q
            self.kv_proj = nn.Linear(size, 2 * size, bias=bias)  # W^K, W^V
        else:
            self.qkv_proj = nn.Linear(size, 3 * size, bias=bias)  # W^Q, W^K, W^V in one product
        aggregation = getattr(config, "head_aggregation", "project")
        self.aggregate = _AGGREGATIONS[aggregation]
        if aggregation == "concat":
            self.output = nn.Identity()
        else:
            self.output = OutputProjection(self.head_size if aggregation == "mean" else size, size, bias=bias)  # W^O

    def forward(
        self,
        hidden_states: Tensor,
        mask: Tensor | None,
        implementation: str,
        unpadding: Unpadding = PADDED,
        cache=None,
        attention_kwargs: dict | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Self-attention: every position attends over its own sequence."""
        projected = self.qkv_proj(hidden_states)
        if unpadding.lengths and implementation == "sdpa" and not self.is_causal:
            rows = (*unpadding.lengths, unpadding.extra)
            return self.output(self.aggregate(self.attend_rows(projected, rows))), None
        projected = unpadding.pad(projected)
        query, key, value = (self.split_heads(part) for part in projected.chunk(3, dim=-1))
        if cache is not None:
            key, value = cache.update(key, value, self.layer_idx)
        heads, weights = self.attend_heads(query, key, value, mask, implementation, **(attention_kwargs or {}))
        return self.output(self.aggregate(unpadding.unpad(heads))), weights

    def attend_rows(self, projected: Tensor, lengths: tuple[int, ...]) -> Tensor:
        """The output of each head (N, H, K), each row of the batch on its own N tokens: no mask, no padding."""
        dropout = self.dropout.p if self.dropout.training else 0.0
        states = projected.unflatten(-1, (3, 1, -1, self.head_size)).permute(1, 2, 3, 0, 4)
        rows = zip(*(part.split(lengths, dim=2) for part in states), strict=True)
        heads = [attend(query, key, value, None, self.scaling, dropout).transpose(1, 2) for query, key, value in rows]
        return torch.cat(heads, dim=1)[0]

    def cross_attend(
        self,
        hidden_states: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        implementation: str,
        unpadding: Unpadding = PADDED,
    ) -> tuple[Tensor, Tensor | None]:
        """Cross-attention over the keys and values of another sequence.

        Consecutive rows may share one source, as beams do; they attend as one longer row.
        """
        projected = unpadding.pad(self.q_proj(hidden_states))
        rows, length, _ = projected.shape
        projected = projected.reshape(key.shape[0], -1, projected.shape[-1])
        heads, weights = self.attend_heads(self.split_heads(projected), key, value, mask, implementation)
        heads = heads.reshape(rows, length, *heads.shape[2:])
        if weights is not None and rows != key.shape[0]:
            weights = weights.unflatten(2, (-1, length)).transpose(1, 2).flatten(0, 1)
        return self.output(self.aggregate(unpadding.unpad(heads))), weights

    def keys_and_values(self, source: Tensor, unpadding: Unpadding = PADDED) -> tuple[Tensor, Tensor]:
        """The source as `cross_attend` takes it."""
        projected = unpadding.pad(self.kv_proj(source))
        key, value = (self.split_heads(part) for part in projected.chunk(2, dim=-1))
        return key, value

    def split_heads(self, states: Tensor) -> Tensor:
        states = states.unflatten(-1, (-1, self.head_size)).transpose(1, 2)  # (B, H, T, K)
        return states

    def attend_heads(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, implementation: str, **kwargs
    ) -> tuple[Tensor, Tensor | None]:
        """The output of each head (B, T, H, K) and, from `eager`, the weights (B, H, T, S).

        Args:
            kwargs: what some implementations need besides, such as the paged cache of continuous batching.
        """
        dropout = self.dropout.p if self.dropout.training else 0.0
        if implementation == "sdpa" and prefers_products(query, key):
            is_causal = self.is_causal and mask is None and query.shape[2] > 1
            return attend(query, key, value, mask, self.scaling, dropout, is_causal).transpose(1, 2), None
        function = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention)
        return function(self, query, key, value, mask, dropout=dropout, scaling=self.scaling, **kwargs)


class FeedForward(nn.Module):
    """Position-wise feed-forward network, Eq. (2): FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, with any activation."""

    def __init__(self, config):
        super().__init__()
        self.inner_proj = nn.Linear(config.hidden_size, config.intermediate_size)  # W_1, b_1
        self.outer_proj = OutputProjection(config.intermediate_size, config.hidden_size)  # W_2, b_2
        self.activation = ACT2FN[config.hidden_act]
        self.dropout = Dropout(getattr(config, "activation_dropout", 0.0))

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.outer_proj(self.dropout(self.activation(self.inner_proj(hidden_states))))


class PostNorm(nn.Module):
    """Residual connection, then layer norm, as printed in Section 3.1: LayerNorm(x + Sublayer(x))"""

    def __init__(self, config):
        super().__init__()
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.dropout)

    def before(self, hidden_states: Tensor) -> Tensor:
        return hidden_states

    def after(self, hidden_states: Tensor, update: Tensor) -> Tensor:
        return self.norm(hidden_states + self.dropout(update))


class PreNorm(PostNorm):
    """Layer norm inside the residual connection: x + Sublayer(LayerNorm(x)), as most later code (Xiong et al. 2020)."""

    def before(self, hidden_states: Tensor) -> Tensor:
        return self.norm(hidden_states)

    def after(self, hidden_states: Tensor, update: Tensor) -> Tensor:
        return hidden_states + self.dropout(update)


class TransformerLayer(GradientCheckpointingLayer):
    """Self-attention and a feed-forward network, each with a residual connection."""

    def __init__(self, config, layer_idx: int, is_causal: bool = False):
        super().__init__()
        residual = PreNorm if config.norm_first else PostNorm
        self.self_attention = MultiHeadAttention(config, layer_idx, is_causal)
        self.self_residual = residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_residual = residual(config)

    def forward(self, hidden_states: Tensor, *arguments) -> tuple[Tensor, Tensor | None]:
        """
        Args:
            arguments: those of `MultiHeadAttention.forward` after the first.
        """
        hidden_states, weights = self.attend_to_self(hidden_states, *arguments)
        return self.transform(hidden_states), weights

    def attend_to_self(self, hidden_states: Tensor, *arguments) -> tuple[Tensor, Tensor | None]:
        update, weights = self.self_attention(self.self_residual.before(hidden_states), *arguments)
        return self.self_residual.after(hidden_states, update), weights

    def transform(self, hidden_states: Tensor) -> Tensor:
        update = self.feed_forward(self.feed_residual.before(hidden_states))
        return self.feed_residual.after(hidden_states, update)


class CrossAttentionLayer(TransformerLayer):
    """A decoder layer: cross-attention over the source between self-attention and feed-forward network."""

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx, is_causal=True)
        self.cross_attention = MultiHeadAttention(config, layer_idx, is_cross=True)
        self.cross_residual = (PreNorm if config.norm_first else PostNorm)(config)

    def forward(
        self,
        hidden_states: Tensor,
        mask: Tensor | None,
        implementation: str,
        unpadding: Unpadding,
        cache,
        key: Tensor,
        value: Tensor | None,
        source_mask: Tensor | None,
        source_unpadding: Unpadding = PADDED,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """
        Args:
            key, value: from `keys_and_values`; or the encoded source and None, for the layer to project. In a sharded
                model (FSDP) the weights of a layer are complete only in its `forward`.
        """
        if value is None:
            key, value = self.cross_attention.keys_and_values(key, source_unpadding)
        hidden_states, weights = self.attend_to_self(hidden_states, mask, implementation, unpadding, cache)
        queries = self.cross_residual.before(hidden_states)
        update, cross_weights = self.cross_attention.cross_attend(
            queries, key, value, source_mask, implementation, unpadding
        )
        hidden_states = self.cross_residual.after(hidden_states, update)
        return self.transform(hidden_states), weights, cross_weights
