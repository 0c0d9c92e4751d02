"""Senses of a word: a static vector is the same in every sentence; does a contextual one tell the senses apart?

Each occurrence is a point. The accuracy is that of the nearest centroid: a sense is the mean vector of its training
sentences, and a test sentence gets the sense with the largest cosine, the feature extraction that Loureiro et al. 2021
(Computational Linguistics 47(2), "Analysis and Evaluation of Language Models for Word Sense Disambiguation") test on
CoarseWSD-20. In pairs of sentences (WiC, Pilehvar & Camacho-Collados 2019) a word has the same sense if the cosine of
its vectors is above a threshold, which is chosen on the train split.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...checkpoints import length_limit
from ...plotting import INK, add_caption, colour, marker, new_figure
from ..hidden_states import check_layer, layer_states
from ..inference import with_progress
from ..word_tokens import Encoded, encode_span
from .embeddings import embedding_table, mean_over_word
from .maps import place_in_plane

STATIC = ("word", "sentence")  # the static vector of the word itself; the mean of those of its sentence


@dataclass(frozen=True)
class Occurrence:
    """A word in a sentence, at the characters of `span`, and its sense."""

    sentence: str
    span: tuple[int, int]
    sense: str = ""


@dataclass(frozen=True)
class Vectors:
    """The vectors of occurrences: by layer (layers, n, size), and static ones (n, size)."""

    layers: np.ndarray
    static: dict[str, np.ndarray]
    rows: list[int]


@dataclass(frozen=True)
class SenseScores:
    """Nearest-centroid accuracy, the mean over the senses, of each kind of vector.

    Args:
        vectors: of the test sentences by layer, and of static vectors.
        senses: of the test sentences.
        accuracies: by "static word", "static sentence" and the number of a layer.
        majority: accuracy of one sense for all: the mean over the senses is one through their number.
    """

    word: str
    vectors: Vectors
    senses: list[str]
    accuracies: dict[str, float]
    majority: float
    train_size: int

    @property
    def best_layer(self) -> int:
        return max(range(len(self.vectors.layers)), key=lambda layer: self.accuracies[str(layer)])


def read_occurrences(rows: Iterable[Mapping[str, Any]], word: str | None = None) -> dict[str, list[Occurrence]]:
    """The occurrences of each word, or of one, in rows of `word`, `sentence`, `position` (of the word) and a sense."""
    found: dict[str, list[Occurrence]] = {}
    for number, row in enumerate(rows):
        names = {"word", "sentence"} - set(row)
        if names or not {"sense", "label"} & set(row):
            raise ValueError(
                f"the data has the columns {', '.join(row)}; senses need word, sentence and sense (and position, the "
                "place of the word), or pairs: word, sentence1, sentence2, label"
            )
        if word is None or row["word"] == word:
            sense = str(row.get("sense", row.get("label"))).removeprefix(f"{row['word']}_")
            span = _find_span(row["word"], row["sentence"], row.get("position"), number)
            found.setdefault(row["word"], []).append(Occurrence(row["sentence"], span, sense))
    return found


def _find_span(word: str, sentence: str, position: int | None, number: int) -> tuple[int, int]:
    """The characters of the word at a position, counted in words, or of its first occurrence."""
    if position is not None:
        spans = [match.span() for match in re.finditer(r"\S+", sentence)]
        if not 0 <= position < len(spans):
            raise ValueError(f"row {number}: position {position} is outside of the {len(spans)} words of {sentence!r}")
        return spans[position]
    match = re.search(rf"(?<!\w){re.escape(word)}(?!\w)", sentence, re.IGNORECASE)
    if match is None:
        raise ValueError(f"row {number}: the word {word!r} is not in {sentence!r}; give a column position")
    return match.span()


def occurrence_vectors(
    model: Any, tokenizer: Any, occurrences: Sequence[Occurrence], batch_size: int = 32, progress: bool = False
) -> Vectors:
    """Vectors of the occurrences that the model reads; `rows` are their places, others lie behind its positions."""
    limit = length_limit(model.config, tokenizer)
    encoded = [encode_span(tokenizer, each.sentence, each.span, limit) for each in occurrences]
    rows = [row for row, each in enumerate(encoded) if each.membership.any()]
    if not rows:
        raise ValueError(f"the word lies behind the model's {limit} positions in every sentence; use a longer model")
    chosen, layers = [encoded[row] for row in rows], [np.zeros(0)] * len(rows)
    steps = with_progress(layer_states(model, chosen, batch_size), "reading sentences", len(rows), progress)
    for index, states in steps:
        layers[index] = mean_over_word(states.numpy(), chosen[index])
    table: np.ndarray = embedding_table(model, tokenizer).astype(np.float32)
    static = {
        "word": np.stack([mean_over_word(table[each.input_ids], each) for each in chosen]),
        "sentence": np.stack([_mean_of_sentence(table, each, tokenizer) for each in chosen]),
    }
    return Vectors(np.stack(layers, axis=1), static, rows)


def _mean_of_sentence(table: np.ndarray, encoded: Encoded, tokenizer: Any) -> np.ndarray:
    special = set(tokenizer.all_special_ids) - {tokenizer.unk_token_id}
    return table[[token for token in encoded.input_ids if token not in special]].mean(axis=0)


def senses_of(
    model: Any,
    tokenizer: Any,
    word: str,
    train: Sequence[Occurrence],
    test: Sequence[Occurrence],
    *,
    limit: int = 100,
    seed: int = 0,
    batch_size: int = 32,
    progress: bool = False,
) -> SenseScores:
    """Tell the senses of a word apart by the nearest centroid, with static vectors and with those of each layer.

    Args:
        limit: At most so many sentences of each sense, in training and in the test.
    """
    train, test = (_sample(each, limit, seed) for each in (train, test))
    known = {each.sense for each in train}
    test = [each for each in test if each.sense in known]
    if len(known) < 2 or not test:
        raise ValueError(
            f"{word!r} has {len(known)} sense(s) in the train split and {len(test)} test sentences of them"
        )
    options: dict[str, Any] = {"batch_size": batch_size, "progress": progress}
    learnt = occurrence_vectors(model, tokenizer, train, **options)
    tested = occurrence_vectors(model, tokenizer, test, **options)
    labels = [train[row].sense for row in learnt.rows]
    senses = [test[row].sense for row in tested.rows]
    accuracies = {}
    for name in STATIC:
        accuracies[f"static {name}"] = _centroid_accuracy(learnt.static[name], labels, tested.static[name], senses)
    for layer, (vectors, new) in enumerate(zip(learnt.layers, tested.layers, strict=True)):
        accuracies[str(layer)] = _centroid_accuracy(vectors, labels, new, senses)
    return SenseScores(word, tested, senses, accuracies, 1 / len(set(senses)), len(labels))


def _sample(occurrences: Sequence[Occurrence], limit: int, seed: int) -> list[Occurrence]:
    rng = np.random.default_rng(seed)
    taken: dict[str, int] = {}
    sample: list[Occurrence] = []
    for number in rng.permutation(len(occurrences)):
        each = occurrences[number]
        taken[each.sense] = taken.get(each.sense, 0) + 1
        if taken[each.sense] <= limit:
            sample.append(each)
    return sample


def _centroid_accuracy(vectors: np.ndarray, labels: Sequence[str], new: np.ndarray, senses: Sequence[str]) -> float:
    """The mean over the senses of how often the nearest centroid, by cosine, is the right one."""
    mean = vectors.mean(axis=0)
    vectors, new = _normalise(vectors - mean), _normalise(new - mean)
    names, truth = sorted(set(labels)), np.array(senses)
    centroids = np.stack([vectors[[label == name for label in labels]].mean(axis=0) for name in names])
    found = np.array(names)[(new @ _normalise(centroids).T).argmax(axis=1)]
    return float(np.mean([(found[truth == name] == name).mean() for name in sorted(set(senses))]))


def _normalise(vectors: np.ndarray) -> np.ndarray:
    # What is left of a vector that never changes is a rounding error.
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.where(lengths > 1e-5, vectors / np.maximum(lengths, 1e-5), 0)


@dataclass(frozen=True)
class PairScores:
    """Accuracy on pairs of sentences by kind of vector, and the threshold of the cosine that was chosen for it."""

    accuracies: dict[str, float]
    thresholds: dict[str, float]
    majority: float
    train_size: int
    test_size: int


def score_pairs(
    model: Any,
    tokenizer: Any,
    train: Sequence[Mapping[str, Any]],
    test: Sequence[Mapping[str, Any]],
    batch_size: int = 32,
    progress: bool = False,
) -> PairScores:
    """Whether a word has the same sense in two sentences, by a threshold of the cosine of its vectors.

    Args:
        train: Rows with `sentence1`, `sentence2`, the characters `start1`, `end1`, `start2`, `end2`, and `label`, 1 for
            the same sense.
    """
    needed = [f"{name}{side}" for side in (1, 2) for name in ("sentence", "start", "end")] + ["label"]
    missing = [name for name in needed if name not in (train[0] if len(train) else {})]
    if missing or not len(test):
        raise ValueError(f"pairs need train and test rows with {', '.join(needed)}; missing: {', '.join(missing)}")
    cosines, labels = [], []
    for rows in (train, test):
        sides = [
            occurrence_vectors(
                model,
                tokenizer,
                [Occurrence(row[f"sentence{side}"], (row[f"start{side}"], row[f"end{side}"])) for row in rows],
                batch_size,
                progress,
            )
            for side in (1, 2)
        ]
        both = sorted(set(sides[0].rows) & set(sides[1].rows))
        cosines.append(_pair_cosines(sides, both))
        labels.append(np.array([int(rows[row]["label"]) for row in both]))
    thresholds = {name: _best_threshold(values, labels[0]) for name, values in cosines[0].items()}
    accuracies = {
        name: float(((values >= thresholds[name]) == labels[1]).mean()) for name, values in cosines[1].items()
    }
    share = float(labels[1].mean())
    return PairScores(accuracies, thresholds, max(share, 1 - share), len(labels[0]), len(labels[1]))


def _pair_cosines(sides: Sequence[Vectors], rows: Sequence[int]) -> dict[str, np.ndarray]:
    picks = [[each.rows.index(row) for row in rows] for each in sides]
    kinds = {f"static {name}": [each.static[name] for each in sides] for name in STATIC}
    kinds |= {str(layer): [each.layers[layer] for each in sides] for layer in range(len(sides[0].layers))}
    return {
        name: (_normalise(one[picks[0]]) * _normalise(other[picks[1]])).sum(axis=-1)
        for name, (one, other) in kinds.items()
    }


def _best_threshold(cosines: np.ndarray, labels: np.ndarray) -> float:
    """Between two values, where most pairs are on the right side; the lowest such place."""
    order = np.argsort(cosines, kind="stable")
    values, same = cosines[order], labels[order]
    # With the threshold before place i, the pairs from i on are called the same.
    right = np.concatenate([[0], np.cumsum(same == 0)]) + np.concatenate([np.cumsum(same[::-1] == 1)[::-1], [0]])
    middles = np.concatenate([[-2.0], (values[1:] + values[:-1]) / 2, [2.0]])
    is_possible = np.concatenate([[True], np.diff(values) > 0, [True]])
    return float(middles[np.where(is_possible, right, -1).argmax()])


def draw_senses(scores: SenseScores, layer: int | None = None, method: str = "pca", title: str = "") -> Any:
    """The test sentences in the plane, coloured by sense: static word, static sentence, and a layer; accuracies."""
    layer = scores.best_layer if layer is None else check_layer(layer, len(scores.vectors.layers))
    panels = (
        ("static vector of the word", scores.vectors.static["word"], "static word"),
        ("static vectors of the sentence, mean", scores.vectors.static["sentence"], "static sentence"),
        (f"contextual, layer {layer}", scores.vectors.layers[layer], str(layer)),
    )
    figure, axes = new_figure(12.5, 4.6, columns=3)
    names = sorted(set(scores.senses))
    for axis, (label, vectors, key) in zip(axes, panels, strict=True):
        is_point = np.ptp(vectors, axis=0).max() < 1e-5
        points = np.zeros((len(vectors), 2)) if is_point else place_in_plane(vectors, method)[0]
        for number, name in enumerate(names):
            chosen = [sense == name for sense in scores.senses]
            style = {"color": colour(number), "marker": marker(number), "s": 16, "alpha": 0.75, "linewidths": 0}
            axis.scatter(*points[chosen].T, **style, label=name)
        if is_point:
            axis.annotate(f"all {len(vectors)} sentences", (0, 0), (8, 8), textcoords="offset points", fontsize=9)
        axis.set_title(f"{label}\nnearest centroid: {scores.accuracies[key]:.0%}", fontsize=10, color=INK)
        axis.set(xticks=[], yticks=[])
        axis.margins(0.08)
    axes[0].legend(loc="lower left", frameon=False, fontsize=9)
    figure.suptitle(title or f"senses of '{scores.word}'", fontsize=11)
    how = "principal components" if method == "pca" else "t-SNE"
    caption = f"{len(scores.senses)} test sentences, two {how}; centroids of {scores.train_size} training sentences"
    add_caption(figure, f"{caption}; accuracy is the mean over the senses, of guessing {scores.majority:.0%}")
    return figure
