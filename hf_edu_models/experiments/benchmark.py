"""`hf-edu benchmark`: fine-tune a run on every task of GLUE, SuperGLUE or Russian SuperGLUE, and average the scores.

Which presets a benchmark has, and which scores it reports of each, is the field `suites` of the presets.
"""

from __future__ import annotations

import json
import math
import os
import runpy
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..run_folder import RESULTS, list_checkpoints, read_results, write_atomically
from .sweep import folder_of

_ASKED = "benchmark.json"  # in the folder of each fine-tuning: with what it was started
_RESERVED = {
    "preset": "the tasks are presets; --tasks chooses them",
    "init_from": "the run is the second argument",
    "seed": "--seeds has the number of seeds",
    "output_dir": "--out has the folder of all runs",
    "out": "--out has the folder of all runs",
    "dataset": "--data has the local copies",
    "resume": "what is unfinished resumes by itself",
    "overwrite": "choose another --out, or delete the folder",
}


@dataclass(frozen=True)
class FineTuning:
    """One task with one seed.

    Args:
        argv: the recipe's command line, without `--resume`.
        asked: what must be the same for a finished fine-tuning to be read back.
    """

    task: str
    seed: int
    folder: Path
    argv: list[str]
    asked: dict[str, Any]

    @property
    def is_finished(self) -> bool:
        return (self.folder / RESULTS).is_file()

    def check_same(self) -> None:
        """Raise an error if the folder has a fine-tuning of another run or with other options."""
        file = self.folder / _ASKED
        if not file.is_file() or not (self.is_finished or list_checkpoints(self.folder)):
            return
        before = json.loads(file.read_text("utf-8"))
        for name, value in self.asked.items():
            if before.get(name) != value:
                raise ValueError(
                    f"{self.folder} was fine-tuned with {name} {before.get(name)}, but now it is {value}; choose "
                    "another --out, or delete that folder"
                )


@dataclass(frozen=True)
class Benchmark:
    """The fine-tunings of a run on the tasks of a suite.

    Args:
        scores: of each task, those whose mean is its score.
        size: number of tasks of the whole suite.
        left_out: tasks of the suite without a preset for the recipe of this run.
    """

    suite: str
    run: str
    recipe: Path
    folder: Path
    scores: dict[str, list[str]]
    size: int
    left_out: list[str]
    plan: list[FineTuning]


def plan_benchmark(
    suite: str,
    run: str,
    *,
    tasks: Sequence[str] = (),
    seeds: int = 1,
    data: Sequence[str] = (),
    folder: str | os.PathLike | None = None,
    options: Sequence[str] = (),
) -> Benchmark:
    """Choose the tasks and check every option, before anything is trained.

    Args:
        run: Folder of a run, checkpoint or Hub id.
        tasks: Presets of the suite; all by default.
        data: Local copies: `TASK=FOLDER`, or a folder that has one folder for each task.
        options: Options of the recipe that fine-tunes.
    """
    from ..training.arguments import arguments_class, parse_arguments, section_of
    from ..training.presets import preset_names, suites

    known = suites()
    if suite not in known:
        raise ValueError(f"there is no benchmark {suite!r}; choose one of {', '.join(known)}")
    for name in [word.partition("=")[0][2:].replace("-", "_") for word in options if word.startswith("--")]:
        if name in _RESERVED:
            raise ValueError(f"--{name} is no option of a benchmark: {_RESERVED[name]}")
    recipe, longest = _recipe_of(run)
    have = preset_names(section_of(str(recipe)))
    if not set(known[suite]) & set(have):
        raise ValueError(f"{recipe.name}, the recipe for {run}, has no preset of {suite}; give another model, or suite")
    for task in tasks:
        if task not in known[suite] or task not in have:
            raise ValueError(
                f"{task!r} is no task of {suite} for {recipe.name}; choose from "
                f"{', '.join(each for each in known[suite] if each in have)}"
            )
    chosen = [task for task in known[suite] if (task in tasks if tasks else task in have)]
    copies = _local_copies(chosen, data)
    folder = Path(folder or Path("runs") / f"benchmark-{suite}-{Path(run).name}")
    plan = []
    for seed in range(seeds):  # seed by seed, so that an interrupted benchmark has every task
        for task in chosen:
            own = [*options, *_limit(task, recipe, longest, options)]
            asked = {"run": os.path.normpath(run), "dataset": copies.get(task), "options": own}
            place = folder / folder_of(task, seed)
            argv = ["--preset", task, "--init_from", run, "--seed", str(seed), "--output_dir", str(place), *own]
            argv += ["--dataset", copies[task]] if task in copies else []
            plan.append(FineTuning(task, seed, place, [*argv, "--quiet"], asked))
    main = runpy.run_path(str(recipe), run_name="recipe")["main"]
    for each in plan:
        each.check_same()
        parse_arguments(str(recipe), each.argv, arguments_class(main))
    left_out = [task for task in known[suite] if task not in have]
    scores = {task: known[suite][task] for task in chosen}
    return Benchmark(suite, run, recipe, folder, scores, len(known[suite]), left_out, plan)


