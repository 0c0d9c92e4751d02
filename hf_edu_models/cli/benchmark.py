"""`hf-edu benchmark`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .options import Model


def benchmark(
    context: typer.Context,
    suite: Annotated[str, typer.Argument(help="glue, superglue or russian-superglue.")],
    run: Model,
    tasks: Annotated[str | None, typer.Option(help="Only these tasks, separated by commas.")] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(help="Local copies: TASK=FOLDER, or a folder that has a folder for each task; repeatable."),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Number of random seeds for each task.", min=1)] = 1,
    split: Annotated[
        str, typer.Option(help="Split to report: validation or test; validation where test has no labels.")
    ] = "validation",
    out: Annotated[
        Path | None, typer.Option(help="Folder of the fine-tuned models; runs/benchmark-SUITE-RUN by default.")
    ] = None,
) -> None:
    """Fine-tune a run on every task of a benchmark with its presets, and print the scores and their mean.

    hf-edu benchmark glue runs/bert_pretrain-wikitext

    hf-edu benchmark superglue runs/bert_pretrain-texts --tasks cb,copa --seeds 3 --data my/folder --data cb=my/cb

    hf-edu benchmark glue runs/bert_pretrain-texts --out runs/glue-small --train_size 1000 --learning_rate 0.0005

    All other options are passed to the recipe that fine-tunes (`hf-edu train bert-finetune --help` lists them). The
    same command continues an interrupted benchmark; a finished task is not trained again. The table is written as
    results.json and results.md. A score that is undefined, the correlation of a constant prediction, counts as 0.
    """
    from ..experiments.benchmark import TABLE_COLUMNS, plan_benchmark, run_benchmark, table_of

    if split not in ("validation", "test"):
        raise ValueError(f"--split must be validation or test, got {split!r}")
    names = [name.strip() for name in (tasks or "").split(",") if name.strip()]
    plan = plan_benchmark(
        suite, run, tasks=names, seeds=seeds, data=data or (), folder=out, options=tuple(context.args)
    )
    console = Console()
    if plan.left_out:
        console.print(Text(f"{plan.recipe.name} has no preset for {', '.join(plan.left_out)}", style="dim"))
    results = run_benchmark(plan, split, lambda line: console.print(Text(line, style="dim"), soft_wrap=True))
    table = Table(*TABLE_COLUMNS, title=Text(f"{suite}, {run}, per cent"))
    for row in table_of(results):
        table.add_row(*map(Text, row))
    console.print(table)
    console.print(Text(f"table in {plan.folder}/results.json and results.md", style="dim"), soft_wrap=True)
    if results["errors"]:
        raise ValueError(
            f"{len(results['errors'])} of {len(plan.plan)} fine-tunings failed (see results.md); the same command "
            "tries them again"
        )
