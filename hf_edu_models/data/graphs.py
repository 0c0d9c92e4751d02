"""Graphs as text: biased random walks over the edges (node2vec), each a line of node names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

# Zachary 1977, "An Information Flow Model for Conflict and Fission in Small Groups": 34 members of a karate club, their
# 78 friendships (each node with its later neighbours), and whom they followed when the club split.
_KARATE = """
    0:1,2,3,4,5,6,7,8,10,11,12,13,17,19,21,31 1:2,3,7,13,17,19,21,30 2:3,7,8,9,13,27,28,32 3:7,12,13 4:6,10
    5:6,10,16 6:16 8:30,32,33 9:33 13:33 14:32,33 15:32,33 18:32,33 19:33 20:32,33 22:32,33 23:25,27,29,32,33
    24:25,27,31 25:31 26:29,33 27:33 28:31,33 29:32,33 30:32,33 31:32,33 32:33
"""
_KARATE_HI = {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 16, 17, 19, 21}
_SOURCES, _TARGETS = ("source", "src", "from", "u"), ("target", "dst", "to", "v")


@dataclass(frozen=True)
class Graph:
    """An undirected graph: the neighbours of node n and the weights of its edges are at `starts[n]` to `starts[n + 1]`.

    Args:
        labels: class of each node, None where there is none.
    """

    nodes: list[str]
    starts: np.ndarray
    neighbours: np.ndarray
    weights: np.ndarray
    labels: list[str] | None = None


def read_graph(dataset: str | Path, labels: str | Path | None = None) -> Graph:
    """Edges from a file (.parquet, .csv, or lines of two nodes and perhaps a weight), or from a folder `edges`.

    Args:
        labels: table of nodes and their classes, its first two columns; a folder `nodes` beside `edges` is found.
    """
    path = Path(dataset)
    if str(dataset) == "karate" and not path.exists():
        return _karate()
    if not path.exists():
        raise ValueError(f"{dataset} is no file and no folder; give the edges of a graph, or karate, which is built in")
    folder = path / "edges" if (path / "edges").is_dir() else path
    edges = read_table(_only_file(folder))
    nodes_of = Path(labels) if labels is not None else path / "nodes"
    classes = read_table(_only_file(nodes_of)) if nodes_of.exists() else None
    names = [str(name).lower() for name in edges.columns]
    columns = [
        next((n for n, name in enumerate(names) if name in known), place)
        for place, known in enumerate((_SOURCES, _TARGETS))
    ]
    if len(names) < 2:
        raise ValueError(f"{folder} has the columns {', '.join(names)}; a graph needs source and target")
    first, second = (edges.iloc[:, column].astype(str).tolist() for column in columns)
    weights = edges["weight"].astype(float).to_numpy() if "weight" in names else np.ones(len(edges))
    table = (
        {}
        if classes is None
        else dict(zip(classes.iloc[:, 0].astype(str), classes.iloc[:, 1].astype(str), strict=True))
    )
    return make_graph(first, second, weights, table)


def _karate() -> Graph:
    pairs = [
        (node, each) for node, _, row in (part.partition(":") for part in _KARATE.split()) for each in row.split(",")
    ]
    clubs = {str(node): "Mr. Hi" if node in _KARATE_HI else "Officer" for node in range(34)}
    return make_graph([left for left, _ in pairs], [right for _, right in pairs], labels=clubs)


def make_graph(
    sources: list[str], targets: list[str], weights: Any = None, labels: dict[str, str] | None = None
) -> Graph:
    """A graph from the two ends of each edge; nodes that only `labels` names are isolated, which is an error."""
    nodes = sorted({*sources, *targets, *(labels or {})}, key=lambda name: (len(name), name))
    index = {name: n for n, name in enumerate(nodes)}
    ends = np.array([[index[name] for name in side] for side in (sources, targets)])
    values = np.ones(len(sources)) if weights is None else np.asarray(weights, float)
    if len(sources) == 0 or (values <= 0).any():
        raise ValueError("a graph needs edges with weights above 0")
    first, second, values = np.r_[ends[0], ends[1]], np.r_[ends[1], ends[0]], np.r_[values, values]
    order = np.lexsort((second, first))
    counts = np.bincount(first, minlength=len(nodes))
    if (counts == 0).any():
        lone = [nodes[n] for n in np.flatnonzero(counts == 0)]
        raise ValueError(
            f"{len(lone)} of {len(nodes)} nodes have no edge, such as {lone[0]}: no walk reaches them; leave them out "
            "of the table of nodes, or add their edges"
        )
    starts = np.r_[0, counts.cumsum()]
    classes = None if not labels else [labels.get(name, "") for name in nodes]
    return Graph(nodes, starts, second[order], values[order], classes)


def _only_file(path: Path) -> Path:
    files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    if len(files) != 1 or not files[0].is_file():
        raise ValueError(f"{path} has {len(files)} files; give the file with the edges of the graph")
    return files[0]


def read_table(path: Path) -> Any:
    """A table of any of the formats that graphs come in, as a data frame."""
    import pandas

    if path.suffix == ".parquet":
        return pandas.read_parquet(path)
    if path.suffix in (".csv", ".tsv"):
        return pandas.read_csv(path, sep="," if path.suffix == ".csv" else "\t")
    table = pandas.read_csv(path, sep=r"\s+", header=None, comment="#")
    return table.set_axis(["source", "target", "weight"][: table.shape[1]], axis=1)


def random_walks(
    graph: Graph, walks: int = 10, length: int = 80, return_p: float = 1.0, inout_q: float = 1.0, seed: int = 0
) -> Iterator[list[str]]:
    """Walks from every node, `walks` times in random order (Grover & Leskovec 2016, Section 3.2).

    From v, reached from t, the next node x is drawn in proportion to the weight of its edge times 1/p if x is t, 1 if x
    is a neighbour of t, and 1/q otherwise.

    Args:
        return_p: p: the larger, the less a walk turns back.
        inout_q: q: below 1 a walk explores outward, above 1 it stays near its start.
    """
    if min(return_p, inout_q) <= 0 or walks < 1 or length < 2:
        raise ValueError(
            f"p and q must be above 0, walks at least 1 and their length at least 2; got p {return_p}, q {inout_q}, "
            f"{walks} walks of length {length}"
        )
    generator = np.random.default_rng(seed)
    sets = [set(graph.neighbours[graph.starts[n] : graph.starts[n + 1]].tolist()) for n in range(len(graph.nodes))]
    cached: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}
    for _ in range(walks):
        for start in generator.permutation(len(graph.nodes)).tolist():
            walk, before = [start], -1
            for draw in generator.random(length - 1):
                key = (before, walk[-1])
                if key not in cached:
                    cached[key] = _next_nodes(graph, sets, *key, return_p, inout_q)
                candidates, shares = cached[key]
                before = walk[-1]
                walk.append(int(candidates[np.searchsorted(shares, draw * shares[-1], side="right")]))
            yield [graph.nodes[n] for n in walk]


def walks_as_corpus(graph: Graph, seed: int = 0, **options: Any) -> Any:
    """Walks as texts: a train split, and for validation and test one more walk from each node."""
    import datasets

    names = [re.sub(r"\W", "_", name) for name in graph.nodes]
    if len({*names}) < len(names):
        raise ValueError("two nodes have names that differ in punctuation alone; give them other names")
    renamed = Graph(names, graph.starts, graph.neighbours, graph.weights)
    splits = {"train": options, "validation": options | {"walks": 1}, "test": options | {"walks": 1}}
    return datasets.DatasetDict(
        {
            split: datasets.Dataset.from_dict(
                {"text": [" ".join(walk) for walk in random_walks(renamed, seed=seed + number, **each)]}
            )
            for number, (split, each) in enumerate(splits.items())
        }
    )


def _next_nodes(
    graph: Graph, sets: list[set[int]], before: int, node: int, return_p: float, inout_q: float
) -> tuple[np.ndarray, np.ndarray]:
    """The neighbours of a node and the running sum of their probabilities, which need not end at 1."""
    rows = slice(graph.starts[node], graph.starts[node + 1])
    candidates, weights = graph.neighbours[rows], graph.weights[rows].copy()
    if before >= 0:
        near = np.array([each in sets[before] for each in candidates.tolist()])
        weights *= np.where(candidates == before, 1 / return_p, np.where(near, 1.0, 1 / inout_q))
    return candidates, weights.cumsum()


def score_nodes(vectors: np.ndarray, labels: list[str], train_share: float = 0.5, seed: int = 0) -> dict[str, float]:
    """F1 of a logistic regression from vectors to the classes of held-out nodes (Section 4.3)."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import f1_score
    from sklearn.model_selection import train_test_split

    rows = np.array([row for row, label in enumerate(labels) if label])
    classes = np.array(labels)[rows]
    if len(set(classes.tolist())) < 2:
        raise ValueError("the nodes have fewer than two classes; an F1 needs two")
    split = train_test_split(vectors[rows], classes, train_size=train_share, random_state=seed, stratify=classes)
    predicted = LogisticRegression(max_iter=2000, C=10).fit(split[0], split[2]).predict(split[1])
    return {f"f1_{average}": float(f1_score(split[3], predicted, average=average)) for average in ("micro", "macro")}
