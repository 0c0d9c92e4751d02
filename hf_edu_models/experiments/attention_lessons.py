"""Attention in a few lines of numpy: each lesson computes its numbers in seconds and draws them.

A lesson returns its figure and its numbers as rows. Shapes: T tokens, D dimensions, H heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ..plotting import add_caption, colour, escape_dollars, new_figure

_TOKENS_AT_MOST = 12


@dataclass(frozen=True)
class Lesson:
    """What `hf-edu figure` saves: the picture and the values behind it."""

    figure: Figure
    rows: list[dict[str, Any]]


def softmax(scores: np.ndarray) -> np.ndarray:
    """exp(s_j) / sum_k exp(s_k) along the last axis."""
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def attention_steps(sentence: str, size: int = 16, num_heads: int = 2, seed: int = 0) -> Lesson:
    """From dot products of embeddings to multi-head attention (Vaswani et al. 2017, Section 3.2), one change a step."""
    words = sentence.split()
    if not 2 <= len(words) <= _TOKENS_AT_MOST:
        raise ValueError(f"the sentence has {len(words)} words; give 2 to {_TOKENS_AT_MOST}")
    if size % num_heads:
        raise ValueError(f"size {size} cannot be split into {num_heads} equal heads; choose a multiple")
    generator = np.random.default_rng(seed)
    vectors = {word: generator.normal(size=size) for word in dict.fromkeys(words)}
    embeddings = np.stack([vectors[word] for word in words])  # (T, D): the same word has the same vector
    queries, keys = (embeddings @ (generator.normal(size=(size, size)) / np.sqrt(size)) for _ in range(2))
    products = embeddings @ embeddings.T  # (T, T)
    weights = softmax(products)
    panels = [
        ("1. products: x_i · x_j", products),
        ("2. weights: softmax_j(x_i · x_j)", weights),
        (
            "3. mixed embeddings: y_i = Σ_j w_ij x_j\n(y_i · x_j: is y_i still x_i?)",
            (weights @ embeddings) @ embeddings.T,
        ),
        ("4. queries and keys: softmax_j(q_i · k_j)", softmax(queries @ keys.T)),
        ("5. scaled: softmax_j(q_i · k_j / √d)", softmax(queries @ keys.T / np.sqrt(size))),
    ]
    head_size = size // num_heads
    for head in range(num_heads):
        part = slice(head * head_size, (head + 1) * head_size)
        scores = queries[:, part] @ keys[:, part].T / np.sqrt(head_size)
        panels.append((f"6. head {head + 1} of {num_heads}: its own {head_size} dimensions", softmax(scores)))
    rows = [
        {"step": title.partition(":")[0], "query": words[row], "key": words[column], "value": float(table[row, column])}
        for title, table in panels
        for row in range(len(words))
        for column in range(len(words))
    ]
    figure = _heat_maps(panels, words, words)
    add_caption(figure, f"Random embeddings and projections, d = {size}, seed {seed}. Rows are queries, columns keys.")
    return Lesson(figure, rows)


def key_value(sharpness: float = 10.0) -> Lesson:
    """Attention as a soft dictionary: the query is compared with the keys, and the values are mixed.

    Vectors have the features (young, female, male): the keys man and woman hold the values boy and girl.
    """
    features, root = ("young", "female", "male"), np.sqrt(0.5)
    keys = {"man": np.array([0.0, 0.0, 1.0]), "woman": np.array([0.0, 1.0, 0.0])}
    values = {"boy": np.array([root, 0.0, root]), "girl": np.array([root, root, 0.0])}
    key_rows, value_rows = np.stack(list(keys.values())), np.stack(list(values.values()))
    rows, tables, results = [], [], value_rows
    for factor in (1.0, sharpness):
        weights = softmax(factor * key_rows @ key_rows.T)  # each key is also a query
        results = weights @ value_rows
        tables.append((f"weights, scores times {factor:g}", weights))
        for query, weight, result in zip(keys, weights, results, strict=True):
            named = dict(zip(features, result.tolist(), strict=True))
            rows.append({"query": query, "sharpness": factor, "man": weight[0], "woman": weight[1]} | named)
    figure, axes = new_figure(9, 3.2, columns=3, width_ratios=(2, 2, 3))
    for axis, (title, table) in zip(axes, tables, strict=False):
        _heat_map(axis, table, list(keys), [f"{key} → {value}" for key, value in zip(keys, values, strict=True)], title)
    _heat_map(axes[2], results, list(keys), list(features), "result: Σ_j w_j v_j")
    add_caption(figure, "Query man finds boy, query woman finds girl; equal scores would mix the two.")
    return Lesson(figure, rows)


def denoising(length: int = 240, patch: int = 9, noise: float = 0.3, seed: int = 0) -> Lesson:
    """Self-attention as non-local means (Buades et al. 2005): average what looks alike, not what is near."""
    if length < 4 * patch or patch < 1 or noise <= 0:
        raise ValueError(f"length {length} must be 4 times patch {patch} or more, and noise {noise} above 0")
    generator = np.random.default_rng(seed)
    times = np.arange(length)
    clean = np.where(times % 24 < 6, 1.0, 0.0) + np.where((times + 12) % 24 < 3, 0.6, 0.0)  # pulses that come again
    noisy = clean + generator.normal(scale=noise, size=length)
    padded = np.pad(noisy, patch // 2, mode="reflect")
    patches = np.lib.stride_tricks.sliding_window_view(padded, patch)[:length]  # (T, P): queries and keys
    distances = np.square(patches[:, None] - patches[None]).mean(axis=-1)  # (T, T)
    # Two patches of the same clean signal differ by the noise of both: 2 noise^2 is no distance.
    weights = softmax(-np.maximum(distances - 2 * noise**2, 0) / (0.25 * noise**2))
    local = min((_smooth(noisy, width) for width in (0.5, 1, 2, 3, 4)), key=lambda each: _error(each, clean))
    signals = {"noisy": noisy, "mean of neighbours": local, "attention": weights @ noisy}
    rows = [
        {"signal": name, "mean_squared_error": float(np.square(values - clean).mean())}
        for name, values in signals.items()
    ]
    figure, axes = new_figure(11, 3.6, columns=2, width_ratios=(3, 1.3))
    axes[0].plot(times, noisy, ".", color="#BBBBBB", markersize=3, label="noisy")
    axes[0].plot(times, clean, color="#222222", linewidth=1, label="clean")
    for number, name in enumerate(("mean of neighbours", "attention")):
        error = rows[number + 1]["mean_squared_error"]
        axes[0].plot(times, signals[name], color=colour(1 - number), label=f"{name}: error {error:.4f}")
    axes[0].set(title="A signal whose parts come again", xlabel="position")
    axes[0].legend(fontsize=8, loc="upper right")
    axes[1].imshow(weights, cmap="Blues", aspect="auto")
    axes[1].set(title="attention weights", xlabel="key", ylabel="query")
    axes[1].grid(False)
    add_caption(
        figure,
        f"Noise {noise:g}, patches of {patch}, seed {seed}; error is the mean squared error to the clean signal.",
    )
    return Lesson(figure, rows)


def _smooth(signal: np.ndarray, width: float) -> np.ndarray:
    """The mean of the neighbours, weighted by a Gaussian of their distance in time."""
    times = np.arange(len(signal))
    weights = softmax(-0.5 * np.square((times[:, None] - times) / width))
    return weights @ signal


def _error(signal: np.ndarray, clean: np.ndarray) -> float:
    return float(np.square(signal - clean).mean())


def scaling(
    sizes: tuple[int, ...] = (2, 4, 8, 16, 32, 64, 128, 256, 512), num_keys: int = 64, draws: int = 200, seed: int = 0
) -> Lesson:
    """Why scores are divided by sqrt(d): q · k has variance d, and a softmax of large scores has no gradient."""
    generator = np.random.default_rng(seed)
    rows = []
    for size in sizes:
        queries, keys = generator.normal(size=(draws, 1, size)), generator.normal(size=(draws, num_keys, size))
        products = (queries * keys).sum(axis=-1)  # (draws, keys)
        for name, scores in (("q · k", products), ("q · k / √d", products / np.sqrt(size))):
            weights = softmax(scores)
            entropy = -(weights * np.log(np.clip(weights, 1e-30, None))).sum(axis=-1).mean()
            # d w_i / d s_j = w_i (1[i = j] - w_j): the norm of the whole matrix.
            jacobian = weights[:, :, None] * (np.eye(num_keys) - weights[:, None, :])
            gradient = np.sqrt(np.square(jacobian).sum(axis=(1, 2))).mean()
            values = {"variance": scores.var(), "entropy": entropy, "gradient": gradient}
            rows.append({"size": size, "scores": name} | {key: float(value) for key, value in values.items()})
    figure, axes = new_figure(11, 3.4, columns=3)
    titles = {
        "variance": "variance of the scores",
        "entropy": "entropy of the weights (nats)",
        "gradient": "norm of the softmax's gradient",
    }
    for axis, (key, title) in zip(axes, titles.items(), strict=True):
        for number, name in enumerate(("q · k", "q · k / √d")):
            points = [(row["size"], row[key]) for row in rows if row["scores"] == name]
            axis.plot(*zip(*points, strict=True), "o-", color=colour(1 - number), label=name, markersize=4)
        axis.set(title=title, xlabel="d", xscale="log")
        axis.set_xscale("log", base=2)
        if key == "variance":
            axis.set_yscale("log", base=2)
    axes[1].axhline(np.log(num_keys), color="#8A8A8A", linestyle="--", linewidth=1)
    axes[0].legend(fontsize=9)
    add_caption(
        figure,
        f"Random queries and {num_keys} keys of variance 1, {draws} draws, seed {seed}. Dashed: equal weights.",
    )
    return Lesson(figure, rows)


def masks(words: tuple[str, ...] = ("the", "cat", "sat", "down", "<pad>", "<pad>"), seed: int = 0) -> Lesson:
    """Which keys each query may see: padding hidden, the future hidden, both; and the weights that remain."""
    length = len(words)
    is_real = np.array([word != "<pad>" for word in words])
    past: np.ndarray = np.tril(np.ones((length, length), bool))
    visible = {
        "no mask": np.ones_like(past),
        "padding": np.broadcast_to(is_real, past.shape),
        "look-ahead": past,
        "both": past & is_real,
    }
    scores = np.random.default_rng(seed).normal(size=(length, length))
    figure, axes = new_figure(12, 5.6, rows=2, columns=4)
    rows = []
    for column, (name, mask) in enumerate(visible.items()):
        weights = softmax(np.where(mask, scores, -np.inf))
        _heat_map(axes[0, column], mask.astype(float), list(words), list(words), f"{name}: what is seen", digits=0)
        _heat_map(axes[1, column], weights, list(words), list(words), "weights")
        rows += [
            {
                "mask": name,
                "query": words[i],
                "key": words[j],
                "position": i,
                "visible": bool(mask[i, j]),
                "weight": float(weights[i, j]),
            }
            for i in range(length)
            for j in range(length)
        ]
    add_caption(
        figure,
        "A hidden key has the score -∞ before the softmax: the other weights still sum to one. Rows are queries.",
    )
    return Lesson(figure, rows)


def permutation(
    words: tuple[str, ...] = ("New", "York", "is", "a", "city"), order: tuple[int, ...] | None = None, seed: int = 0
) -> Lesson:
    """XLNet's mask (Yang et al. 2019): each token is predicted from those before it in a random order."""
    length = len(words)
    order = tuple(np.random.default_rng(seed).permutation(length).tolist()) if order is None else order
    if sorted(order) != list(range(length)):
        raise ValueError(f"order must have each of 0 to {length - 1} once, got {order}")
    rank = np.argsort(order)
    query_mask = rank[:, None] > rank[None]  # the stream that predicts does not see its own token
    content_mask = rank[:, None] >= rank[None]
    rows = [
        {
            "token": words[i],
            "rank": int(rank[i]),
            "key": words[j],
            "query_stream": bool(query_mask[i, j]),
            "content_stream": bool(content_mask[i, j]),
        }
        for i in range(length)
        for j in range(length)
    ]
    figure, axes = new_figure(10, 3.6, columns=3)
    in_order: np.ndarray = np.tril(np.ones((length, length), bool), -1)
    panels = (
        ("left to right", in_order),
        ("query stream: predicts a token", query_mask),
        ("content stream: reads it", content_mask),
    )
    for axis, (title, mask) in zip(axes, panels, strict=True):
        _heat_map(axis, mask.astype(float), list(words), list(words), title, digits=0)
    add_caption(figure, f"Order of prediction: {' → '.join(words[number] for number in order)}. Rows are queries.")
    return Lesson(figure, rows)


