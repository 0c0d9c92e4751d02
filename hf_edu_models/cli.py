"""`hf-edu`: one verb a function; what a verb does lives in the package."""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from .data.show import show_corpus
from .explain.cli import app as explain
from .explain.figure_cli import app as figure
from .generating import GENERATE_HELP, TRANSLATE_HELP, generate
from .hub.cli import card, push
from .training.cli import evaluate, train

app = typer.Typer(
    help="The history of sequence modelling as first-class Hugging Face models.",
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
)


@app.callback()
def program() -> None:
    """The history of sequence modelling as first-class Hugging Face models."""


@app.command()
def ladder(
    classes: Annotated[bool, typer.Option(help="Show our class under each Auto class.")] = False,
) -> None:
    """Show the ladder: each rung, its model_type, its paper and the Auto classes that load it."""
    from .auto import LADDER

    table = Table("rung", "model_type", "paper", "Auto classes", padding=(0, 0, 0, 1))
    for column in (1, 3):
        table.columns[column].no_wrap = True
    for rung in LADDER:
        heads = [f"{auto}\n  {name}" if classes else auto for auto, name in rung.config.heads.items()]
        table.add_row(str(rung.number), rung.model_type, rung.paper, "\n".join(heads))
    Console().print(table)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where the three runs go.")] = Path("runs/demo"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier demo.")] = False,
) -> None:
    """Train three rungs on dates and compare them: no network, under three minutes on two cores."""
    from .demo import run_demo

    run_demo(out, overwrite)


app.command("data")(show_corpus)
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})(train)
app.command()(evaluate)
app.command("generate", help=GENERATE_HELP)(generate)
app.command("translate", help=TRANSLATE_HELP)(generate)
app.add_typer(explain, name="explain")
app.add_typer(figure, name="figure")
app.command()(card)
app.command()(push)


@app.command()
def convert(
    source: Annotated[str, typer.Argument(help="A folder or Hub id: one of our checkpoints, or transformers' own.")],
    destination: Annotated[Path, typer.Argument(help="A folder that is empty or not there yet.")],
) -> None:
    """Turn BERT, GPT-2, OpenAI GPT or Marian weights into a rung of the ladder, or a rung into transformers' model."""
    from .hub.convert import convert_checkpoint

    console = Console()
    with console.status(f"converting {source}"):
        done = convert_checkpoint(source, destination)
    tokenizer = "with its tokenizer" if done.has_tokenizer else "no tokenizer found"
    console.print(f"{done.source_class} -> {done.destination_class}, {done.parameters:,} parameters, {tokenizer}")
    console.print(Text(f"saved in {destination}"))


@app.command()
def doctor(
    checkpoint_or_class: Annotated[str, typer.Argument(help="A folder, a Hub id, or package.module:Class.")],
    trust_remote_code: Annotated[bool, typer.Option("--trust-remote-code", help="Run the checkpoint's code.")] = False,
    settings: Annotated[list[str] | None, typer.Option("--set", help="name=value of a class's configuration.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Leave out loading it in a new Python.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """Check any transformers model for the known traps and say how to mend each; exit code 1 if one is found.

    A class is built small. A checkpoint is held once in float32, with at most one more copy in memory and one on disk.
    """
    from .hub.doctor import visit

    raise typer.Exit(visit(checkpoint_or_class, trust_remote_code, settings or [], quick, as_json))


def main() -> None:
    """Run a verb; a mistake of the user's ends it with one sentence and exit code 2, not with a traceback.

    `HF_EDU_TRACEBACK=1` shows where it was found.
    """
    try:
        app()
    except (ValueError, FileNotFoundError) as error:
        if os.environ.get("HF_EDU_TRACEBACK"):
            raise
        Console(stderr=True).print(Text(f"hf-edu: {error}", style="red"))
        sys.exit(2)
