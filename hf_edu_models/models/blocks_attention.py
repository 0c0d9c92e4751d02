"""Attention of the recurrent models: scores, weights made of them, and attention over a window of past states.

A score compares one query, a decoder state s, with every key, made of an annotation h_j. `prepare` computes once for a
source what does not depend on the query. A new score is a class and one entry in `SCORES`, nothing else. A normaliser
makes weights of the scores, none negative, with sum one; a new one is a class and one entry in `NORMALIZERS`.

Shapes: B batch, S source length, T time steps, D hidden size, A alignment size, W window.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .blocks_fused_steps import FusedAdditive, FusedCosine, FusedDot, FusedProjected
from .blocks_masks import last_states


class AttentionScore(nn.Module):
    """Base class of the scores; `forward(query, keys)` returns scores (B, S).

    `fused` is the score in the form of `blocks_fused_steps.py`. It is not inherited, because a subclass may compute
    something else; a score without one runs eager.
    """

    fused = None
    needs_equal_sizes = False  # whether query and annotation must have the same size

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.fused = vars(cls).get("fused")

    def __init__(self, query_size: int, key_size: int, align_size: int):
        super().__init__()

    def prepare(self, annotations: Tensor) -> Tensor:
        """The keys."""
        return annotations


class DotScore(AttentionScore):
    """Luong et al. 2015, `dot`: e_j = s . h_j"""

    fused = FusedDot
    needs_equal_sizes = True

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        scores = torch.einsum("bd,bsd->bs", query, keys)  # (B, S)
        return scores


class ScaledDotScore(DotScore):
    """Vaswani et al. 2017, Section 3.2.1: e_j = s . h_j / sqrt(d); the keys carry the factor."""

    fused = FusedDot

    def prepare(self, annotations: Tensor) -> Tensor:
        return annotations * annotations.shape[-1] ** -0.5


def _to_unit_length(states: Tensor) -> Tensor:
    """x / |x|, and zero for zero: the smallest length is a number that float16 has, too."""
    return F.normalize(states, dim=-1, eps=max(1e-12, torch.finfo(states.dtype).tiny))


class CosineScore(DotScore):
    """The cosine of the angle: e_j = s . h_j / (|s| |h_j|)"""

    fused = FusedCosine

    def prepare(self, annotations: Tensor) -> Tensor:
        return _to_unit_length(annotations)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return super().forward(_to_unit_length(query), keys)


class GeneralScore(DotScore):
    """Luong et al. 2015, `general`: e_j = s . (W_a h_j)"""

    fused = FusedDot
    needs_equal_sizes = False

    def __init__(self, query_size: int, key_size: int, align_size: int):
        super().__init__(query_size, key_size, align_size)
        self.key_proj = nn.Linear(key_size, query_size, bias=False)  # W_a

    def prepare(self, annotations: Tensor) -> Tensor:
        return self.key_proj(annotations)


class AdditiveScore(AttentionScore):
    """Bahdanau et al. 2015, App. A.1.2: e_ij = v_a . tanh(W_a s_{i-1} + U_a h_j)"""

    fused = FusedAdditive

    def __init__(self, query_size: int, key_size: int, align_size: int):
        super().__init__(query_size, key_size, align_size)
        self.query_weight = nn.Parameter(torch.empty(align_size, query_size))  # W_a
        self.key_weight = nn.Parameter(torch.empty(align_size, key_size))  # U_a
        self.score_vector = nn.Parameter(torch.empty(align_size))  # v_a
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(align_size**-0.5), align_size**-0.5)

    def prepare(self, annotations: Tensor) -> Tensor:
        return F.linear(annotations, self.key_weight)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        queries = F.linear(query, self.query_weight)[:, None, :]  # (B, 1, A)
        aligned = torch.tanh(queries + keys)  # (B, S, A)
        scores = aligned @ self.score_vector  # (B, S)  e_ij
        return scores


class ProjectedScore(AttentionScore):
    """Queries and keys as in Vaswani et al. 2017, Section 3.2.2, with a single head: e_j = (W_q s) . (W_k h_j)

    The values are the annotations: the decoder's cell and its readout multiply the context c by weights of their own,
    and W (sum_j alpha_j W_v h_j) = (W W_v) c, so that W_v would add nothing.
    """

    fused = FusedProjected

    def __init__(self, query_size: int, key_size: int, align_size: int):
        super().__init__(query_size, key_size, align_size)
        self.query_weight = nn.Parameter(torch.empty(align_size, query_size))  # W_q
        self.key_weight = nn.Parameter(torch.empty(align_size, key_size))  # W_k
        for parameter in self.parameters():
            nn.init.xavier_uniform_(parameter)

    def prepare(self, annotations: Tensor) -> Tensor:
        return F.linear(annotations, self.key_weight)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        queries = F.linear(query, self.query_weight)  # (B, A)
        scores = torch.einsum("ba,bsa->bs", queries, keys)  # (B, S)
        return scores


SCORES = {
    "additive": AdditiveScore,
    "dot": DotScore,
    "scaled_dot": ScaledDotScore,
    "general": GeneralScore,
    "cosine": CosineScore,
    "projected": ProjectedScore,
}


class Softmax(nn.Module):
    """alpha_j = exp(e_j) / sum_k exp(e_k): no weight is zero, except that of a masked key."""

    def forward(self, scores: Tensor) -> Tensor:
        weights = scores.softmax(dim=-1)  # (B, S)
        return weights


class Sparsemax(nn.Module):
    """Martins & Astudillo 2016, arXiv:1602.02068: the weights nearest to the scores; low scores get exactly 0.

    alpha_j = max(0, e_j - tau), with tau such that the weights sum to one: tau = (sum of the k highest scores - 1) / k,
    where k is the number of weights above zero.
    """

    def forward(self, scores: Tensor) -> Tensor:
        # Subtracting the same number from all scores changes no weight, and float16 is too coarse for sums.
        shifted = scores.to(torch.promote_types(scores.dtype, torch.float32))
        shifted = shifted - shifted.amax(dim=-1, keepdim=True).detach()  # (B, S)
        ordered = shifted.sort(dim=-1, descending=True).values  # (B, S)  e_(1) >= e_(2) >= ...
        ranks = torch.arange(1, scores.shape[-1] + 1, device=scores.device, dtype=ordered.dtype)  # (S)
        in_support = 1 + ranks * ordered > ordered.cumsum(dim=-1)  # (B, S)
        support_sum = ordered.masked_fill(~in_support, 0).sum(dim=-1, keepdim=True)  # (B, 1)
        threshold = (support_sum - 1) / in_support.sum(dim=-1, keepdim=True)  # (B, 1)  tau
        weights = (shifted - threshold).clamp(min=0).to(scores.dtype)  # (B, S)
        return weights


NORMALIZERS = {"softmax": Softmax, "sparsemax": Sparsemax}


def attend(
    scores: Tensor, annotations: Tensor, mask: Tensor | None, normalizer: nn.Module | None = None
) -> tuple[Tensor, Tensor]:
    """alpha_ij = exp(e_ij) / sum_k exp(e_ik), Eq. (6); c_i = sum_j alpha_ij h_j, Eq. (5) of Bahdanau et al. 2015.

    Args:
        normalizer: of `NORMALIZERS`, instead of the softmax of Eq. (6).
    """
    if mask is not None:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    weights = (normalizer or Softmax())(scores)  # (B, S)  alpha_ij, Eq. (6)
    context = torch.einsum("bs,bsd->bd", weights, annotations)  # (B, D)  c_i, Eq. (5)
    return context, weights


class WindowAttention(nn.Module):
    """Each position attends over the `window` states before it (after Daniluk et al. 2017, arXiv:1702.04521).

    e_tj = v . tanh(W h_t + U h_j) for j = t-window .. t-1;  c_t = sum_j softmax(e_t)_j h_j;  out_t = tanh(V [h_t; c_t])

    With `lag_bias` e_tj also has b_{t-j}, so that attention can learn to look a fixed number of steps back:
    c_t = sum_tau alpha(t, tau) h_{t-tau}.
    """

    def __init__(self, hidden_size: int, window: int, lag_bias: bool = False):
        super().__init__()
        self.window = window
        self.query_proj = nn.Linear(hidden_size, hidden_size, bias=False)  # W
        self.key_proj = nn.Linear(hidden_size, hidden_size, bias=False)  # U
        self.score_proj = nn.Linear(hidden_size, 1, bias=False)  # v
        self.output_proj = nn.Linear(2 * hidden_size, hidden_size, bias=False)  # V
        self.lag_bias = nn.Parameter(torch.zeros(window)) if lag_bias else None  # b_window .. b_1

    def start(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        """The window before the first token: zero states, and a 0 for each, because none is real."""
        batch, _, size = hidden_states.shape
        return hidden_states.new_zeros(batch, self.window, size), hidden_states.new_zeros(batch, self.window, 1)

    def forward(
        self, hidden_states: Tensor, window_states: tuple[Tensor, Tensor], mask: Tensor | None
    ) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        """Padding must be last. Returns the outputs, the weights and the window for the tokens that follow."""
        length = hidden_states.shape[1]
        is_real = torch.ones_like(hidden_states[:, :, :1]) if mask is None else mask[:, :, None]  # (B, T, 1)
        states = torch.cat([window_states[0], hidden_states], dim=1)
        is_real = torch.cat([window_states[1], is_real.to(states.dtype)], dim=1)
        keys = self.key_proj(states).unfold(1, self.window, 1)[:, :length].transpose(2, 3)  # (B, T, W, D)
        aligned = torch.tanh(self.query_proj(hidden_states)[:, :, None] + keys)  # (B, T, W, D)
        scores = self.score_proj(aligned).squeeze(-1)  # (B, T, W)
        if self.lag_bias is not None:
            scores = scores + self.lag_bias
        visible = is_real.squeeze(-1).unfold(1, self.window, 1)[:, :length] > 0  # (B, T, W)
        # The first token has no past: its weights are zeros, not NaN.
        weights = scores.masked_fill(~visible, torch.finfo(scores.dtype).min).softmax(dim=-1) * visible  # (B, T, W)
        past = states.unfold(1, self.window, 1)[:, :length]  # (B, T, D, W)
        context = torch.einsum("btw,btdw->btd", weights, past)  # (B, T, D)
        outputs = torch.tanh(self.output_proj(torch.cat([hidden_states, context], dim=-1)))  # (B, T, D)
        window_states = last_states(states, mask, self.window), last_states(is_real, mask, self.window)
        return outputs, weights, window_states
