"""The structural probe (Hewitt & Manning 2019, Section 2): is the dependency tree in the geometry of the hidden states?

One linear map B makes the squared distance between two words, |B(h_i - h_j)|^2, their distance in the tree; another
makes the squared length |B h_i|^2 a word's depth. The minimum spanning tree of the distances is the predicted tree. A
control has the same model with random weights: what its probes reach is in the words and their order alone.

Differs from the paper: each dimension of the states is standardised, so that models of any scale learn at one learning
rate; no validation split stops the training, the rate falls to zero instead.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ...checkpoints import length_limit
from ..hidden_states import check_layer, layer_states
from ..inference import with_progress
from ..word_tokens import encode_words
from .linear import split_rows, write_probes
from .trees import (
    Edge,
    attachment_score,
    chain_edges,
    gold_edges,
    is_word,
    mean_correlation,
    spanning_edges,
    tree_depths,
    tree_distances,
)


@dataclass(frozen=True)
class ParseScores:
    """The scores of one layer's probes on held-out sentences, from 0 to 1.

    Args:
        uuas: Share of the gold edges in the minimum spanning tree of the predicted distances.
        distance_spearman: Correlation of predicted and gold distances.
        root_accuracy: How often the word with the least predicted depth is the root.
        depth_spearman: Correlation of predicted and gold depths.
    """

    layer: int
    uuas: float
    distance_spearman: float
    root_accuracy: float
    depth_spearman: float


@dataclass(frozen=True)
class Sentence:
    """A held-out sentence, its gold edges, and those of the best layer's probe."""

    tokens: list[str]
    gold: set[Edge]
    predicted: set[Edge]


@dataclass(frozen=True)
class ParseResult:
    """The probes of a model's layers, the embeddings as layer 0.

    Args:
        untrained: The same for the model with random weights; empty without a control.
        chain: UUAS of joining each word to the next.
        left_out: Number of sentences that the model cannot read whole.
    """

    layers: list[ParseScores]
    untrained: list[ParseScores]
    chain: float
    train_sentences: int
    test_sentences: int
    left_out: int = 0
    sentences: list[Sentence] = field(default_factory=list)

    @property
    def best(self) -> ParseScores:
        return max(self.layers, key=lambda each: each.uuas)

    def to_dict(self) -> dict[str, Any]:
        shown = [
            {"tokens": each.tokens, "gold": sorted(each.gold), "predicted": sorted(each.predicted)}
            for each in self.sentences
        ]
        values = {name: value for name, value in vars(self).items() if name != "sentences"}
        values |= {name: [asdict(each) for each in getattr(self, name)] for name in ("layers", "untrained")}
        return values | {"sentences": shown}


class Projection(nn.Module):
    """The map B of each layer (layers, size, rank), and what it makes of the states (layers, B, T, size)."""

    def __init__(self, layers: int, size: int, rank: int):
        super().__init__()
        first = torch.empty(size, rank).uniform_(-0.05, 0.05)  # the same for each layer
        self.weight = nn.Parameter(first.repeat(layers, 1, 1))

    def project(self, states: Tensor) -> Tensor:
        return torch.einsum("lbtd,ldr->lbtr", states, self.weight)

    def distances(self, states: Tensor) -> Tensor:
        """Squared distances of every two words."""
        points = self.project(states)
        products = points @ points.transpose(-1, -2)
        lengths = products.diagonal(dim1=-2, dim2=-1)
        return (lengths[..., :, None] + lengths[..., None, :] - 2 * products).clamp(min=0)

    def depths(self, states: Tensor) -> Tensor:
        """Squared lengths of the words."""
        return self.project(states).square().sum(dim=-1)


