"""`hf-edu explain text`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from .options import Device, Model, TrustRemoteCode


def text(
    model: Model,
    text: Annotated[str, typer.Argument(help="Text to classify.")],
    label: Annotated[
        list[str] | None, typer.Option(help="Label to show the weights of; can be repeated; default those predicted.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Output page, .html.")] = None,
    device: Device = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Colour the words of a text by the attention weights of its classifier."""
    if out is not None and out.suffix != ".html":
        raise ValueError(f"--out must be an .html file, got {out.name}")
    console = Console()
    with console.status(f"loading {model}"):
        from ..explain.attention.text import text_weights, write_text_page
        from ..prediction import load_predictor

        predictor = load_predictor(model, device, trust_remote_code=trust_remote_code)
    found = text_weights(predictor, text, label or ())
    for each in found:
        console.print(Text(f"{each.label} {each.probability:.1%}", style="bold"))
        for number, (sentence, shades) in enumerate(zip(each.sentences, each.shades(), strict=True)):
            line = Text() if each.sentence_weights is None else Text(f"{each.sentence_weights[number]:>5.0%} ", "red")
            for (word, _), shade in zip(sentence, shades, strict=True):
                line.append(word, style=f"white on rgb(10,{120 - 3 * shade},{70 + 8 * shade})" if shade > 3 else "")
                line.append(" ")
            console.print(line, soft_wrap=True)
    if out is not None:
        write_text_page(found, out, type(predictor.model).__name__)
        console.print(Text(f"saved in {out}"))
