"""`hf-edu`: one verb a function; what a verb does lives in the package."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(
    help="The history of sequence modelling as first-class Hugging Face models.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


@app.callback()
def program() -> None:
    """The history of sequence modelling as first-class Hugging Face models."""


@app.command()
def ladder(
    classes: Annotated[bool, typer.Option(help="Show our class under each Auto class.")] = False,
) -> None:
    """Show the ladder: each rung, its model_type, its paper and the Auto classes that load it."""
    from .auto import LADDER

    table = Table("rung", "model_type", "paper", "Auto classes", padding=(0, 0, 0, 1))
    for column in (1, 3):
        table.columns[column].no_wrap = True
    for rung in LADDER:
        heads = [f"{auto}\n  {name}" if classes else auto for auto, name in rung.config.heads.items()]
        table.add_row(str(rung.number), rung.model_type, rung.paper, "\n".join(heads))
    Console().print(table)


def main() -> None:
    app()
