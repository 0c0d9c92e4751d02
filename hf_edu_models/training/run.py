"""A run from its first line to its last: the folder and the seed before, the scores and the files after."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from rich.console import Console
from rich.table import Table
from rich.text import Text
from transformers import GenerationConfig, set_seed

from .arguments import RecipeArguments, RunArguments, parse_arguments, settings_of
from .checkpoints import RunStopped, average_weights, checkpoints_of, last_checkpoint, newest
from .evaluation import Scored, evaluate_split, is_better_when_greater, main_score
from .memory import keep_freed_memory
from .run_folder import RESULTS, read_settings, write_predictions, write_results, write_settings

SAMPLES = 5
# Settings that may change when a run goes on: how long it takes and what it shows, not what it learns from.
FREE_TO_CHANGE = {
    "num_train_epochs", "max_steps", "max_minutes", "logging_steps", "save_steps", "eval_steps", "save_total_limit",
    "disable_tqdm", "report_to", "dataloader_num_workers", "num_beams", "average_checkpoints", "learning_rate",
    "max_grad_norm", "early_stopping_patience", "per_device_eval_batch_size", "use_cpu",
}  # fmt: skip


@dataclass
class Run:
    """A run that has begun.

    Args:
        checkpoint: where it goes on from, if it was resumed.
    """

    args: RecipeArguments
    training_args: RunArguments
    folder: Path
    checkpoint: str | None


def launch(
    main: Callable[[RecipeArguments, RunArguments], Any],
    recipe: str,
    argv: list[str] | None = None,
    arguments: type[RecipeArguments] = RecipeArguments,
) -> None:
    """Run a recipe from the command line; a user's mistake ends with a sentence and the exit code 2, a run that cannot
    go on with 3, and Ctrl-C with 130. `HF_EDU_TRACEBACK=1` shows where it happened."""
    try:
        main(*parse_arguments(recipe, argv, arguments))
    except (ValueError, FileNotFoundError, StrictDataclassError, RunStopped, KeyboardInterrupt) as problem:
        if os.environ.get("HF_EDU_TRACEBACK"):
            raise
        is_interrupt = isinstance(problem, KeyboardInterrupt)
        said = "interrupted; the same command with --resume goes on" if is_interrupt else _sentence(problem)
        Console(stderr=True).print(Text(f"{Path(recipe).name}: {said}", style="red"), soft_wrap=True)
        sys.exit(130 if is_interrupt else 3 if isinstance(problem, RunStopped) else 2)


def _sentence(problem: BaseException) -> str:
    """A configuration's own words, where they are wrapped into others."""
    return str(problem.__cause__ if isinstance(problem, StrictDataclassError) and problem.__cause__ else problem)


def start_run(args: RecipeArguments, training_args: RunArguments, task: str, corpus: Any = None) -> Run:
    """Prepare the folder, the random numbers and the memory; refuse to write over another run.

    Args:
        task: decides the score by which checkpoints are compared, unless metric_for_best_model is given.
        corpus: what its labels are decides it too: spans or words, a class or a number.
    """
    folder = Path(training_args.output_dir)
    checkpoint = None
    if training_args.process_index == 0:
        _check_folder(args, training_args, folder)
    if args.resume:
        # What a crash left is tidied by one process only; the others must not look before.
        with training_args.main_process_first(local=False):
            found = last_checkpoint(folder) if training_args.process_index == 0 else newest(folder)
        checkpoint = None if found is None else str(found)
    if training_args.process_index == 0:
        write_settings(folder, settings_of(args, training_args))
        if not training_args.quiet:
            say(f"run {folder}" + (f", resumed from {Path(checkpoint).name}" if checkpoint else ""))
    given = training_args.metric_for_best_model if training_args.is_score_given else None
    score = main_score(task, given, corpus)
    training_args.metric_for_best_model = score
    training_args.greater_is_better = is_better_when_greater(score)
    keep_freed_memory()
    transformers.utils.logging.disable_progress_bar()  # a bar for every saved file; Trainer's own bars stay
    set_seed(training_args.seed)
    return Run(args, training_args, folder, checkpoint)


