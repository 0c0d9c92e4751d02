"""`hf-edu convert`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from .options import Model


def convert(
    source: Model,
    destination: Annotated[Path, typer.Argument(help="Output folder; must be new or empty.")],
) -> None:
    """Convert a BERT, GPT-2, OpenAI GPT or Marian checkpoint to our model class, or ours to transformers' own."""
    from ..convert.conversion import convert_checkpoint

    console = Console()
    with console.status(f"converting {source}"):
        done = convert_checkpoint(source, destination)
    tokenizer = "with its tokenizer" if done.has_tokenizer else "no tokenizer found"
    console.print(f"{done.source_class} -> {done.destination_class}, {done.parameters:,} parameters, {tokenizer}")
    console.print(Text(f"saved in {destination}"))
