"""`hf-edu explain input`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .figure import save_figure_and_values
from .options import OptionalFigureAndTable, Seed, TrustRemoteCode


def explain_input(
    model: Annotated[str, typer.Argument(help="Run or checkpoint, folder of a tokenizer alone, or Hub id.")],
    text: Annotated[str, typer.Argument(help="Text to read.")],
    pair: Annotated[str | None, typer.Argument(help="Second text, for a pair.")] = None,
    mlm_probability: Annotated[float, typer.Option(help="Share of tokens that the draw of masking chooses.")] = 0.15,
    seed: Seed = 0,
    out: OptionalFigureAndTable = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Show what a model reads: subwords, ids, segments, one draw of masking, BPE merges, embeddings and their sum."""
    from ..checkpoints import load_model, load_tokenizer
    from ..explain.words.inputs import draw_input, model_input
    from ..plotting import check_picture_path

    if out is not None:
        check_picture_path(out)
    console, is_tokenizer = Console(), Path(model).is_dir() and not (Path(model) / "config.json").is_file()
    with console.status(f"loading {model}"):
        loaded, tokenizer = (None, load_tokenizer(model)) if is_tokenizer else load_model(model, trust_remote_code)
    found = model_input(tokenizer, text, pair, loaded, mlm_probability, seed)
    rows = found.rows(tokenizer)
    columns = ("position", "token", "id", "segment", "masked")
    table = Table(*columns)
    for row in rows:
        table.add_row(*(Text(str(row[name])) for name in columns))
    console.print(table)
    console.print(Text(_about_masking(found, tokenizer, mlm_probability, seed)))
    for word, merges in found.merges:
        steps = [" ".join(merge.symbols) + f"  (merge {merge.rank + 1:,})" for merge in merges]
        console.print(Text("  →  ".join([" ".join(word), *steps])), soft_wrap=True)
    if not found.merges:
        kind = type(getattr(getattr(tokenizer, "backend_tokenizer", None), "model", tokenizer)).__name__
        console.print(Text(f"The tokenizer ({kind}) is not a byte pair encoding: it has no merges."))
    if out is not None and not found.embeddings:
        raise ValueError(f"{model} is a tokenizer without a model, so there are no embeddings to draw; leave --out out")
    if out is not None:
        save_figure_and_values(draw_input(found, f"Input of {Path(model).name}"), rows, out)


def _about_masking(found: Any, tokenizer: Any, probability: float, seed: int) -> str:
    if found.labels is None:
        return "The tokenizer has no mask token: its model was not trained by masking."
    count = sum(label != -100 for label in found.labels)
    return (
        f"Masking, seed {seed}: {count} of {len(found.ids)} tokens are predicted (each with probability "
        f"{probability:g}; of these 80% become {tokenizer.mask_token}, 10% a random token, 10% stay)."
    )