def _check_folder(args: RecipeArguments, training_args: RunArguments, folder: Path) -> None:
    # Settings alone are left where a run ended before it had learnt anything: nobody misses that one.
    is_there = (folder / RESULTS).exists() or bool(checkpoints_of(folder))
    if is_there and args.overwrite:
        shutil.rmtree(folder)
    elif is_there and not args.resume:
        raise ValueError(
            f"{folder} has a run already; --resume goes on with it, --overwrite throws it away, --output_dir chooses "
            "another folder"
        )
    elif is_there:
        _check_same_settings(read_settings(folder), settings_of(args, training_args), folder)
    folder.mkdir(parents=True, exist_ok=True)


def _check_same_settings(before: dict[str, Any], now: dict[str, Any], folder: Path) -> None:
    for name in sorted((before.keys() | now.keys()) - FREE_TO_CHANGE):
        if before.get(name) != now.get(name):
            raise ValueError(
                f"{folder} was begun with {name} {before.get(name, 'at its default')}, but now it is "
                f"{now.get(name, 'at its default')}; give it as before, or choose another --output_dir"
            )


def finish_run(
    run: Run, trainer: Any, task: str, corpus: Any, encoded: Any, tokenizer: Any, samples: Callable | None = None
) -> dict[str, Any]:
    """Choose the last weights, save them, score every split that was held out, and write and show the results.

    Args:
        corpus: the splits as people read them; `encoded` has the same as the model reads them.
        samples: from the model and the tokenizer to rows to show, where predicting gives none (language models).
    """
    choose_weights(run, trainer)
    options = {}
    if task in ("translation", "alignment"):
        longest = run.training_args.generation_max_length or run.args.max_length
        searching = {"num_beams": run.training_args.num_beams, "max_new_tokens": longest}
        generate_as_scored(trainer.model, searching)
        options = searching | {"lowercase": run.args.lowercase}
    trainer.save_final()
    held_out = [split for split in ("validation", "test") if split in encoded]
    scored = {
        split: evaluate_split(trainer, task, encoded[split], corpus[split], tokenizer, **options) for split in held_out
    }
    if not trainer.is_world_process_zero():
        return {}
    last = scored[held_out[-1]] if held_out else Scored({}, [])
    rows = samples(trainer.model, tokenizer) if samples is not None else last.rows
    length = {"steps": trainer.state.global_step, "epochs": round(trainer.state.epoch or 0.0, 3)}
    results = describe(run, trainer.model, task, corpus, seconds=trainer.bookkeeping.passed(), **length) | {
        "scores": {split: each.scores for split, each in scored.items()},
        "samples": rows[:SAMPLES],
    }
    if last.rows:
        write_predictions(run.folder, last.rows)
    write_results(run.folder, results)
    if not run.training_args.quiet:
        show(results)
    _decorate(run, trainer, tokenizer, results)
    return results


def generate_as_scored(model: Any, searching: dict[str, int]) -> None:
    """Let `generate()` of the saved model search as the scores were made, unless its caller says otherwise."""
    kept = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
    ids = {name: getattr(model.generation_config, name) for name in kept}
    model.generation_config = GenerationConfig(**ids, **searching)


def choose_weights(run: Run, trainer: Any) -> None:
    """Average the last checkpoints if that was asked for, and keep the average if validation likes it."""
    count = run.training_args.average_checkpoints
    folders = checkpoints_of(run.folder)[-count:] if count else []
    if len(folders) < 2:
        return
    score = f"eval_{run.training_args.metric_for_best_model}"
    before = trainer.evaluate()[score]
    weights = trainer.model.state_dict()
    kept = {name: weight.clone() for name, weight in weights.items()}
    trainer.model.load_state_dict(average_weights(folders), strict=False)  # tied weights are stored once
    trainer.model.tie_weights()
    after = trainer.evaluate()[score]
    is_better = after > before if run.training_args.greater_is_better else after < before
    if not is_better:
        trainer.model.load_state_dict(kept)
    say(f"average of {len(folders)} checkpoints: {score} {after:.4g}, before {before:.4g}; kept the better one")


