"""`hf-edu train`."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table


def train(
    context: typer.Context,
    recipe: Annotated[
        str | None, typer.Argument(help="Name of the recipe; without it, all recipes are listed.")
    ] = None,
) -> None:
    """Train a model with its recipe.

    hf-edu train bahdanau --preset dates

    hf-edu train transformer --preset multi30k --source en --target de --seed 1

    hf-edu train bert-finetune --preset sst2 --init-from runs/bert_pretrain-wikitext

    All other arguments are passed to the recipe: `hf-edu train bahdanau --help` lists them, and
    `python recipes/2015_bahdanau.py` and `accelerate launch recipes/2015_bahdanau.py` take the same.
    """
    if recipe is None or recipe in ("--help", "-h"):
        typer.echo(context.get_help())
        _list_recipes()
        return
    import runpy

    from ..training.presets import find_recipe
    from ..training.run import launch

    file = find_recipe(recipe)
    launch(runpy.run_path(str(file), run_name="recipe")["main"], str(file), context.args)


def _list_recipes() -> None:
    from ..training.arguments import section_of
    from ..training.presets import preset_names, recipe_files

    table = Table("recipe", "presets", title="recipes", title_justify="left")
    for name, file in recipe_files().items():
        table.add_row(name, ", ".join(preset_names(section_of(str(file)))))
    Console().print(table)
