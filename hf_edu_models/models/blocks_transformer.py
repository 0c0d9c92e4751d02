"""Attention alone: what the Transformer, GPT and BERT are made of.

Attention goes through transformers' own interface, so `sdpa`, `flash_attention_2` and `flex_attention` are a setting;
`eager` is written out below and shows its weights. Where a batch has padding, everything but attention itself runs on
the real tokens alone (`Packing`): one row of tokens instead of a padded rectangle, and the same numbers.

Shapes: B batch, T length of the queries, S length of the keys, D hidden size, H heads, K size of one head, N real
tokens.
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from .blocks_dropout import Dropout


class Take(torch.autograd.Function):
    """Some rows of a matrix. Each is taken once, so its gradient is put back where it was, with nothing to add up."""

    @staticmethod
    def forward(ctx, rows: Tensor, places: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.count = len(rows)
        return rows.index_select(0, places)

    @staticmethod
    def backward(ctx, grad: Tensor):
        (places,) = ctx.saved_tensors
        return Put.apply(grad, places, ctx.count), None


class Put(torch.autograd.Function):
    """Rows put at their places in a matrix of zeros: the other way round."""

    @staticmethod
    def forward(ctx, rows: Tensor, places: Tensor, count: int) -> Tensor:
        ctx.save_for_backward(places)
        return rows.new_zeros(count, *rows.shape[1:]).index_copy_(0, places, rows)

    @staticmethod
    def backward(ctx, grad: Tensor):
        (places,) = ctx.saved_tensors
        return Take.apply(grad, places), None, None


@dataclass(frozen=True)
class Packing:
    """How the real tokens of a padded batch lie in one row.

    Args:
        places: (N,), where each real token is in the batch read row by row.
        batch, length: the shape of the batch.
    """

    places: Tensor
    batch: int
    length: int

    def pack(self, states: Tensor) -> Tensor:
        """From a batch (B, T, ...) to its real tokens (N, ...)."""
        return Take.apply(states.flatten(0, 1), self.places)

    def unpack(self, states: Tensor) -> Tensor:
        """Back again; padding gets zeros."""
        return Put.apply(states, self.places, self.batch * self.length).unflatten(0, (self.batch, self.length))


def find_packing(attention_mask: Tensor | None, length: int, worth_it: float = 0.1) -> Packing | None:
    """A packing if more than a tenth of the batch is padding; moving tokens about costs something too."""
    if attention_mask is None or attention_mask.ndim != 2 or torch.compiler.is_compiling():
        return None
    if attention_mask.shape[1] != length:  # a cache holds the rest
        return None
    places = attention_mask.flatten().nonzero().squeeze(1)  # (N,)
    if len(places) >= (1 - worth_it) * attention_mask.numel():
        return None
    return Packing(places, *attention_mask.shape)


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
    """Vaswani et al. 2017, Eq. (1): softmax(Q K^T / sqrt(d_k)) V."""
    scores = query @ key.transpose(-2, -1) * scaling  # (B, H, T, S)
    if attention_mask is not None:
        scores = scores + attention_mask  # 0 where a key may be seen, the lowest number where not
    weights = scores.softmax(dim=-1)  # (B, H, T, S)
    dropped = nn.functional.dropout(weights, dropout, module.training)
    heads = (dropped @ value).transpose(1, 2)  # (B, T, H, K)
    return heads, weights


class OutputProjection(nn.Linear):
    """The last layer of a sublayer; what it gives is added to the states, so a model may let it start smaller."""


class ConcatenateAndProject(OutputProjection):
    """The paper's way (Section 3.2.2): heads side by side, then W^O."""

    def __init__(self, hidden_size: int, num_heads: int, bias: bool):
        super().__init__(hidden_size, hidden_size, bias=bias)

    def forward(self, heads: Tensor) -> Tensor:
        return super().forward(heads.flatten(-2))


class Concatenate(nn.Module):
    """Heads side by side, each in its own place of the result."""

    def __init__(self, hidden_size: int, num_heads: int, bias: bool):
        super().__init__()

    def forward(self, heads: Tensor) -> Tensor:
        return heads.flatten(-2)


