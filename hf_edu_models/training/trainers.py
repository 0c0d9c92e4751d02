"""Trainers whose runs survive: whole checkpoints, exact resumption, a sentence when a run cannot go on."""

from __future__ import annotations

import copy
import time
from pathlib import Path
from typing import Any

import torch
from accelerate.data_loader import prepare_data_loader
from accelerate.utils import broadcast
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, SequentialSampler
from transformers import EarlyStoppingCallback, Seq2SeqTrainer, Trainer, TrainerCallback
from transformers.trainer_callback import ExportableState
from transformers.trainer_pt_utils import LengthGroupedSampler, nested_gather

from ..data.bucketing import LengthBucketSampler
from ..hub.push import PushesWithCard
from .arguments import RunArguments
from .batches import SeededCollator, SteadyBatches, SteadyLengthGroups, innermost_sampler
from .checkpoints import (
    ASIDE,
    RunStopped,
    drop_old,
    full_disk_is_said,
    newest,
    put_files_in_place,
    put_in_place,
    tidy,
)
from .fine_tuning import GradualUnfreezing, layer_groups
from .progress import show_on_one_line
from .run_folder import STATE


class Bookkeeping(TrainerCallback, ExportableState):
    """Keeps over all resumptions what Trainer forgets: the time, and the loss that is not logged yet.

    It also tells the trainer where an epoch starts.
    """

    def __init__(self):
        self.max_minutes: float | None = None
        self.seconds = 0.0
        self.since = None
        self.loss, self.logged_at = 0.0, None
        self.trainer: SafeRun | None = None

    def state(self) -> dict:
        kept = {"seconds": self.passed(), "loss": self.loss, "logged_at": self.logged_at}
        return {"args": {}, "attributes": kept}

    def passed(self) -> float:
        return self.seconds + (0.0 if self.since is None else time.monotonic() - self.since)

    def on_train_begin(self, args, state, control, **kwargs):
        self.since = time.monotonic()
        if state.global_step:
            self.trainer.go_on_with_loss(self.loss, self.logged_at)
            control.should_training_stop = self.trainer.has_lost_patience()

    def on_epoch_begin(self, args, state, control, train_dataloader=None, **kwargs):
        self.trainer.start_epoch(*place_in_epoch(args, state, train_dataloader))

    def on_step_end(self, args, state, control, **kwargs):
        if self.max_minutes is not None and self.trainer.agreed(self.passed() >= 60 * self.max_minutes):
            control.should_training_stop = control.should_evaluate = control.should_save = True

    def on_train_end(self, args, state, control, **kwargs):
        self.seconds, self.since = self.passed(), None


