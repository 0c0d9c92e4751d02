"""Poincare embeddings: a hierarchy in the hyperbolic disc, which grows with its radius as a tree does with its depth.

Paper: Nickel & Kiela 2017, "Poincare Embeddings for Learning Hierarchical Representations", arXiv:1705.08039.
A node u and its ancestor v are near, others far: L = -sum log(exp(-d(u, v)) / sum_v' exp(-d(u, v'))), over v and random
nodes v' that are no ancestors of u. The gradient step is Riemannian: the Euclidean gradient is multiplied by
(1 - |u|^2)^2 / 4, and a vector that leaves the unit ball is put back inside.

Shapes: B pairs, K candidates of each: the ancestor, then the negatives; D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data.graphs import read_table
from ..plotting import INK, add_caption, colour, escape_dollars, new_figure
from .attention_lessons import Lesson

_EDGE = 1 - 1e-5  # largest norm of a vector
_COLUMNS = (("child", "id1", "source"), ("parent", "id2", "target"))


@dataclass(frozen=True)
class Hierarchy:
    """Pairs (pairs, 2) of a node and one of its ancestors, as numbers of `nodes`."""

    nodes: list[str]
    pairs: np.ndarray


def read_hierarchy(dataset: str | Path | None = None, branches: int = 3, depth: int = 4) -> Hierarchy:
    """Pairs from a table with the columns child and parent, or a tree; a parent may be any ancestor."""
    if dataset is None:
        return _tree(branches, depth)
    path = Path(dataset)
    files = sorted(path.glob("*.*")) if path.is_dir() else [path]
    if not files or not files[0].is_file():
        raise ValueError(f"{dataset} is no file; give a table with the columns child and parent")
    table = read_table(files[0])
    names = [str(name).lower() for name in table.columns]
    if len(names) < 2:
        raise ValueError(f"{files[0]} has the columns {', '.join(names)}; a hierarchy needs child and parent")
    places = [next((names.index(name) for name in known if name in names), n) for n, known in enumerate(_COLUMNS)]
    rows = [[str(value) for value in table.iloc[:, place]] for place in places]
    return make_hierarchy([(child, parent) for child, parent in zip(*rows, strict=True) if child != parent])


def make_hierarchy(pairs: list[tuple[str, str]]) -> Hierarchy:
    if not pairs:
        raise ValueError("a hierarchy needs pairs of a child and another node, its parent")
    nodes = sorted({name for pair in pairs for name in pair})
    index = {name: n for n, name in enumerate(nodes)}
    return Hierarchy(nodes, np.array(sorted({(index[child], index[parent]) for child, parent in pairs})))


def _tree(branches: int, depth: int) -> Hierarchy:
    """A tree and all ancestors of each node; a node is named by the way to it."""
    pairs, level = [], ["0"]
    for _ in range(depth):
        level = [f"{node}.{branch}" for node in level for branch in range(branches)]
        pairs += [(node, node[: 2 * length - 1]) for node in level for length in range(1, len(node) // 2 + 1)]
    return make_hierarchy(pairs)


def poincare_distance(left: Tensor, right: Tensor) -> Tensor:
    """d(u, v) = arcosh(1 + 2 |u - v|^2 / ((1 - |u|^2) (1 - |v|^2)))"""
    gap = (left - right).square().sum(dim=-1)
    rooms = (1 - left.square().sum(dim=-1)) * (1 - right.square().sum(dim=-1))
    # log1p form of arcosh(1 + x): exact for points near each other, where arcosh loses its digits.
    excess = (2 * gap / rooms).clamp(min=1e-12)
    return torch.log1p(excess + (excess * (excess + 2)).sqrt())


def riemannian_step(vectors: Tensor, rows: Tensor, gradients: Tensor, rate: float) -> None:
    """theta <- proj(theta - rate (1 - |theta|^2)^2 / 4 grad), for some rows, each named once."""
    points = vectors[rows]
    scale = (1 - points.square().sum(dim=1, keepdim=True)).square() / 4
    points = points - rate * scale * gradients
    norms = points.norm(dim=1, keepdim=True)
    vectors[rows] = torch.where(norms >= 1, points / norms * _EDGE, points)


def train_poincare(
    hierarchy: Hierarchy,
    size: int = 2,
    epochs: int = 50,
    learning_rate: float = 0.1,
    negatives: int = 10,
    burn_in: int = 10,
    batch_size: int = 20,
    seed: int = 0,
) -> Tensor:
    """The vectors (nodes, size). In the first `burn_in` epochs the learning rate is a tenth, to find the angles."""
    generator = torch.Generator().manual_seed(seed)
    count, pairs = len(hierarchy.nodes), torch.from_numpy(hierarchy.pairs)
    if len(pairs) >= count * (count - 1):
        raise ValueError("every node is an ancestor of every other; no negatives are left")
    known = torch.sort(pairs[:, 0] * count + pairs[:, 1]).values
    vectors = torch.empty(count, size, dtype=torch.float64).uniform_(-0.001, 0.001, generator=generator)
    for epoch in range(burn_in + epochs):
        rate = learning_rate * (0.1 if epoch < burn_in else 1.0)
        order = torch.randperm(len(pairs), generator=generator)
        for batch in pairs[order].split(batch_size):
            nodes, others = batch[:, :1], torch.randint(count, (len(batch), negatives), generator=generator)
            candidates = torch.cat([batch[:, 1:], others], dim=1)
            codes = nodes * count + candidates
            places = torch.searchsorted(known, codes).clamp(max=len(known) - 1)
            is_wrong = (known[places] == codes) | (candidates == nodes)  # an ancestor, or the node itself
            is_wrong[:, 0] = False
            rows, inverse = torch.cat([nodes, candidates], dim=1).unique(return_inverse=True)
            points = vectors[rows].requires_grad_()
            distances = poincare_distance(points[inverse[:, :1]], points[inverse[:, 1:]])
            loss = -(-distances).masked_fill(is_wrong, -torch.inf).log_softmax(dim=1)[:, 0].sum()
            (gradients,) = torch.autograd.grad(loss, points)
            riemannian_step(vectors, rows, gradients, rate)
    return vectors


def score_reconstruction(vectors: Tensor, hierarchy: Hierarchy) -> dict[str, float]:
    """Mean rank of the ancestors among the nodes that are none, nearest first, and mean average precision (MAP)."""
    ranks, precisions = [], []
    ancestors: dict[int, list[int]] = {}
    for node, parent in hierarchy.pairs.tolist():
        ancestors.setdefault(node, []).append(parent)
    for node, own in ancestors.items():
        distances = poincare_distance(vectors[node], vectors).numpy()
        others: Any = np.delete(distances, [node, *own])
        above = np.sort(np.searchsorted(np.sort(others), distances[own], side="left") + 1)
        ranks += above.tolist()
        precisions.append(float((np.arange(1, len(above) + 1) / (above + np.arange(len(above)))).mean()))
    return {"mean_rank": float(np.mean(ranks)), "map": float(np.mean(precisions))}


def poincare(
    dataset: str | None = None, epochs: int = 50, learning_rate: float = 0.1, labels: int = 40, seed: int = 0
) -> Lesson:
    """Train in two dimensions, score, and draw the disc."""
    hierarchy = read_hierarchy(dataset)
    vectors = train_poincare(hierarchy, 2, epochs, learning_rate, seed=seed)
    scores = score_reconstruction(vectors, hierarchy)
    rows: list[dict[str, Any]] = [
        {"node": name, "x": float(point[0]), "y": float(point[1])}
        for name, point in zip(hierarchy.nodes, vectors, strict=True)
    ]
    return Lesson(_draw_disc(hierarchy, vectors.numpy(), scores, labels), rows)


def _draw_disc(hierarchy: Hierarchy, points: np.ndarray, scores: dict[str, float], labels: int) -> Any:
    """The unit disc: nodes with many descendants are named, and each node is joined to its nearest ancestor."""
    figure, axis = new_figure(8, 8.6)
    axis.grid(False)
    axis.set_axis_off()
    axis.set_aspect("equal")
    angles = np.linspace(0, 2 * np.pi, 400)
    axis.plot(np.cos(angles), np.sin(angles), color=INK, lw=1)
    descendants = np.bincount(hierarchy.pairs[:, 1], minlength=len(points))
    smallest: dict[int, int] = {}
    for node, parent in hierarchy.pairs.tolist():
        if node not in smallest or descendants[parent] < descendants[smallest[node]]:
            smallest[node] = parent
    for node, parent in smallest.items():
        axis.plot(*points[[node, parent]].T, color="#C9CED2", lw=0.5, zorder=1)
    axis.scatter(*points.T, s=4 + 3 * np.log1p(descendants), color=colour(0), zorder=2)
    for node in np.argsort(-descendants, kind="stable")[:labels]:
        if descendants[node]:
            (name,) = escape_dollars([hierarchy.nodes[node].split(".n.")[0]])
            axis.annotate(
                name, points[node], xytext=(3, 3), textcoords="offset points", fontsize=7, color=INK, zorder=3
            )
    axis.set_title("A hierarchy in the Poincaré disc")
    scored = f"mean rank {scores['mean_rank']:.2f}, MAP {scores['map']:.3f}"
    add_caption(figure, f"{len(points):,} nodes, {len(hierarchy.pairs):,} pairs of a node and an ancestor; {scored}")
    return figure
