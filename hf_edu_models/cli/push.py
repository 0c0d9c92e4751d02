"""`hf-edu push`."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.filesize import decimal
from rich.table import Table
from rich.text import Text

from .options import RunFolder

_UNREACHABLE = 3  # exit code for errors where trying again may help


def push(
    run: RunFolder,
    repo_id: Annotated[str, typer.Argument(metavar="USER/NAME", help="Repository on the Hub.")],
    private: Annotated[bool, typer.Option("--private", help="Create a private repository.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the files that would be uploaded, without uploading.")
    ] = False,
    revision: Annotated[str | None, typer.Option(help="Branch, created if missing; default main.")] = None,
    message: Annotated[str | None, typer.Option(help="Commit message.")] = None,
    space: Annotated[
        bool, typer.Option("--space", help="Also publish the lab of the run as the static Space USER/NAME.")
    ] = False,
) -> None:
    """Upload the weights, tokenizer, code, card and figures of a run to the Hub, in one commit.

    With --space its lab (`hf-edu lab`) becomes a static Space, which the card links.

    The token is the one of `hf auth login`, or HF_TOKEN. If the connection fails, run the same command again: finished
    files are not uploaded twice. Exit codes: 0 uploaded, 2 rejected (invalid input, token or repository), 3 try again
    (the Hub is not reachable, does not answer, or limits requests).
    """
    from ..hub.errors import HubUnreachableError
    from ..hub.push import push_run

    options: dict[str, Any] = {"private": private, "dry_run": dry_run, "message": message}
    try:
        if not space:
            _print_upload(push_run(run, repo_id, revision=revision, **options))
            return
        with TemporaryDirectory() as folder:  # first, since not every model has a lab
            page = _write_lab(run, Path(folder))
            _print_upload(push_run(run, repo_id, revision=revision, space=repo_id, **options))
            _print_upload(_push_space(page, repo_id, **options))
    except HubUnreachableError as error:
        Console(stderr=True).print(Text(f"hf-edu: {error}", style="red"))
        raise typer.Exit(_UNREACHABLE) from None


def _write_lab(run: Path, folder: Path) -> Path:
    from ..lab import build_lab

    return build_lab([run], folder / "lab.html").path


def _push_space(page: Path, repo_id: str, **options: Any) -> Any:
    from ..hub.space import push_space

    return push_space(page, repo_id, model=repo_id, **options)


def _print_upload(done: Any) -> None:
    console = Console()
    if done.url is not None:
        size = decimal(sum(done.files.values()))
        line = Text(f"{done.repo_id} has {len(done.files)} files of this run, {size}: {done.url}")
        console.print(line, soft_wrap=True)
        return
    table = Table("file", "size", title=f"to {done.repo_id}, branch {done.revision}", title_justify="left")
    table.columns[1].justify = "right"
    for name, size in done.files.items():
        table.add_row(Text(name), decimal(size))
    console.print(table)
    console.print(Text(f"commit message: {done.message}"))
    console.print(Text(f"not uploaded: {', '.join(done.left_out) or 'nothing'}"))
    console.print("dry run: nothing was uploaded")
