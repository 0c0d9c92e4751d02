"""Several runs in one command: the stages before the last one, each in a subfolder of the run, trained once."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..data.notes import note
from ..run_folder import RESULTS, read_settings
from .arguments import OF_DATASET, RecipeArguments, RunArguments, parse_arguments, settings_of
from .run import check_same_settings, delete_run, has_run

_OF_DATA = (*OF_DATASET, "no_header", "train_size", "validation_size", "test_size")  # those of the last stage


def start_stages(args: RecipeArguments, training_args: RunArguments, stages: Iterable[str]) -> None:
    """With `--overwrite`, delete the whole run, stages included, before the first of them starts."""
    if args.overwrite:
        folder = Path(str(training_args.output_dir))
        if training_args.process_index == 0 and any(map(has_run, (folder, *(folder / stage for stage in stages)))):
            delete_run(folder, args.init_from)
        args.overwrite = False
        args.argv = [word for word in args.argv if word != "--overwrite"]


def stage_arguments(
    recipe: str, stage: str, args: RecipeArguments, training_args: RunArguments, **defaults: Any
) -> tuple[Any, RunArguments]:
    """The arguments of a stage: those of the command, overridden by its own option `--STAGE name=value`.

    It starts from `args.init_from`. If it has a dataset of its own, the other settings of the command's data do not
    apply to it.

    Args:
        recipe: The recipe's file.
        stage: The name of its option and of its folder.
        defaults: Options of the stage that its own option overrides.
    """
    own = defaults | getattr(args, stage)
    flags = [*_flags({name: value for name, value in own.items() if name not in ("output_dir", "preset")})]
    flags += ["--output_dir", str(Path(str(training_args.output_dir)) / stage)]
    flags += ["--init-from", str(args.init_from)] if args.init_from is not None else []
    stage_args, stage_training_args = parse_arguments(recipe, [*args.argv, *flags], type(args))
    if "dataset" in own:
        defaults_of = {field.name: field.default for field in dataclasses.fields(RecipeArguments)}
        stage_args.preset_columns = {}
        for name in _OF_DATA:
            if name not in own:
                setattr(stage_args, name, {} if name in ("columns", "data_options") else defaults_of[name])
    for name in ("general_lm", "target_lm"):
        setattr(stage_args, name, {})  # in effect already; those of another stage may change
    stage_args.argv, stage_args.notes = args.argv, {}  # the command that its card shows trains all stages
    return stage_args, stage_training_args


def is_finished(args: RecipeArguments, training_args: RunArguments) -> bool:
    """Whether `--resume` finds a stage that has been trained to its end, with the same settings."""
    folder = Path(str(training_args.output_dir))
    if not args.resume or not (folder / RESULTS).is_file():
        return False
    before, now = read_settings(folder), settings_of(args, training_args)
    chosen = {"task", "validation_size", "test_size"} - now.keys()  # by `corpus_for`, which has not read the data
    check_same_settings({name: value for name, value in before.items() if name not in chosen}, now, folder)
    note(f"{folder} is finished, so it is not trained again")
    return True


def _flags(options: dict[str, Any]) -> list[str]:
    flags = []
    for name, value in options.items():
        parts = [f"{key}={each}" for key, each in value.items()] if isinstance(value, dict) else [value]
        for part in parts:
            flags += [f"--{name}", part if isinstance(part, str) else json.dumps(part)]
    return flags
