"""`hf-edu explain positions`, `neighbours` and `contexts`: embeddings of positions and words."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .loading import read_model
from .options import Figure, Model, OptionalFigure, TrustRemoteCode, int_or


def positions(
    out: Figure,
    model: Annotated[
        str | None, typer.Argument(help="Model with position embeddings; or use --size for sinusoids.")
    ] = None,
    size: Annotated[int | None, typer.Option(help="Draw sinusoidal embeddings of this size, without a model.")] = None,
    length: Annotated[int | None, typer.Option(help="Number of positions; default 100 or the model's maximum.")] = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Draw the position embeddings and their pairwise dot products."""
    from ..explain.words.positions import count_positions, draw_positions, position_vectors
    from ..plotting import check_picture_path, save_figure

    check_picture_path(out)
    if (model is None) == (size is None):
        raise ValueError("give a model, for its position embeddings, or --size, for sinusoids; one of the two")
    origin: Any = size
    if model is not None:
        origin = read_model(model, trust_remote_code)[0]
        length = length or int(min(100, count_positions(origin)))
    vectors = position_vectors(origin, length or 100)
    title = f"sinusoids of size {size}" if model is None else f"positions of {Path(model).name}"
    save_figure(draw_positions(vectors, title), out)
    Console().print(Text(f"{vectors.shape[0]} positions x {vectors.shape[1]} dimensions, saved in {out}"))


def neighbours(
    model: Model,
    word: Annotated[str, typer.Argument(help="Query word.")],
    count: Annotated[int, typer.Option("--count", "-k", help="Number of neighbours.")] = 10,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """List the nearest neighbours of a word in the model's input embeddings, by cosine similarity."""
    from ..explain.words.embeddings import nearest

    found = nearest(*read_model(model, trust_remote_code), word, count)
    table = Table("nearest", "token", "cosine", title=Text(f"{word}: {' '.join(found.tokens)}"))
    for each in found.neighbours:
        table.add_row(Text(each.text), Text(each.token), f"{each.similarity:.3f}")
    Console().print(table)


def contexts(
    model: Model,
    word: Annotated[str, typer.Argument(help="Word that every sentence contains.")],
    sentences: Annotated[list[str], typer.Argument(help="Two or more sentences, each in quotes.")],
    layer: Annotated[
        str, typer.Option(help="Layer: 0 is the embedding output, -1 the last; or static, the input embeddings.")
    ] = "-1",
    out: OptionalFigure = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Compare the contextual embeddings of a word in several sentences."""
    from ..explain.words.embeddings import draw_contexts, in_contexts
    from ..plotting import check_picture_path, save_figure

    if out is not None:
        check_picture_path(out)
    found = in_contexts(*read_model(model, trust_remote_code), word, sentences, int_or(layer, "layer", "static"))
    numbers = range(1, len(found.sentences) + 1)
    table = Table("", "cosine with", *map(str, numbers), title=Text(f"{word}, layer {layer}"))
    for number, sentence, row in zip(numbers, found.sentences, found.similarities, strict=True):
        table.add_row(str(number), Text(sentence), *(f"{value:.2f}" for value in row))
    Console().print(table)
    if out is not None:
        save_figure(draw_contexts(found, f"'{word}' in {len(numbers)} contexts, layer {layer}"), out)
        Console().print(Text(f"saved in {out}"))
