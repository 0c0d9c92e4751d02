"""`hf-edu figure`: curves of the papers, ours beside what was published; numbers as CSV, then the picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

app = typer.Typer(help="Curves of the papers: ours beside what was published.", no_args_is_help=True)

Out = Annotated[Path | None, typer.Option(help="The picture, .png or .svg; the numbers go beside it as .csv.")]
Folder = Annotated[Path | None, typer.Option(help="Where models and results go; finished ones are not trained again.")]
Seeds = Annotated[int, typer.Option(help="Train each so many times, with other seeds.", min=1)]
Quick = Annotated[bool, typer.Option("--quick", help="A few steps only, to see that everything runs.")]
Dataset = Annotated[str | None, typer.Option(help="Another corpus: built in, a file or folder, or a Hub id.")]
Downstream = Annotated[str | None, typer.Option(help="A classification corpus to fine-tune on.")]


@app.callback()
def program() -> None:
    """Curves of the papers: ours beside what was published."""


@app.command("bleu-by-length")
def bleu_by_length(
    runs: Annotated[list[str], typer.Argument(help="Runs, or checkpoints together with --dataset.")],
    score: Annotated[str, typer.Option(help="bleu, chrf or exact_match.")] = "bleu",
    unit: Annotated[str, typer.Option(help="Lengths in words or characters.")] = "words",
    edges: Annotated[str | None, typer.Option(help="Longest length of each bucket, as 10,20,30.")] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Translate this instead of reading the runs' predictions.")
    ] = None,
    source: Annotated[str | None, typer.Option(help="Its column or language to translate from.")] = None,
    target: Annotated[str | None, typer.Option(help="Its column or language to translate to.")] = None,
    split: Annotated[str, typer.Option(help="Its split.")] = "test",
    rows: Annotated[int | None, typer.Option(help="At most so many sentences.", min=1)] = None,
    num_beams: Annotated[int, typer.Option(help="Beams, where something is translated.", min=1)] = 4,
    batch_size: Annotated[int, typer.Option(help="Sentences translated at once.", min=1)] = 32,
    resamples: Annotated[int, typer.Option(help="Of the bootstrap.", min=2)] = 1000,
    out: Out = Path("bleu-by-length.png"),
) -> None:
    """Score against sentence length, for several checkpoints (Bahdanau et al. 2015, Figure 2)."""
    from .curve_pictures import draw_by_length
    from .curves import as_rows, predictions_of, scores_by_length
    from .figure_style import check_picture_path
    from .published import PUBLISHED

    check_picture_path(out)
    options = {"source": source, "target": target, "split": split, "rows": rows}
    options |= {"num_beams": num_beams, "batch_size": batch_size}
    found = _distinct([predictions_of(run, dataset, **options) for run in runs], runs)
    scores = scores_by_length(found, _numbers(edges), score, unit, resamples)
    table = as_rows(scores)
    _show(table, ("run", "low", "high", "sentences", "score", "interval_low", "interval_high"))
    _save(draw_by_length(scores, PUBLISHED["bleu-by-length"], unit), table, out)


@app.command()
def reversal(
    runs: Annotated[list[Path] | None, typer.Argument(help="Two or more finished runs to compare.")] = None,
    train: Annotated[bool, typer.Option("--train", help="Train two small models instead.")] = False,
    folder: Folder = None,
    seeds: Seeds = 1,
    quick: Quick = False,
    dataset: Dataset = None,
    out: Out = None,
) -> None:
    """The source as it is and reversed (Sutskever et al. 2014, Section 3.3)."""
    if train == bool(runs):
        raise ValueError("give two or more runs to compare, or --train to train two small models")
    if train:
        from .sweep_translation import reversal_variants, train_translator

        _sweep("reversal", reversal_variants(quick, dataset), train_translator, folder, seeds, out)
        return
    from .sweep_figures import rows_of_runs

    _draw("reversal", rows_of_runs(runs), "runs " + ", ".join(run.name for run in runs) + ".", out)


@app.command()
def heads(
    folder: Folder = None, seeds: Seeds = 1, quick: Quick = False, dataset: Dataset = None, out: Out = None
) -> None:
    """1, 2, 4 and 8 attention heads (Vaswani et al. 2017, Table 3)."""
    from .sweep_translation import heads_variants, train_translator

    _sweep("heads", heads_variants(quick, dataset), train_translator, folder, seeds, out)


@app.command()
def positions(
    folder: Folder = None, seeds: Seeds = 1, quick: Quick = False, dataset: Dataset = None, out: Out = None
) -> None:
    """Sinusoids or learned vectors for positions (Vaswani et al. 2017, Table 3)."""
    from .sweep_translation import positions_variants, train_translator

    _sweep("positions", positions_variants(quick, dataset), train_translator, folder, seeds, out)


@app.command()
def masking(
    folder: Folder = None,
    seeds: Seeds = 1,
    quick: Quick = False,
    dataset: Dataset = None,
    downstream: Downstream = None,
    out: Out = None,
) -> None:
    """What BERT's chosen words are replaced with (Devlin et al. 2019, Table 8)."""
    from .sweep_pretraining import masking_variants, pretrain_bert

    _sweep("masking", masking_variants(quick, dataset, downstream), pretrain_bert, folder, seeds, out)


