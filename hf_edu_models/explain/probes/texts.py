"""Logistic regression on the vectors of texts: what a frozen model is worth as it is, beside fine-tuning it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..hidden_states import TextEncoder
from ..inference import with_progress


@dataclass(frozen=True)
class TextProbe:
    """Scores on the test split of a classifier on frozen vectors; `layer` is None for tf-idf."""

    layer: int | None
    accuracy: float
    macro_f1: float


@dataclass(frozen=True)
class TextProbes:
    """Probes by layer and a baseline of word counts (tf-idf).

    Args:
        majority: Accuracy of the label that is the most frequent in the train split.
    """

    layers: list[TextProbe]
    tfidf: TextProbe
    majority: float
    train_texts: int
    test_texts: int
    truncated: int


def probe_texts(
    model: Any,
    tokenizer: Any,
    corpus: Any,
    *,
    layers: Sequence[int] = (-1,),
    pooling: str = "mean",
    train_size: int = 2_000,
    test_size: int = 1_000,
    seed: int = 0,
    batch_size: int = 32,
    progress: bool = False,
) -> TextProbes:
    """Fit a logistic regression to the vectors of the train split, and score it on the test or validation split.

    Args:
        corpus: Splits with `text` and `label`.
        layers: 0 the embeddings, -1 the last.
        train_size: At most so many texts, sampled by `seed`.
    """
    held_out = next((name for name in ("test", "validation") if name in corpus), None)
    if "train" not in corpus or held_out is None:
        raise ValueError(f"a probe needs a train split and a test or validation split; got {', '.join(corpus)}")
    rng = np.random.default_rng(seed)
    train, test = (_texts(corpus[name], size, rng) for name, size in (("train", train_size), (held_out, test_size)))
    if len(set(train[1])) < 2:
        raise ValueError(f"all {len(train[1])} training texts have the same label; a probe needs two different labels")
    probes, truncated = [], 0
    for layer in layers:
        encoder = TextEncoder(model, tokenizer, pooling, layer, batch_size=batch_size)
        parts = (("training", train[0]), ("test", test[0]))
        vectors = [_encode(encoder, texts, f"layer {layer}: {name} texts", progress) for name, texts in parts]
        probes.append(_score(layer, vectors, train[1], test[1], seed))
        truncated = encoder.num_truncated
    from sklearn.feature_extraction.text import TfidfVectorizer

    counter = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\S+")
    counts = [counter.fit_transform(train[0]), counter.transform(test[0])]
    tfidf = _score(None, counts, train[1], test[1], seed)
    majority = np.mean(np.array(test[1]) == Counter(train[1]).most_common(1)[0][0])
    return TextProbes(probes, tfidf, float(majority), len(train[0]), len(test[0]), truncated)


def _texts(rows: Any, size: int, rng: np.random.Generator) -> tuple[list[str], list[Any]]:
    chosen = [rows[int(index)] for index in rng.permutation(len(rows))[:size]]
    if not chosen or not {"text", "label"} <= set(chosen[0]):
        found = ", ".join(chosen[0]) if chosen else "no rows"
        raise ValueError(f"a probe needs rows with 'text' and 'label', got {found}; load_corpus(...) makes them")
    if chosen[0].get("text_pair") is not None:
        raise ValueError("a probe of texts reads one text, and these rows have two; fine-tune a model on pairs")
    if any(isinstance(row["label"], float | list) for row in chosen):
        raise ValueError("a probe of texts needs one class for each text; these labels are numbers or lists")
    return [row["text"] for row in chosen], [row["label"] for row in chosen]


def _encode(encoder: TextEncoder, texts: list[str], title: str, progress: bool) -> np.ndarray:
    found: Iterator[Any] = iter(with_progress(encoder(texts), title, len(texts), progress))
    return np.stack([vector for _, vector in found])


def _score(layer: int | None, vectors: Sequence[Any], labels: list[Any], references: list[Any], seed: int) -> TextProbe:
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import f1_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    # Word counts are many and mostly zero: they are scaled already, and need a weaker penalty.
    regression = LogisticRegression(C=0.1 if layer is not None else 10, max_iter=1_000, random_state=seed)
    steps = (StandardScaler(), regression) if layer is not None else (regression,)
    predictions = make_pipeline(*steps).fit(vectors[0], labels).predict(vectors[1])
    macro = f1_score(references, predictions, average="macro", zero_division=0)
    return TextProbe(layer, float((predictions == np.array(references)).mean()), float(macro))
