"""`hf-edu explain gates`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .figure import save_figure_and_values
from .options import FigureAndTable, Model, TrustRemoteCode


def gates(
    model: Model,
    text: Annotated[str, typer.Argument(help="Input text.")],
    target: Annotated[
        str | None, typer.Option(help="Target text of an encoder-decoder; default the generated text.")
    ] = None,
    layer: Annotated[str | None, typer.Option(help="Layer to draw, as the table names it; default the first.")] = None,
    out: FigureAndTable = Path("gates.png"),
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Show the gates of an LSTM or GRU at each token: input, forget and output gate, candidate, cell state."""
    from ..checkpoints import load_with_head
    from ..explain.gates.activations import draw_gates, gate_activations
    from ..plotting import check_picture_path

    check_picture_path(out)
    console = Console()
    with console.status(f"loading {model}"):
        loaded, tokenizer = load_with_head(model, trust_remote_code)
    found = gate_activations(loaded, tokenizer, text, target)
    chosen = layer or next(iter(found))
    if chosen not in found:
        raise ValueError(f"there is no layer {chosen!r}; there are {', '.join(found)}")
    table = Table("layer", "gate", "mean", "below 0.1", "above 0.9")
    for name, activations in found.items():
        for gate in activations.gate_names:
            closed, opened = activations.saturation(gate)
            mean = activations.values[gate].mean()
            table.add_row(name, gate, f"{mean:.2f}", f"{closed.mean():.0%}", f"{opened.mean():.0%}")
    console.print(table)
    rows = [row for name, activations in found.items() for row in activations.rows(name)]
    figure = draw_gates(found[chosen], f"{found[chosen].cell} of {Path(model).name}, {chosen}")
    save_figure_and_values(figure, rows, out)
    if len(found) > 1:
        console.print(Text(f"drawn: {chosen}; --layer chooses another"))
