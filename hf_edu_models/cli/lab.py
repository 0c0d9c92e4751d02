"""`hf-edu lab`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.text import Text


def lab(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="Folders of runs or of saved models, or model ids on the Hub.")
    ],
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("lab.html"),
    checkpoints: Annotated[
        bool, typer.Option("--checkpoints", help="Pack the checkpoints too: a slider shows the model learn.")
    ] = False,
    precision: Annotated[
        str, typer.Option(help="Of the weights: float32, float16, int8 (a scale per row), or auto, by size.")
    ] = "auto",
    text: Annotated[str | None, typer.Option(help="What the page opens with; default a test example.")] = None,
) -> None:
    """Write one HTML page in which the models run: type, watch every number, change the model; no network."""
    from ..lab import build_lab

    made = build_lab(runs, out, checkpoints=checkpoints, precision=precision, text=text)
    console = Console()
    for name, steps in made.checkpoints.items():
        if steps:
            console.print(Text(f"{name}: checkpoints {', '.join(map(str, steps))}"))
    if made.left_out:
        console.print(Text(f"{made.left_out} checkpoints have no room in the page; the others are evenly spaced"))
    size = decimal(made.path.stat().st_size)
    models = ", ".join(made.models)
    console.print(Text(f"{models}: {made.parameters:,} parameters in {made.precision}, {size}"), soft_wrap=True)
    console.print(Text(f"saved in {made.path}; open it in a browser"), soft_wrap=True)
