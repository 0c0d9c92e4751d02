"""Regularisation of the AWD-LSTM: four places where dropout does not erase the state, and two penalties on it.

Paper: Merity, Keskar & Socher 2017, arXiv:1708.02182. All of it acts in training only.

Shapes: B batch, T time steps, D hidden size, V vocabulary.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from .blocks_dropout import Dropout


class LockedDropout(Dropout):
    """Variational dropout (Gal & Ghahramani 2016): one mask for all time steps of a sequence, m (B, 1, D)."""

    def forward(self, states: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return states
        mask = super().forward(torch.ones_like(states[:, :1]))  # (B, 1, D)  m
        return states * mask


class EmbeddingDropout(nn.Dropout):
    """Drops words of the vocabulary: a word that is dropped is zero wherever it occurs in the batch."""

    def forward(self, embeddings: Tensor, input_ids: Tensor | None, vocab_size: int) -> Tensor:  # type: ignore[override]
        if not self.training or self.p == 0:
            return embeddings
        if input_ids is None:
            raise ValueError("embedding_dropout drops words; give input_ids instead of inputs_embeds, or set it to 0")
        words = super().forward(embeddings.new_ones(vocab_size, 1))  # (V, 1)
        return embeddings * words[input_ids]


class WeightDrop(nn.Dropout):
    """DropConnect (Wan et al. 2013) on the hidden-to-hidden matrix U: one mask for all time steps and rows.

    h_t depends on (M * U) h_{t-1}, so the state itself is never dropped, and torch's kernels can be used.
    """

    def forward(self, cell):
        # A cell that PEFT has wrapped trains other weights than U.
        if not self.training or self.p == 0 or "state_weight" not in dict(cell.named_parameters(recurse=False)):
            return cell
        return _CellWithWeights(cell, F.dropout(cell.state_weight, self.p))


class _CellWithWeights:
    """A cell that reads another hidden-to-hidden matrix, without being changed."""

    def __init__(self, cell: Any, state_weight: Tensor):
        self.cell, self.state_weight = cell, state_weight

    def __call__(self, step: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return functional_call(self.cell, {"state_weight": self.state_weight}, (step, state))

    def weights(self) -> list[Tensor]:
        own = self.cell.state_weight
        return [self.state_weight if weight is own else weight for weight in self.cell.weights()]


def activation_penalty(
    states: Tensor, dropped: Tensor, mask: Tensor | None, activation_weight: float, change_weight: float
) -> Tensor:
    """AR and TAR of each token, with squares and means where the paper writes L2 (as its authors' code does):

    alpha mean_d (m_d h_td)^2 + beta mean_d (h_td - h_{t+1,d})^2

    Args:
        states: h, (B, T, D); `dropped` is m * h, after the last dropout.
        mask: True for a real token; others, and pairs with them, have no penalty.
    """
    penalty = activation_weight * dropped.square().mean(dim=-1)  # (B, T)
    change = change_weight * (states[:, :-1] - states[:, 1:]).square().mean(dim=-1)
    if mask is not None:
        penalty, change = penalty * mask, change * (mask[:, :-1] & mask[:, 1:])
    return penalty + F.pad(change, (0, 1))
