"""The deep output of Cho et al. 2014 and Bahdanau et al. 2015: from state, previous token and context to the softmax.

Shapes: B batch, T time steps, D hidden size.
"""

import torch
from torch import Tensor, nn


class LinearReadout(nn.Module):
    """t_i = U_o s_i + V_o y_{i-1} + C_o c_i (Bahdanau et al. 2015, App. A.2.2); y_{i-1} embeds the previous token."""

    width = 1  # linear units per output

    def __init__(self, state_size: int, embedding_size: int, context_size: int, output_size: int):
        super().__init__()
        self.state_proj = nn.Linear(state_size, self.width * output_size)  # U_o
        self.word_proj = nn.Linear(embedding_size, self.width * output_size, bias=False)  # V_o
        self.context_proj = nn.Linear(context_size, self.width * output_size, bias=False)  # C_o

    def forward(self, states: Tensor, embeddings: Tensor, contexts: Tensor) -> Tensor:
        return self.state_proj(states) + self.word_proj(embeddings) + self.context_proj(contexts)


class MaxoutReadout(LinearReadout):
    """Goodfellow et al. 2013: t_{i,j} = max(t~_{i,2j-1}, t~_{i,2j}), each output the larger of two linear units."""

    width = 2

    def forward(self, states: Tensor, embeddings: Tensor, contexts: Tensor) -> Tensor:
        pairs = super().forward(states, embeddings, contexts).unflatten(-1, (-1, self.width))
        outputs = torch.maximum(*pairs.unbind(-1))  # (B, T, D)  t_i
        return outputs


READOUTS = {"maxout": MaxoutReadout, "linear": LinearReadout}
