"""`hf-edu figure`: the lessons that train small models, and keep the finished ones."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from .figure import Folder, Quick, Seeds, print_table, save_figure_and_values
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
    from ..experiments.long_time_lags import CELLS, draw_long_time_lags, lag_variants, train_reader
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
