"""The verbs `card` and `push` of `hf-edu`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

UNREACHABLE = 3  # exit code of `push` when trying again may help


def card(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or of a saved model.")],
    out: Annotated[Path | None, typer.Option(help="Where the card goes; default RUN/README.md.")] = None,
    licence: Annotated[
        str | None, typer.Option(help="Of the weights, such as apache-2.0; default what the run says.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite a card that somebody wrote or changed.")] = False,
) -> None:
    """Write the model card of a run: what it is, how to load it, what it learnt from, what it scored beside others.

    The loss curve goes into RUN/pictures. Run it again at any time: a card that nobody has changed is made anew.
    """
    from rich.console import Console
    from rich.text import Text

    from .cards import write_card

    file = write_card(run, out=out, licence=licence, force=force)
    Console().print(Text(f"wrote {file}"))


def push(
    run: Annotated[Path, typer.Argument(help="The folder of a run, or of a saved model.")],
    repo_id: Annotated[str, typer.Argument(metavar="USER/NAME", help="What it is to be called on the Hub.")],
    private: Annotated[bool, typer.Option("--private", help="Only you can see it.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be sent, and send nothing.")] = False,
    revision: Annotated[str | None, typer.Option(help="A branch, made if it is not there; default main.")] = None,
    message: Annotated[str | None, typer.Option(help="Of the commit.")] = None,
) -> None:
    """Send weights, tokenizer, code, card and pictures of a run to the Hub, in one commit.

    The token is the one of `hf auth login`, or HF_TOKEN. After a cut, give the same command again: what has arrived is
    not sent twice. Exit codes: 0 sent, 2 refused (a mistake, the token, somebody else's name), 3 no way to the Hub.
    """
    from rich.console import Console
    from rich.text import Text

    from .push import push_run
    from .refusals import HubUnreachable

    try:
        done = push_run(run, repo_id, private=private, dry_run=dry_run, revision=revision, message=message)
    except HubUnreachable as problem:
        Console(stderr=True).print(Text(f"hf-edu: {problem}", style="red"))
        raise typer.Exit(UNREACHABLE) from None
    _show(done)


def _show(done) -> None:
    from rich.console import Console
    from rich.filesize import decimal
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if done.url is not None:
        size = decimal(sum(done.files.values()))
        console.print(
            Text(f"{done.repo_id} has {len(done.files)} files of this run, {size}: {done.url}"), soft_wrap=True
        )
        return
    table = Table("file", "size", title=f"to {done.repo_id}, branch {done.revision}", title_justify="left")
    table.columns[1].justify = "right"
    for name, size in done.files.items():
        table.add_row(Text(name), decimal(size))
    console.print(table)
    console.print(Text(f"commit message: {done.message}"))
    console.print(Text(f"stays here: {', '.join(done.left_out) or 'nothing'}"))
    console.print("a dry run: nothing was sent")
