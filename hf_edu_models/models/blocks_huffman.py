"""Hierarchical softmax: a word is predicted by the turns on the path to it in a Huffman tree.

Papers: Morin & Bengio 2005; Mikolov et al. 2013b, arXiv:1310.4546, Section 2.1. Frequent words have short paths, so the
loss of a word costs about log2 of the vocabulary in dot products, not one for each word.

Shapes: B batch, T time steps, V vocabulary, M longest path.
"""

import heapq

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def huffman_paths(counts: list[int], longest: int) -> tuple[Tensor, Tensor]:
    """The inner nodes on the way from the root to each word, and the turn at each: 1 or -1, 0 beyond the end."""
    size = len(counts)
    heap = [(count, node) for node, count in enumerate(counts)]
    heapq.heapify(heap)
    parents, turns = [0] * (2 * size), [0] * (2 * size)
    for parent in range(size, 2 * size - 1):  # inner node n of the tree is number size + n
        total = 0
        for turn in (1, -1):
            count, node = heapq.heappop(heap)
            parents[node], turns[node] = parent, turn
            total += count
        heapq.heappush(heap, (total, parent))
    nodes = torch.zeros(size, longest, dtype=torch.int32)
    codes = torch.zeros(size, longest, dtype=torch.int8)
    for word in range(size):
        path, node = [], word
        while turns[node]:
            path.append((parents[node] - size, turns[node]))
            node = parents[node]
        if len(path) > longest:
            raise ValueError(
                f"a path of the Huffman tree has {len(path)} nodes, but max_code_length is {longest}; raise it, or "
                "leave rarer words out"
            )
        for place, (inner, turn) in enumerate(reversed(path)):
            nodes[word, place], codes[word, place] = inner, turn
    return nodes, codes


class HuffmanTree(nn.Module):
    """log p(w | h) = sum over the path of log sigmoid(turn * u_n . h), Eq. (3)

    `node_proj` has the vectors u_n of the inner nodes. Until `set_counts`, all words count the same.
    """

    nodes: Tensor
    codes: Tensor

    def __init__(self, vocab_size: int, hidden_size: int, longest: int):
        super().__init__()
        self.node_proj = nn.Linear(hidden_size, max(vocab_size - 1, 1), bias=False)
        self.register_buffer("nodes", torch.zeros(vocab_size, longest, dtype=torch.int32))
        self.register_buffer("codes", torch.zeros(vocab_size, longest, dtype=torch.int8))

    def balanced(self) -> tuple[Tensor, Tensor]:
        """The tree of words that all occur as often."""
        return huffman_paths([1] * self.nodes.shape[0], self.nodes.shape[1])

    def set_counts(self, counts: list[int]) -> None:
        """Build the tree for words that occur so often."""
        nodes, codes = huffman_paths(counts, self.nodes.shape[1])
        self.nodes.copy_(nodes)
        self.codes.copy_(codes)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """The log-probability of every word."""
        turns = F.logsigmoid(torch.stack([self.node_proj(hidden_states), -self.node_proj(hidden_states)], dim=-1))
        result = hidden_states.new_zeros(())
        for node, code in zip(self.nodes.t().long(), self.codes.t(), strict=True):
            result = result + turns[..., node, (code < 0).long()] * (code != 0)
        return result

    def losses(self, hidden_states: Tensor, labels: Tensor) -> Tensor:
        """-log p(label | h) of each position, from the nodes on its path alone."""
        codes = self.codes[labels]
        weights = F.embedding(self.nodes[labels].long(), self.node_proj.weight)
        scores = torch.einsum("...md,...d->...m", weights, hidden_states)
        return -(F.logsigmoid(codes * scores) * (codes != 0)).sum(dim=-1)
