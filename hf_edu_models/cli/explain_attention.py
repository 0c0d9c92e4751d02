"""`hf-edu explain attention`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from .loading import read_model
from .options import MaxNewTokens, Model, TrustRemoteCode


def attention(
    model: Model,
    text: Annotated[str, typer.Argument(help="Input text.")],
    out: Annotated[
        Path, typer.Option(help="Output file: .html page, .png or .svg figure, .json or .npz arrays.")
    ] = Path("map.html"),
    target: Annotated[
        str | None, typer.Option(help="Target text for teacher forcing; default the generated text.")
    ] = None,
    pair: Annotated[str | None, typer.Option(help="Second text of a sentence pair, for BERT.")] = None,
    kind: Annotated[str | None, typer.Option(help="encoder, decoder, cross, self or window; default cross.")] = None,
    layer: Annotated[int | None, typer.Option(help="Layer, counted from 0; a figure shows all by default.")] = None,
    head: Annotated[int | None, typer.Option(help="Head, counted from 0; a figure shows all by default.")] = None,
    num_beams: Annotated[int | None, typer.Option(help="Number of beams for generation.")] = None,
    max_new_tokens: MaxNewTokens = None,
    words: Annotated[bool, typer.Option("--words", help="Merge the subwords of a word.")] = False,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Show the attention weights of a model for a text and its output."""
    from ..explain.attention.files import check_attention_path, save_attention
    from ..explain.attention.maps import attention_maps

    check_attention_path(out)
    options = {"num_beams": num_beams, "max_new_tokens": max_new_tokens}
    options = {name: value for name, value in options.items() if value is not None}
    loaded, tokenizer = read_model(model, trust_remote_code)
    maps = attention_maps(loaded, tokenizer, text, target, pair, **options)
    save_attention(maps.by_words() if words else maps, out, kind, layer, head)
    console = Console()
    if maps.origin == "generated":
        console.print(Text(maps.target or ""))
    shapes = ", ".join(f"{name} {' x '.join(map(str, each.weights.shape))}" for name, each in maps.items())
    console.print(Text(f"{maps.model}: {shapes} (layers x heads x queries x keys)"))
    console.print(Text(f"saved in {out}"))
