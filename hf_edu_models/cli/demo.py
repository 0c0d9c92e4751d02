"""`hf-edu demo`."""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option(help="Output folder of the three runs.")] = Path("runs/demo"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier demo.")] = False,
) -> None:
    """Train three small models on date normalisation and compare them: offline, under three minutes on two cores."""
    from ..experiments.demo import run_demo

    run_demo(out, overwrite)
