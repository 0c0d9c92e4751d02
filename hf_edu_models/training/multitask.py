"""One model of several tasks: their data, a trainer that scores each, and a folder for each at the end."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import cpu_kernels
from ..data.collators import collator_for
from ..data.columns import read_column
from ..data.encoding import encode_corpus
from ..data.multitask import TaskBatchSampler, TaskCollator, TaskRows
from ..metrics.compute import compute_metrics_for
from ..metrics.scorers import Scored
from ..run_folder import (
    STATE,
    UNFINISHED,
    clean_up_unfinished,
    unlock_run,
    write_atomically,
    write_results,
    write_settings,
)
from ..tasks import find_task
from .arguments import MultiTaskArguments, settings_of
from .checkpointing import replace_files
from .evaluation import evaluate_split, main_score
from .presets import load_preset, preset_names
from .run import Run, average_last_checkpoints, describe_run, print_scores, report
from .samples import NUM_SAMPLES
from .setup import corpus_for, label_settings, task_of
from .trainers import EduTrainer

_TASKS = ("classification", "token_classification")
_OF_DATA = ("dataset", "dataset_config", "task", "columns", "data_options")
_MEAN_SCORE = "mean_score"


@dataclass
class TaskOfRun:
    """One task of a run.

    Args:
        kind: a row of `tasks.TASKS`.
        main_score: the score that stands for the task in the mean.
        weight: lambda, of its loss.
        encoded: the splits of `corpus` as token ids, once there is a tokenizer.
    """

    name: str
    args: MultiTaskArguments
    corpus: Any
    kind: str
    main_score: str
    weight: float
    encoded: Any = None

    @property
    def head(self) -> dict[str, Any]:
        """Its row of `tasks` in the model's configuration."""
        settings = label_settings(self.corpus, "label" if self.kind == "classification" else "tags")
        problem = "single_label_classification" if self.kind == "classification" else None
        labels = list(settings["id2label"].values()) if "id2label" in settings else None
        problem_type = settings.get("problem_type", problem)
        return {"task": self.kind, "labels": labels, "problem_type": problem_type, "weight": self.weight}

    def scorer(self) -> Any:
        tags = {"tag_names": self.head["labels"]} if self.kind == "token_classification" else {}
        return compute_metrics_for(self.kind, **tags)

    def encode(self, tokenizer: Any) -> None:
        args = self.args
        self.encoded = encode_corpus(
            self.corpus, tokenizer, task=self.kind, max_length=args.max_length, num_proc=args.num_proc
        )


def tasks_for(args: MultiTaskArguments) -> dict[str, TaskOfRun]:
    """The tasks of a run by name: `--dataset mrpc+rte+tags=data/tags` names presets, or datasets of one's own."""
    entries = [_arguments_of(entry, args) for entry in str(args.dataset).split("+")]
    names = [name for name, _, _ in entries]
    weights: Any = args.task_weights or {}
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two tasks are named {name}; give one of them another name, as NAME=DATASET")
        if not name.isidentifier():
            raise ValueError(f"a task cannot be named {name!r}; give it a name of letters and _, as NAME=DATASET")
    for name in set(weights) - set(names):
        raise ValueError(f"--task_weights has a weight for {name!r}, but the tasks are {', '.join(names)}")
    tasks = {}
    for name, own, metric in entries:
        corpus = corpus_for(own, tasks=_TASKS)
        kind = task_of(corpus)
        score = main_score(kind, metric, corpus)
        tasks[name] = TaskOfRun(name, own, corpus, kind, score, float(weights.get(name, 1.0)))
    return tasks


def _arguments_of(entry: str, args: MultiTaskArguments) -> tuple[str, MultiTaskArguments, str | None]:
    """The name of a task, its own arguments, and its metric if a preset of that name has one."""
    name, equals, dataset = entry.partition("=")
    if not equals:
        name, dataset = Path(entry).stem, entry
    own = copy.copy(args)
    own.dataset = dataset
    settings, notes = load_preset(name, "bert_finetune") if name in preset_names("bert_finetune") else ({}, {})
    if not equals and entry == name and settings and not Path(entry).exists():  # the preset's own data
        for field in _OF_DATA:
            setattr(own, field, settings.get(field) or getattr(own, field))
        own.notes = notes
    return name, own, settings.get("metric_for_best_model")


