"""`hf-edu`: one file per verb, which parses arguments and prints; the work is done by the rest of the package.

No file of this folder imports torch, transformers, datasets or matplotlib before a verb runs, so that `--help` is fast.
"""

import os
import sys
from typing import Annotated

import typer

from . import (
    card,
    convert,
    data,
    demo,
    doctor,
    encode,
    evaluate,
    explain,
    export,
    figure,
    generate,
    ladder,
    predict,
    push,
    train,
)

# Markdown joins the lines of a paragraph of a docstring.
app = typer.Typer(no_args_is_help=True, pretty_exceptions_show_locals=False, rich_markup_mode="markdown")


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from .. import __version__

        typer.echo(f"hf-edu {__version__}")
        raise typer.Exit


@app.callback()
def hf_edu(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """The history of sequence modelling as first-class Hugging Face models."""


app.command()(ladder.ladder)
app.command()(demo.demo)
app.command("data")(data.show_corpus)
# Everything after the recipe's name, --help too, is the recipe's own.
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})(
    train.train
)
app.command()(evaluate.evaluate)
app.command()(generate.generate)
app.command("translate", help=generate.TRANSLATE_HELP)(generate.generate)
app.command()(predict.predict)
app.command()(encode.encode)
app.add_typer(explain.app, name="explain")
app.add_typer(figure.app, name="figure")
app.command()(card.card)
app.command()(push.push)
app.command()(convert.convert)
app.command()(export.export)
app.command()(doctor.doctor)


def main() -> None:
    """Run a verb; a user's mistake prints one sentence and exits with 2, Ctrl-C is silent and exits with 130.

    `HF_EDU_TRACEBACK=1` shows the traceback.
    """
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(130)
    except (ValueError, OSError) as error:
        if os.environ.get("HF_EDU_TRACEBACK"):
            raise
        from rich.console import Console
        from rich.text import Text

        Console(stderr=True).print(Text(f"hf-edu: {_message(error)}", style="red"), soft_wrap=True)
        sys.exit(2)


def _message(error: ValueError | OSError) -> str:
    """The error's text; the system's own errors without their number: "runs/x: Permission denied"."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__