@app.command()
def nsp(
    folder: Folder = None,
    seeds: Seeds = 1,
    quick: Quick = False,
    dataset: Dataset = None,
    downstream: Downstream = None,
    out: Out = None,
) -> None:
    """BERT with and without next sentence prediction (Devlin et al. 2019, Table 5)."""
    from .sweep_pretraining import nsp_variants, pretrain_bert

    _sweep("nsp", nsp_variants(quick, dataset, downstream), pretrain_bert, folder, seeds, out)


def _sweep(name: str, variants: list[Any], train: Any, folder: Path | None, seeds: int, out: Path | None) -> None:
    """Train what is not finished yet, then draw; the picture lies with the results unless it has a place."""
    from .figure_style import check_picture_path
    from .sweep_figures import about_sweep
    from .sweeps import sweep

    folder = folder or Path("figures") / name
    out = out or folder / f"{name}.png"
    check_picture_path(out)
    console = Console()
    rows = sweep(name, variants, train, folder, range(seeds), lambda line: console.print(Text(line)))
    _draw(name, rows, about_sweep(variants, seeds), out)


def _draw(name: str, rows: list[dict[str, Any]], about: str, out: Path | None) -> None:
    from .curve_pictures import draw_sweep
    from .published import PUBLISHED
    from .sweep_figures import SCORES, TITLES

    out = out or Path(f"{name}.png")
    _show(rows, tuple(dict.fromkeys(column for row in rows for column in row)))
    _save(draw_sweep(TITLES[name], rows, SCORES[name], PUBLISHED[name], about), rows, out)


def _save(figure: Any, rows: list[dict[str, Any]], out: Path) -> None:
    from .figure_style import save_figure
    from .tables import write_csv

    save_figure(figure, out)
    table = write_csv(out.with_suffix(".csv"), rows)
    Console().print(Text(f"picture in {out}, numbers in {table}"), soft_wrap=True)


def _show(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> None:
    table = Table(*columns)
    for row in rows:
        cells = [row.get(column, "") for column in columns]
        table.add_row(
            *[f"{cell:.2f}" if isinstance(cell, float) else str("" if cell is None else cell) for cell in cells]
        )
    Console().print(table)


def _numbers(edges: str | None) -> list[int] | None:
    if edges is None:
        return None
    try:
        return [int(edge) for edge in edges.split(",")]
    except ValueError:
        raise ValueError(f"--edges must be whole numbers with commas between, as 10,20,30; got {edges!r}") from None


def _distinct(found: list[Any], runs: list[str]) -> list[Any]:
    """Runs of the same name get their whole path: two lines may not share one label."""
    from dataclasses import replace

    if len({each.run for each in found}) == len(found):
        return found
    if len(set(runs)) < len(runs):
        raise ValueError("a run is given twice; give each once")
    return [replace(each, run=run) for each, run in zip(found, runs, strict=True)]
