"""Linear probes: how well a linear classifier predicts token labels from each layer of a frozen model.

A probe with a high accuracy may have learned the task itself. Hewitt & Liang 2019, arXiv:1909.03368, therefore add a
control task: a random label for every word type, which the model cannot know. *Selectivity* is the accuracy on the real
labels minus that on the control task.
"""

from __future__ import annotations

import json
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...checkpoints import length_limit
from ...plotting import COLOURS, INK, add_caption, check_picture_path, new_figure, save_figure
from ..hidden_states import check_layer, layer_states
from ..inference import with_progress
from ..word_tokens import encode_words


@dataclass(frozen=True)
class LayerResult:
    """The scores of a probe on held-out sentences, from 0 to 1.

    Args:
        control: Accuracy on the control task, random labels for every word type.
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
        majority: Accuracy of the most frequent training label.
        majority_by_word: Accuracy of each word's most frequent training label, the majority for unseen words.
        truncated: Number of sentences that are longer than the model's positions; words behind them are left out.
    """

    layers: list[LayerResult]
    majority: float
    majority_by_word: float
    labels: list[str]
    train_words: int
    test_words: int
    truncated: int = 0

    @property
    def best(self) -> LayerResult:
        return max(self.layers, key=lambda each: each.accuracy)

    def to_dict(self) -> dict[str, Any]:
        layers = [asdict(each) | {"selectivity": each.selectivity} for each in self.layers]
        return asdict(self) | {"layers": layers}


@dataclass(frozen=True)
class WordStates:
    """Labelled words of a split: hidden states (layers, words, size), label ids and spelling."""

    states: np.ndarray
    labels: np.ndarray
    spellings: list[str]
    truncated: int = 0


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
    """Fit one logistic regression for each layer, on the hidden states of the words' first tokens.

    Args:
        corpus_or_rows: Rows with `tokens` and `tags`: a corpus with a train split and a test or validation split, or
            one list of rows, which is split in two.
        layers: "all", or layer indices, 0 the embeddings.
        train_size: Training sentences, sampled by `seed`; at most all that there are.
        regularization: Strength of the L2 penalty, 1 / C of scikit-learn.
    """
    train_rows, test_rows = split_rows(corpus_or_rows, train_size, test_size, seed)
    names, label_ids = label_names(corpus_or_rows, [*train_rows, *test_rows])
    train = collect_states(model, tokenizer, train_rows, label_ids, batch_size)
    test = collect_states(model, tokenizer, test_rows, label_ids, batch_size)
    if len(set(train.labels.tolist())) < 2:
        raise ValueError("all training words have the same label; a probe needs at least two different labels")
    count = len(train.states)
    chosen = range(count) if layers == "all" else [check_layer(layer, count) for layer in layers]
    controls = control_labels(train, test, seed)
    fit = {"regularization": regularization, "max_iterations": max_iterations, "seed": seed}
    steps = with_progress(chosen, "probing layers", len(chosen), progress)
    results = [_probe_layer(layer, train, test, controls, **fit) for layer in steps]
    truncated = train.truncated + test.truncated
    return ProbeResult(results, *baselines(train, test)[:2], names, len(train.labels), len(test.labels), truncated)


def _probe_layer(
    layer: int, train: WordStates, test: WordStates, controls: tuple[np.ndarray, np.ndarray], **fit: Any
) -> LayerResult:
    from sklearn.metrics import f1_score

    predictions = _fit_and_predict(train.states[layer], train.labels, test.states[layer], **fit)
    control_predictions = _fit_and_predict(train.states[layer], controls[0], test.states[layer], **fit)
    return LayerResult(
        layer,
        accuracy=float((predictions == test.labels).mean()),
        macro_f1=float(f1_score(test.labels, predictions, average="macro", zero_division=0)),
        control=float((control_predictions == controls[1]).mean()),
    )