def describe(
    run: Run, model: Any, task: str, corpus: Any, *, seconds: float, steps: int, epochs: float
) -> dict[str, Any]:
    """What a run was, for results.json."""
    args, training_args, config = run.args, run.training_args, model.config
    data = {"name": public_name(args.dataset), "source": args.source, "target": args.target}
    device = training_args.device.type
    return {
        "rung": config.model_type.removeprefix("edu_"),
        "model_type": config.model_type,
        "architecture": type(model).__name__,
        "recipe": args.recipe,
        "preset": args.preset,
        "command": command(args),
        "task": task,
        "data": {name: value for name, value in data.items() if value is not None}
        | {"sizes": {split: len(rows) for split, rows in corpus.items()}},
        "init_from": public_name(args.init_from) if args.init_from and not args.new_weights else None,
        "parameters": model.num_parameters(),
        "seconds": round(seconds, 1),
        "steps": steps,
        "epochs": epochs,
        "seed": training_args.seed,
        "machine": {
            "device": torch.cuda.get_device_name() if device == "cuda" else device,
            "threads": torch.get_num_threads(),
            "processes": training_args.world_size,
        },
        "versions": versions(),
        "settings": {name: public_name(value) for name, value in settings_of(args, training_args).items()},
        "main_score": training_args.metric_for_best_model,
        "published": args.notes.get("published", []),
        **({"licence": args.licence} if args.licence else {}),
        **({"license_of_data": args.notes["license_of_data"]} if "license_of_data" in args.notes else {}),
    }


def versions() -> dict[str, str]:
    from .. import __version__

    return {
        "hf_edu_models": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }


def public_name(value: Any) -> Any:
    """A path of this machine is nobody else's business: its last part is enough, also behind `name=`."""
    if isinstance(value, dict):
        return {key: public_name(each) for key, each in value.items()}
    if isinstance(value, list):
        return [public_name(each) for each in value]
    if not isinstance(value, str):
        return value
    if "+" in value:  # several corpora
        return "+".join(map(public_name, value.split("+")))
    name, sign, path = value.rpartition("=")
    is_private = Path(path).is_absolute() or path.startswith((".", "~"))
    return name + sign + Path(path).name if is_private else value


def command(args: RecipeArguments) -> str:
    """The command that began the run, as anybody could type it."""
    skipped = ("--output_dir", "--output-dir", "--resume", "--overwrite", "--hub_token", "--hub-token")
    words, skip_next = [], False
    for word in args.given:
        if skip_next:
            skip_next = False
        elif word.partition("=")[0] in skipped:
            skip_next = "=" not in word and word not in ("--resume", "--overwrite")
        else:
            words.append(str(public_name(word)))
    return shlex.join(["python", f"recipes/{args.recipe}", *words])


def say(text: str) -> None:
    Console(stderr=True).print(Text(text, style="dim"), soft_wrap=True)


def show(results: dict[str, Any]) -> None:
    """The scores and a few rows, side by side."""
    console = Console()
    scores = Table(
        title=f"{results['architecture']}, {results['parameters']:,} parameters, {results['seconds']:,.0f} s"
    )
    scores.add_column("score")
    splits = results["scores"]
    for split in splits:
        scores.add_column(split, justify="right")
    names = [name for name in next(iter(splits.values()), {}) if not name.endswith(("_interval", "_signature"))]
    for name in names:
        scores.add_row(name, *(_with_interval(splits[split], name) for split in splits))
    console.print(scores)
    for name, value in next(iter(splits.values()), {}).items():
        if name.endswith("_signature"):
            console.print(Text(f"{name.removesuffix('_signature')}: {value}", style="dim"), soft_wrap=True)
    if results["samples"]:
        table = Table(*results["samples"][0], show_lines=True)
        for row in results["samples"]:
            table.add_row(*(Text(_short(value)) for value in row.values()))
        console.print(table)


def _with_interval(scores: dict[str, Any], name: str) -> str:
    value, spread = scores.get(name), scores.get(f"{name}_interval")
    if value is None:
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f"{text} [{spread[0]:.4g}, {spread[1]:.4g}]" if spread else text


def _short(value: Any, longest: int = 300) -> str:
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _decorate(run: Run, trainer: Any, tokenizer: Any, results: dict[str, Any]) -> None:
    """The attention picture and the card; a run is not lost because one of them could not be made."""
    from ..hub.cards import write_card
    from .keepsakes import attention_picture, text_to_show

    text = text_to_show(trainer.model, results["samples"])
    if text is not None and _could("attention picture", attention_picture, trainer.model, tokenizer, text, run.folder):
        write_results(run.folder, results | {"attention_of": text})
    _could("card", write_card, run.folder)
    if not run.training_args.quiet:
        say(f"saved in {run.folder} with its card, README.md; hf-edu push {run.folder} user/name sends it to the Hub")


def _could(name: str, make: Callable, *given: Any) -> bool:
    try:
        make(*given)
    except Exception as problem:
        say(f"no {name}: {problem}")
        return False
    return True
