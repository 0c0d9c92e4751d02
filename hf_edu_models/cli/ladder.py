"""`hf-edu ladder`."""

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table


def ladder(classes: Annotated[bool, typer.Option(help="Show the model class of each Auto class.")] = False) -> None:
    """List the model families: model_type, paper and the Auto classes that load them."""
    from ..auto import LADDER

    table = Table("model_type", "paper", "Auto classes", padding=(0, 0, 0, 1))
    for column in (0, 2):
        table.columns[column].no_wrap = True
    for rung in LADDER:
        heads = [f"{auto}\n  {name}" if classes else auto for auto, name in rung.config.heads.items()]
        table.add_row(rung.model_type, rung.paper, "\n".join(heads))
    Console().print(table)
