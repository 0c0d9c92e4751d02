"""`hf-edu draw`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from .options import Figure, TrustRemoteCode


def draw(
    model: Annotated[str, typer.Argument(help="A rung (hf-edu ladder lists them), a run, a checkpoint or a Hub id.")],
    settings: Annotated[
        list[str] | None, typer.Option("--model", help="Field of the configuration, name=value; can be repeated.")
    ] = None,
    head: Annotated[str | None, typer.Option(help="Class of the head; default that of the run.")] = None,
    out: Figure = Path("architecture.svg"),
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Draw the architecture that a configuration describes: parts with their sizes, gates, masks, residual connections.

    hf-edu draw bert --out bert.svg

    hf-edu draw recurrent --model cell_type=gru --model hidden_size=128 --out gru.png
    """
    import yaml

    from ..explain import config_of, draw_architecture, find_parts
    from ..plotting import check_picture_path, save_figure

    check_picture_path(out)
    pairs = [text.partition("=") for text in settings or []]
    for name, sign, _ in pairs:
        if not sign:
            raise ValueError(f"--model takes name=value, got {name!r}")
    config, saved_head = config_of(model, {name: yaml.safe_load(value) for name, _, value in pairs}, trust_remote_code)
    root = find_parts(config, head or saved_head)
    save_figure(draw_architecture(root, f"{root.kind}: {Path(model).name}"), out)
    Console().print(Text(f"wrote {out}"))
