"""Pooling: one vector, or one for each query, of a sequence of hidden states.

A pooling takes hidden states and a boolean mask (True for a real token, None if nothing is padded) and returns the
pooled vectors with the weights of the tokens. A new pooling is a class and one entry in `POOLINGS`.

Shapes: B batch, T tokens, D hidden size, A attention size, Q queries.
"""

import torch
from torch import Tensor, nn

from .blocks_masks import first_token, last_token


class Pooling(nn.Module):
    """Base class: `forward(hidden_states, mask)` returns vectors (B, Q, D) and weights (B, Q, T), None if it has none.

    Args:
        attention_size, num_queries: of attention; other poolings have one vector and no parameters.
        bidirectional: whether the second half of the hidden states is read backwards.
    """

    width = 1  # of a pooled vector, in hidden sizes

    def __init__(self, hidden_size: int, attention_size: int = 0, num_queries: int = 1, bidirectional: bool = False):
        super().__init__()
        self.bidirectional = bidirectional


class AttentionPooling(Pooling):
    """Yang et al. 2016, Eq. (5)-(7): u_t = tanh(W h_t + b);  alpha_t = softmax_t(u_t . q);  s = sum_t alpha_t h_t

    The query q is learnt: what a token is compared with, whatever the text. Several queries, one for each label or each
    hop, give several vectors (Lin et al. 2017, arXiv:1703.03130).
    """

    def __init__(self, hidden_size: int, attention_size: int, num_queries: int = 1, bidirectional: bool = False):
        super().__init__(hidden_size, attention_size, num_queries, bidirectional)
        self.proj = nn.Linear(hidden_size, attention_size)  # W, b
        self.query_proj = nn.Linear(attention_size, num_queries, bias=False)  # q

    def forward(self, hidden_states: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        aligned = torch.tanh(self.proj(hidden_states))  # (B, T, A)  u_t, Eq. (5)
        scores = self.query_proj(aligned).transpose(1, 2)  # (B, Q, T)
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None], torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1)  # (B, Q, T)  alpha_t, Eq. (6)
        if mask is not None:
            weights = weights * mask[:, None]  # an empty sequence has no weights
        pooled = weights @ hidden_states  # (B, Q, D)  s, Eq. (7)
        return pooled, weights


class MeanPooling(Pooling):
    """s = mean_t h_t: attention whose weights are all equal."""

    def forward(self, hidden_states: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        real = hidden_states[:, :, 0] * 0 + 1 if mask is None else mask.to(hidden_states.dtype)
        weights = (real / real.sum(dim=1, keepdim=True).clamp(min=1))[:, None]  # (B, 1, T)
        return weights @ hidden_states, weights


class MaxPooling(Pooling):
    """s_d = max_t h_td. The weight of a token is the share of the dimensions in which it is the largest."""

    def forward(self, hidden_states: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        visible = hidden_states
        if mask is not None:
            visible = hidden_states.masked_fill(~mask[:, :, None], torch.finfo(hidden_states.dtype).min)
        pooled, positions = visible.max(dim=1)
        shares = torch.zeros_like(hidden_states).scatter(1, positions[:, None], 1.0).mean(dim=-1)  # (B, T)
        if mask is not None:  # an empty sequence has no largest state
            is_empty = ~mask.any(dim=1, keepdim=True)  # (B, 1)
            pooled, shares = pooled.masked_fill(is_empty, 0.0), shares.masked_fill(is_empty, 0.0)
        return pooled[:, None], shares[:, None]


class LastPooling(Pooling):
    """The hidden state where reading ends: the last token or, of the backward direction, the first."""

    def forward(self, hidden_states: Tensor, mask: Tensor | None) -> tuple[Tensor, None]:
        if not self.bidirectional:
            return last_token(hidden_states, mask)[:, None], None
        forward_states, backward_states = hidden_states.chunk(2, dim=-1)
        ends = last_token(forward_states, mask), first_token(backward_states, mask)
        return torch.cat(ends, dim=-1)[:, None], None


class ConcatPooling(Pooling):
    """Howard & Ruder 2018, Eq. (4): h_c = [h_T, maxpool(H), meanpool(H)]

    A few words of a long text decide its label, and the last state may have forgotten them.
    """

    width = 3

    def __init__(self, hidden_size: int, attention_size: int = 0, num_queries: int = 1, bidirectional: bool = False):
        super().__init__(hidden_size, attention_size, num_queries, bidirectional)
        self.parts = nn.ModuleList(
            part(hidden_size, bidirectional=bidirectional) for part in (LastPooling, MaxPooling, MeanPooling)
        )

    def forward(self, hidden_states: Tensor, mask: Tensor | None) -> tuple[Tensor, None]:
        return torch.cat([part(hidden_states, mask)[0] for part in self.parts], dim=-1), None


POOLINGS = {
    "last": LastPooling,
    "mean": MeanPooling,
    "max": MaxPooling,
    "concat": ConcatPooling,
    "attention": AttentionPooling,
    "label_attention": AttentionPooling,
}


def redundancy_penalty(weights: Tensor) -> Tensor:
    """Lin et al. 2017: || A A^T - I ||^2 of each text, A its weights (Q, T): 0 if no two queries share a token."""
    overlap = weights @ weights.transpose(1, 2)  # (B, Q, Q)
    identity = torch.eye(overlap.shape[-1], dtype=overlap.dtype, device=overlap.device)
    return (overlap - identity).square().sum(dim=(1, 2))
