"""`hf-edu glossary`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text


def glossary(
    term: Annotated[str, typer.Argument(help="Term, or a part of one; without it, all terms are printed.")] = "",
) -> None:
    """Explain a term in one sentence, with its lesson and the line of the code that computes it.

    hf-edu glossary "forget gate"
    """
    from ..lessons.glossary import find_terms

    found, console = find_terms(term), Console()
    if len(found) <= 5:
        for each in found:
            console.print(Text.assemble((each.name, "bold"), f": {each.sentence}"), soft_wrap=True)
            console.print(Text(f"  lesson {each.number}, {each.place}"), soft_wrap=True)
        return
    table = Table("term", "in one sentence", "lesson", "code")
    for each in found:
        table.add_row(each.name, each.sentence, str(each.number), each.place)
    console.print(table)
