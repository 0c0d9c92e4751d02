"""The deep output of Cho 2014 and Bahdanau 2015: the next word from the state, the last word and the context.

Shapes: B batch, T time steps, D hidden size.
"""

import torch
from torch import Tensor, nn


class LinearReadout(nn.Module):
    """One linear layer over the three."""

    width = 1  # linear units for one output

    def __init__(self, state_size: int, word_size: int, context_size: int, output_size: int):
        super().__init__()
        self.state_proj = nn.Linear(state_size, self.width * output_size)  # U_o
        self.word_proj = nn.Linear(word_size, self.width * output_size, bias=False)  # V_o
        self.context_proj = nn.Linear(context_size, self.width * output_size, bias=False)  # C_o

    def forward(self, states: Tensor, words: Tensor, contexts: Tensor) -> Tensor:
        return self.state_proj(states) + self.word_proj(words) + self.context_proj(contexts)


class MaxoutReadout(LinearReadout):
    """Goodfellow et al. 2013: each output is the larger of two linear units."""

    width = 2

    def forward(self, states: Tensor, words: Tensor, contexts: Tensor) -> Tensor:
        pairs = super().forward(states, words, contexts).unflatten(-1, (-1, self.width))
        outputs = torch.maximum(*pairs.unbind(-1))  # (B, T, D)  t_i
        return outputs


READOUTS = {"linear": LinearReadout, "maxout": MaxoutReadout}
