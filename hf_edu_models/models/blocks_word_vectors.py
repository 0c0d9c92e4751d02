"""The fast form of skip-gram, CBOW and GloVe: stochastic gradient descent on a few blocks of text at a time, in place.

A block of T words is one matrix product of their input and output vectors, zero outside the band of each word's window;
its gradients are two more. The blocks of a step share their negatives, which are weighted to `num_negatives` a pair.
The vectors of the step's words are all that is read and written (`index_add_`), so a step costs the same for every
vocabulary. `modeling_word_vectors.py` has the equations; a test holds the gradients of both equal.

Shapes: B blocks, T words in each, D size of a vector, K negatives, P = B T positions.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .blocks_subwords import SubwordEmbedding


class BandTable:
    """The band of a word's window, looked up by its position and the size of its window."""

    def __init__(self, length: int, window_size: int, device: torch.device | None = None):
        positions = torch.arange(length, device=device)
        distances = (positions[:, None] - positions).abs()[:, None, :]
        sizes = torch.arange(window_size + 1, device=device)[None, :, None]
        self.rows = ((distances > 0) & (distances <= sizes)).float().flatten(0, 1)
        self.offsets = positions * (window_size + 1)

    def __call__(self, window_sizes: Tensor, mask: Tensor | None) -> Tensor:
        """(B, T, T) of 0 and 1: which words are in the window of each word."""
        batch, length = window_sizes.shape
        band = self.rows.index_select(0, (window_sizes + self.offsets).flatten()).view(batch, length, length)
        if mask is None:
            return band
        weights = mask.to(band.dtype)
        return band.mul_(weights[:, None, :]).mul_(weights[:, :, None])


class InputVectors:
    """Reads and updates the input vectors of words; with n-grams, a word's vector is the mean of its parts.

    Parts are summed once for the steps between `open` and `close`. There a step sees what the others have added to its
    words, but not yet what this adds to the n-grams that words share.
    """

    def __init__(self, embeddings: nn.Embedding):
        self.embeddings: Any = embeddings
        self.has_parts = isinstance(embeddings, SubwordEmbedding)
        if self.has_parts:
            self.row_of = torch.zeros(len(embeddings.weight), dtype=torch.long, device=embeddings.weight.device)

    @torch.no_grad()
    def open(self, ids: Tensor) -> None:
        """Take the vectors of these words, any number of times each."""
        if not self.has_parts:
            return
        self.words = ids.unique()
        self.row_of.index_copy_(0, self.words, torch.arange(len(self.words), device=ids.device))
        self.parts, starts, self.counts = self.embeddings.parts_of(self.words)
        sums = F.embedding_bag(self.parts, self.embeddings.ngrams.weight, starts, mode="sum")
        own = self.embeddings.weight.index_select(0, self.words)
        self.vectors = sums.add_(own).div_((1 + self.counts)[:, None])
        self.before = self.vectors.clone()

    @torch.no_grad()
    def close(self) -> None:
        """Add what has been added to each word to all of its parts: each gets the whole change."""
        if not self.has_parts:
            return
        changes = self.vectors.sub_(self.before)
        self.embeddings.weight.index_add_(0, self.words, changes)
        self.embeddings.ngrams.weight.index_add_(0, self.parts, changes.repeat_interleave(self.counts, dim=0))

    def read(self, ids: Tensor) -> Tensor:
        if self.has_parts:
            return self.vectors.index_select(0, self.row_of.index_select(0, ids))
        return self.embeddings.weight.index_select(0, ids)

    def add(self, ids: Tensor, changes: Tensor) -> None:
        if self.has_parts:
            self.vectors.index_add_(0, self.row_of.index_select(0, ids), changes)
        else:
            self.embeddings.weight.index_add_(0, ids, changes)


