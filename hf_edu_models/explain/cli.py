"""`hf-edu explain`: one verb a function; what a verb does lives beside this file and is imported when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from .alignment_cli import align
from .gradient_cli import gradients
from .word_cli import contexts, neighbours, positions, probe

app = typer.Typer(help="See inside a model: attention, alignment, gradients.", no_args_is_help=True)


@app.callback()
def program() -> None:
    """See inside a model: attention, alignment, gradients."""


@app.command()
def attention(
    model: Annotated[str, typer.Argument(help="A run's folder, a checkpoint's folder, or a Hub id.")],
    text: Annotated[str, typer.Argument(help="What the model reads.")],
    out: Annotated[Path, typer.Option(help="A .html page, .png or .svg picture, or .json or .npz arrays.")],
    target: Annotated[str | None, typer.Option(help="What it is made to write; default what it generates.")] = None,
    pair: Annotated[str | None, typer.Option(help="A second text beside the first, as BERT reads it.")] = None,
    kind: Annotated[str | None, typer.Option(help="encoder, decoder, cross, self or window; default cross.")] = None,
    layer: Annotated[int | None, typer.Option(help="Counted from 0; a picture shows all by default.")] = None,
    head: Annotated[int | None, typer.Option(help="Counted from 0; a picture shows all by default.")] = None,
    num_beams: Annotated[int | None, typer.Option(help="Beams of generate().")] = None,
    max_new_tokens: Annotated[int | None, typer.Option(help="How long generate() may write.")] = None,
    words: Annotated[bool, typer.Option("--words", help="Show the pieces of a word as one.")] = False,
    trust_remote_code: Annotated[bool, typer.Option("--trust-remote-code", help="Run the checkpoint's code.")] = False,
) -> None:
    """Show what a model looks at while it reads a text and writes another."""
    from .attention import attention_maps
    from .attention_files import check_ending, save_attention
    from .loading import load_model

    check_ending(out)
    options = {"num_beams": num_beams, "max_new_tokens": max_new_tokens}
    options = {name: value for name, value in options.items() if value is not None}
    console = Console()
    with console.status(f"loading {model}"):
        loaded, tokenizer = load_model(model, trust_remote_code)
        maps = attention_maps(loaded, tokenizer, text, target, pair, **options)
        save_attention(maps.by_words() if words else maps, out, kind, layer, head)
    if maps.origin == "generated":
        console.print(Text(maps.target))
    shapes = ", ".join(f"{name} {' x '.join(map(str, each.weights.shape))}" for name, each in maps.items())
    console.print(Text(f"{maps.model}: {shapes} (layers x heads x queries x keys)"))
    console.print(Text(f"saved in {out}"))


for verb in (align, gradients, positions, neighbours, contexts, probe):
    app.command()(verb)
