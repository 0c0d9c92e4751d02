"""A linear probe over layers: how much of a token label each layer of a frozen model gives to a linear classifier.

A probe that scores high may have learnt the task by itself. Hewitt & Liang 2019, arXiv:1909.03368, give it a second
task to tell: a random label for every word type, which the model cannot know. What the probe does better on the real
labels than on these is its *selectivity*.
"""

from __future__ import annotations

import json
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .figure_style import COLOURS, INK, check_picture_path, new_figure, note, save_figure
from .states import check_layer, layer_states
from .words import encode_words


@dataclass(frozen=True)
class LayerResult:
    """What a probe of one layer scores on words that it has not seen: shares from 0 to 1.

    Args:
        control: accuracy on labels drawn at random for every word type.
    """

    layer: int
    accuracy: float
    macro_f1: float
    control: float

    @property
    def selectivity(self) -> float:
        return self.accuracy - self.control


@dataclass(frozen=True)
class ProbeResult:
    """The probes of a model's layers, the embeddings as layer 0.

    Args:
        majority: accuracy of the label that is most frequent in training.
        majority_by_word: accuracy of each word's most frequent label in training, the majority for new words.
    """

    layers: list[LayerResult]
    majority: float
    majority_by_word: float
    labels: list[str]
    train_words: int
    test_words: int

    @property
    def best(self) -> LayerResult:
        return max(self.layers, key=lambda each: each.accuracy)

    def to_dict(self) -> dict[str, Any]:
        layers = [asdict(each) | {"selectivity": each.selectivity} for each in self.layers]
        return asdict(self) | {"layers": layers}


@dataclass(frozen=True)
class Words:
    """Labelled words of a split: states (layers, words, size), their labels and their spelling."""

    states: np.ndarray
    labels: np.ndarray
    spellings: list[str]


def probe(
    model: Any,
    tokenizer: Any,
    corpus_or_rows: Any,
    *,
    layers: str | Sequence[int] = "all",
    train_size: int = 1_000,
    test_size: int = 500,
    seed: int = 0,
    regularization: float = 1.0,
    max_iterations: int = 200,
    batch_size: int = 32,
    progress: bool = False,
) -> ProbeResult:
    """Fit one logistic regression a layer on the states of words' first tokens.

    Args:
        corpus_or_rows: rows with `tokens` and `tags`: a corpus with a train split and a test or validation split, or
            one list of rows, which is cut in two.
        layers: "all", or their numbers, 0 the embeddings.
        train_size: sentences to learn from, drawn by `seed`; as many as there are if there are fewer.
        regularization: strength of the penalty on the squared weights, as 1 / C of scikit-learn.
    """
    train_rows, test_rows = two_parts(corpus_or_rows, train_size, test_size, seed)
    names, numbers = name_labels(corpus_or_rows, [*train_rows, *test_rows])
    train = collect(model, tokenizer, train_rows, numbers, batch_size)
    test = collect(model, tokenizer, test_rows, numbers, batch_size)
    if len(set(train.labels.tolist())) < 2:
        raise ValueError("all words to learn from have the same label; a probe needs two different ones at least")
    count = len(train.states)
    chosen = range(count) if layers == "all" else [check_layer(layer, count) for layer in layers]
    controls = control_labels(train, test, seed)
    fit = {"regularization": regularization, "max_iterations": max_iterations, "seed": seed}
    results = [probe_layer(layer, train, test, controls, **fit) for layer in tracked(chosen, progress)]
    return ProbeResult(results, *baselines(train, test), names, len(train.labels), len(test.labels))


def probe_layer(
    layer: int,
    train: Words,
    test: Words,
    controls: tuple[np.ndarray, np.ndarray],
    **fit: Any,
) -> LayerResult:
    from sklearn.metrics import f1_score

    said = fit_and_predict(train.states[layer], train.labels, test.states[layer], **fit)
    drawn = fit_and_predict(train.states[layer], controls[0], test.states[layer], **fit)
    return LayerResult(
        layer,
        accuracy=float((said == test.labels).mean()),
        macro_f1=float(f1_score(test.labels, said, average="macro", zero_division=0)),
        control=float((drawn == controls[1]).mean()),
    )


def fit_and_predict(
    states: np.ndarray,
    labels: np.ndarray,
    new_states: np.ndarray,
    regularization: float,
    max_iterations: int,
    seed: int,
) -> np.ndarray:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if len(set(labels.tolist())) == 1:  # a control may draw one label for all words of a small corpus
        return np.full(len(new_states), labels[0])
    regression = LogisticRegression(C=1 / regularization, max_iter=max_iterations, random_state=seed)
    with warnings.catch_warnings():
        # The last digits are no part of the comparison: every layer gets the same number of steps.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return make_pipeline(StandardScaler(), regression).fit(states, labels).predict(new_states)