def _heat_maps(panels: list[tuple[str, np.ndarray]], rows: list[str], columns: list[str]) -> Figure:
    count = len(panels)
    across = 4 if count > 3 else count
    down = -(-count // across)
    side = 1.2 + 0.32 * len(columns)
    figure, axes = new_figure(max(3.0, side) * across, max(2.6, side) * down, rows=down, columns=across)
    for axis, (title, table) in zip(np.ravel(axes), panels, strict=False):
        _heat_map(axis, table, rows, columns, title, digits=1)
    for axis in np.ravel(axes)[count:]:
        axis.set_visible(False)
    return figure


def _heat_map(axis: Any, table: np.ndarray, rows: list[str], columns: list[str], title: str, digits: int = 2) -> None:
    """A table as colours with its numbers."""
    low, high = min(0.0, float(table.min())), float(table.max()) or 1.0
    axis.imshow(table, cmap="Blues", vmin=low, vmax=high * 1.25, aspect="auto")
    axis.set_xticks(range(len(columns)), escape_dollars(columns), rotation=45, ha="right", fontsize=8)
    axis.set_yticks(range(len(rows)), escape_dollars(rows), fontsize=8)
    axis.set_title(title, fontsize=9)
    axis.grid(False)
    for row, column in np.ndindex(table.shape):
        value = table[row, column]
        is_dark = value > 0.75 * high
        axis.text(
            column,
            row,
            f"{value:.{digits}f}",
            ha="center",
            va="center",
            fontsize=7,
            color="white" if is_dark else "#222222",
        )
