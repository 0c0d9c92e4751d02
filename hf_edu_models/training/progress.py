"""Progress on one line: steps, time elapsed and remaining, loss and last score."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from transformers import PrinterCallback, ProgressCallback, TrainerCallback
from transformers.trainer_utils import has_length


class OneLineProgressCallback(TrainerCallback):
    """Replaces Trainer's progress bars and log dictionaries.

    Without a terminal, where a line cannot be written again, each log is a line; with `quiet` only the last one is.
    """

    def __init__(self, title: str, score: str | None = None, quiet: bool = False):
        self.title, self.score, self.quiet = title, (score or "").removeprefix("eval_"), quiet
        self.fields: dict[str, Any] = {"loss": "", "score": ""}
        self.bar: Progress | None = None
        self.evaluation: tuple[Progress, TaskID] | None = None

    def on_train_begin(self, args, state, control, **kwargs):
        if not state.is_world_process_zero:
            return
        self.bar = _new_bar()
        self.task = self.bar.add_task(
            f"{self.title:<12}", total=state.max_steps, completed=state.global_step, **self.fields
        )
        self.bar.start()

    def on_step_end(self, args, state, control, **kwargs):
        if self.bar is not None:
            self.bar.update(self.task, completed=state.global_step)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if self.bar is None or logs is None:
            return
        if "loss" in logs:
            self.fields["loss"] = f"loss {logs['loss']:.3f}"
        if f"eval_{self.score}" in logs:
            self.fields["score"] = f"{self.score} {logs[f'eval_{self.score}']:.3g}"
        self.bar.update(self.task, **self.fields)
        is_new = "loss" in logs or f"eval_{self.score}" in logs
        if is_new and not (self.quiet or self.bar.console.is_terminal or self.bar.console.is_jupyter):
            values = " ".join(filter(None, self.fields.values()))
            print(f"{self.title} {state.global_step}/{state.max_steps} {values}", flush=True)

    def on_prediction_step(self, args, state, control, eval_dataloader=None, **kwargs):
        """A second line while it evaluates; `quiet` has none."""
        if self.quiet or not state.is_world_process_zero or not has_length(eval_dataloader):
            return
        if self.evaluation is None:
            bar = self.bar or _new_bar(transient=True)
            bar.start()
            self.evaluation = bar, bar.add_task("evaluating  ", total=len(eval_dataloader), loss="", score="")
        self.evaluation[0].advance(self.evaluation[1])

    def on_evaluate(self, args, state, control, **kwargs):
        if self.evaluation is not None:
            bar, task = self.evaluation
            bar.remove_task(task)
            if bar is not self.bar:
                bar.stop()
            self.evaluation = None

    on_predict = on_evaluate

    def on_train_end(self, args, state, control, **kwargs):
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def _new_bar(transient: bool = False) -> Progress:
    time = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    values = TextColumn("{task.fields[loss]} {task.fields[score]}")
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), *time, values)
    return Progress(*columns, console=Console(), transient=transient)


def use_one_line_progress(trainer, title: str, quiet: bool = False) -> None:
    """Replace Trainer's own progress callbacks."""
    for callback in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(callback)
    trainer.add_callback(OneLineProgressCallback(title, trainer.args.metric_for_best_model, quiet))


def has_progress_bars(trainer) -> bool:
    """Whether Trainer shows its bars: not with `disable_tqdm`, and not in a notebook, where it shows a table."""
    return any(type(callback) is ProgressCallback for callback in trainer.callback_handler.callbacks)
