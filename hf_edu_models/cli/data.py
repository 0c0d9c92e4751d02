"""`hf-edu data`."""

from __future__ import annotations

import json
from itertools import islice
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..redaction import make_visible
from .loading import read_corpus
from .options import Columns, DataOptions, NoHeader, Seed, Source, Target

_MAX_CELL_LENGTH = 200


def show_corpus(
    name_or_path: Annotated[str, typer.Argument(help="Built-in corpus, file, folder or Hub dataset.")],
    show: Annotated[int, typer.Option(help="Number of rows of each split.", min=0)] = 5,
    split: Annotated[str | None, typer.Option(help="Show only this split.")] = None,
    task: Annotated[str | None, typer.Option(help="Task, if the columns do not determine it.")] = None,
    source: Source = None,
    target: Target = None,
    config: Annotated[str | None, typer.Option(help="Configuration of a Hub dataset.")] = None,
    revision: Annotated[str | None, typer.Option(help="Revision of a Hub dataset.")] = None,
    seed: Seed = 0,
    streaming: Annotated[bool, typer.Option(help="Read the dataset as a stream.")] = False,
    columns: Columns = None,
    label: Annotated[
        list[str] | None, typer.Option(help="Class name, in order, for streams with text labels; can be repeated.")
    ] = None,
    option: DataOptions = None,
    no_header: NoHeader = False,
) -> None:
    """Show the splits, columns and first rows of a corpus."""
    from ..data.named_values import named_texts, named_values, word_or_list

    mapping: dict[str, Any] = {name: word_or_list(value) for name, value in named_texts("columns", columns)}
    corpus = read_corpus(
        name_or_path,
        task=task,
        columns=mapping or None,
        label_names=label or None,
        source=source,
        target=target,
        config=config,
        revision=revision,
        seed=seed,
        streaming=streaming,
        **({"header": False} if no_header else {}),
        **named_values("data_options", option),
    )
    if split is not None and split not in corpus:
        raise ValueError(f"{name_or_path} has no split {split!r}; it has {', '.join(corpus)}")
    for name, dataset in corpus.items():
        if split in (None, name):
            Console().print(_table(name, dataset, show))


def _table(name: str, dataset: Any, show: int) -> Table:
    size = f"{len(dataset):,} rows" if hasattr(dataset, "__len__") else "streaming"
    table = Table(title=Text(make_visible(f"{name}: {size}")), title_justify="left", show_lines=True)
    rows = list(islice(dataset, show))
    columns = dataset.column_names or list(rows[0] if rows else ())
    for column in columns:
        table.add_column(Text(make_visible(column)), overflow="fold")
    features = dataset.features or {}
    for row in rows:
        table.add_row(*(Text(_cell(row[column], features.get(column))) for column in columns))
    return table


def _cell(value: Any, feature: Any) -> str:
    """A value as text: class names instead of numbers, long texts truncated."""
    inner = getattr(feature, "feature", feature)
    if hasattr(inner, "int2str"):
        labels = value if isinstance(value, list) else [value]
        text = ", ".join("?" if label is None or label < 0 else inner.int2str(label) for label in labels)
    elif isinstance(value, str):
        text = value
    else:
        text = json.dumps(value, ensure_ascii=False, default=str)
    text = make_visible(text)
    return text if len(text) <= _MAX_CELL_LENGTH else text[: _MAX_CELL_LENGTH - 1] + "…"