def two_parts(data: Any, train_size: int, test_size: int, seed: int) -> tuple[list[dict], list[dict]]:
    """Sentences to learn from and others to be judged on."""
    for name, size in (("train_size", train_size), ("test_size", test_size)):
        if size < 1:
            raise ValueError(f"{name} must be at least 1 sentence, got {size}")
    rng = np.random.default_rng(seed)
    if isinstance(data, Mapping):
        held_out = next((split for split in ("test", "validation") if split in data), None)
        if "train" in data and held_out:
            return draw(data["train"], train_size, rng), draw(data[held_out], test_size, rng)
        if len(data) != 1:
            raise ValueError(f"a probe needs a train split and a test or validation split; got {', '.join(data)}")
        data = next(iter(data.values()))
    rows = draw(data, train_size + test_size, rng)
    if len(rows) < 2:
        raise ValueError(f"a probe needs two sentences at least, one to learn from and one to judge; got {len(rows)}")
    cut = round(len(rows) * train_size / (train_size + test_size))
    cut = min(max(cut, 1), len(rows) - 1)
    return rows[:cut], rows[cut:]


def draw(rows: Any, size: int, rng: np.random.Generator) -> list[dict]:
    order = rng.permutation(len(rows))[:size]
    chosen = [rows[int(number)] for number in order]
    if not chosen or not {"tokens", "tags"} <= set(chosen[0]):
        there = ", ".join(chosen[0]) if chosen else "no rows"
        raise ValueError(f"a probe needs rows with 'tokens' and 'tags', got {there}; load_corpus(...) makes them")
    return chosen


def name_labels(data: Any, rows: Iterable[dict]) -> tuple[list[str], dict[Any, int]]:
    """The names of the labels, and the number of each tag as the rows have it: numbered already, or any words."""
    first = next(iter(data.values())) if isinstance(data, Mapping) else data
    feature = (getattr(first, "features", None) or {}).get("tags")
    names = getattr(getattr(feature, "feature", None), "names", None)
    if names:
        return list(names), {number: number for number in range(len(names))}
    tags = sorted({tag for row in rows for tag in row["tags"] if tag is not None}, key=str)
    return [str(tag) for tag in tags], {tag: number for number, tag in enumerate(tags)}


def collect(model: Any, tokenizer: Any, rows: list[dict], numbers: dict[Any, int], batch_size: int) -> Words:
    """The state of each word's first token, in every layer; words without a token or a label are left out."""
    encoded = [encode_words(tokenizer, row["tokens"]) for row in rows]
    parts: list[Any] = [None] * len(rows)
    for index, states in layer_states(model, encoded, batch_size):
        first = encoded[index].first_tokens()
        labelled = [tag in numbers for tag in rows[index]["tags"]]
        kept = np.flatnonzero((first >= 0) & labelled)
        parts[index] = (states[:, first[kept]].numpy(), kept)
    labels = [numbers[row["tags"][place]] for row, (_, kept) in zip(rows, parts, strict=True) for place in kept]
    spellings = [row["tokens"][place] for row, (_, kept) in zip(rows, parts, strict=True) for place in kept]
    return Words(np.concatenate([states for states, _ in parts], axis=1), np.array(labels), spellings)


def control_labels(train: Words, test: Words, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A label for every word type, drawn as often as the real labels are in training; the same in both parts."""
    rng = np.random.default_rng(seed)
    types = sorted({*train.spellings, *test.spellings})
    drawn = dict(zip(types, rng.choice(train.labels, size=len(types)), strict=True))
    return tuple(np.array([drawn[spelling] for spelling in part.spellings]) for part in (train, test))


def baselines(train: Words, test: Words) -> tuple[float, float]:
    most = Counter(train.labels.tolist()).most_common(1)[0][0]
    by_word: dict[str, Counter] = {}
    for spelling, label in zip(train.spellings, train.labels.tolist(), strict=True):
        by_word.setdefault(spelling, Counter())[label] += 1
    said = [by_word[word].most_common(1)[0][0] if word in by_word else most for word in test.spellings]
    return float((test.labels == most).mean()), float((test.labels == np.array(said)).mean())


def tracked(layers: Sequence[int], progress: bool) -> Iterable[int]:
    from rich.progress import track

    return track(list(layers), "probing layers", transient=True) if progress else layers


def check_probe_path(path: str | os.PathLike) -> Path:
    path = Path(path)
    return path if path.suffix.lower() == ".json" else check_picture_path(path)


def save_probe(result: ProbeResult, path: str | os.PathLike, title: str = "") -> Path:
    """The numbers as .json, or their picture as .png or .svg."""
    path = check_probe_path(path)
    if path.suffix.lower() != ".json":
        return save_figure(draw_probe(result, title), path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result.to_dict(), ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    return path


def draw_probe(result: ProbeResult, title: str = "") -> Any:
    """Accuracy by layer on the real labels and on the control's, with what needs no model as lines."""
    figure, axis = new_figure(6.5, 4.4)
    layers = [each.layer for each in result.layers]
    lines = (("linear probe", "accuracy"), ("control: a random label a word", "control"))
    for number, (label, name) in enumerate(lines):
        values = [getattr(each, name) for each in result.layers]
        axis.plot(layers, values, color=COLOURS[number], marker="os"[number], label=label)
    axis.axhline(result.majority_by_word, color=INK, linestyle="--", linewidth=1, label="each word's usual label")
    axis.axhline(result.majority, color=INK, linestyle=":", linewidth=1, label="the most frequent label")
    axis.set(xlabel="layer (0: embeddings)", ylabel="accuracy", ylim=(0, 1), xticks=layers, title=title)
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=9)  # in the axes it would hide lines
    note(
        figure,
        f"{result.train_words:,} words to learn from, {result.test_words:,} to judge, {len(result.labels)} labels",
    )
    return figure
