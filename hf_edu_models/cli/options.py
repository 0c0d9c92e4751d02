"""Arguments and options that several verbs share."""

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[str, typer.Argument(help="Folder of a run or checkpoint, or a model id on the Hub.")]
RunFolder = Annotated[Path, typer.Argument(help="Folder of a run or of a saved model.")]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Allow the checkpoint's own code to be executed.")
]
Split = Annotated[str, typer.Option(help="Split of the dataset.")]
Source = Annotated[str | None, typer.Option(help="Source column or language.")]
Target = Annotated[str | None, typer.Option(help="Target column or language.")]
Columns = Annotated[
    list[str] | None,
    typer.Option("--columns", "--column", help="Column mapping, ours=theirs or ours=position; can be repeated."),
]
DataOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--data-options",
        "--data_options",
        "--option",
        help="Further argument of the corpus, name=value: languages=en, encoding=latin-1; can be repeated.",
    ),
]
NoHeader = Annotated[
    bool, typer.Option("--no-header", "--no_header", help="The first line of a table has no column names.")
]
Limit = Annotated[int | None, typer.Option(help="Use only the first N rows.", min=1)]
NumBeams = Annotated[int, typer.Option(help="Number of beams for beam search; 1 is greedy decoding.", min=1)]
MaxNewTokens = Annotated[int | None, typer.Option(help="Maximum number of tokens to generate.", min=1)]
BatchSize = Annotated[int, typer.Option(help="Batch size.", min=1)]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1 or mps; default the GPU if one is available.")]
CpuKernels = Annotated[
    str, typer.Option(help="auto: oneDNN for the matrix products that it computes faster than MKL on this CPU; or off.")
]
Dtype = Annotated[
    str | None,
    typer.Option(help="float32, bfloat16, or auto: the faster one on this machine. Default the checkpoint's."),
]
Int8 = Annotated[
    bool,
    typer.Option(
        "--int8", help="Round the weights of linear layers to 8 bits: faster on a CPU, about the same results."
    ),
]
Seed = Annotated[int, typer.Option(help="Random seed.", min=0)]
_figure = typer.Option(help="Output figure, .png or .svg.")
Figure = Annotated[Path, _figure]
OptionalFigure = Annotated[Path | None, _figure]
_table = typer.Option(help="Output figure, .png or .svg; the values are saved beside it as .csv.")
FigureAndTable = Annotated[Path, _table]
OptionalFigureAndTable = Annotated[Path | None, _table]


def int_or(text: str, option: str, *words: str) -> int | str:
    """Parse an option that is an integer or one of a few words."""
    if text in words:
        return text
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"--{option} must be an integer or {' or '.join(words)}, got {text!r}") from None