def place_in_epoch(args, state, train_dataloader) -> tuple[int, int]:
    """The epoch that begins or goes on, and how many of its batches were seen before a resumption."""
    batches = len(train_dataloader)
    updates = max(-(-batches // args.gradient_accumulation_steps), 1)
    epoch, done = divmod(state.global_step, updates)
    return epoch, done * args.gradient_accumulation_steps


class SafeRun:
    """What our trainers add to transformers' own; mixed in before it."""

    args: RunArguments

    def __init__(self, *given: Any, callbacks: list | None = None, **options: Any):
        self.bookkeeping = Bookkeeping()
        super().__init__(*given, callbacks=[self.bookkeeping, *(callbacks or [])], **options)
        if self.args.dataloader_persistent_workers:
            raise ValueError(
                "dataloader_persistent_workers is True, but workers that stay do not hear where an epoch starts, and a "
                "resumed run would differ; leave it False"
            )
        self._know_bookkeeping()
        self._train_collator: SeededCollator | None = None
        self._train_sampler: Any = None
        self._is_saving = False
        self._is_finite = True
        if getattr(self.args, "early_stopping_patience", 0):
            self.add_callback(EarlyStoppingCallback(self.args.early_stopping_patience))
        if getattr(self.args, "unfreeze_every", 0):
            self.add_callback(GradualUnfreezing(self.args.unfreeze_every))
        if getattr(self.args, "quiet", False):
            show_on_one_line(self, title=self.model.config.model_type.removeprefix("edu_"))

    def _load_callback_state(self) -> None:
        """Trainer makes callbacks anew from a checkpoint; ours must know their trainer and what was asked for now."""
        super()._load_callback_state()
        self._know_bookkeeping()
        for callback in self._patience():
            callback.early_stopping_patience = self.args.early_stopping_patience
        best = Path(self.args.output_dir) / f"checkpoint-{self.state.best_global_step}"
        if best.is_dir():  # also where the run's folder was moved
            self.state.best_model_checkpoint = str(best)

    def _know_bookkeeping(self) -> None:
        self.bookkeeping = next(each for each in self.callback_handler.callbacks if isinstance(each, Bookkeeping))
        self.bookkeeping.trainer, self.bookkeeping.max_minutes = self, getattr(self.args, "max_minutes", None)

    def _patience(self) -> list[EarlyStoppingCallback]:
        if not getattr(self.args, "early_stopping_patience", 0):
            return []
        return [each for each in self.callback_handler.callbacks if isinstance(each, EarlyStoppingCallback)]

    def has_lost_patience(self) -> bool:
        """Whether a run had been stopped early when its last checkpoint was written."""
        return any(each.early_stopping_patience_counter >= each.early_stopping_patience for each in self._patience())

    def go_on_with_loss(self, loss: float, logged_at: int | None) -> None:
        """The loss of the steps between the last line of the log and the checkpoint belongs to the next line."""
        if logged_at is not None:
            self._tr_loss += loss
            self._globalstep_last_logged = logged_at

    def agreed(self, is_so: bool) -> bool:
        """What the first process found, for all: clocks differ, and processes that part wait for each other forever."""
        if self.args.world_size == 1:
            return is_so
        return bool(broadcast(torch.tensor(int(is_so), device=self.args.device)))

    def _run_epoch(self, *given: Any, **options: Any) -> None:
        if not self.control.should_training_stop:
            super()._run_epoch(*given, **options)

    # Batches

    def start_epoch(self, epoch: int, first: int) -> None:
        if self._train_collator is not None:
            self._train_collator.start(epoch, first)
        if hasattr(self._train_sampler, "set_epoch"):  # Accelerate does not reach it where batches are skipped
            self._train_sampler.set_epoch(epoch)

    def _get_train_sampler(self, train_dataset=None):
        sampler = super()._get_train_sampler(train_dataset)
        if isinstance(sampler, LengthGroupedSampler):
            return SteadyLengthGroups(sampler.batch_size, lengths=sampler.lengths, seed=self.args.seed)
        return sampler

    def _get_dataloader(self, dataset, description, batch_size, sampler_fn=None, is_training=False, **options):
        plain = self.data_collator
        self.data_collator = SeededCollator(plain, self.args.seed * 1_000_003 + self.args.process_index)
        try:
            if is_training:
                self._train_collator = self.data_collator
            if is_training and getattr(self.args, "max_tokens", None):
                return self._bucket_loader(dataset)
            loader = super()._get_dataloader(dataset, description, batch_size, sampler_fn, is_training, **options)
            if is_training:
                self._train_sampler = innermost_sampler(loader)
            return loader
        finally:
            self.data_collator = plain

    def _get_eval_sampler(self, eval_dataset):
        """In the order of the rows, also where training groups them by length: predictions belong to texts."""
        if self.args.train_sampling_strategy == "group_by_length" and hasattr(eval_dataset, "__len__"):
            return SequentialSampler(eval_dataset) if self.args.world_size <= 1 else None
        return super()._get_eval_sampler(eval_dataset)

    def _bucket_loader(self, dataset: Any) -> DataLoader:
        """Batches of like length; every process takes its own share, so Accelerate must not share them out again."""
        sampler = LengthBucketSampler.from_dataset(
            dataset,
            max_tokens=self.args.max_tokens,
            seed=self.args.seed,
            num_replicas=self.args.world_size,
            rank=self.args.process_index,
        )
        loader = DataLoader(
            self._remove_unused_columns(dataset, description="Training"),
            batch_sampler=SteadyBatches(sampler),
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
            persistent_workers=self.args.dataloader_persistent_workers,
            prefetch_factor=self.args.dataloader_prefetch_factor,
        )
        return prepare_data_loader(
            loader, device=self.accelerator.device, num_processes=1, process_index=0, put_on_device=True
        )

    def log(self, logs: dict[str, Any], start_time: float | None = None) -> None:
        """Numbers only: a signature in every line helps nobody, and trackers refuse it."""
        super().log({name: value for name, value in logs.items() if not isinstance(value, str)}, start_time)

    def _determine_best_metric(self, metrics: dict[str, float], trial) -> bool:
        wanted = self.args.metric_for_best_model
        known = [name.removeprefix("eval_") for name, value in metrics.items() if not isinstance(value, str)]
        if wanted is not None and wanted.removeprefix("eval_") not in known:
            raise ValueError(f"metric_for_best_model {wanted!r} is no score of this run; it has {', '.join(known)}")
        return super()._determine_best_metric(metrics, trial)

    def evaluation_loop(self, *given: Any, **options: Any) -> Any:
        """Draw no numbers that training would have drawn: how often it is evaluated changes nothing in a run."""
        with torch.random.fork_rng(devices=[]):
            return super().evaluation_loop(*given, **options)

    # Steps

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Go on with the learning rate that is asked for now; a checkpoint brings its own."""
        wanted = list(getattr(self.lr_scheduler, "base_lrs", []))
        super()._load_optimizer_and_scheduler(checkpoint)
        is_usual = checkpoint is not None and isinstance(self.lr_scheduler, LambdaLR)
        if not is_usual or wanted == self.lr_scheduler.base_lrs:
            return
        self.lr_scheduler.base_lrs = wanted
        for group, rate, factor in zip(self.optimizer.param_groups, wanted, self.lr_scheduler.lr_lambdas, strict=True):
            group["initial_lr"], group["lr"] = rate, rate * factor(self.lr_scheduler.last_epoch)
        self.lr_scheduler._last_lr = [group["lr"] for group in self.optimizer.param_groups]  # what the log tells

    def create_optimizer(self, model=None):
        """One learning rate for all, or one a layer."""
        if self.optimizer is not None or getattr(self.args, "layer_lr_decay", 1.0) == 1.0:
            return super().create_optimizer(model)
        model = self.model if model is None else model
        kind, options = self.get_optimizer_cls_and_kwargs(self.args, model)
        decayed = self.get_decay_parameter_names(model)
        groups = layer_groups(model, self.args.learning_rate, self.args.layer_lr_decay, self.args.weight_decay, decayed)
        self.optimizer = kind(groups, **options)
        return self.optimizer

    def training_step(self, model, inputs, num_items_in_batch=None):
        loss = super().training_step(model, inputs, num_items_in_batch)
        self._is_finite = torch.isfinite(loss) & self._is_finite
        if loss.device.type == "cpu":  # elsewhere asking would wait for the device, so it is asked before saving
            self._check_loss(self.state.global_step + 1)
        return loss

    def _maybe_log_save_evaluate(self, *given, **options):
        if self.control.should_save or self.control.should_log or self.control.should_evaluate:
            self._check_loss(self.state.global_step)
        return super()._maybe_log_save_evaluate(*given, **options)

    def _check_loss(self, step: int) -> None:
        if not bool(self._is_finite):
            self._stop(f"the loss is not a number at step {step}")

    def _check_weights(self) -> None:
        """A finite loss may have a gradient that is none; such weights must not become the last good checkpoint."""
        weights = (getattr(each, "_local_tensor", each) for each in self.model.parameters())
        if not all(bool(weight.isfinite().all()) for weight in weights):
            self._stop(f"weights are not numbers any more after step {self.state.global_step}")

    def _stop(self, reason: str) -> None:
        last = newest(self.args.output_dir)
        kept = f"the last good checkpoint is {last}" if last else "no checkpoint had been written"
        raise RunStopped(
            f"{reason}; {kept}. Lower --learning_rate (now {self.args.learning_rate:g}) or --max_grad_norm (now "
            f"{self.args.max_grad_norm:g}), then run the same command with --resume"
        )

    # Checkpoints

    def _get_output_dir(self, trial) -> str:
        folder = super()._get_output_dir(trial)
        return str(Path(folder) / ASIDE) if self._is_saving else folder

    def _save_checkpoint(self, model, trial) -> None:
        """Write a checkpoint aside, then put it in place: a run that is killed while saving loses nothing."""
        run = Path(self._get_output_dir(trial))
        self._check_weights()
        self.bookkeeping.loss = nested_gather(self._tr_loss, self.args.parallel_mode).mean().item()
        self.bookkeeping.logged_at = self._globalstep_last_logged
        with full_disk_is_said(run):
            if self.args.should_save:
                tidy(run)
            self.accelerator.wait_for_everyone()  # or what another process has written by now is tidied away
            self._is_saving = True
            try:
                super()._save_checkpoint(model, trial)
            finally:
                self._is_saving = False
            self._remember_best(run)
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                self._place_checkpoint(run, f"checkpoint-{self.state.global_step}")
        self.accelerator.wait_for_everyone()

    def _remember_best(self, run: Path) -> None:
        """Trainer looked for the best checkpoint where this one was written."""
        best = run / f"checkpoint-{self.state.best_global_step}"
        if best.is_dir() or self.state.best_global_step == self.state.global_step:
            self.state.best_model_checkpoint = str(best)

    def _place_checkpoint(self, run: Path, name: str) -> None:
        self.state.save_to_json(str(run / ASIDE / name / STATE))
        put_in_place(run / ASIDE / name, run / name)
        drop_old(run, self.args.save_total_limit, self.state.best_model_checkpoint)

    def _finalize_training(self, *given: Any) -> Any:
        """Keep the last checkpoint: Trainer drops it where only one is kept, and then no longer run can go on."""
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            return super()._finalize_training(*given)
        finally:
            self.args.save_total_limit = limit

    def save_final(self) -> None:
        """The model of the run's end, its tokenizer and the log, in the run's folder itself."""
        run = Path(self.args.output_dir)
        with full_disk_is_said(run):
            self.save_model(str(run / ASIDE / "final"))
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                self.state.save_to_json(str(run / ASIDE / "final" / STATE))
                put_files_in_place(run / ASIDE / "final", run)
                # A run killed between its last checkpoint and the dropping of an older one has one too many.
                drop_old(run, self.args.save_total_limit, self.state.best_model_checkpoint)
        self.accelerator.wait_for_everyone()


class EduTrainer(SafeRun, PushesWithCard, Trainer):
    """Trainer for the rungs that read or continue a text."""


class EduSeq2SeqTrainer(SafeRun, PushesWithCard, Seq2SeqTrainer):
    """Trainer for the rungs that turn a text into another."""

    def prediction_step(self, *given: Any, **options: Any) -> Any:
        """Trainer's, which writes every default, a length of 20 among them, into the model's generation settings."""
        kept = self.model.generation_config
        self.model.generation_config = copy.deepcopy(kept)
        try:
            return super().prediction_step(*given, **options)
        finally:
            self.model.generation_config = kept

    def evaluation_loop(self, *given: Any, **options: Any) -> Any:
        """Each row once: rows that fill up the last batches of several processes are dropped, as Trainer does."""
        self.gather_function = self.accelerator.gather_for_metrics
        return super().evaluation_loop(*given, **options)
