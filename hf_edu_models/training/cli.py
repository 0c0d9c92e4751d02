"""`hf-edu train` and `hf-edu evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text


def train(
    context: typer.Context,
    recipe: Annotated[str | None, typer.Argument(help="The recipe's name; without one, all are listed.")] = None,
) -> None:
    """Train a rung by its recipe.

    hf-edu train bahdanau --preset dates

    hf-edu train transformer --preset multi30k --source en --target de --seed 1

    hf-edu train bert-finetune --preset sst2 --init-from runs/bert_pretrain-wikitext

    Everything after the recipe's name is the recipe's own: `hf-edu train bahdanau --help` lists it, and
    `python recipes/04_bahdanau.py` or `accelerate launch recipes/04_bahdanau.py` take the same.
    """
    import runpy

    from .arguments import RecipeArguments
    from .presets import find_recipe
    from .run import launch

    if recipe is None or recipe in ("--help", "-h"):
        typer.echo(context.get_help())
        _list_recipes()
        return
    file = find_recipe(recipe)
    module = runpy.run_path(str(file), run_name="recipe")
    own = [each for each in module.values() if isinstance(each, type) and issubclass(each, RecipeArguments)]
    launch(module["main"], str(file), context.args, next(iter(own), RecipeArguments))


def _list_recipes() -> None:
    from .arguments import section_of
    from .presets import preset_names, recipe_files

    table = Table("recipe", "presets", title="recipes", title_justify="left")
    for name, file in recipe_files().items():
        table.add_row(name, ", ".join(preset_names(section_of(str(file)))))
    Console().print(table)


def evaluate(
    checkpoint: Annotated[str, typer.Argument(help="A run, a checkpoint or a Hub id.")],
    dataset: Annotated[str | None, typer.Option(help="Other data than the run's own.")] = None,
    split: Annotated[str, typer.Option(help="Which split.")] = "test",
    source: Annotated[str | None, typer.Option(help="Column or language to translate from.")] = None,
    target: Annotated[str | None, typer.Option(help="Column or language to translate to.")] = None,
    column: Annotated[list[str] | None, typer.Option(help="ours=theirs, as often as needed.")] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first so many rows.", min=1)] = None,
    num_beams: Annotated[int | None, typer.Option(help="Beams; the run's own unless given.", min=1)] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows at once; the run's own unless given.", min=1)] = None,
    max_length: Annotated[int | None, typer.Option(help="Longest sequence in tokens.", min=2)] = None,
    lowercase: Annotated[bool | None, typer.Option(help="Score without case.")] = None,
    cpu: Annotated[bool, typer.Option("--cpu", help="Not on the fastest device that there is.")] = False,
    trust_remote_code: Annotated[bool, typer.Option("--trust-remote-code", help="Run the checkpoint's code.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write scores and predictions here, as JSON.")] = None,
) -> None:
    """Score a run again, or a checkpoint on any data.

    hf-edu evaluate runs/bahdanau-dates

    hf-edu evaluate runs/transformer-multi30k --split validation --num-beams 10

    hf-edu evaluate user/name --dataset my_folder --column text=body --column label=topic --out scores.json
    """
    from ..data.named_values import named_texts
    from .checkpoint_scores import Checkup, score_checkpoint

    options = {"num_beams": num_beams, "batch_size": batch_size, "max_length": max_length}
    options |= {"lowercase": lowercase, "cpu": cpu}
    columns = dict(named_texts("column", column))
    checkup = Checkup(
        checkpoint, dataset, split, source, target, columns, limit, options, trust_remote_code=trust_remote_code
    )
    scored = score_checkpoint(checkup)
    _show_scores(checkpoint, split, scored.scores)
    if out is not None:
        import json

        from .run_folder import write_whole

        content = {"checkpoint": checkpoint, "split": split, "scores": scored.scores, "predictions": scored.rows}
        write_whole(out, json.dumps(content, indent=2, ensure_ascii=False, default=str) + "\n")


def _show_scores(checkpoint: str, split: str, scores: dict) -> None:
    table = Table("score", split, "95% interval", title=Text(checkpoint), title_justify="left")
    signatures = {}
    for name, value in scores.items():
        if name.endswith("_signature"):
            signatures[name.removesuffix("_signature")] = value
        elif not name.endswith("_interval"):
            spread = scores.get(f"{name}_interval")
            shown = f"{value:.4g}" if isinstance(value, float) else str(value)
            table.add_row(name, shown, f"{spread[0]:.4g} to {spread[1]:.4g}" if spread else "")
    console = Console()
    console.print(table)
    for name, signature in signatures.items():
        console.print(Text(f"{name}: {signature}", style="dim"), soft_wrap=True)
