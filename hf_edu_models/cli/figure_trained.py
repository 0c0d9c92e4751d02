"""`hf-edu figure`: the lessons that train small models, and keep the finished ones."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from .figure import Dataset, Folder, Quick, Seeds, print_table, run_sweep, save_figure_and_values
from .figure_lessons import app
from .options import OptionalFigureAndTable


@app.command("long-time-lags")
def long_time_lags(
    task: Annotated[list[str] | None, typer.Option(help="Only this task, as the table names it; repeatable.")] = None,
    cell: Annotated[list[str] | None, typer.Option(help="Only this cell: rnn, gru or lstm; repeatable.")] = None,
    folder: Folder = None,
    seeds: Seeds = 3,
    quick: Quick = False,
    out: OptionalFigureAndTable = None,
) -> None:
    """RNN, GRU and LSTM on the tasks of Hochreiter & Schmidhuber 1997: success rate, sequences needed."""
    from ..experiments.long_time_lags import CELLS, lag_variants, train_reader
    from ..experiments.pictures import draw_long_time_lags
    from ..experiments.sweep import sweep
    from ..plotting import check_picture_path

    folder = folder or Path("figures") / "long-time-lags"
    out = out or folder / "long-time-lags.png"
    check_picture_path(out)
    variants = lag_variants(task or (), cell or CELLS, quick)
    console = Console()
    with console.status("") as status:
        train = partial(train_reader, progress=lambda line: status.update(Text(line)))
        rows = sweep("long-time-lags", variants, train, folder, range(seeds), lambda line: console.print(Text(line)))
    for row in rows:
        name, _, kind = row.pop("variant").rpartition(", ")
        row |= {"task": name, "cell": kind}
    print_table(rows, ("task", "cell", "seed", "success", "sequences", "wrong_of_2560", "seconds"))
    save_figure_and_values(draw_long_time_lags(rows), rows, out)


@app.command()
def scores(
    folder: Folder = None,
    seeds: Seeds = 1,
    quick: Quick = False,
    dataset: Dataset = None,
    out: OptionalFigureAndTable = None,
) -> None:
    """Every energy function of attention, trained on `numbers`: quality and cost (Luong et al. 2015, Table 4)."""
    from ..experiments.translation import scores_variants, train_translator

    run_sweep("scores", scores_variants(quick, dataset), train_translator, folder, seeds, out)


@app.command()
def diversity(
    source: Annotated[str, typer.Argument(help="Source text of the picture.")] = "4 5 2 7",
    weight: Annotated[float, typer.Option(help="Weight of the penalty, above 0.")] = 0.1,
    folder: Folder = None,
    seeds: Seeds = 1,
    quick: Quick = False,
    dataset: Dataset = None,
    out: OptionalFigureAndTable = None,
) -> None:
    """Heads with and without a penalty for attending to the same positions, trained on `numbers`."""
    from ..experiments.sweep import folder_of, sweep
    from ..experiments.sweep_tables import about_sweep
    from ..experiments.translation import diversity_variants, draw_heads, train_and_measure_heads
    from ..plotting import check_picture_path

    if weight <= 0:
        raise ValueError(f"--weight must be above 0, got {weight}; the variant without the penalty is always trained")
    folder = folder or Path("figures") / "diversity"
    out = out or folder / "diversity.png"
    check_picture_path(out)
    variants, console = diversity_variants(quick, dataset, weight), Console()
    train = train_and_measure_heads
    rows = sweep("diversity", variants, train, folder, range(seeds), lambda line: console.print(Text(line)))
    print_table(rows, tuple(rows[0]))
    folders = {variant.name: folder / folder_of(variant.name, 0) for variant in variants}
    save_figure_and_values(draw_heads(rows, folders, source, about_sweep(variants, seeds)), rows, out)


@app.command("cross-lingual")
def cross_lingual(
    dataset: Dataset = None,
    source: Annotated[str, typer.Option(help="Language of the fine-tuning.")] = "en",
    target: Annotated[str, typer.Option(help="The other language.")] = "de",
    folder: Folder = None,
    steps: Annotated[int | None, typer.Option(help="Steps of the pre-training.", min=1)] = None,
    seeds: Seeds = 1,
    quick: Quick = False,
    out: OptionalFigureAndTable = None,
) -> None:
    """A task learnt in one language, tested in another: one body for both, with and without translations in a row."""
    from ..experiments.cross_lingual import cross_lingual_variants, draw_transfer, transfer
    from ..experiments.sweep import sweep
    from ..plotting import check_picture_path

    folder = folder or Path("figures") / "cross-lingual"
    out = out or folder / "cross-lingual.png"
    check_picture_path(out)
    variants = cross_lingual_variants(quick, dataset=dataset, source=source, target=target, steps=steps)
    console = Console()
    rows = sweep("cross-lingual", variants, transfer, folder, range(seeds), lambda line: console.print(Text(line)))
    print_table(rows, tuple(rows[0]))
    settings = variants[0].settings
    about = (
        f"{Path(settings['dataset']).name}, {settings['steps']:,} steps of pre-training, {settings['labelled']:,} "
        f"labelled texts in {source}, {seeds} seed{'' if seeds == 1 else 's'}."
    )
    save_figure_and_values(draw_transfer(rows, (source, target), about), rows, out)
