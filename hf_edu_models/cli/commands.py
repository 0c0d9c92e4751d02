"""The app: one line for each verb."""

from typing import Annotated

import typer

from . import (
    benchmark,
    card,
    check,
    convert,
    data,
    demo,
    doctor,
    draw,
    encode,
    evaluate,
    explain,
    export,
    figure_runs,
    forecast,
    generate,
    glossary,
    lab,
    ladder,
    predict,
    probe_text,
    push,
    quiz,
    serve,
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
app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})(benchmark.benchmark)
app.command()(evaluate.evaluate)
app.command()(generate.generate)
app.command("translate", help=generate.TRANSLATE_HELP)(generate.generate)
app.command()(predict.predict)
app.command()(forecast.forecast)
app.command()(encode.encode)
app.command()(probe_text.probe_text)
app.command()(draw.draw)
app.command()(serve.serve)
app.add_typer(explain.app, name="explain")
app.add_typer(figure_runs.app, name="figure")
app.command()(lab.lab)
app.command()(quiz.quiz)
app.command()(glossary.glossary)
app.command()(check.check)
app.command()(card.card)
app.command()(push.push)
app.command()(convert.convert)
app.command()(export.export)
app.command()(doctor.doctor)