def parse_probe(
    model: Any,
    tokenizer: Any,
    treebank: Any,
    *,
    layers: str | Sequence[int] = "all",
    rank: int = 64,
    train_size: int = 2_000,
    test_size: int = 500,
    epochs: int = 10,
    seed: int = 0,
    control: bool = True,
    examples: int = 3,
    batch_size: int = 32,
    progress: bool = False,
) -> ParseResult:
    """Train a distance probe and a depth probe on each layer, and on those of the model with random weights.

    Args:
        treebank: Rows with `tokens` and `heads`: a train split and a test or validation split, or one list of rows.
        layers: "all", or layer indices, 0 the embeddings.
        rank: Rows of B; at most the hidden size is used.
        examples: Number of held-out sentences whose trees are returned, short ones if there are.
    """
    for name, value in (("rank", rank), ("epochs", epochs)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    train, test = split_rows(treebank, train_size, test_size, seed, ("tokens", "heads"))
    options = {"layers": layers, "rank": rank, "epochs": epochs, "seed": seed, "batch_size": batch_size}
    asked = len(train) + len(test)
    found, train, test, predicted = _probe_model(model, tokenizer, train, test, "probing", progress, **options)
    gold = [gold_edges(row["tokens"], row["heads"]) for row in test]
    untrained: list[ParseScores] = []
    if control:
        other = untrained_copy(model, seed)
        untrained = _probe_model(other, tokenizer, train, test, "probing random weights", progress, **options)[0]
    best = max(range(len(found)), key=lambda layer: found[layer].uuas)
    short = [number for number, row in enumerate(test) if _can_be_drawn(row["tokens"])]
    sentences = [Sentence(test[n]["tokens"], gold[n], predicted[best][n]) for n in (short or range(len(test)))]
    chain = attachment_score(gold, (chain_edges(row["tokens"]) for row in test))
    left_out = asked - len(train) - len(test)
    return ParseResult(found, untrained, chain, len(train), len(test), left_out, sentences[:examples])


def _can_be_drawn(tokens: Sequence[str]) -> bool:
    """Whether a sentence is short, and of words without digits but for its end."""
    return 6 <= len(tokens) <= 14 and all(token.isalpha() for token in tokens[:-1])


def untrained_copy(model: Any, seed: int = 0) -> Any:
    """A model of the same configuration with new random weights, and the same constant tables."""
    state = torch.get_rng_state()
    try:
        torch.manual_seed(seed)
        fresh = type(model)(copy.deepcopy(model.config)).to(model.device)
    finally:
        torch.set_rng_state(state)
    tables = dict(model.named_buffers())
    for name, table in fresh.named_buffers():
        table.data = tables[name].data.clone()
    return fresh.eval()


def _probe_model(
    model: Any, tokenizer: Any, train: list[dict], test: list[dict], title: str, progress: bool, **options: Any
) -> tuple[list[ParseScores], list[dict], list[dict], list[list[set[Edge]]]]:
    """Scores by layer, the sentences that were read, for training and test, and predicted edges of these by layer."""
    layers, rank, epochs, seed = (options[name] for name in ("layers", "rank", "epochs", "seed"))
    states, rows, numbers = _word_states(model, tokenizer, train + test, layers, options["batch_size"])
    cut = sum(index < len(train) for index in rows)
    if not cut or cut == len(rows):
        raise ValueError(
            f"the model can read {cut} of {len(train)} training and {len(rows) - cut} of {len(test)} test sentences "
            "whole; a probe needs both"
        )
    every = torch.cat(states[:cut], dim=1)
    mean, scale = every.mean(dim=1, keepdim=True), every.std(dim=1, keepdim=True) + 1e-6
    states = [(each - mean) / scale for each in states]
    kept = [(train + test)[index] for index in rows]
    distances = [torch.from_numpy(tree_distances(row["heads"])) for row in kept]
    depths = [torch.from_numpy(tree_depths(row["heads"])).float() for row in kept]
    learn = {"rank": rank, "epochs": epochs, "seed": seed, "progress": progress}
    distance_probe = _fit(states[:cut], distances[:cut], "distances", title=f"{title}: distances", **learn)
    depth_probe = _fit(states[:cut], depths[:cut], "depths", title=f"{title}: depths", **learn)
    with torch.no_grad():
        far = [distance_probe.distances(each[:, None])[:, 0].numpy() for each in states[cut:]]
        deep = [depth_probe.depths(each[:, None])[:, 0].numpy() for each in states[cut:]]
    tested, scores, edges = kept[cut:], [], []
    gold = [gold_edges(row["tokens"], row["heads"]) for row in tested]
    for place, layer in enumerate(numbers):
        edges.append([spanning_edges(row["tokens"], each[place]) for row, each in zip(tested, far, strict=True)])
        roots = [_root(row["tokens"], each[place]) for row, each in zip(tested, deep, strict=True)]
        hits = [row["heads"][root] == 0 for row, root in zip(tested, roots, strict=True)]
        scores.append(
            ParseScores(
                layer,
                attachment_score(gold, edges[-1]),
                mean_correlation((each.numpy() for each in distances[cut:]), (each[place] for each in far)),
                float(np.mean(hits)),
                mean_correlation((each.numpy() for each in depths[cut:]), (each[place] for each in deep)),
            )
        )
    return scores, kept[:cut], tested, edges


def _root(tokens: Sequence[str], depths: np.ndarray) -> int:
    """The word of least depth; punctuation is no root unless there is nothing else."""
    words = [number for number, token in enumerate(tokens) if is_word(token)] or list(range(len(tokens)))
    return min(words, key=lambda number: depths[number])


def _word_states(
    model: Any, tokenizer: Any, rows: list[dict], layers: str | Sequence[int], batch_size: int
) -> tuple[list[Tensor], list[int], list[int]]:
    """States (layers, words, size), a word the mean of its tokens, of the sentences that the model reads whole."""
    limit = length_limit(model.config, tokenizer)
    encoded = [encode_words(tokenizer, row["tokens"], max_length=limit) for row in rows]
    whole = [index for index, each in enumerate(encoded) if len(each.words) and (each.first_tokens() >= 0).all()]
    found: dict[int, Tensor] = {}
    numbers: list[int] = []
    for place, states in layer_states(model, [encoded[index] for index in whole], batch_size):
        numbers = numbers or [*range(len(states))]
        if layers != "all":
            numbers = [check_layer(layer, len(states)) for layer in layers]
        share = torch.from_numpy(encoded[whole[place]].membership).float()
        found[place] = torch.einsum("ltd,tw->lwd", states[numbers], share / share.sum(dim=0))
    return [found[place] for place in range(len(whole))], whole, numbers


def _fit(
    states: list[Tensor],
    targets: list[Tensor],
    kind: str,
    rank: int,
    epochs: int,
    seed: int,
    title: str,
    progress: bool,
    batch_size: int = 20,
) -> Projection:
    """Train the maps of all layers at once: their losses are a sum, so each learns as if it were alone."""
    count, _, size = states[0].shape
    generator = torch.Generator().manual_seed(seed)
    rng_state = torch.get_rng_state()
    torch.manual_seed(seed)
    probe = Projection(count, size, min(rank, size))
    torch.set_rng_state(rng_state)
    optimizer = torch.optim.Adam(probe.parameters(), lr=0.001)
    lengths = torch.tensor([each.shape[1] for each in states])
    steps = epochs * -(-len(states) // batch_size)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)
    for _ in with_progress(range(epochs), title, epochs, progress):
        # Sentences of similar length make a batch, in a random order.
        order = (lengths + torch.rand(len(states), generator=generator)).argsort()
        batches = order.split(batch_size)
        for number in torch.randperm(len(batches), generator=generator).tolist():
            chosen = batches[number].tolist()
            longest = int(lengths[chosen].max())
            padded = torch.stack([_pad(states[index], longest, (1,)) for index in chosen], dim=1)
            wanted = torch.stack([_pad(targets[index], longest, range(targets[index].dim())) for index in chosen])
            real = torch.arange(longest) < lengths[chosen, None]
            if kind == "distances":
                real = real[:, :, None] & real[:, None, :]
            errors = (getattr(probe, kind)(padded) - wanted).abs() * real
            # The mean over the pairs or words of a sentence, then over sentences.
            loss = (errors.flatten(2).sum(dim=2) / real.flatten(1).sum(dim=1)).mean(dim=1).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    return probe


def _pad(tensor: Tensor, length: int, dimensions: Sequence[int]) -> Tensor:
    """Zeros behind the end of these dimensions."""
    amounts = [0] * (2 * tensor.dim())
    for dimension in dimensions:
        amounts[2 * (tensor.dim() - 1 - dimension) + 1] = length - tensor.shape[dimension]
    return nn.functional.pad(tensor, amounts)


def save_parse_probe(result: ParseResult, path: str | os.PathLike, title: str = "") -> Path:
    """Write the numbers as .json, or a picture as .png or .svg."""
    from .tree_pictures import draw_parse_probe

    return write_probes(path, result.to_dict(), lambda: draw_parse_probe(result, title))
