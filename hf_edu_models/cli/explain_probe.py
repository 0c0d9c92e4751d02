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
    dataset: Annotated[str, typer.Option(help="Token classification data: a file, folder or Hub dataset.")],
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
    """Train a linear probe for token labels on each layer of a frozen model, with a control task (selectivity)."""
    from ..explain.probes.linear import check_probe_path, save_probe
    from ..explain.probes.linear import probe as probe_layers

    if out is not None:
        check_probe_path(out)
    columns = None if tags is None else {"tags": tags}
    corpus = read_corpus(dataset, task="token_classification", columns=columns, config=config)
    options = {"train_size": train_size, "test_size": test_size, "batch_size": batch_size, "seed": seed}
    loaded = read_model(model, trust_remote_code)
    result = probe_layers(*loaded, corpus, layers=layer or "all", **options, progress=True)
    _print_result(result)
    if out is not None:
        save_probe(result, out, f"{Path(dataset).name}: probing accuracy by layer of {Path(model).name}")
        Console().print(Text(f"saved in {out}"))


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
