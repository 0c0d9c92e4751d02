"""Progress as one line: how far, how long still, the loss and the last score."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from transformers import PrinterCallback, ProgressCallback, TrainerCallback


class OneLine(TrainerCallback):
    """Instead of Trainer's bars and dictionaries; where nobody watches (no terminal) a line at the end is all."""

    def __init__(self, title: str, score: str | None = None):
        self.title, self.score = title, (score or "").removeprefix("eval_")
        self.shown = {"loss": "", "score": ""}
        self.bar: Progress | None = None

    def on_train_begin(self, args, state, control, **kwargs):
        if not state.is_world_process_zero:
            return
        said, counted = TextColumn("{task.fields[loss]} {task.fields[score]}"), TaskProgressColumn()
        left = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
        self.bar = Progress(TextColumn("{task.description}"), BarColumn(), counted, *left, said, console=Console())
        self.task = self.bar.add_task(
            f"{self.title:<12}", total=state.max_steps, completed=state.global_step, **self.shown
        )
        self.bar.start()

    def on_step_end(self, args, state, control, **kwargs):
        if self.bar is not None:
            self.bar.update(self.task, completed=state.global_step)

    def on_log(self, args, state, control, logs=None, **kwargs):
        if self.bar is None or logs is None:
            return
        if "loss" in logs:
            self.shown["loss"] = f"loss {logs['loss']:.3f}"
        if f"eval_{self.score}" in logs:
            self.shown["score"] = f"{self.score} {logs[f'eval_{self.score}']:.3g}"
        self.bar.update(self.task, **self.shown)

    def on_train_end(self, args, state, control, **kwargs):
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def show_on_one_line(trainer, title: str) -> None:
    """Take Trainer's own ways to show progress away and put ours there."""
    for kind in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(kind)
    trainer.add_callback(OneLine(title, trainer.args.metric_for_best_model))
