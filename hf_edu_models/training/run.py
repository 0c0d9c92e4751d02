"""A run: `start_run` prepares folder and seed, `finish_run` saves, scores and reports; `launch` runs a recipe."""

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
from accelerate.utils import broadcast_object_list
from huggingface_hub.errors import StrictDataclassError
from rich.console import Console
from rich.table import Table
from rich.text import Text
from transformers import GenerationConfig, set_seed

from .. import cpu_kernels
from ..data.columns import is_stream
from ..malloc import configure_malloc
from ..redaction import clean_command, clean_value, make_visible
from ..run_folder import (
    LOCK,
    RESULTS,
    RunStopped,
    clean_up_unfinished,
    list_checkpoints,
    lock_run,
    read_settings,
    unlock_run,
    write_predictions,
    write_results,
    write_settings,
)
from ..tasks import TASKS
from .arguments import RecipeArguments, RunArguments, arguments_class, parse_arguments, settings_of
from .checkpointing import average_weights, checkpoint_to_resume
from .evaluation import Scored, evaluate_split, is_better_when_greater, main_score
from .live_page import LIVE_PAGE
from .next_commands import next_commands
from .samples import NUM_SAMPLES
from .sharding import gather_weights
from .termination import explain_sigterm

# Settings that may differ when a run is resumed: they change its length and its output, not the data or the model.
_MAY_CHANGE = {
    "num_train_epochs", "max_steps", "max_minutes", "logging_steps", "save_steps", "eval_steps", "save_total_limit",
    "disable_tqdm", "report_to", "dataloader_num_workers", "num_beams", "average_checkpoints", "learning_rate",
    "max_grad_norm", "early_stopping_patience", "per_device_eval_batch_size", "use_cpu", "cpu_kernels", "ddp_backend",
}  # fmt: skip


@dataclass
class Run:
    """A run in progress.

    Args:
        checkpoint: The checkpoint it resumes from; None for a new run.
    """

    args: RecipeArguments
    training_args: RunArguments
    folder: Path
    checkpoint: str | None


def launch(main: Callable[[RecipeArguments, RunArguments], Any], recipe: str, argv: list[str] | None = None) -> None:
    """Run a recipe from the command line.

    An error of the user ends with one sentence and exit code 2, a run that cannot continue with 3, Ctrl-C with 130,
    SIGTERM with 143. `HF_EDU_TRACEBACK=1` shows the traceback.
    """
    try:
        run_recipe(main, recipe, argv)
    except (ValueError, OSError, StrictDataclassError, RunStopped, KeyboardInterrupt) as error:
        if os.environ.get("HF_EDU_TRACEBACK"):
            raise
        is_interrupt = isinstance(error, KeyboardInterrupt)
        message = "interrupted; the same command with --resume continues" if is_interrupt else _message(error)
        Console(stderr=True).print(Text(f"{Path(recipe).name}: {message}", style="red"), soft_wrap=True)
        sys.exit(130 if is_interrupt else 3 if isinstance(error, RunStopped) else 2)


def run_recipe(main: Callable[[RecipeArguments, RunArguments], Any], recipe: str, argv: list[str] | None) -> None:
    """Run a recipe; an error is raised."""
    try:
        with explain_sigterm():
            _run_locked(main, *parse_arguments(recipe, argv, arguments_class(main)))
    finally:
        cpu_kernels.disable()


def _run_locked(main: Callable, args: RecipeArguments, training_args: RunArguments) -> None:
    """Reserve the output folder before data is read: of two runs that start at once, one ends here."""
    if training_args.process_index == 0:
        lock_run(training_args.output_dir)
    try:
        main(args, training_args)
    finally:
        unlock_run(training_args.output_dir)