def _recipe_of(run: str) -> tuple[Path, int | None]:
    """The recipe that fine-tunes models of a run's rung, and the run's number of positions."""
    from ..checkpoints import load_config, position_limit
    from ..training.presets import find_recipe, recipe_files

    config = load_config(run)
    rung = config.model_type.removeprefix("edu_").replace("_", "-")
    names = [name for name in (f"{rung}-finetune", rung) if name in recipe_files()]
    if not names:
        raise ValueError(f"{run} is a {config.model_type}, for which there is no recipe; convert it first")
    return find_recipe(names[0]), position_limit(config)


def _limit(task: str, recipe: Path, longest: int | None, options: Sequence[str]) -> list[str]:
    """`--max_length` where the preset's is more than the positions of the run."""
    from ..training.arguments import section_of
    from ..training.flags import flag_value
    from ..training.presets import load_preset

    length = load_preset(task, section_of(str(recipe)))[0].get("max_length", 0)
    is_given = any(flag_value(list(options), name) for name in ("max_length", "max-length"))
    return [] if longest is None or length <= longest or is_given else ["--max_length", str(longest)]


def _local_copies(tasks: Sequence[str], data: Sequence[str]) -> dict[str, str]:
    folders = [Path(entry).expanduser() for entry in data if "=" not in entry]
    for folder in folders:
        if not folder.is_dir():
            raise ValueError(f"--data {folder} is not a folder; give a folder of folders, or TASK=FOLDER")
    found = {task: str(folder / task) for folder in folders for task in tasks if (folder / task).is_dir()}
    for entry in data:
        task, equals, place = entry.partition("=")
        if equals and task not in tasks:
            raise ValueError(f"--data {entry}: {task!r} is not one of the tasks, {', '.join(tasks)}")
        found |= {task: place} if equals else {}
    return found


def run_benchmark(
    benchmark: Benchmark, split: str = "validation", report: Callable[[str], None] = lambda line: None
) -> dict[str, Any]:
    """Fine-tune what is not finished yet; the table so far is written after each task, as JSON and Markdown.

    An error ends one fine-tuning and not the others; the same benchmark tries it again. A finished task keeps its
    model, not its checkpoints.

    Args:
        split: The split to report; of tasks whose split has no labels, validation.
    """
    from ..checkpoints import quiet
    from ..training.run import run_recipe

    main = runpy.run_path(str(benchmark.recipe), run_name="recipe")["main"]
    errors: dict[tuple[str, int], str] = {}
    for number, each in enumerate(benchmark.plan, start=1):
        state = "finished before" if each.is_finished else "resumed" if list_checkpoints(each.folder) else "started"
        report(f"{benchmark.suite} {number} of {len(benchmark.plan)}: {each.task}, seed {each.seed}, {state}")
        if each.is_finished:
            continue
        write_atomically(each.folder / _ASKED, json.dumps(each.asked, indent=2) + "\n")
        try:
            with quiet():  # every task has a new head
                run_recipe(main, str(benchmark.recipe), each.argv + (["--resume"] if state == "resumed" else []))
        except Exception as error:  # whatever ends one task, from its data to a full memory
            errors[each.task, each.seed] = " ".join(str(error).split()) or type(error).__name__
            report(f"{each.task} failed: {errors[each.task, each.seed]}")
        if each.is_finished:
            for checkpoint in list_checkpoints(each.folder):
                shutil.rmtree(checkpoint)
        _write(benchmark, collect(benchmark, split, errors))
    results = collect(benchmark, split, errors)
    _write(benchmark, results)
    return results