def texts_of(tasks: dict[str, TaskOfRun]) -> list[str]:
    """The texts of all train splits, for a tokenizer; tagged words are joined."""
    texts = []
    for task in tasks.values():
        train = task.corpus["train"]
        for column in ("text", "text_pair", "tokens"):
            rows = read_column(train, column) if column in train.column_names else []
            texts += [row if isinstance(row, str) else " ".join(row) for row in rows]
    return texts


class MultiTaskTrainer(EduTrainer):
    """Trains on batches of one task each; evaluates each task, and takes the mean of their main scores.

    The scores of a task begin with its name: `eval_mrpc_accuracy`; the mean is `eval_mean_score`.
    """

    def __init__(self, *args: Any, tasks: dict[str, TaskOfRun], sampling_alpha: float = 0.5, **kwargs: Any):
        tokenizer = kwargs["processing_class"]
        self.tasks, self.sampling_alpha = tasks, sampling_alpha
        self.scores = {name: task.scorer() for name, task in tasks.items()}
        super().__init__(
            *args,
            train_dataset=TaskRows({name: task.encoded["train"] for name, task in tasks.items()}),
            eval_dataset={name: TaskRows({name: task.encoded["validation"]}) for name, task in tasks.items()},
            data_collator=TaskCollator({name: collator_for(task.kind, tokenizer) for name, task in tasks.items()}),
            **kwargs,
        )
        if self.args.max_tokens or self.args.train_sampling_strategy != "random":
            raise ValueError(
                "a batch is of one task, which is drawn at random; leave out --max_tokens and --train_sampling_strategy"
            )

    def train_batch_sampler(self, dataset: TaskRows) -> TaskBatchSampler:
        self._train_sampler = TaskBatchSampler(
            dataset.sizes,
            self.args.train_batch_size,
            alpha=self.sampling_alpha,
            seed=self.args.seed,
            num_replicas=self.args.world_size,
            rank=self.args.process_index,
        )
        return self._train_sampler

    def evaluate(self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval") -> Any:
        """The scores of every task and their mean, in one entry of the log."""
        metrics: dict[str, Any] = {}
        for name, rows in (eval_dataset or self.eval_dataset).items():
            loader, prefix = self.get_eval_dataloader(rows), f"{metric_key_prefix}_{name}"
            self.compute_metrics = self.scores[name]
            try:
                metrics |= self.evaluation_loop(loader, "Evaluation", None, ignore_keys, prefix).metrics
            finally:
                self.compute_metrics = None
        scores = [metrics[f"{metric_key_prefix}_{name}_{self.tasks[name].main_score}"] for name in self.scores]
        metrics[f"{metric_key_prefix}_{_MEAN_SCORE}"] = sum(scores) / len(scores)
        metrics[f"{metric_key_prefix}_loss"] = sum(metrics[f"{metric_key_prefix}_{name}_loss"] for name in self.scores)
        self.log(metrics)
        self.control: Any = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


def finish_tasks(run: Run, trainer: MultiTaskTrainer, tokenizer: Any) -> dict[str, Any]:
    """Save and score the final model; each task gets a folder with a model of its own, results and a card."""
    average_last_checkpoints(run, trainer)
    trainer.save_final()
    scored = {name: _score(trainer, task, tokenizer) for name, task in trainer.tasks.items()}
    if not trainer.is_world_process_zero():
        return {}
    state = trainer.state
    length = {"steps": state.global_step, "epochs": round(state.epoch or 0.0, 3)}
    length["seconds"] = trainer.run_state.elapsed_seconds()
    for name, task in trainer.tasks.items():
        own = replace(run, args=task.args, folder=run.folder / name)
        model = trainer.model.single_task(name).eval()
        _save_alone(own, model, tokenizer, _state_of_task(state, name))
        last = list(scored[name].values())[-1]
        results = describe_run(own, model, task.kind, task.corpus, **length) | {
            "main_score": task.main_score,
            "trained_with": [other for other in trainer.tasks if other != name],
            "scores": {split: each.scores for split, each in scored[name].items()},
            "samples": last.rows[:NUM_SAMPLES],
        }
        report(own, model, tokenizer, results, last.rows)
    results = describe_run(run, trainer.model, "multi_task", _all_rows(trainer.tasks), **length)
    results |= {"scores": _scores_of_all(trainer.tasks, scored), "samples": _samples_of_all(scored)}
    write_results(run.folder, results)
    write_atomically(run.folder / "README.md", _page(run.folder.resolve().name, results, trainer.tasks))
    if not run.training_args.quiet:
        print_scores(f"{results['architecture']}, {results['parameters']:,} parameters", results["scores"])
    cpu_kernels.disable()
    unlock_run(run.folder)
    return results


def _score(trainer: MultiTaskTrainer, task: TaskOfRun, tokenizer: Any) -> dict[str, Scored]:
    splits = [split for split in ("validation", "test") if split in task.encoded]
    rows = {split: TaskRows({task.name: task.encoded[split]}) for split in splits}
    return {split: evaluate_split(trainer, task.kind, rows[split], task.corpus[split], tokenizer) for split in splits}


def _save_alone(run: Run, model: Any, tokenizer: Any, state: Any) -> None:
    """Write the folder of a task: a model that its Auto class loads, tokenizer, log and settings."""
    unfinished = run.folder.parent / UNFINISHED / run.folder.name
    model.save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    state.save_to_json(str(unfinished / STATE))
    run.folder.mkdir(exist_ok=True)
    replace_files(unfinished, run.folder)
    write_settings(run.folder, settings_of(run.args, run.training_args))
    clean_up_unfinished(run.folder.parent)


def _state_of_task(state: Any, name: str) -> Any:
    """Trainer's state with the scores of one task alone, by their usual names."""
    prefix, own = f"eval_{name}_", copy.deepcopy(state)
    for number, entry in enumerate(own.log_history):
        if any(key.startswith("eval_") for key in entry):
            kept = {key: value for key, value in entry.items() if key.startswith(prefix) or key in ("step", "epoch")}
            own.log_history[number] = {key.replace(prefix, "eval_"): value for key, value in kept.items()}
    return own


def _all_rows(tasks: dict[str, TaskOfRun]) -> dict[str, TaskRows]:
    rows = {
        split: {name: task.corpus[split] for name, task in tasks.items() if split in task.corpus}
        for split in ("train", "validation", "test")
    }
    return {split: TaskRows(each) for split, each in rows.items() if each}


def _scores_of_all(tasks: dict[str, TaskOfRun], scored: dict[str, dict[str, Scored]]) -> dict[str, dict[str, Any]]:
    """For each split the mean of the main scores, and those of the tasks that have the split."""
    found: dict[str, dict[str, Any]] = {}
    for split in ("validation", "test"):
        have = {name: each[split].scores for name, each in scored.items() if split in each}
        if have:
            main = {name: scores[tasks[name].main_score] for name, scores in have.items()}
            found[split] = {_MEAN_SCORE: sum(main.values()) / len(main)}
        for name, scores in have.items():
            for score in (tasks[name].main_score, f"{tasks[name].main_score}_interval"):
                found[split] |= {f"{name}_{score}": scores[score]} if score in scores else {}
    return found


def _samples_of_all(scored: dict[str, dict[str, Scored]]) -> list[dict[str, Any]]:
    """The first prediction for each task."""
    last = {name: list(each.values())[-1].rows for name, each in scored.items()}
    return [{"task": name} | rows[0] for name, rows in last.items() if rows]


def _page(title: str, results: dict[str, Any], tasks: dict[str, TaskOfRun]) -> str:
    """README.md of the run: a row for each task, whose own folder has its card."""
    lines = [
        f"# {title}",
        "",
        "One `EduBertForMultiTask`; the folder of a task has a model with its head alone, and a card.",
        "",
        f"`{results['command']}`",
        "",
        "| task | score | validation | test | load it with |",
        "|---|---|---|---|---|",
    ]
    for name, task in tasks.items():
        scores = [results["scores"].get(split, {}).get(f"{name}_{task.main_score}") for split in ("validation", "test")]
        cells = [f"[{name}]({name}/README.md)", task.main_score]
        cells += ["-" if score is None else f"{score:.3f}" for score in scores]
        cells.append(f"`{find_task(task.kind).auto_class}.from_pretrained('{title}/{name}')`")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
