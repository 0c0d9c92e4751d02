"""`hf-edu explain probe`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .loading import read_corpus, read_model
from .options import BatchSize, Model, Seed, TrustRemoteCode


def probe(
    model: Model,
    dataset: Annotated[
        list[str],
        typer.Option(
            help="Words with labels: a file, folder or Hub dataset, or NAME:COLUMN; repeat it for several tasks."
        ),
    ],
    tags: Annotated[str | None, typer.Option(help="Label column, if there are several.")] = None,
    config: Annotated[str | None, typer.Option(help="Configuration of a Hub dataset.")] = None,
    layer: Annotated[
        list[int] | None, typer.Option(help="Probe only this layer, 0 is the embedding output; can be repeated.")
    ] = None,
    train_size: Annotated[int, typer.Option(help="Number of training sentences.")] = 1_000,
    test_size: Annotated[int, typer.Option(help="Number of test sentences.")] = 500,
    seed: Seed = 0,
    batch_size: BatchSize = 32,
    out: Annotated[Path | None, typer.Option(help="Output file: .png or .svg figure, or .json values.")] = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Train a linear probe for word labels on each layer of a frozen model, with a control task (selectivity).

    Several datasets: probes on mixed layers, which tell the layers that hold each task (Tenney et al. 2019).

    hf-edu explain probe runs/bert --dataset ewt:upos --dataset conll2003:ner_tags --dataset coarsewsd20 --out tasks.png
    """
    from ..explain.probes.linear import check_probe_path, save_probe
    from ..explain.probes.linear import probe as probe_layers
    from ..explain.probes.tasks import probe_tasks, save_tasks

    if out is not None:
        check_probe_path(out)
    options: dict[str, Any] = {"train_size": train_size, "test_size": test_size, "batch_size": batch_size}
    options |= {"seed": seed, "progress": True}
    parts = [_split_name(name, tags) for name in dataset]
    if len(parts) > 1 and (layer or tags):
        raise ValueError(
            "several datasets are probed on all layers, and name their column as in ewt:upos; leave out "
            "--layer and --tags"
        )
    corpora = {_label(*part): _read_words(*part, config) for part in parts}
    loaded = read_model(model, trust_remote_code)
    if len(corpora) > 1:
        found = probe_tasks(*loaded, corpora, **options)
        _print_tasks(found)
        saved = out and save_tasks(found, out, f"tasks by layer of {Path(model).name}")
    else:
        ((name, corpus),) = corpora.items()
        result = probe_layers(*loaded, corpus, layers=layer or "all", **options)
        _print_result(result)
        saved = out and save_probe(result, out, f"{name}: probing accuracy by layer of {Path(model).name}")
    if saved:
        Console().print(Text(f"saved in {saved}"))


def _split_name(name: str, tags: str | None) -> tuple[str, str | None]:
    """A dataset and its column: NAME or NAME:COLUMN."""
    path, colon, column = name.rpartition(":")
    return (path, column) if colon and not Path(name).exists() else (name, tags)


def _label(name: str, column: str | None) -> str:
    return Path(name).name if column is None else f"{Path(name).name}, {column}"


def _read_words(name: str, column: str | None, config: str | None) -> Any:
    """Words with tags; sentences with the sense of one word have one tag."""
    from ..data import BUILTINS, load_splits
    from ..explain.probes.tasks import senses_as_tags

    if name not in BUILTINS and column in (None, "sense"):
        splits = load_splits(name, config)
        if {"sentence", "position", "sense"} <= set(next(iter(splits.values())).column_names):
            return {split: senses_as_tags(rows) for split, rows in splits.items()}
    columns = None if column is None else {"tags": column}
    return read_corpus(name, task="token_classification", columns=columns, config=config)


def _print_tasks(found: list[Any]) -> None:
    layers = [str(number) for number in range(len(found[0].scores))]
    table = Table(
        "task", "score", "by word", *(f"0-{layer}" for layer in layers), "expected layer", "center of gravity"
    )
    for each in found:
        values = (each.baseline, *each.scores)
        means = (f"{each.expected_layer:.2f}", f"{each.center_of_gravity:.2f}")
        table.add_row(Text(f"{each.name} ({each.metric})"), *(f"{100 * value:.1f}" for value in values), *means)
    Console().print(table)
    Console().print("by word: the most frequent label of each word; 0-2: a probe on a learnt mix of the layers 0 to 2")
    Console().print("expected layer: by what each layer adds; center of gravity: by the weights of the mix of all")


def _print_result(result: Any) -> None:
    table = Table("layer", "accuracy", "macro F1", "control", "selectivity")
    for each in result.layers:
        values = (each.accuracy, each.macro_f1, each.control, each.selectivity)
        table.add_row(str(each.layer), *(f"{100 * value:.1f}" for value in values))
    Console().print(table)
    majority, by_word = 100 * result.majority, 100 * result.majority_by_word
    Console().print(f"majority class: {majority:.1f}; majority class of each word: {by_word:.1f}")
    if result.truncated:
        Console().print(f"{result.truncated} sentences are longer than the model's positions and were truncated")
