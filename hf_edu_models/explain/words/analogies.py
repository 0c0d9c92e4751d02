"""Arithmetic with word vectors: king - man + woman, and scores of lists of analogies and of similarities.

Paper: Mikolov, Yih & Zweig 2013, "Linguistic Regularities in Continuous Space Word Representations" (NAACL): a is to b
as c to d, where d is nearest to b - a + c, and is none of them. Similarities are scored by Spearman's correlation with
people's ratings.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

_QUESTIONS_AT_ONCE = 256
_COLUMNS = ("a", "b", "c", "d")


@dataclass(frozen=True)
class WordTable:
    """Words, most frequent first, and their vectors (words, size), scaled to length one."""

    words: list[str]
    vectors: np.ndarray

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", {word: row for row, word in reversed([*enumerate(self.words)])})

    def row(self, word: str) -> int:
        """The row of a word as written, or lowercased."""
        row = self.find(word)
        if row is None:
            close = difflib.get_close_matches(word.lower(), self.words, n=3)
            known = f"it has {', '.join(close)}" if close else f"it has {len(self.words):,} others"
            raise ValueError(f"the word {word!r} is not in the vocabulary; {known}")
        return row

    def find(self, word: str) -> int | None:
        rows: dict[str, int] = self.rows  # type: ignore[attr-defined]
        return rows.get(word, rows.get(word.lower()))


def word_table(words: Sequence[str], vectors: np.ndarray, limit: int | None = None) -> WordTable:
    """The first `limit` words with their vectors scaled to length one."""
    vectors = np.asarray(vectors[:limit], np.float32)
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return WordTable(list(words[:limit]), vectors / np.maximum(lengths, np.finfo(np.float32).tiny))


@dataclass(frozen=True)
class Answer:
    """A word, and the cosine of its vector with the one that was asked for."""

    word: str
    similarity: float


def solve(table: WordTable, plus: Sequence[str], minus: Sequence[str], k: int = 5) -> list[Answer]:
    """The `k` words nearest to the sum of some vectors less some others; these words themselves are left out."""
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    added, taken = [table.row(word) for word in plus], [table.row(word) for word in minus]
    target = table.vectors[added].sum(axis=0) - table.vectors[taken].sum(axis=0)
    similarities = table.vectors @ (target / max(float(np.linalg.norm(target)), 1e-12))
    similarities[[*added, *taken]] = -np.inf
    best = np.argsort(-similarities, kind="stable")[:k]
    return [Answer(table.words[row], float(similarities[row])) for row in best if np.isfinite(similarities[row])]


@dataclass(frozen=True)
class Score:
    """Of a list of questions: those whose words are all known, and how many of them are answered right."""

    category: str
    correct: int
    known: int
    total: int

    @property
    def accuracy(self) -> float:
        return self.correct / self.known if self.known else 0.0


def read_analogies(path: str | Path) -> list[tuple[str, tuple[str, ...]]]:
    """Category and words of each question: word2vec's format (": category", then lines of four words), or a table.

    A table (.parquet, .csv) has the columns a, b, c, d, and perhaps category.
    """
    path = Path(path)
    if path.suffix in (".parquet", ".csv"):
        return _read_table(path)
    questions, category = [], ""
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        words = line.split()
        if line.startswith(":"):
            category = line[1:].strip()
        elif len(words) == 4:
            questions.append((category, tuple(words)))
        elif words:
            raise ValueError(
                f"{path}, line {number}: four words are needed, as in 'man king woman queen'; got {line!r}"
            )
    if not questions:
        raise ValueError(f"{path} has no analogies; give lines of four words")
    return questions


def _read_table(path: Path) -> list[tuple[str, tuple[str, ...]]]:
    import pandas

    table = pandas.read_parquet(path) if path.suffix == ".parquet" else pandas.read_csv(path)
    missing = [name for name in _COLUMNS if name not in table.columns]
    if missing:
        raise ValueError(f"{path} has the columns {', '.join(map(str, table.columns))}; it needs {', '.join(_COLUMNS)}")
    categories = table["category"].tolist() if "category" in table.columns else [""] * len(table)
    return list(zip(categories, zip(*(table[name].tolist() for name in _COLUMNS), strict=True), strict=True))


def score_analogies(table: WordTable, questions: Iterable[tuple[str, Sequence[str]]]) -> list[Score]:
    """One score for each category, in order, and "all" at the end."""
    totals: dict[str, int] = {}
    known: list[tuple[str, list[int]]] = []
    for category, words in questions:
        totals[category] = totals.get(category, 0) + 1
        rows = [table.find(word) for word in words]
        if None not in rows:
            known.append((category, rows))  # type: ignore[arg-type]
    right = dict.fromkeys(totals, 0)
    asked = dict.fromkeys(totals, 0)
    for start in range(0, len(known), _QUESTIONS_AT_ONCE):
        part = known[start : start + _QUESTIONS_AT_ONCE]
        rows = np.array([each for _, each in part])
        vectors = table.vectors
        scores = (vectors[rows[:, 1]] - vectors[rows[:, 0]] + vectors[rows[:, 2]]) @ vectors.T
        np.put_along_axis(scores, rows[:, :3], -np.inf, axis=1)
        for (category, _), best, answer in zip(part, scores.argmax(axis=1), rows[:, 3], strict=True):
            asked[category] += 1
            right[category] += int(best == answer)
    scored = [Score(name, right[name], asked[name], totals[name]) for name in totals]
    return [*scored, Score("all", sum(right.values()), sum(asked.values()), sum(totals.values()))]


def score_similarities(table: WordTable, pairs: Iterable[tuple[str, str, float]]) -> tuple[float, int]:
    """Spearman's correlation between cosines and ratings, and the number of pairs whose words are known."""
    from scipy.stats import spearmanr

    rows = [(table.find(left), table.find(right), rating) for left, right, rating in pairs]
    known = [each for each in rows if None not in each[:2]]
    if len(known) < 3:
        raise ValueError(f"{len(known)} of {len(rows)} pairs have known words; a correlation needs three")
    left, right, ratings = map(list, zip(*known, strict=True))
    cosines = (table.vectors[left] * table.vectors[right]).sum(axis=1)
    return float(spearmanr(cosines, ratings).statistic), len(known)


def table_of(model: Any, tokenizer: Any, limit: int | None = None) -> WordTable:
    """The table of a model's input embeddings."""
    from ...data.word_vectors import plain_words
    from .embeddings import embedding_table

    rows: dict[str, int] = {}
    for token_id, word in enumerate(plain_words(tokenizer)):
        if word is not None and word.strip():
            rows.setdefault(word, token_id)
    return word_table([*rows], embedding_table(model, tokenizer)[[*rows.values()]], limit)