@torch.no_grad()
def skip_gram_step(
    inputs: InputVectors, outputs: Tensor, ids: Tensor, band: Tensor, negative_ids: Tensor, rate: float, weight: float
) -> None:
    """One step on the blocks `ids` (B, T) with their `band` (B, T, T) and shared negatives (K).

    Args:
        rate: the learning rate.
        weight: of a negative for each pair, `num_negatives` / K.
    """
    words = ids.flatten()
    centers = inputs.read(words)
    contexts = outputs.index_select(0, words).view(*ids.shape, -1)
    negatives = outputs.index_select(0, negative_ids)
    blocks = centers.view(*ids.shape, -1)
    pull = torch.bmm(blocks, contexts.transpose(1, 2)).neg_().sigmoid_().mul_(band).mul_(rate)
    pairs = band.sum(dim=2).view(-1, 1).mul_(rate * weight)
    push = torch.mm(centers, negatives.t()).sigmoid_().mul_(pairs)
    center_changes = torch.bmm(pull, contexts).view_as(centers).addmm_(push, negatives, alpha=-1)
    context_changes = torch.bmm(pull.transpose(1, 2), blocks).view_as(centers)
    outputs.index_add_(0, words, context_changes)
    outputs.index_add_(0, negative_ids, torch.mm(push.t(), centers).neg_())
    inputs.add(words, center_changes)


@torch.no_grad()
def cbow_step(
    inputs: InputVectors,
    outputs: Tensor,
    ids: Tensor,
    band: Tensor,
    negative_ids: Tensor,
    rate: float,
    weight: float,
    mask: Tensor | None = None,
) -> None:
    """As `skip_gram_step`; the mean over a window predicts its word."""
    words = ids.flatten()
    vectors = inputs.read(words).view(*ids.shape, -1)
    counts = band.sum(dim=2, keepdim=True).clamp_(min=1)
    means = torch.bmm(band, vectors).div_(counts).view(len(words), -1)
    targets = outputs.index_select(0, words)
    negatives = outputs.index_select(0, negative_ids)
    pull = torch.linalg.vecdot(means, targets).neg_().sigmoid_().mul_(rate).unsqueeze(1)
    push = torch.mm(means, negatives.t()).sigmoid_().mul_(rate * weight)
    if mask is not None:
        pull, push = pull.mul_(mask.view(-1, 1)), push.mul_(mask.view(-1, 1))
    mean_changes = targets.mul_(pull).addmm_(push, negatives, alpha=-1)
    outputs.index_add_(0, words, means * pull)
    outputs.index_add_(0, negative_ids, torch.mm(push.t(), means).neg_())
    inputs.add(words, torch.bmm(band.transpose(1, 2), mean_changes.view_as(vectors)).view_as(means))


class SparseAdagrad:
    """AdaGrad that reads and writes only the rows of a table that have a gradient (Duchi, Hazan & Singer 2011).

    Args:
        squares: the sums of squared gradients so far; from 1 on, as in GloVe's code.
    """

    def __init__(self, table: Tensor, squares: Tensor):
        self.table, self.squares = table, squares

    def step(self, ids: Tensor, gradients: Tensor, rate: float) -> None:
        steps = gradients * -rate / self.squares.index_select(0, ids).sqrt_()
        self.squares.index_add_(0, ids, gradients.square())
        self.table.index_add_(0, ids, steps)


@torch.no_grad()
def glove_step(
    tables: tuple[SparseAdagrad, SparseAdagrad, SparseAdagrad, SparseAdagrad],
    ids: Tensor,
    labels: Tensor,
    counts: Tensor,
    rate: float,
    limit: float,
    power: float,
) -> None:
    """One step on the co-occurrences `counts` (P) of the words `ids` and `labels` (P).

    Args:
        tables: the vectors w and w~, and the biases b and b~ (V, 1).
    """
    words, contexts, word_bias, context_bias = tables
    vectors, others = words.table.index_select(0, ids), contexts.table.index_select(0, labels)
    biases = word_bias.table.index_select(0, ids) + context_bias.table.index_select(0, labels)
    errors = torch.linalg.vecdot(vectors, others).unsqueeze(1) + biases - counts.log()[:, None]
    gradients = 2 * errors * (counts / limit).clamp(max=1).pow(power)[:, None]
    words.step(ids, gradients * others, rate)
    contexts.step(labels, gradients * vectors, rate)
    word_bias.step(ids, gradients, rate)
    context_bias.step(labels, gradients, rate)
