"""Look at a corpus: what `hf-edu data NAME --show 5` prints."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

LONGEST_CELL = 200


def show_corpus(
    name_or_path: str,
    show: int = 5,
    split: str | None = None,
    task: str | None = None,
    source: str | None = None,
    target: str | None = None,
    config: str | None = None,
    revision: str | None = None,
    seed: int = 0,
    streaming: bool = False,
    column: list[str] | None = None,
    label: list[str] | None = None,
    option: list[str] | None = None,
) -> None:
    """Print the splits, the columns and the first rows of anything that `load_corpus` takes.

    Args:
        show: Rows of each split.
        split: Only this split.
        column: `ours=theirs`, as often as needed.
        label: The classes in order, as often as needed, where a stream has words for labels.
        option: `name=value` of a built-in task, as often as needed; the value is JSON or a word.
    """
    from rich.console import Console

    from .corpora import load_corpus
    from .named_values import named_texts, named_values, word_or_list

    if show < 0:
        raise ValueError(f"show must be 0 or more rows, got {show}")
    try:
        corpus = load_corpus(
            name_or_path,
            task=task,
            columns={name: word_or_list(value) for name, value in named_texts("column", column)} or None,
            label_names=label or None,
            source=source,
            target=target,
            config=config,
            revision=revision,
            seed=seed,
            streaming=streaming,
            **named_values("option", option),
        )
    except TypeError as problem:  # an option that this corpus does not take
        raise ValueError(str(problem)) from problem
    if split is not None and split not in corpus:
        raise ValueError(f"{name_or_path} has no split {split!r}; it has {', '.join(corpus)}")
    console = Console()
    for name, dataset in corpus.items():
        if split in (None, name):
            console.print(_table(name, dataset, show))


def _table(name: str, dataset: Any, show: int) -> Any:
    from rich.table import Table
    from rich.text import Text

    size = f"{len(dataset):,} rows" if hasattr(dataset, "__len__") else "a stream"
    table = Table(title=f"{name}: {size}", title_justify="left", show_lines=True)
    rows = list(islice(dataset, show))
    columns = dataset.column_names or list(rows[0] if rows else ())
    for column in columns:
        table.add_column(Text(column), overflow="fold")
    features = dataset.features or {}
    for row in rows:
        table.add_row(*(Text(_cell(row[column], features.get(column))) for column in columns))
    return table


def _cell(value: Any, feature: Any) -> str:
    """One value for people: the names of classes, long texts cut."""
    inner = getattr(feature, "feature", feature)
    if hasattr(inner, "int2str"):
        many = value if isinstance(value, list) else [value]
        text = ", ".join("?" if number is None or number < 0 else inner.int2str(number) for number in many)
    elif isinstance(value, str):
        text = value
    else:
        text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST_CELL else text[: LONGEST_CELL - 1] + "…"
