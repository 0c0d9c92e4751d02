"""`hf-edu convert`."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from .options import Model


def convert(
    source: Model,
    destination: Annotated[Path, typer.Argument(help="Output folder, new or empty; or the file for word vectors.")],
    to: Annotated[
        str | None,
        typer.Option(
            help="`ctranslate2` (Transformer, GPT and BERT); or the token embeddings of any model as `word2vec`, "
            "`word2vec-binary`, `gensim` or `sentence-transformers`; default the other library."
        ),
    ] = None,
) -> None:
    """Convert a BERT, GPT-2, OpenAI GPT or Marian checkpoint to our model class, or ours to transformers' own.

    A file of word vectors becomes our model.

    hf-edu convert runs/transformer transformer-ct2 --to ctranslate2

    hf-edu convert runs/word_vectors vectors.txt --to word2vec
    """
    from ..convert.conversion import TARGETS, convert_checkpoint

    if to not in (None, *TARGETS):
        allowed = ", ".join(TARGETS)
        raise ValueError(f"--to must be one of {allowed}, got {to!r}; leave it out to convert to or from transformers")
    console = Console()
    with console.status(f"converting {source}"):
        done = convert_checkpoint(source, destination, to)
    tokenizer = "with its tokenizer" if done.has_tokenizer else "no tokenizer found"
    console.print(f"{done.source_class} -> {done.destination_class}, {done.parameters:,} parameters, {tokenizer}")
    console.print(Text(f"saved in {destination}"))
