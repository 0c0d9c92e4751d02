"""`hf-edu explain analogies` and `map`: arithmetic with word vectors, and a map of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .loading import read_model
from .options import Model, TrustRemoteCode


def analogies(
    model: Model,
    words: Annotated[list[str] | None, typer.Argument(help="Three words: A - B + C, as in: king man woman.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="Score a file instead: word2vec's questions, or a table with columns a, b, c, d."),
    ] = None,
    count: Annotated[int, typer.Option("--count", "-k", help="Number of answers.", min=1)] = 5,
    limit: Annotated[
        int | None, typer.Option(help="Only the first N words of the vocabulary, the most frequent ones.", min=4)
    ] = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Answer analogies with the input embeddings: king - man + woman; or score a file of them.

    hf-edu explain analogies runs/word_vectors king man woman
    """
    from ..explain.words.analogies import read_analogies, score_analogies, solve, table_of

    if (file is None) == (not words) or (words and len(words) != 3):
        raise ValueError("give three words, as in 'king man woman' for king - man + woman; or --file; one of the two")
    questions = None if file is None else read_analogies(file)
    table = table_of(*read_model(model, trust_remote_code), limit)
    console = Console()
    if questions is None:
        first, minus, plus = words or []
        shown = Table("nearest", "cosine", title=Text(f"{first} - {minus} + {plus}"))
        for answer in solve(table, [first, plus], [minus], count):
            shown.add_row(Text(answer.word), f"{answer.similarity:.3f}")
        console.print(shown)
        return
    shown = Table("category", "accuracy", "right", "known", "questions")
    for score in score_analogies(table, questions):
        numbers = (f"{score.accuracy:.1%}", f"{score.correct:,}", f"{score.known:,}", f"{score.total:,}")
        shown.add_row(Text(score.category or "-"), *numbers)
    console.print(shown)


def draw_map(
    model: Model,
    out: Annotated[Path, typer.Option(help="Output file: .png, .svg, or .html for a page that zooms.")],
    words: Annotated[
        str | None, typer.Option(help='Words, and with / groups of them: "king queen / man woman"; default the first.')
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", help="Number of words without --words.", min=3)] = 200,
    method: Annotated[str, typer.Option(help="pca or tsne.")] = "pca",
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Draw a map of words by their input embeddings: a picture with labels, or a page that zooms.

    hf-edu explain map runs/word_vectors --words "king queen man woman / Paris France Rome Italy" --out map.png
    """
    from ..explain.words.analogies import table_of
    from ..explain.words.maps import draw_map as draw
    from ..explain.words.maps import map_words, write_map_page
    from ..plotting import check_picture_path, save_figure

    if out.suffix.lower() != ".html":
        check_picture_path(out)
    table = table_of(*read_model(model, trust_remote_code))
    groups = [part.split() for part in words.split("/")] if words else [table.words[:count]]
    chosen = [word for group in groups for word in group]
    numbers = [number for number, group in enumerate(groups) for _ in group]
    found = map_words(table, chosen, method, numbers)
    title = f"{len(found.words)} words of {Path(model).name}"
    if out.suffix.lower() == ".html":
        write_map_page(found, title, out, table)
    else:
        save_figure(draw(found, title), out)
    Console().print(Text(f"{len(found.words)} words, saved in {out}"))
