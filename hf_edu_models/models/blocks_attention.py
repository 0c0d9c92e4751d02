"""Attention of the recurrent rungs: five ways to score, and one way to look back at a short past.

A score compares one query, a decoder state, with every key, made of an annotation. `prepare` does once for a source
what does not depend on the query.

Shapes: B batch, S source length, T time steps, D hidden size, A alignment size, W window.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .blocks_masks import last_states


class DotScore(nn.Module):
    """Luong et al. 2015, `dot`: how far two states point the same way, times their lengths."""

    def __init__(self, query_size: int, key_size: int, align_size: int):
        super().__init__()

    def prepare(self, annotations: Tensor) -> Tensor:
        return annotations

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        scores = torch.einsum("bd,bsd->bs", query, keys)  # (B, S)
        return scores


class ScaledDotScore(DotScore):
    """Vaswani et al. 2017, Section 3.2.1: the dot product over the square root of its size, which the keys carry."""

    def prepare(self, annotations: Tensor) -> Tensor:
        return annotations * annotations.shape[-1] ** -0.5


class CosineScore(DotScore):
    """The angle alone: the dot product of unit vectors."""

    def prepare(self, annotations: Tensor) -> Tensor:
        return F.normalize(annotations, dim=-1)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return super().forward(F.normalize(query, dim=-1), keys)


class GeneralScore(DotScore):
    """Luong et al. 2015, `general`: a learnt matrix between the two."""

    def __init__(self, query_size: int, key_size: int, align_size: int):
        super().__init__(query_size, key_size, align_size)
        self.key_proj = nn.Linear(key_size, query_size, bias=False)  # W_a

    def prepare(self, annotations: Tensor) -> Tensor:
        return self.key_proj(annotations)


class AdditiveScore(nn.Module):
    """Bahdanau et al. 2015, arXiv:1409.0473, App. A.1.2: a layer of tanh units that sees both."""

    def __init__(self, query_size: int, key_size: int, align_size: int):
        super().__init__()
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


SCORES = {
    "additive": AdditiveScore,
    "dot": DotScore,
    "scaled_dot": ScaledDotScore,
    "general": GeneralScore,
    "cosine": CosineScore,
}


def attend(scores: Tensor, annotations: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
    """Turn scores into weights that sum to one, and the weights into a context."""
    if keep is not None:
        scores = scores.masked_fill(~keep, torch.finfo(scores.dtype).min)
    weights = scores.softmax(dim=-1)  # (B, S)  alpha_ij, Eq. (6)
    context = torch.einsum("bs,bsd->bd", weights, annotations)  # (B, D)  c_i, Eq. (5)
    return context, weights


class WindowAttention(nn.Module):
    """Each position looks back at the `window` states before it (after Daniluk et al. 2017, arXiv:1702.04521)."""

    def __init__(self, hidden_size: int, window: int):
        super().__init__()
        self.window = window
        self.query_proj = nn.Linear(hidden_size, hidden_size, bias=False)
        self.key_proj = nn.Linear(hidden_size, hidden_size, bias=False)
        self.score_proj = nn.Linear(hidden_size, 1, bias=False)
        self.output_proj = nn.Linear(2 * hidden_size, hidden_size, bias=False)

    def start(self, hidden_states: Tensor) -> tuple[Tensor, Tensor]:
        """A memory with nothing in it: states, and a 1 for each that is real."""
        batch, _, size = hidden_states.shape
        return hidden_states.new_zeros(batch, self.window, size), hidden_states.new_zeros(batch, self.window, 1)

    def forward(
        self, hidden_states: Tensor, memory: tuple[Tensor, Tensor], keep: Tensor | None
    ) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        """Real tokens must be in front. Returns outputs, weights and the memory for what follows."""
        length = hidden_states.shape[1]
        is_real = torch.ones_like(hidden_states[:, :, :1]) if keep is None else keep[:, :, None]  # (B, T, 1)
        states = torch.cat([memory[0], hidden_states], dim=1)
        is_real = torch.cat([memory[1], is_real.to(states.dtype)], dim=1)
        keys = self.key_proj(states).unfold(1, self.window, 1)[:, :length].transpose(2, 3)  # (B, T, W, D)
        aligned = torch.tanh(self.query_proj(hidden_states)[:, :, None] + keys)  # (B, T, W, D)
        scores = self.score_proj(aligned).squeeze(-1)  # (B, T, W)
        visible = is_real.squeeze(-1).unfold(1, self.window, 1)[:, :length] > 0  # (B, T, W)
        # The first token has no past: its weights are zeros, not NaN.
        weights = scores.masked_fill(~visible, torch.finfo(scores.dtype).min).softmax(dim=-1) * visible  # (B, T, W)
        past = states.unfold(1, self.window, 1)[:, :length]  # (B, T, D, W)
        context = torch.einsum("btw,btdw->btd", weights, past)  # (B, T, D)
        outputs = torch.tanh(self.output_proj(torch.cat([hidden_states, context], dim=-1)))  # (B, T, D)
        memory = last_states(states, keep, self.window), last_states(is_real, keep, self.window)
        return outputs, weights, memory
