"""`hf-edu forecast`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .options import Device, Model, OptionalFigure, TrustRemoteCode

_SHOWN = 24  # rows of the table


def forecast(
    model: Model,
    file: Annotated[Path, typer.Argument(help="Table (.csv, .parquet) with a column of dates: the past.")],
    steps: Annotated[int | None, typer.Option(help="Number of forecasts; default as trained.", min=1)] = None,
    out: Annotated[Path | None, typer.Option(help="Output table, .csv.")] = None,
    picture: OptionalFigure = None,
    device: Device = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Continue a time series, with the weights by lag as a picture.

    hf-edu forecast runs/recurrent_forecast-etth1 test.parquet --steps 48 --out forecast.csv --picture forecast.png
    """
    from ..forecasting import forecast_file
    from ..plotting import check_picture_path, save_figure, write_csv

    if picture is not None:
        check_picture_path(picture)
    found = forecast_file(model, file, steps, device, trust_remote_code)
    console, rows = Console(), found.rows
    table = Table(*rows[0])
    for row in rows[:_SHOWN]:
        table.add_row(*(f"{value:.4g}" if isinstance(value, float) else value for value in row.values()))
    console.print(table)
    if found.weights is not None:
        heaviest = found.weights.argsort()[::-1][:3]
        lags = ", ".join(f"{len(found.weights) - index + 1} ({found.weights[index]:.2f})" for index in heaviest)
        console.print(Text(f"lags with most weight: {lags}"))
    if out is not None:
        console.print(Text(f"forecast in {write_csv(out, rows)}"), soft_wrap=True)
    if picture is not None:
        from ..explain.attention.forecasts import draw_forecast

        console.print(Text(f"picture in {save_figure(draw_forecast(found), picture)}"), soft_wrap=True)