def collect(benchmark: Benchmark, split: str, errors: dict[tuple[str, int], str] | None = None) -> dict[str, Any]:
    """Scores of what is finished: each fine-tuning, each task, and their mean; all in per cent."""
    rows = [_row(benchmark, each, split) for each in benchmark.plan if each.is_finished]
    by_task = {task: [row for row in rows if row["task"] == task] for task in benchmark.scores}
    tasks = [_summary(task, benchmark.scores[task], found) for task, found in by_task.items() if found]
    failed = [{"task": task, "seed": seed, "error": error} for (task, seed), error in (errors or {}).items()]
    seeds = {each.seed for each in benchmark.plan}
    by_seed = [[row["score"] for row in rows if row["seed"] == seed] for seed in seeds]
    is_complete = all(len(scores) == len(benchmark.scores) for scores in by_seed)
    means = [sum(scores) / len(scores) for scores in by_seed] if is_complete else []
    return {
        "suite": benchmark.suite,
        "run": benchmark.run,
        "recipe": benchmark.recipe.name,
        "options": benchmark.plan[0].asked["options"] if benchmark.plan else [],
        "mean": sum(task["score"] for task in tasks) / len(tasks) if tasks else None,
        "mean_by_seed": means,
        "tasks": tasks,
        "tasks_of_suite": benchmark.size,
        "errors": failed,
        "rows": rows,
    }


def _row(benchmark: Benchmark, each: FineTuning, split: str) -> dict[str, Any]:
    results = read_results(each.folder)
    found = split if split in results["scores"] else "validation"
    scale = 1 if results["task"] == "question_answering" else 100  # SQuAD's own scores are in per cent
    scores = {name: scale * results["scores"][found][name] for name in benchmark.scores[each.task]}
    # The correlation of a constant prediction is undefined.
    scores = {name: 0.0 if math.isnan(score) else score for name, score in scores.items()}
    facts = {"split": found, "rows": results["data"]["sizes"][found], "steps": results["steps"]}
    facts |= {"seconds": results["seconds"], "folder": each.folder.name}
    return {"task": each.task, "seed": each.seed, "score": sum(scores.values()) / len(scores), **scores, **facts}


def _summary(task: str, names: list[str], rows: list[dict[str, Any]]) -> dict[str, Any]:
    scores = [row["score"] for row in rows]
    facts = {"task": task, "scores": names, "seeds": len(rows), "split": rows[0]["split"], "rows": rows[0]["rows"]}
    spread = {"score": sum(scores) / len(scores), "lowest": min(scores), "highest": max(scores)}
    return facts | spread | {name: sum(row[name] for row in rows) / len(rows) for name in names}


TABLE_COLUMNS = ("task", "score", "split", "rows", "seeds", "mean", "lowest to highest")


def table_of(results: dict[str, Any]) -> list[tuple[str, ...]]:
    """The rows of the table as text, under `TABLE_COLUMNS`; the last is the mean."""
    table: list[tuple[str, ...]] = []
    for task in results["tasks"]:
        names = [f"{name} {task[name]:.1f}" if len(task["scores"]) > 1 else name for name in task["scores"]]
        spread = f"{task['lowest']:.1f} to {task['highest']:.1f}" if task["seeds"] > 1 else ""
        cells = (task["split"], f"{task['rows']:,}", str(task["seeds"]), f"{task['score']:.1f}", spread)
        table.append((task["task"], ", ".join(names), *cells))
    if results["tasks"]:
        count, means = len(results["tasks"]), results["mean_by_seed"]
        whole = "" if count == results["tasks_of_suite"] else f" of {results['tasks_of_suite']}"
        name = f"mean of {count}{whole} tasks"
        spread = f"{min(means):.1f} to {max(means):.1f}" if len(means) > 1 else ""
        table.append((name, "", "", "", "", f"{results['mean']:.1f}", spread))
    return table


def _write(benchmark: Benchmark, results: dict[str, Any]) -> None:
    write_atomically(benchmark.folder / RESULTS, json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    lines = [f"# {benchmark.suite} with {Path(benchmark.run).name}", ""]
    lines += [f"Fine-tuned by `{benchmark.recipe.name}`{_options(results)}; scores in per cent.", ""]
    lines += [f"| {' | '.join(row)} |" for row in (TABLE_COLUMNS, ("---",) * len(TABLE_COLUMNS), *table_of(results))]
    failed = [f"- {each['task']}, seed {each['seed']}: {each['error']}" for each in results["errors"]]
    lines += ["", "Failed:", "", *failed] if failed else []
    write_atomically(benchmark.folder / "results.md", "\n".join(lines) + "\n")


def _options(results: dict[str, Any]) -> str:
    return f" with `{' '.join(results['options'])}`" if results["options"] else ""
