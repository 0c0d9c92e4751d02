"""`hf-edu explain parse`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .loading import read_model
from .options import BatchSize, Model, Seed, TrustRemoteCode


def parse(
    model: Model,
    dataset: Annotated[str, typer.Option(help="Treebank: a .conllu file, folder or Hub dataset with words and heads.")],
    config: Annotated[str | None, typer.Option(help="Configuration of a Hub dataset.")] = None,
    layer: Annotated[
        list[int] | None, typer.Option(help="Probe only this layer, 0 is the embedding output; can be repeated.")
    ] = None,
    rank: Annotated[int, typer.Option(help="Rank of the probe: dimensions in which distances are measured.")] = 64,
    train_size: Annotated[int, typer.Option(help="Number of training sentences.")] = 2_000,
    test_size: Annotated[int, typer.Option(help="Number of test sentences.")] = 500,
    epochs: Annotated[int, typer.Option(help="Number of epochs of each probe.")] = 10,
    control: Annotated[bool, typer.Option(help="Also probe the same model with random weights.")] = True,
    examples: Annotated[int, typer.Option(help="Number of sentences whose trees are drawn.", min=0)] = 3,
    seed: Seed = 0,
    batch_size: BatchSize = 32,
    out: Annotated[Path | None, typer.Option(help="Output file: .png or .svg figure, or .json values.")] = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Find dependency trees in hidden states: the structural probe of each layer, beside random weights.

    hf-edu explain parse runs/bert_pretrain-wikitext --dataset my/ud_english_ewt --out parse.png
    """
    from ..data import load_treebank
    from ..explain.probes.linear import check_probe_path
    from ..explain.probes.structural import parse_probe, save_parse_probe

    if out is not None:
        check_probe_path(out)
    treebank = load_treebank(dataset, config)
    options: dict[str, Any] = {"rank": rank, "train_size": train_size, "test_size": test_size, "epochs": epochs}
    options |= {"seed": seed, "control": control, "examples": examples, "batch_size": batch_size}
    loaded = read_model(model, trust_remote_code)
    result = parse_probe(*loaded, treebank, layers=layer or "all", **options, progress=True)
    _print_result(result)
    if out is not None:
        save_parse_probe(result, out, f"{Path(dataset).name}: dependency trees in {Path(model).name}")
        Console().print(Text(f"saved in {out}"))


def _print_result(result: Any) -> None:
    columns = ("layer", "UUAS", "Spearman, distances", "root", "Spearman, depths")
    for title, scores in (("trained", result.layers), ("random weights", result.untrained)):
        table = Table(*columns, title=title)
        for each in scores:
            values = (100 * each.uuas, each.distance_spearman, 100 * each.root_accuracy, each.depth_spearman)
            texts = (f"{value:.1f}" if number % 2 == 0 else f"{value:.2f}" for number, value in enumerate(values))
            table.add_row(str(each.layer), *texts)
        if scores:
            Console().print(table)
    line = f"best layer {result.best.layer}: UUAS {100 * result.best.uuas:.1f}"
    if result.untrained:
        line += f"; random weights at best {100 * max(each.uuas for each in result.untrained):.1f}"
    Console().print(f"{line}; each word joined to the next {100 * result.chain:.1f}")
    if result.left_out:
        Console().print(f"{result.left_out} sentences are longer than the model's positions and were left out")
