"""`hf-edu explain layers`."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from .options import Model, OptionalFigure, TrustRemoteCode


def layers(model: Model, out: OptionalFigure = None, trust_remote_code: TrustRemoteCode = False) -> None:
    """Show how much each layer counts in a task: the learnt weights of ELMo's mix, or of the mix of features."""
    from ..checkpoints import load_with_head
    from ..explain.layers import draw_layer_weights, layer_weights
    from ..plotting import check_picture_path, save_figure

    if out is not None:
        check_picture_path(out)
    console = Console()
    with console.status(f"loading {model}"):
        loaded, _ = load_with_head(model, trust_remote_code)
    found = layer_weights(loaded)
    table = Table("layers of", "layer", "weight")
    for name, shares in found.items():
        for layer, share in shares.items():
            table.add_row(name, layer, f"{share:.1%}")
    console.print(table)
    if out is not None:
        save_figure(draw_layer_weights(found, f"weights of the layers in {Path(model).name}"), out)
        console.print(Text(f"saved in {out}"))