def _message(error: BaseException) -> str:
    """The message of a configuration's own check, without the error that wraps it; the system's without a number."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return str(error.__cause__ if isinstance(error, StrictDataclassError) and error.__cause__ else error)


def start_run(
    args: RecipeArguments, training_args: RunArguments, task: str, corpus: Any = None, metric: str | None = None
) -> Run:
    """Prepare the output folder and the seed; raise an error rather than overwrite another run.

    Args:
        task: Sets the metric for the best checkpoint, unless `metric_for_best_model` is given.
        corpus: Its labels refine the metric: spans or single tags, classes or numbers.
        metric: Another metric than the usual one of the task.
    """
    folder = Path(training_args.output_dir)
    checkpoint = None
    if training_args.process_index == 0:
        lock_run(folder)
        _check_folder(args, training_args, folder)
        clean_up_unfinished(folder)
    if args.resume:
        found = checkpoint_to_resume(training_args)
        checkpoint = None if found is None else str(found)
    _enable_cpu_kernels(training_args, None if checkpoint is None else folder)
    if training_args.process_index == 0:
        write_settings(folder, settings_of(args, training_args))
        if not training_args.quiet:
            _log_line(f"run {folder}" + (f", resumed from {Path(checkpoint).name}" if checkpoint else ""))
            if training_args.live:
                _log_line(f"curves: open {(folder / LIVE_PAGE).resolve()} in a browser")
    metric = training_args.metric_for_best_model if training_args.is_metric_chosen else metric
    training_args.metric_for_best_model = main_score(task, metric, corpus)
    training_args.greater_is_better = is_better_when_greater(training_args.metric_for_best_model)
    configure_malloc()
    transformers.utils.logging.disable_progress_bar()  # one per saved file; Trainer's own bars stay
    set_seed(training_args.seed)
    return Run(args, training_args, folder, checkpoint)


def _enable_cpu_kernels(training_args: RunArguments, resumed: Path | None) -> None:
    """Choose the kernels of a run on CPUs; a resumed run takes those that it started with, in every process."""
    if training_args.device.type != "cpu":
        return
    choice = training_args.cpu_kernels
    if choice == "auto" and resumed is not None:
        choice = read_settings(resumed).get("cpu_kernels", "off")  # older runs had none
    if training_args.process_index == 0:
        choice = cpu_kernels.enable(choice)
    (training_args.cpu_kernels,) = broadcast_object_list([choice])
    cpu_kernels.enable(training_args.cpu_kernels)


def _check_folder(args: RecipeArguments, training_args: RunArguments, folder: Path) -> None:
    if args.overwrite and has_run(folder):
        delete_run(folder, args.init_from)
    elif has_run(folder) and not args.resume:
        raise ValueError(
            f"{folder} already has a run; --resume continues it, --overwrite deletes it, --output_dir chooses another "
            "folder"
        )
    elif has_run(folder):
        check_same_settings(read_settings(folder), settings_of(args, training_args), folder)


def has_run(folder: Path) -> bool:
    """Whether a folder has a run: settings.yaml alone is left by one that ended before its first checkpoint."""
    return (folder / RESULTS).exists() or bool(list_checkpoints(folder))


def delete_run(folder: Path, init_from: str | None) -> None:
    """Delete what is in a run's folder, unless the new run starts from it."""
    if init_from is not None and Path(init_from).resolve().is_relative_to(folder.resolve()):
        raise ValueError(
            f"--overwrite would delete {init_from}, which --init-from names; choose another folder with --output_dir"
        )
    for entry in folder.iterdir():
        if entry.name != LOCK:
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


def check_same_settings(before: dict[str, Any], now: dict[str, Any], folder: Path) -> None:
    for name in sorted((before.keys() | now.keys()) - _MAY_CHANGE):
        if before.get(name) != now.get(name):
            raise ValueError(
                f"{folder} was started with {name} {before.get(name, 'at its default')}, but now it is "
                f"{now.get(name, 'at its default')}; use the same value, or choose another --output_dir"
            )


def finish_run(
    run: Run, trainer: Any, task: str, corpus: Any, encoded: Any, tokenizer: Any, samples: Callable | None = None
) -> dict[str, Any]:
    """Save the final model, score the held-out splits, write and print the results, write picture and card.

    Args:
        corpus: Splits as text; `encoded` has the same splits as model inputs.
        samples: Function of model and tokenizer that returns rows to show, for tasks without predictions per row.
    """
    average_last_checkpoints(run, trainer)
    options: dict[str, Any] = {}
    if TASKS[task].generates:
        max_new_tokens = run.training_args.generation_max_length or run.args.max_length
        search = {"num_beams": run.training_args.num_beams, "max_new_tokens": max_new_tokens}
        set_generation_defaults(trainer.model, search)
        options = search | {"lowercase": run.args.lowercase}
    trainer.save_final()
    held_out = [split for split in ("validation", "test") if split in encoded]
    scored = {
        split: evaluate_split(trainer, task, encoded[split], corpus[split], tokenizer, **options) for split in held_out
    }
    gather_weights(trainer.model)  # the rest runs in one process
    if not trainer.is_world_process_zero():
        return {}
    last = scored[held_out[-1]] if held_out else Scored({}, [])
    rows = samples(trainer.model, tokenizer) if samples is not None else last.rows
    length = {"steps": trainer.state.global_step, "epochs": round(trainer.state.epoch or 0.0, 3)}
    results = describe_run(run, trainer.model, task, corpus, seconds=trainer.run_state.elapsed_seconds(), **length) | {
        "scores": {split: each.scores for split, each in scored.items()},
        "samples": rows[:NUM_SAMPLES],
    }
    report(run, trainer.model, tokenizer, results, last.rows)
    cpu_kernels.disable()
    unlock_run(run.folder)
    return results


