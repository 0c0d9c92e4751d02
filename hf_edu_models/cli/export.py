"""`hf-edu export`."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.text import Text

from .options import Model, TrustRemoteCode


def export(
    source: Model,
    to: Annotated[
        Literal["onnx", "openvino", "torch"], typer.Option(help="Format: ONNX, OpenVINO, or a program of torch.export.")
    ] = "onnx",
    out: Annotated[Path | None, typer.Option(help="Output folder; default the folder `export` in the run.")] = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Export a model to ONNX, OpenVINO or torch.export, for any batch size and length, without a cache.

    The program is saved with the configuration and the tokenizer, after its results were compared with the model's at
    three shapes with padding.
    """
    from ..convert.export import export_checkpoint

    if out is None:
        out = Path(source) / "export" if Path(source).is_dir() else Path(f"{Path(source).name}-{to}")
    console = Console()
    with console.status(f"exporting {source}"):
        done = export_checkpoint(source, out, to, trust_remote_code)
    console.print(f"{', '.join(done.inputs)} -> {', '.join(done.outputs)}")
    console.print(f"largest difference from the model: {done.difference:.1e}")
    console.print(Text(f"saved in {done.file}"), soft_wrap=True)
