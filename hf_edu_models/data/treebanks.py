"""Treebanks: sentences as lists of words, with the head of each word in the dependency tree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_NO_HEAD = (None, "None", "_", "")  # of a contraction that the next rows spell out


def read_treebank(raw: Mapping[str, Any], name: str = "the treebank") -> dict[str, Any]:
    """Splits of rows with `tokens` and `heads`, from any that have words and their heads, such as CoNLL-U.

    A head is the place of another word of the sentence, counted from 1; the root's is 0.
    """
    return {split: _Sentences(rows, name, split) for split, rows in raw.items()}


class _Sentences(Sequence):
    """The rows of a split, read and checked when they are asked for."""

    def __init__(self, rows: Any, name: str, split: str):
        known = set(rows.column_names)
        self.words = next((column for column in ("tokens", "words", "form") if column in known), None)
        self.heads = next((column for column in ("heads", "head") if column in known), None)
        if self.words is None or self.heads is None:
            raise ValueError(
                f"{name} has the columns {', '.join(rows.column_names)}; a treebank needs tokens and head, as a "
                ".conllu file has them"
            )
        self.rows, self.where = rows, f"{name}, {split}"

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        row = self.rows[int(index)]
        pairs = zip(row[self.words], row[self.heads], strict=True)
        words = [(word, head) for word, head in pairs if head not in _NO_HEAD]
        where = f"{self.where}, row {index}"
        for word, head in words:
            if not str(head).isdigit():
                raise ValueError(f"{where}: the head of {word!r} is {head!r}, but a head is the number of a word, or 0")
        tokens, heads = [word for word, _ in words], [int(head) for _, head in words]
        check_tree(heads, where)
        return {"tokens": tokens, "heads": heads}


def check_tree(heads: Sequence[int], where: str = "the sentence") -> None:
    """Raise an error unless the heads, counted from 1, are a tree with one root, whose head is 0."""
    count = len(heads)
    if any(not 0 <= head <= count for head in heads):
        raise ValueError(f"{where}: the heads of {count} words must be from 0 to {count}, got {list(heads)}")
    if heads.count(0) != 1:
        raise ValueError(f"{where}: a tree has one root, a word with head 0; got {heads.count(0)} of them")
    reached = {0}
    for word in range(1, count + 1):
        path = []
        while word not in reached:
            if word in path:
                raise ValueError(f"{where}: the heads run in a circle at word {word}, so they are no tree")
            path.append(word)
            word = heads[word - 1]
        reached.update(path)
