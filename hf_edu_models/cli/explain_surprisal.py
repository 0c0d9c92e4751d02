"""`hf-edu explain surprisal` and `compare`: how models predict each token of a text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .figure import save_figure_and_values
from .options import OptionalFigureAndTable, TrustRemoteCode

SourceText = Annotated[str | None, typer.Option(help="Source text of an encoder-decoder; TEXT is then its target.")]


def surprisal(
    runs: Annotated[list[str], typer.Argument(help="One or more runs, checkpoints or Hub ids, then the text.")],
    source: SourceText = None,
    out: OptionalFigureAndTable = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Show the probability and surprisal of each token of a text: RUN... "TEXT"."""
    from ..explain.words.surprisal import draw_surprisal
    from ..plotting import check_picture_path

    if len(runs) < 2:
        raise ValueError('give one or more models and then a text: hf-edu explain surprisal RUN "a text"')
    *runs, text = runs
    if out is not None:
        check_picture_path(out)
    found, rows = [], []
    for name in runs:
        each, predicted = _read(name, text, source, trust_remote_code)
        found.append((Path(name).name, each))
        table = Table(
            "token", "probability", "bits", "model expects", title=Text(f"{name}: perplexity {each.perplexity:.2f}")
        )
        for token, bits, best in zip(each.tokens, each.bits, predicted, strict=True):
            table.add_row(Text(token), f"{2**-bits:.4f}", f"{bits:.2f}", Text(" ".join(best)))
            rows.append({"model": Path(name).name, "token": token, "probability": 2**-bits, "bits": bits})
        Console().print(table)
    if out is not None:
        save_figure_and_values(draw_surprisal(found), rows, out)


def compare(
    first: Annotated[str, typer.Argument(help="Run, checkpoint or Hub id.")],
    second: Annotated[str, typer.Argument(help="Another, with the same vocabulary.")],
    text: Annotated[str, typer.Argument(help="Text to read.")],
    source: SourceText = None,
    out: OptionalFigureAndTable = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Compare the next-token distributions of two models: Kullback-Leibler divergence at each token."""
    from ..explain.words.surprisal import compare, draw_divergence
    from ..plotting import check_picture_path

    if out is not None:
        check_picture_path(out)
    pair = [_read(name, text, source, trust_remote_code) for name in (first, second)]
    found = compare(pair[0][0], pair[1][0])
    names = (Path(first).name, Path(second).name)
    table = Table("token", f"{names[0]} expects", f"{names[1]} expects", "KL", "reverse KL")
    rows = []
    for token, one, other, forward, backward in zip(
        found.tokens, pair[0][1], pair[1][1], found.forward, found.backward, strict=True
    ):
        table.add_row(Text(token), Text(" ".join(one)), Text(" ".join(other)), f"{forward:.3f}", f"{backward:.3f}")
        rows.append({"token": token, "kl": forward, "reverse_kl": backward})
    Console().print(table)
    Console().print(f"mean KL {found.forward.mean():.3f} bits, reverse {found.backward.mean():.3f}")
    if out is not None:
        save_figure_and_values(draw_divergence(names, found), rows, out)


def _read(name: str, text: str, source: str | None, trust_remote_code: bool) -> tuple[Any, list[list[str]]]:
    """The surprisal of a text, and what the model expected at each token."""
    from ..checkpoints import load_with_head
    from ..explain.words.surprisal import surprisal

    model, tokenizer = load_with_head(name, trust_remote_code)
    found = surprisal(model, tokenizer, text, source)
    return found, found.best(tokenizer)
