"""Attention with relative positions over a memory and a segment (Dai et al. 2019, Section 3.3).

Shapes: B batch, T length of the segment, S length of memory and segment, D hidden size, H heads, K size of one head.
"""

import torch
from torch import Tensor, nn

from .blocks_dropout import Dropout
from .blocks_transformer import OutputProjection


class RelativeAttention(nn.Module):
    """The score of key j for query i is the sum of four terms; R_{i-j} is a sinusoid of their distance.

    A_ij = q_i . k_j + q_i . W_kR R_{i-j} + u . k_j + v . W_kR R_{i-j}
    """

    is_causal = True

    def __init__(self, config):
        super().__init__()
        self.config = config
        size, self.head_size = config.hidden_size, config.hidden_size // config.num_attention_heads
        self.scaling = self.head_size**-0.5
        self.q_proj = nn.Linear(size, size, bias=False)  # W_q
        self.kv_proj = nn.Linear(size, 2 * size, bias=False)  # W_kE, W_v in one product
        self.position_proj = nn.Linear(size, size, bias=False)  # W_kR
        self.content_bias = nn.Parameter(torch.zeros(config.num_attention_heads, 1, self.head_size))  # u
        self.position_bias = nn.Parameter(torch.zeros(config.num_attention_heads, 1, self.head_size))  # v
        self.dropout = Dropout(config.attention_dropout)
        self.output = OutputProjection(size, size, bias=False)

    def forward(
        self, hidden_states: Tensor, memory: Tensor | None, visible: Tensor, positions: Tensor, implementation: str
    ) -> tuple[Tensor, Tensor | None]:
        """
        Args:
            hidden_states: of the segment; its queries attend to memory and segment.
            memory: hidden states of this layer's input for the tokens before, without gradient.
            visible: (B, 1, T, S), whether a query sees a key.
            positions: (S, D), the sinusoids R_0, R_1, ... of all distances.
        """
        context = hidden_states if memory is None else torch.cat([memory, hidden_states], dim=1)  # (B, S, D)
        query = self.split_heads(self.q_proj(hidden_states))  # (B, H, T, K)
        key, value = (self.split_heads(part) for part in self.kv_proj(context).chunk(2, dim=-1))
        position_keys = self.split_heads(self.position_proj(positions))  # (H, S, K)
        attend = self.four_terms if implementation == "eager" else self.two_terms
        heads, weights = attend(query, key, value, position_keys, visible)
        return self.output(heads.transpose(1, 2).flatten(2)), weights

    def split_heads(self, states: Tensor) -> Tensor:
        return states.unflatten(-1, (-1, self.head_size)).transpose(-3, -2)

    def four_terms(
        self, query: Tensor, key: Tensor, value: Tensor, position_keys: Tensor, visible: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As the paper has it: the terms (a) to (d), each by itself."""
        length, past = query.shape[2], key.shape[2] - query.shape[2]
        places = torch.arange(key.shape[2], device=key.device)
        distances = (places[past:, None] - places).clamp(min=0)  # (T, S)  i - j, where a query sees a key

        content_content = query @ key.transpose(-2, -1)  # (B, H, T, S)  (a)
        by_distance = query @ position_keys.transpose(-2, -1)  # (B, H, T, S)  of R_0, R_1, ...
        content_position = by_distance.gather(-1, distances.expand_as(by_distance))  # (B, H, T, S)  (b)
        global_content = self.content_bias @ key.transpose(-2, -1)  # (B, H, 1, S)  (c)
        by_distance = (self.position_bias @ position_keys.transpose(-2, -1)).expand(-1, length, -1)  # (H, T, S)
        global_position = by_distance.gather(-1, distances.expand_as(by_distance))  # (H, T, S)  (d)

        scores = (content_content + content_position + global_content + global_position) * self.scaling  # (B, H, T, S)
        scores = scores.masked_fill(~visible, torch.finfo(scores.dtype).min)
        weights = scores.softmax(dim=-1)  # (B, H, T, S)
        heads = self.dropout(weights) @ value  # (B, H, T, K)
        return heads, weights

    def two_terms(
        self, query: Tensor, key: Tensor, value: Tensor, position_keys: Tensor, visible: Tensor
    ) -> tuple[Tensor, None]:
        """The same with two products: (q + u) . k by torch's kernel, to which (q + v) . W_kR R is a bias.

        Distances are shifted into place without an index, as in the paper's Appendix B.
        """
        farthest_first = position_keys.flip(1)
        by_distance = (query + self.position_bias) @ farthest_first.transpose(-2, -1)  # (B, H, T, S)
        bias = (shift(by_distance) * self.scaling).masked_fill(~visible, torch.finfo(query.dtype).min)  # (B, H, T, S)
        dropout = self.dropout.p if self.dropout.training else 0.0
        heads = nn.functional.scaled_dot_product_attention(
            query + self.content_bias, key, value, attn_mask=bias, dropout_p=dropout, scale=self.scaling
        )  # (B, H, T, K)
        return heads, None


def shift(by_distance: Tensor) -> Tensor:
    """From columns for the distances S - 1, ..., 0 to columns for keys: row t moves T - 1 - t places to the left.

    A column of zeros in front makes every row one longer, so that reading the numbers in rows of the old length moves
    each row by one more place than the row above. What comes from another row stands for a key that is not visible.
    """
    batch, heads, length, keys = by_distance.shape
    padded = nn.functional.pad(by_distance, (1, 0)).reshape(batch, heads, keys + 1, length)
    return padded[:, :, 1:].reshape(batch, heads, length, keys)