def report(run: Run, model: Any, tokenizer: Any, results: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    """Write and print the results of a saved model, its predictions `rows`, its picture and its card."""
    if rows:
        write_predictions(run.folder, rows)
    write_results(run.folder, results)
    if not run.training_args.quiet:
        print_results(results)
    _write_pictures_and_card(run, model, tokenizer, results)


def set_generation_defaults(model: Any, search: dict[str, int]) -> None:
    """Make `generate()` of the saved model search as it does for the scores."""
    names = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
    ids = {name: getattr(model.generation_config, name) for name in names}
    model.generation_config = GenerationConfig(**ids, **search)


def average_last_checkpoints(run: Run, trainer: Any) -> None:
    """Average the last `average_checkpoints` checkpoints; keep the average only if the validation score improves."""
    count = run.training_args.average_checkpoints
    folders = list_checkpoints(run.folder)[-count:] if count else []
    if len(folders) < 2:
        return
    score = f"eval_{run.training_args.metric_for_best_model}"
    before = trainer.evaluate()[score]
    weights = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    trainer.model.load_state_dict(average_weights(folders), strict=False)  # tied weights are stored once
    trainer.model.tie_weights()
    after = trainer.evaluate()[score]
    is_better = after > before if run.training_args.greater_is_better else after < before
    if not is_better:
        trainer.model.load_state_dict(weights)
    _log_line(f"average of {len(folders)} checkpoints: {score} {after:.4g}, before {before:.4g}; kept the better one")


def describe_run(
    run: Run, model: Any, task: str, corpus: Any, *, seconds: float, steps: int, epochs: float
) -> dict[str, Any]:
    """Facts about a run for results.json."""
    args, training_args, config = run.args, run.training_args, model.config
    data = {"name": clean_value(args.dataset), "source": args.source, "target": args.target}
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
        | {"sizes": {split: len(rows) for split, rows in corpus.items() if not is_stream(rows)}},
        "init_from": clean_value(args.init_from) if args.init_from and not args.new_weights else None,
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
        "settings": {name: clean_value(value) for name, value in settings_of(args, training_args).items()},
        "main_score": training_args.metric_for_best_model,
        "published": args.notes.get("published", []),
        **({"licence": args.licence} if args.licence else {}),
        **{name: args.notes[name] for name in ("license_of_data", "bar") if args.notes.get(name)},
    }


def versions() -> dict[str, str]:
    from .. import __version__

    return {
        "hf_edu_models": __version__,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "python": platform.python_version(),
    }


def command(args: RecipeArguments) -> str:
    """The command that started the run, without local paths and secrets."""
    skipped = ("--output_dir", "--output-dir", "--resume", "--overwrite", "--hub_token", "--hub-token")
    words, skip_next = [], False
    for word in args.argv:
        if skip_next:
            skip_next = False
        elif word.partition("=")[0] in skipped:
            skip_next = "=" not in word and word not in ("--resume", "--overwrite")
        else:
            words.append(word)
    return clean_command(shlex.join(["python", f"recipes/{args.recipe}", *words]))


def _log_line(text: str) -> None:
    Console(stderr=True).print(Text(text, style="dim"), soft_wrap=True)


def print_results(results: dict[str, Any]) -> None:
    """Print a table of the scores and a table of the samples."""
    size, seconds = results["parameters"], results["seconds"]
    print_scores(f"{results['architecture']}, {size:,} parameters, {seconds:,.0f} s", results["scores"])
    if results["samples"]:
        table = Table(show_lines=True)
        for name in results["samples"][0]:
            table.add_column(Text(make_visible(name)))
        for row in results["samples"]:
            table.add_row(*(Text(_shorten(value)) for value in row.values()))
        Console().print(table)


def print_scores(title: str, splits: dict[str, dict[str, Any]]) -> None:
    """Print the scores of each split with their 95% intervals, and the signatures of the metrics."""
    console = Console()
    first = next(iter(splits.values()), {})
    table = Table(title=Text(title))
    table.add_column("score")
    for split in splits:
        table.add_column(split, justify="right")
    for name in first:
        if not name.endswith(("_interval", "_signature")):
            table.add_row(Text(make_visible(name)), *(_with_interval(splits[split], name) for split in splits))
    console.print(table)
    for name, value in first.items():
        if name.endswith("_signature"):
            console.print(Text(f"{name.removesuffix('_signature')}: {value}", style="dim"), soft_wrap=True)


def _with_interval(scores: dict[str, Any], name: str) -> str:
    value, interval = scores.get(name), scores.get(f"{name}_interval")
    if value is None:
        return ""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    return f"{text} [{interval[0]:.4g}, {interval[1]:.4g}]" if interval else text


def _shorten(value: Any, max_characters: int = 300) -> str:
    text = make_visible(" ".join(map(str, value)) if isinstance(value, list) else str(value))
    return text if len(text) <= max_characters else text[: max_characters - 1] + "…"


def _write_pictures_and_card(run: Run, model: Any, tokenizer: Any, results: dict[str, Any]) -> None:
    """A run is not lost if one of them fails."""
    from ..hub.cards.card import write_card
    from .pictures import choose_text, save_architecture, save_attention_picture

    _try("picture of the architecture", save_architecture, model, run.folder)
    text = choose_text(model, results["samples"])
    if text is not None and _try("attention picture", save_attention_picture, model, tokenizer, text, run.folder):
        write_results(run.folder, results | {"attention_of": text})
    _try("card", write_card, run.folder)
    if not run.training_args.quiet:
        _log_line(f"saved in {run.folder} with a model card (README.md)")
        for purpose, line in next_commands(run.folder, model, results).items():
            if line:
                _log_line(f"{purpose + ':':<13} {line}")


def _try(name: str, function: Callable, *args: Any) -> bool:
    try:
        function(*args)
    except Exception as error:
        _log_line(f"no {name}: {error}")
        return False
    return True
