"""`hf-edu figure`: redraw figures and tables of the papers, our values beside the published ones."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .options import BatchSize, FigureAndTable, Limit, NumBeams, OptionalFigureAndTable, Source, Split, Target

app = typer.Typer(no_args_is_help=True)

Folder = Annotated[
    Path | None, typer.Option(help="Output folder of models and results; finished models are not trained again.")
]
Seeds = Annotated[int, typer.Option(help="Number of random seeds for each model.", min=1)]
Quick = Annotated[bool, typer.Option("--quick", help="Train for a few steps only, to test that everything runs.")]
Dataset = Annotated[
    str | None, typer.Option(help="Other training data: a built-in corpus, file, folder or Hub dataset.")
]


@app.callback()
def figure() -> None:
    """Redraw figures and tables of the papers, our values beside the published ones; lessons of seconds."""


@app.command("bleu-by-length")
def bleu_by_length(
    runs: Annotated[list[str], typer.Argument(help="Runs; or checkpoints, with --dataset.")],
    score: Annotated[str, typer.Option(help="Metric: bleu, chrf or exact_match.")] = "bleu",
    unit: Annotated[str, typer.Option(help="Unit of sentence length: words or characters.")] = "words",
    edges: Annotated[str | None, typer.Option(help="Upper edges of the length buckets, such as 10,20,30.")] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Translate this dataset instead of reading the predictions of the runs.")
    ] = None,
    source: Source = None,
    target: Target = None,
    split: Split = "test",
    rows: Limit = None,
    num_beams: NumBeams = 4,
    batch_size: BatchSize = 32,
    resamples: Annotated[int, typer.Option(help="Number of bootstrap resamples.", min=2)] = 1000,
    out: FigureAndTable = Path("bleu-by-length.png"),
) -> None:
    """BLEU by sentence length for several checkpoints (Bahdanau et al. 2015, Figure 2)."""
    from ..experiments.by_length import predictions_of, scores_by_length
    from ..experiments.pictures import draw_by_length
    from ..experiments.published import PUBLISHED
    from ..plotting import check_picture_path

    check_picture_path(out)
    options: dict[str, Any] = {"source": source, "target": target, "split": split, "rows": rows}
    options |= {"num_beams": num_beams, "batch_size": batch_size}
    found = _distinct_labels([predictions_of(run, dataset, **options) for run in runs], runs)
    scores = scores_by_length(found, _parse_edges(edges), score, unit, resamples)
    table = [asdict(score) for score in scores]
    print_table(table, ("run", "low", "high", "sentences", "score", "interval_low", "interval_high"))
    save_figure_and_values(draw_by_length(scores, PUBLISHED["bleu-by-length"], unit), table, out)


@app.command()
def exposure(
    runs: Annotated[list[str], typer.Argument(help="Runs that write text: translation or language models.")],
    dataset: Annotated[str | None, typer.Option(help="Other data than the runs' own.")] = None,
    source: Source = None,
    target: Target = None,
    split: Split = "test",
    rows: Annotated[int, typer.Option(help="Number of rows of the split.", min=1)] = 500,
    prompt: Annotated[int, typer.Option(help="Tokens that a language model gets before it writes.", min=1)] = 8,
    out: FigureAndTable = Path("exposure.png"),
) -> None:
    """Exposure bias: errors by position, reading the reference and reading own predictions (Bengio et al. 2015)."""
    from ..experiments.exposure import draw_exposure, exposure_of, exposure_rows
    from ..plotting import check_picture_path

    check_picture_path(out)
    if len(set(runs)) < len(runs):
        raise ValueError("a run is listed twice; list each once")
    options: dict[str, Any] = {"dataset": dataset, "source": source, "target": target}
    found = [exposure_of(run, split, rows, prompt, **options) for run in runs]
    table = exposure_rows(found)
    print_table(table, ("run", "position", "rows", "forced", "free"))
    save_figure_and_values(draw_exposure(found), table, out)


@app.command()
def reversal(
    runs: Annotated[list[Path] | None, typer.Argument(help="Two or more finished runs to compare.")] = None,
    train: Annotated[bool, typer.Option("--train", help="Train two small models instead.")] = False,
    folder: Folder = None,
    seeds: Seeds = 1,
    quick: Quick = False,
    dataset: Dataset = None,
    out: OptionalFigureAndTable = None,
) -> None:
    """Source order: normal against reversed (Sutskever et al. 2014, Section 3.3)."""
    if train == bool(runs):
        raise ValueError("give two or more runs to compare, or --train to train two small models")
    if not runs:
        from ..experiments.translation import reversal_variants, train_translator

        run_sweep("reversal", reversal_variants(quick, dataset), train_translator, folder, seeds, out)
        return
    from ..experiments.sweep_tables import rows_of_runs

    _draw("reversal", rows_of_runs(runs), "runs " + ", ".join(run.name for run in runs) + ".", out)


@app.command("positions", help="Position embeddings: sinusoidal against learned (Vaswani et al. 2017, Table 3).")
@app.command("heads", help="Number of attention heads: 1, 2, 4 and 8 (Vaswani et al. 2017, Table 3).")
def transformer_variants(
    context: typer.Context,
    folder: Folder = None,
    seeds: Seeds = 1,
    quick: Quick = False,
    dataset: Dataset = None,
    out: OptionalFigureAndTable = None,
) -> None:
    from ..experiments.translation import heads_variants, positions_variants, train_translator

    name = str(context.info_name)
    variants = {"heads": heads_variants, "positions": positions_variants}[name]
    run_sweep(name, variants(quick, dataset), train_translator, folder, seeds, out)


@app.command("nsp", help="BERT with and without NSP, and left-to-right (Devlin et al. 2019, Table 5).")
@app.command("masking", help="Masking strategies of BERT (Devlin et al. 2019, Table 8).")
def bert_variants(
    context: typer.Context,
    folder: Folder = None,
    seeds: Seeds = 1,
    quick: Quick = False,
    dataset: Dataset = None,
    downstream: Annotated[str | None, typer.Option(help="Classification data for fine-tuning.")] = None,
    out: OptionalFigureAndTable = None,
) -> None:
    from ..experiments.pretraining import masking_variants, nsp_variants, pretrain_bert

    name = str(context.info_name)
    variants = {"masking": masking_variants, "nsp": nsp_variants}[name]
    run_sweep(name, variants(quick, dataset, downstream), pretrain_bert, folder, seeds, out)


def run_sweep(name: str, variants: list[Any], train: Any, folder: Path | None, seeds: int, out: Path | None) -> None:
    """Train what is not finished yet, then draw; the default output is in the folder of the results."""
    from ..experiments.sweep import sweep
    from ..experiments.sweep_tables import about_sweep
    from ..plotting import check_picture_path

    folder = folder or Path("figures") / name
    out = out or folder / f"{name}.png"
    check_picture_path(out)
    console = Console()
    rows = sweep(name, variants, train, folder, range(seeds), lambda line: console.print(Text(line)))
    _draw(name, rows, about_sweep(variants, seeds), out)


def _draw(name: str, rows: list[dict[str, Any]], about: str, out: Path | None) -> None:
    from ..experiments.pictures import draw_sweep
    from ..experiments.published import PUBLISHED
    from ..experiments.sweep_tables import SWEEP_SCORES, SWEEP_TITLES

    out = out or Path(f"{name}.png")
    print_table(rows, tuple(dict.fromkeys(column for row in rows for column in row)))
    save_figure_and_values(draw_sweep(SWEEP_TITLES[name], rows, SWEEP_SCORES[name], PUBLISHED[name], about), rows, out)


def save_figure_and_values(figure: Any, rows: list[dict[str, Any]], out: Path) -> None:
    from ..plotting import save_figure, write_csv

    save_figure(figure, out)
    table = write_csv(out.with_suffix(".csv"), rows)
    Console().print(Text(f"figure in {out}, values in {table}"), soft_wrap=True)


def print_table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    table = Table(*columns)
    for row in rows:
        cells = ("" if row.get(column) is None else row[column] for column in columns)
        table.add_row(*(f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in cells))
    Console().print(table)


def _parse_edges(edges: str | None) -> list[int] | None:
    if edges is None:
        return None
    try:
        return [int(edge) for edge in edges.split(",")]
    except ValueError:
        raise ValueError(f"--edges must be integers separated by commas, such as 10,20,30; got {edges!r}") from None


def _distinct_labels(found: list[Any], runs: list[str]) -> list[Any]:
    """Label runs of the same name by their whole path: two curves may not share a label."""
    if len({each.run for each in found}) == len(found):
        return found
    if len(set(runs)) < len(runs):
        raise ValueError("a run is listed twice; list each once")
    return [replace(each, run=run) for each, run in zip(found, runs, strict=True)]