class Average(OutputProjection):
    """The mean of the heads, brought back to the hidden size."""

    def __init__(self, hidden_size: int, num_heads: int, bias: bool):
        super().__init__(hidden_size // num_heads, hidden_size, bias=bias)

    def forward(self, heads: Tensor) -> Tensor:
        return super().forward(heads.mean(dim=-2))


AGGREGATIONS = {"project": ConcatenateAndProject, "concat": Concatenate, "mean": Average}


class MultiHeadAttention(nn.Module):
    """Several attentions side by side, each on its own part of the states (Vaswani et al. 2017, Section 3.2.2)."""

    def __init__(self, config, layer_idx: int, is_causal: bool = False, is_cross: bool = False):
        super().__init__()
        size, bias = config.hidden_size, getattr(config, "attention_bias", True)
        self.config = config  # transformers' attention functions ask the module for these three
        self.layer_idx = layer_idx
        self.is_causal = is_causal
        self.head_size = size // config.num_attention_heads
        self.scaling = self.head_size**-0.5
        self.dropout = config.attention_dropout
        if is_cross:
            self.q_proj = nn.Linear(size, size, bias=bias)  # W^Q
            self.kv_proj = nn.Linear(size, 2 * size, bias=bias)  # W^K, W^V
        else:
            self.qkv_proj = nn.Linear(size, 3 * size, bias=bias)  # W^Q, W^K, W^V in one product
        aggregation = AGGREGATIONS[getattr(config, "head_aggregation", "project")]
        self.output = aggregation(size, config.num_attention_heads, bias)

    def forward(
        self,
        hidden_states: Tensor,
        mask: Tensor | None,
        implementation: str,
        packing: Packing | None = None,
        cache=None,
    ) -> tuple[Tensor, Tensor | None]:
        """Every position attends over the positions of the same sequence."""
        projected = self.qkv_proj(hidden_states)
        if packing is not None:
            projected = packing.unpack(projected)
        query, key, value = (self.split_heads(part) for part in projected.chunk(3, dim=-1))
        if cache is not None:
            key, value = cache.update(key, value, self.layer_idx)
        heads, weights = self.attend_heads(query, key, value, mask, implementation)
        return self.output(heads if packing is None else packing.pack(heads)), weights

    def look_at(
        self,
        hidden_states: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        implementation: str,
        packing: Packing | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Every position attends over another sequence, given as its keys and values.

        Several rows in a row may share one sequence, as beams do; they then attend as one longer row.
        """
        projected = self.q_proj(hidden_states)
        if packing is not None:
            projected = packing.unpack(projected)
        rows, length, _ = projected.shape
        projected = projected.reshape(len(key), -1, projected.shape[-1])
        heads, weights = self.attend_heads(self.split_heads(projected), key, value, mask, implementation)
        heads = heads.reshape(rows, length, *heads.shape[2:])
        if weights is not None and rows != len(key):
            weights = weights.unflatten(2, (-1, length)).transpose(1, 2).flatten(0, 1)
        return self.output(heads if packing is None else packing.pack(heads)), weights

    def keys_and_values(self, source: Tensor, packing: Packing | None) -> tuple[Tensor, Tensor]:
        projected = self.kv_proj(source)
        if packing is not None:
            projected = packing.unpack(projected)
        key, value = (self.split_heads(part) for part in projected.chunk(2, dim=-1))
        return key, value

    def split_heads(self, states: Tensor) -> Tensor:
        states = states.unflatten(-1, (-1, self.head_size)).transpose(1, 2)  # (B, H, T, K)
        return states

    def attend_heads(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, implementation: str
    ) -> tuple[Tensor, Tensor | None]:
        """Each head's mixture (B, T, H, K) and, from `eager`, its weights (B, H, T, S)."""
        function = ALL_ATTENTION_FUNCTIONS.get_interface(implementation, eager_attention)
        dropout = self.dropout if self.training else 0.0
        return function(self, query, key, value, mask, dropout=dropout, scaling=self.scaling)


class FeedForward(nn.Module):
    """Two linear layers with a kink between them, the same at every position (Section 3.3)."""

    def __init__(self, config):
        super().__init__()
        self.inner_proj = nn.Linear(config.hidden_size, config.intermediate_size)  # W_1, b_1
        self.outer_proj = OutputProjection(config.intermediate_size, config.hidden_size)  # W_2, b_2
        self.activation = ACT2FN[config.hidden_act]
        self.dropout = Dropout(getattr(config, "activation_dropout", 0.0))

    def forward(self, hidden_states: Tensor) -> Tensor:
        return self.outer_proj(self.dropout(self.activation(self.inner_proj(hidden_states))))


class PostNorm(nn.Module):
    """Add, then normalise, as printed in Section 3.1: LayerNorm(x + Sublayer(x))."""

    def __init__(self, config):
        super().__init__()
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.dropout)

    def before(self, hidden_states: Tensor) -> Tensor:
        return hidden_states

    def after(self, hidden_states: Tensor, update: Tensor) -> Tensor:
        return self.norm(hidden_states + self.dropout(update))


class PreNorm(PostNorm):
    """Normalise what the sublayer reads and leave the sum alone; most later code does (Xiong et al. 2020)."""

    def before(self, hidden_states: Tensor) -> Tensor:
        return self.norm(hidden_states)

    def after(self, hidden_states: Tensor, update: Tensor) -> Tensor:
        return hidden_states + self.dropout(update)


class TransformerLayer(GradientCheckpointingLayer):
    """Self-attention and a feed-forward layer, each with a way around it."""

    def __init__(self, config, layer_idx: int, is_causal: bool = False):
        super().__init__()
        residual = PreNorm if config.norm_first else PostNorm
        self.self_attention = MultiHeadAttention(config, layer_idx, is_causal)
        self.self_residual = residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_residual = residual(config)

    def forward(
        self,
        hidden_states: Tensor,
        mask: Tensor | None,
        implementation: str,
        packing: Packing | None = None,
        cache=None,
    ) -> tuple[Tensor, Tensor | None]:
        update, weights = self.self_attention(
            self.self_residual.before(hidden_states), mask, implementation, packing, cache
        )
        hidden_states = self.self_residual.after(hidden_states, update)
        update = self.feed_forward(self.feed_residual.before(hidden_states))
        return self.feed_residual.after(hidden_states, update), weights


class CrossAttentionLayer(TransformerLayer):
    """A decoder layer: between the two, attention over the source."""

    def __init__(self, config, layer_idx: int):
        super().__init__(config, layer_idx, is_causal=True)
        self.cross_attention = MultiHeadAttention(config, layer_idx, is_cross=True)
        self.cross_residual = (PreNorm if config.norm_first else PostNorm)(config)

    def forward(
        self,
        hidden_states: Tensor,
        mask: Tensor | None,
        implementation: str,
        packing: Packing | None,
        cache,
        source: tuple[Tensor, Tensor],
        source_mask: Tensor | None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        update, weights = self.self_attention(
            self.self_residual.before(hidden_states), mask, implementation, packing, cache
        )
        hidden_states = self.self_residual.after(hidden_states, update)
        update, cross_weights = self.cross_attention.look_at(
            self.cross_residual.before(hidden_states), *source, source_mask, implementation, packing
        )
        hidden_states = self.cross_residual.after(hidden_states, update)
        update = self.feed_forward(self.feed_residual.before(hidden_states))
        return self.feed_residual.after(hidden_states, update), weights, cross_weights


def final_norm(config) -> nn.Module:
    """With `norm_first` the sum of all layers is normalised here and nowhere else."""
    return nn.LayerNorm(config.hidden_size, config.layer_norm_eps) if config.norm_first else nn.Identity()


def run_layers(
    layers: nn.ModuleList,
    norm: nn.Module,
    states: Tensor,
    mask: Tensor | None,
    implementation: str,
    packing: Packing | None,
    cache=None,
) -> tuple[Tensor, list[Tensor], list[Tensor | None]]:
    """The last states, normalised; the states below and above every layer; and every layer's weights."""
    all_states, all_weights = [states], []
    if packing is not None:
        states = packing.pack(states)
    for layer in layers:
        states, weights = layer(states, mask, implementation, packing, cache)
        all_states.append(states)
        all_weights.append(weights)
    all_states[-1] = states = norm(states)
    if packing is not None:
        states = packing.unpack(states)
    return states, all_states, all_weights


def padded(all_states: list[Tensor], packing: Packing | None) -> tuple[Tensor, ...]:
    """The states of `run_layers` as a user wants to see them; the first are as they came in."""
    if packing is None:
        return tuple(all_states)
    return (all_states[0], *(packing.unpack(states) for states in all_states[1:]))


def choose_attention(config, output_attentions: bool | None) -> tuple:
    """The configuration to attend with, and whether weights are wanted: only `eager` has any to show."""
    wants_weights = config.output_attentions if output_attentions is None else output_attentions
    if not wants_weights or config._attn_implementation == "eager":
        return config, wants_weights
    config = copy.copy(config)
    config._attn_implementation = "eager"
    return config, True


def positions_of(attention_mask: Tensor | None, length: int, past: int, device) -> Tensor:
    """Where each token stands among the real ones, so that padding in front moves nobody."""
    if attention_mask is None or attention_mask.ndim != 2:
        return torch.arange(past, past + length, device=device)[None]
    counted = attention_mask.long().cumsum(dim=1) - 1
    return counted.clamp(min=0)[:, -length:]


def head_diversity(weights: tuple[Tensor, ...], keep: Tensor | None) -> Tensor:
    """How much the heads of a layer look at the same places: ||A A^T - I||^2, A the heads' weights at one position.

    After Lin et al. 2017, arXiv:1703.03130, whose A has one row for each way of looking. The mean over layers and real
    positions.
    """
    penalties = []
    for layer in weights:
        rows = layer.transpose(1, 2)  # (B, T, H, S)
        overlap = rows @ rows.transpose(-2, -1)  # (B, T, H, H)
        overlap = overlap - torch.eye(overlap.shape[-1], device=overlap.device, dtype=overlap.dtype)
        penalty = overlap.square().sum(dim=(-2, -1))  # (B, T)
        penalties.append(penalty.mean() if keep is None else penalty[keep].mean())
    return torch.stack(penalties).mean()
