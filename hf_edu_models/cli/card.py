"""`hf-edu card`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from .options import RunFolder


def card(
    run: RunFolder,
    out: Annotated[Path | None, typer.Option(help="Output file; default RUN/README.md.")] = None,
    licence: Annotated[
        str | None, typer.Option(help="Licence of the weights, such as apache-2.0; default the one of the run.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a card that was edited by hand.")] = False,
) -> None:
    """Write the model card of a run: the model, how to load it, its training data and its scores beside published ones.

    The loss curve is saved in RUN/pictures. You can run it again at any time: a card that was not edited by hand is
    replaced.
    """
    from ..hub.cards.card import write_card

    file = write_card(run, out=out, licence=licence, force=force)
    Console().print(Text(f"wrote {file}"))