def _fit_and_predict(
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

    if len(set(labels.tolist())) == 1:  # a control task may have one label for all words of a small corpus
        return np.full(len(new_states), labels[0])
    regression = LogisticRegression(C=1 / regularization, max_iter=max_iterations, random_state=seed)
    with warnings.catch_warnings():
        # Every layer gets the same number of iterations; the last digits do not matter for the comparison.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return make_pipeline(StandardScaler(), regression).fit(states, labels).predict(new_states)


def split_rows(
    data: Any, train_size: int, test_size: int, seed: int, columns: Sequence[str] = ("tokens", "tags")
) -> tuple[list[dict], list[dict]]:
    """Training sentences and held-out sentences."""
    for name, size in (("train_size", train_size), ("test_size", test_size)):
        if size < 1:
            raise ValueError(f"{name} must be at least 1 sentence, got {size}")
    rng = np.random.default_rng(seed)
    if isinstance(data, Mapping):
        held_out = next((split for split in ("test", "validation") if split in data), None)
        if "train" in data and held_out:
            sizes = {"train": train_size, held_out: test_size}
            train, test = (_sample(data[split], size, rng, columns) for split, size in sizes.items())
            return train, test
        if len(data) != 1:
            raise ValueError(f"a probe needs a train split and a test or validation split; got {', '.join(data)}")
        data = next(iter(data.values()))
    rows = _sample(data, train_size + test_size, rng, columns)
    if len(rows) < 2:
        raise ValueError(f"a probe needs at least two sentences, one to train on and one to test on; got {len(rows)}")
    cut = round(len(rows) * train_size / (train_size + test_size))
    cut = min(max(cut, 1), len(rows) - 1)
    return rows[:cut], rows[cut:]


def _sample(rows: Any, size: int, rng: np.random.Generator, columns: Sequence[str]) -> list[dict]:
    sample = [rows[int(index)] for index in rng.permutation(len(rows))[:size]]
    if not sample or not set(columns) <= set(sample[0]):
        found, loader = ", ".join(sample[0]) if sample else "no rows", "corpus" if "tags" in columns else "treebank"
        wanted = " and ".join(map(repr, columns))
        raise ValueError(f"a probe needs rows with {wanted}, got {found}; load_{loader}(...) makes them")
    return sample


def label_names(data: Any, rows: Iterable[dict]) -> tuple[list[str], dict[Any, int]]:
    """The names of the labels, and the id of each tag as it is in the rows: already an id, or any value."""
    first = next(iter(data.values())) if isinstance(data, Mapping) else data
    feature = (getattr(first, "features", None) or {}).get("tags")
    names = getattr(getattr(feature, "feature", None), "names", None)
    if names:
        return list(names), {index: index for index in range(len(names))}
    tags = sorted({tag for row in rows for tag in row["tags"] if tag is not None}, key=str)
    return [str(tag) for tag in tags], {tag: index for index, tag in enumerate(tags)}


def collect_states(
    model: Any, tokenizer: Any, rows: list[dict], label_ids: dict[Any, int], batch_size: int
) -> WordStates:
    """The states of each word's first token in every layer; words without a token or a label are left out."""
    limit = length_limit(model.config, tokenizer)
    encoded = [encode_words(tokenizer, row["tokens"], max_length=limit) for row in rows]
    parts: list[Any] = [None] * len(rows)
    for index, states in layer_states(model, encoded, batch_size):
        first = encoded[index].first_tokens()
        has_label = [tag in label_ids for tag in rows[index]["tags"]]
        words = np.flatnonzero((first >= 0) & has_label)
        parts[index] = (states[:, first[words]].numpy(), words)
    chosen = [(row, word) for row, (_, words) in zip(rows, parts, strict=True) for word in words]
    labels = np.array([label_ids[row["tags"][word]] for row, word in chosen])
    spellings = [row["tokens"][word] for row, word in chosen]
    truncated = sum(each.is_truncated for each in encoded)
    return WordStates(np.concatenate([states for states, _ in parts], axis=1), labels, spellings, truncated)


def control_labels(train: WordStates, test: WordStates, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A random label for every word type, from the distribution of the training labels; the same in both splits."""
    rng = np.random.default_rng(seed)
    types = sorted({*train.spellings, *test.spellings})
    label_of = dict(zip(types, rng.choice(train.labels, size=len(types)), strict=True))
    return tuple(np.array([label_of[spelling] for spelling in split.spellings]) for split in (train, test))


def baselines(train: WordStates, test: WordStates) -> tuple[float, float, np.ndarray]:
    """Accuracy of the majority label, and of each word's majority label; the labels that the latter predicts."""
    majority = Counter(train.labels.tolist()).most_common(1)[0][0]
    by_word: dict[str, Counter] = {}
    for spelling, label in zip(train.spellings, train.labels.tolist(), strict=True):
        by_word.setdefault(spelling, Counter())[label] += 1
    predictions = np.array(
        [by_word[word].most_common(1)[0][0] if word in by_word else majority for word in test.spellings]
    )
    return float((test.labels == majority).mean()), float((test.labels == predictions).mean()), predictions


def check_probe_path(path: str | os.PathLike) -> Path:
    path = Path(path)
    return path if path.suffix.lower() == ".json" else check_picture_path(path)


def write_probes(path: str | os.PathLike, values: Any, draw: Callable[[], Any]) -> Path:
    """Write the values as .json, or the figure as .png or .svg."""
    path = check_probe_path(path)
    if path.suffix.lower() != ".json":
        return save_figure(draw(), path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    return path


def save_probe(result: ProbeResult, path: str | os.PathLike, title: str = "") -> Path:
    """Write the numbers as .json, or a picture as .png or .svg."""
    return write_probes(path, result.to_dict(), lambda: draw_probe(result, title))


def draw_probe(result: ProbeResult, title: str = "") -> Any:
    """Accuracy by layer on the real labels and on the control task, with two baselines that need no model."""
    figure, axis = new_figure(6.5, 4.4)
    layers = [each.layer for each in result.layers]
    lines = (("linear probe", "accuracy"), ("control task (random labels)", "control"))
    for number, (label, name) in enumerate(lines):
        values = [getattr(each, name) for each in result.layers]
        axis.plot(layers, values, color=COLOURS[number], marker="os"[number], label=label)
    axis.axhline(result.majority_by_word, color=INK, linestyle="--", linewidth=1, label="majority label of each word")
    axis.axhline(result.majority, color=INK, linestyle=":", linewidth=1, label="majority label")
    axis.set(xlabel="layer (0: embeddings)", ylabel="accuracy", ylim=(0, 1), xticks=layers, title=title)
    figure.legend(loc="outside upper center", ncols=2, frameon=False, fontsize=9)  # in the axes it would hide lines
    sizes = f"{result.train_words:,} training words, {result.test_words:,} test words, {len(result.labels)} labels"
    sizes += f", {result.truncated} sentences truncated" if result.truncated else ""
    add_caption(figure, sizes)
    return figure
