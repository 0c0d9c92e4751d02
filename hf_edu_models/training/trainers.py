"""Trainers with atomic checkpoints, exact resumption, and one-sentence errors for a run that cannot continue."""

from __future__ import annotations

import copy
import inspect
import pickle
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
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
from ..data.columns import is_stream
from ..data.streaming import StreamedExamples
from ..hub.push import PushWithCardMixin
from ..manifest import find_damage, newest_good_checkpoint, rewriting
from ..models.configuration_base import warn_of_other_ids
from ..run_folder import STATE, UNFINISHED, RunStopped, clean_up_unfinished, explain_full_disk
from .arguments import RunArguments
from .checkpointing import checkpoint_to_resume, replace_files, replace_folder, rotate_checkpoints
from .fine_tuning import GradualUnfreezing, halving, layer_groups, slanted_triangular
from .label_smoothing import PenalisedSmoother
from .live_page import LIVE_PAGE, LivePageCallback
from .progress import has_progress_bars, use_one_line_progress
from .resumable_batches import (
    ResumableBatchSampler,
    ResumableLengthGroupedSampler,
    SeededCollator,
    StreamedBatches,
    innermost_sampler,
)
from .sharding import gathered_weights
from .teacher_forcing import SCHEDULES
from .termination import RunTerminated, Termination, defer_sigterm

_AnyTrainer: Any = object  # to the type checker, a class with every attribute of the Trainer that a mixin is mixed into


class RunStateCallback(TrainerCallback, ExportableState):
    """Saves in checkpoints what Trainer does not: the elapsed time, and the loss since the last log.

    It also enforces `max_minutes`, and tells the trainer at which batch an epoch starts.
    """

    def __init__(self):
        self.max_minutes: float | None = None
        self.seconds = 0.0  # before `since`
        self.since: float | None = None
        self.loss, self.logged_at = 0.0, None  # loss since the last log, and the step of that log
        self.trainer: ResumableTrainerMixin | None = None

    def state(self) -> dict:
        attributes = {"seconds": self.elapsed_seconds(), "loss": self.loss, "logged_at": self.logged_at}
        return {"args": {}, "attributes": attributes}

    def elapsed_seconds(self) -> float:
        """Training time over all resumptions."""
        return self.seconds + (0.0 if self.since is None else time.monotonic() - self.since)

    def on_train_begin(self, args, state, control, **kwargs):
        self.since = time.monotonic()
        if state.global_step:
            self.trainer.restore_unlogged_loss(self.loss, self.logged_at)
            is_finished = state.global_step >= state.max_steps  # a stream would go on with another epoch
            control.should_training_stop = is_finished or self.trainer.has_stopped_early()

    def on_epoch_begin(self, args, state, control, train_dataloader=None, **kwargs):
        self.trainer.start_epoch(*resume_position(args, state, train_dataloader))

    def on_step_end(self, args, state, control, **kwargs):
        self.trainer.is_terminated = self.trainer.termination.is_agreed(state.global_step, args.device)
        if self.trainer.is_terminated:
            control.should_save = True
        if self.max_minutes is None:
            return
        # One clock for all processes: if only some of them stopped, the others would wait for them forever.
        if self.trainer.broadcast_flag(self.elapsed_seconds() >= 60 * self.max_minutes):
            control.should_training_stop = control.should_evaluate = control.should_save = True

    def on_train_end(self, args, state, control, **kwargs):
        self.seconds, self.since = self.elapsed_seconds(), None


def resume_position(args, state, train_dataloader) -> tuple[int, int]:
    """The current epoch, and the number of its batches that were seen before resuming."""
    if isinstance(getattr(train_dataloader, "dataset", None), StreamedBatches):  # one epoch without end
        return 0, state.global_step * args.gradient_accumulation_steps
    steps_per_epoch = max(-(-len(train_dataloader) // args.gradient_accumulation_steps), 1)
    epoch, steps = divmod(state.global_step, steps_per_epoch)
    return epoch, steps * args.gradient_accumulation_steps


class ResumableTrainerMixin(_AnyTrainer):
    """What our trainers add to transformers' own; it comes before them in the bases."""

    args: RunArguments
    is_professor = False  # whether it is a `ProfessorForcingTrainer`

    def __init__(self, *args: Any, callbacks: list | None = None, **kwargs: Any):
        super().__init__(*args, callbacks=[RunStateCallback(), *(callbacks or [])], **kwargs)
        if self.processing_class is not None:
            warn_of_other_ids(self.model.config, self.processing_class)
        if self.args.dataloader_persistent_workers:
            raise ValueError(
                "dataloader_persistent_workers is True, but persistent workers do not see where an epoch starts, and a "
                "resumed run would differ; leave it False"
            )
        self._bind_run_state()
        self._train_collator: SeededCollator | None = None
        self._train_sampler: Any = None
        self._train_stream: StreamedBatches | None = None
        self._is_saving = False
        self._is_finite = True
        self.termination, self.is_terminated = Termination(), False
        if getattr(self.args, "teacher_forcing", None) and not _reads_its_predictions(self.model):
            raise ValueError(
                f"--teacher_forcing is for decoders with a source, but {type(self.model).__name__} has none; leave it "
                "out"
            )
        if getattr(self.args, "professor_forcing", 0) and not self.is_professor:
            raise ValueError(
                "--professor_forcing is for language models of recurrent, and for seq2seq and bahdanau; leave it out"
            )
        if self.label_smoother is not None and hasattr(self.model, "penalise"):
            self.label_smoother = PenalisedSmoother(self.label_smoother, self.model)
        if getattr(self.args, "early_stopping_patience", 0):
            self.add_callback(EarlyStoppingCallback(self.args.early_stopping_patience))
        if getattr(self.args, "unfreeze_every", 0):
            self.add_callback(GradualUnfreezing(self.args.unfreeze_every))
        self._show_progress()

    def _show_progress(self) -> None:
        """One line instead of Trainer's bars, and the page of `--live`, for runs with our arguments."""
        if not isinstance(self.args, RunArguments):
            return
        title = self.model.config.model_type.removeprefix("edu_")
        if self.args.quiet or has_progress_bars(self):
            use_one_line_progress(self, title, self.args.quiet)
        if self.args.live:
            folder = Path(self.args.output_dir)
            self.add_callback(LivePageCallback(folder / LIVE_PAGE, folder.name, self.args.metric_for_best_model))

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """As Trainer's; a checkpoint is verified before it is loaded, and SIGTERM saves one after the current step."""
        if resume_from_checkpoint is True:
            resume_from_checkpoint = str(checkpoint_to_resume(self.args) or "") or True
        elif resume_from_checkpoint:
            _check_checkpoint(Path(resume_from_checkpoint), for_resuming=True)
        with defer_sigterm() as self.termination:
            return super().train(resume_from_checkpoint, *args, **kwargs)

    def _load_callback_state(self) -> None:
        """Trainer builds new callbacks from a checkpoint: bind ours to this trainer and its current arguments."""
        saved = self.state.stateful_callbacks
        if "Bookkeeping" in saved:  # the former name of RunStateCallback
            saved[RunStateCallback.__name__] = saved.pop("Bookkeeping")
        super()._load_callback_state()
        self._bind_run_state()
        for callback in self._early_stopping_callbacks():
            callback.early_stopping_patience = self.args.early_stopping_patience
        best = Path(self.args.output_dir) / f"checkpoint-{self.state.best_global_step}"
        if best.is_dir():  # the run's folder may have been moved
            self.state.best_model_checkpoint = str(best)

    def _bind_run_state(self) -> None:
        self.run_state = next(each for each in self.callback_handler.callbacks if isinstance(each, RunStateCallback))
        self.run_state.trainer, self.run_state.max_minutes = self, getattr(self.args, "max_minutes", None)

    def _early_stopping_callbacks(self) -> list[EarlyStoppingCallback]:
        if not getattr(self.args, "early_stopping_patience", 0):
            return []
        return [each for each in self.callback_handler.callbacks if isinstance(each, EarlyStoppingCallback)]

    def has_stopped_early(self) -> bool:
        """Whether early stopping had ended the run when its last checkpoint was written."""
        callbacks = self._early_stopping_callbacks()
        return any(each.early_stopping_patience_counter >= each.early_stopping_patience for each in callbacks)

    def restore_unlogged_loss(self, loss: float, logged_at: int | None) -> None:
        """Add the loss between the last log and the checkpoint to the next log."""
        if logged_at is not None:
            self._tr_loss += loss
            self._globalstep_last_logged = logged_at

    def broadcast_flag(self, flag: bool) -> bool:
        """The value of the first process."""
        if self.args.world_size == 1:
            return flag
        return bool(broadcast(torch.tensor(int(flag), device=self.args.device)))

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        if not self.control.should_training_stop:
            super()._run_epoch(*args, **kwargs)

    def start_epoch(self, epoch: int, first_batch: int) -> None:
        if self._train_collator is not None:
            self._train_collator.set_epoch(epoch, first_batch)
        if hasattr(self._train_sampler, "set_epoch"):  # Accelerate does not call it if batches are skipped
            self._train_sampler.set_epoch(epoch)

    def _get_train_sampler(self, train_dataset=None):
        sampler = super()._get_train_sampler(train_dataset)
        if isinstance(sampler, LengthGroupedSampler):
            return ResumableLengthGroupedSampler(sampler.batch_size, lengths=sampler.lengths, seed=self.args.seed)
        return sampler

    def _get_dataloader(self, dataset, description, batch_size, sampler_fn=None, is_training=False, **kwargs):
        collator = self.data_collator
        self.data_collator = SeededCollator(collator, self.args.seed * 1_000_003 + self.args.process_index)
        try:
            if is_training:
                self._train_collator = self.data_collator
            if is_training and is_stream(dataset):
                return self._stream_loader(dataset)
            if is_training and (sampler := self.train_batch_sampler(dataset)) is not None:
                return self._batch_loader(dataset, sampler)
            loader = super()._get_dataloader(dataset, description, batch_size, sampler_fn, is_training, **kwargs)
            if is_training:
                self._train_sampler = innermost_sampler(loader)
            return loader
        finally:
            self.data_collator = collator

    def _get_eval_sampler(self, eval_dataset):
        """Keep the order of the rows, also if training groups them by length: predictions are matched to rows."""
        if self.args.train_sampling_strategy == "group_by_length" and hasattr(eval_dataset, "__len__"):
            return SequentialSampler(eval_dataset) if self.args.world_size <= 1 else None
        return super()._get_eval_sampler(eval_dataset)

    def train_batch_sampler(self, dataset: Any) -> Any:
        """A sampler of whole batches for this process; None for Trainer's own."""
        if not getattr(self.args, "max_tokens", None):
            return None
        return LengthBucketSampler.from_dataset(
            dataset,
            max_tokens=self.args.max_tokens,
            seed=self.args.seed,
            num_replicas=self.args.world_size,
            rank=self.args.process_index,
        )

    def _batch_loader(self, dataset: Any, sampler: Any) -> DataLoader:
        """The batches of a sampler that shards them itself, so Accelerate is told that there is one process."""
        if hasattr(dataset, "column_names"):
            dataset = self._remove_unused_columns(dataset, description="Training")
        loader = DataLoader(
            dataset,
            batch_sampler=ResumableBatchSampler(sampler),
            collate_fn=self.data_collator,
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
            persistent_workers=self.args.dataloader_persistent_workers,
            prefetch_factor=self.args.dataloader_prefetch_factor,
        )
        return prepare_data_loader(
            loader, device=self.accelerator.device, num_processes=1, process_index=0, put_on_device=True
        )

    def _stream_loader(self, dataset: Any) -> DataLoader:
        """Batches that are encoded while they are read; the stream shards itself, as the sampler of buckets does."""
        self._train_stream = StreamedBatches(
            dataset if isinstance(dataset, StreamedExamples) else StreamedExamples(dataset, lambda rows, _: rows[:]),
            self._get_collator_with_removed_columns(self.data_collator, description="Training"),
            {
                "batch_size": self.args.train_batch_size,
                "buffer_size": self.args.buffer_size,
                "seed": self.args.seed,
                "rank": self.args.process_index,
                "world_size": self.args.world_size,
            },
        )
        loader = DataLoader(self._train_stream, batch_size=None, pin_memory=self.args.dataloader_pin_memory)
        options = {"num_processes": 1, "process_index": 0, "put_on_device": True, "dispatch_batches": False}
        return prepare_data_loader(loader, device=self.accelerator.device, **options)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        if self._train_stream is not None:
            batches = self.state.global_step * self.args.gradient_accumulation_steps
            self._train_stream.save(self._stream_file(output_dir), batches)

    def _stream_file(self, folder: str) -> Path:
        return Path(folder) / f"stream_{self.args.process_index}.json"

    def log(self, logs: dict[str, Any], start_time: float | None = None) -> None:
        """Log numbers only: trackers reject strings such as the signature of BLEU."""
        super().log({name: value for name, value in logs.items() if not isinstance(value, str)}, start_time)

    def _determine_best_metric(self, metrics: dict[str, float], trial) -> bool:
        metric = self.args.metric_for_best_model
        known = [name.removeprefix("eval_") for name, value in metrics.items() if not isinstance(value, str)]
        if metric is not None and metric.removeprefix("eval_") not in known:
            raise ValueError(f"metric_for_best_model {metric!r} is no score of this run; it has {', '.join(known)}")
        return super()._determine_best_metric(metrics, trial)

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """Evaluate without advancing the random state of training."""
        with torch.random.fork_rng(devices=[]):
            return super().evaluation_loop(*args, **kwargs)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        with _explain_unreadable(resume_from_checkpoint, "weights"):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with _explain_unreadable(checkpoint, "random state"):
            super()._load_rng_state(checkpoint)

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """A weight that the checkpoint lacks would keep its random values; tied weights are saved once."""
        weights = self.model.state_dict()
        ignored = {*(self.model._keys_to_ignore_on_save or ())}
        lacking = {*load_result.missing_keys} - ignored
        loaded = {weight.data_ptr() for name, weight in weights.items() if name not in lacking}
        missing = sorted(name for name in lacking if name in weights and weights[name].data_ptr() not in loaded)
        if missing:
            raise ValueError(
                f"the checkpoint lacks {len(missing)} weights of {type(self.model).__name__}, such as {missing[0]}; "
                "resume from another one"
            )
        # What is lacking and not missing is tied to what was loaded: nothing that Trainer should warn of.
        super()._issue_warnings_after_load(load_result._replace(missing_keys=[*ignored & {*load_result.missing_keys}]))

    def _load_best_model(self) -> None:
        if self.state.best_model_checkpoint:
            _check_checkpoint(Path(self.state.best_model_checkpoint))
        super()._load_best_model()

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Resume at the position in the stream, and with the current `learning_rate` instead of the checkpoint's."""
        if checkpoint is not None and self._train_stream is not None:
            self._train_stream.load(self._stream_file(checkpoint))
        base_lrs = list(getattr(self.lr_scheduler, "base_lrs", []))
        with _explain_unreadable(checkpoint, "optimizer state or schedule"):
            super()._load_optimizer_and_scheduler(checkpoint)
        is_lambda = checkpoint is not None and isinstance(self.lr_scheduler, LambdaLR)
        if not is_lambda or base_lrs == self.lr_scheduler.base_lrs:
            return
        self.lr_scheduler.base_lrs = base_lrs
        for group, lr, factor in zip(self.optimizer.param_groups, base_lrs, self.lr_scheduler.lr_lambdas, strict=True):
            group["initial_lr"], group["lr"] = lr, lr * factor(self.lr_scheduler.last_epoch)
        self.lr_scheduler._last_lr = [group["lr"] for group in self.optimizer.param_groups]  # what is logged

    def create_optimizer(self, model=None):
        """One parameter group per layer if `layer_lr_decay` is set."""
        if self.optimizer is not None or getattr(self.args, "layer_lr_decay", 1.0) == 1.0:
            return super().create_optimizer(model)
        model = self.model if model is None else model
        optimizer_class, kwargs = self.get_optimizer_cls_and_kwargs(self.args, model)
        decayed = self.get_decay_parameter_names(model)
        groups = layer_groups(model, self.args.learning_rate, self.args.layer_lr_decay, self.args.weight_decay, decayed)
        self.optimizer = optimizer_class(groups, **kwargs)
        return self.optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> Any:
        """Slanted triangles if `slanted_triangular` is set, halves if `halve_lr_after` is."""
        cut_frac, epochs = getattr(self.args, "slanted_triangular", 0.0), getattr(self.args, "halve_lr_after", 0.0)
        if not (cut_frac or epochs) or self.lr_scheduler is not None:
            return super().create_scheduler(num_training_steps, optimizer)
        optimizer = self.optimizer if optimizer is None else optimizer
        schedule = partial(halving, steps_per_epoch=num_training_steps / self.args.num_train_epochs, after=epochs)
        if cut_frac:
            settings = {"num_steps": num_training_steps, "cut_frac": cut_frac, "ratio": self.args.slanted_ratio}
            schedule = partial(slanted_triangular, **settings)
        self.lr_scheduler = LambdaLR(optimizer, schedule)
        self._created_lr_scheduler = True
        return self.lr_scheduler

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        if isinstance(self.label_smoother, PenalisedSmoother):
            self.label_smoother.attention_mask = inputs.get("attention_mask")
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)

    def training_step(self, model, inputs, num_items_in_batch=None):
        loss = super().training_step(model, inputs, num_items_in_batch)
        self._is_finite = torch.isfinite(loss) & self._is_finite
        if loss.device.type == "cpu":  # a GPU would have to be synchronised, so there it is checked before saving
            self._check_loss(self.state.global_step + 1)
        return loss

    def _maybe_log_save_evaluate(self, *args, **kwargs):
        if self.control.should_save or self.control.should_log or self.control.should_evaluate:
            self._check_loss(self.state.global_step)
        super()._maybe_log_save_evaluate(*args, **kwargs)
        if self.is_terminated:
            saved = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
            raise RunTerminated(f"stopped by SIGTERM, saved {saved}; the same command with --resume continues")

    def _check_loss(self, step: int) -> None:
        if not bool(self._is_finite):
            self._stop(f"the loss is NaN or infinite at step {step}")

    def _check_weights(self) -> None:
        """A finite loss may have a non-finite gradient; such weights must not become the last good checkpoint."""
        weights = (getattr(each, "_local_tensor", each) for each in self.model.parameters())
        if not all(bool(weight.isfinite().all()) for weight in weights):
            self._stop(f"weights are NaN or infinite after step {self.state.global_step}")

    def _stop(self, reason: str) -> None:
        last = newest_good_checkpoint(Path(self.args.output_dir))
        kept = f"the last good checkpoint is {last}" if last else "there is no checkpoint yet"
        again = "run the same command with --resume" if last else "run the same command again"
        raise RunStopped(f"{reason}; {kept}. {self._remedy()}, then {again}")

    def _remedy(self) -> str:
        now = f"(now {self.args.learning_rate:g}) or --max_grad_norm (now {self.args.max_grad_norm:g})"
        return f"Lower --learning_rate {now}"

    def _get_output_dir(self, trial) -> str:
        folder = super()._get_output_dir(trial)
        return str(Path(folder) / UNFINISHED) if self._is_saving else folder

    def _save_checkpoint(self, model, trial) -> None:
        """Write a checkpoint to a temporary folder, then rename it: a run killed while saving loses nothing."""
        run = Path(self._get_output_dir(trial))
        self._check_weights()
        self.run_state.loss = nested_gather(self._tr_loss, self.args.parallel_mode).mean().item()
        self.run_state.logged_at = self._globalstep_last_logged
        with explain_full_disk(run):
            if self.args.should_save:
                clean_up_unfinished(run)
            self.accelerator.wait_for_everyone()  # before any process writes into the folder that is cleaned up
            self._is_saving = True
            try:
                super()._save_checkpoint(model, trial)
            finally:
                self._is_saving = False
            self._set_best_checkpoint(run)
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                unfinished = run / UNFINISHED / f"checkpoint-{self.state.global_step}"
                self.state.save_to_json(str(unfinished / STATE))
                replace_folder(unfinished, run / unfinished.name)
                rotate_checkpoints(run, self.args.save_total_limit, self.state.best_model_checkpoint)
        self.accelerator.wait_for_everyone()

    def _set_best_checkpoint(self, run: Path) -> None:
        """Trainer has looked for the best checkpoint in the temporary folder."""
        best = run / f"checkpoint-{self.state.best_global_step}"
        if best.is_dir() or self.state.best_global_step == self.state.global_step:
            self.state.best_model_checkpoint = str(best)

    def _finalize_training(self, *args: Any) -> Any:
        """Keep the last checkpoint: with `save_total_limit=1` Trainer deletes it, and the run could not be extended."""
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            return super()._finalize_training(*args)
        finally:
            self.args.save_total_limit = limit

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        with rewriting(Path(output_dir or self.args.output_dir), self.args.should_save):
            super().save_model(output_dir, _internal_call)

    def save_final(self) -> None:
        """Save the final model, its tokenizer and the log in the run's folder itself."""
        run = Path(self.args.output_dir)
        unfinished = run / UNFINISHED / "final"
        with explain_full_disk(run):
            self.save_model(str(unfinished))
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                self.state.save_to_json(str(unfinished / STATE))
                replace_files(unfinished, run)
                # A run that was killed between saving and rotating has one checkpoint too many.
                rotate_checkpoints(run, self.args.save_total_limit, self.state.best_model_checkpoint)
        self.accelerator.wait_for_everyone()


def _reads_its_predictions(model: Any) -> bool:
    """Whether `forward` takes the probability of teacher forcing."""
    model = model.get_base_model() if hasattr(model, "get_base_model") else model  # inside of an adapter
    return "teacher_forcing_ratio" in inspect.signature(model.forward).parameters


@contextmanager
def _explain_unreadable(checkpoint: str | None, part: str) -> Iterator[None]:
    """One sentence instead of torch's page if a part of a checkpoint is not what this run has saved."""
    try:
        yield
    except (RunStopped, ValueError, OSError):
        raise
    except pickle.UnpicklingError:
        raise ValueError(
            f"the {part} in {checkpoint} has Python objects that could run code, so it is not loaded; resume only from "
            "checkpoints of your own runs"
        ) from None
    except Exception as error:  # whatever torch raises for a file of another content
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"the {part} in {checkpoint} does not fit this run ({type(error).__name__}: {reason})"
        ) from None


def _check_checkpoint(folder: Path, for_resuming: bool = False) -> None:
    problem = find_damage(folder, for_resuming) if folder.is_dir() else "it does not exist"
    if problem:
        good = newest_good_checkpoint(folder.parent)
        instead = f"the last good checkpoint is {good}" if good else "there is no other one"
        raise ValueError(f"{folder} is damaged: {problem}; {instead}")


class EduTrainer(ResumableTrainerMixin, PushWithCardMixin, Trainer):
    """Trainer for language models and classifiers."""


class EduSeq2SeqTrainer(ResumableTrainerMixin, PushWithCardMixin, Seq2SeqTrainer):
    """Trainer for encoder-decoder models, with a schedule of teacher forcing."""

    def teacher_forcing_ratio(self) -> float | None:
        """The probability of the current step, which depends on its number alone; None without a schedule."""
        name = getattr(self.args, "teacher_forcing", None)
        if name is None:
            return None
        return SCHEDULES[name](self.state.global_step, self.state.max_steps - 1, self.args.teacher_forcing_end)

    def training_step(self, model, inputs, num_items_in_batch=None):
        ratio = self.teacher_forcing_ratio()
        if ratio is not None:
            inputs = {**inputs, "teacher_forcing_ratio": ratio}
        return super().training_step(model, inputs, num_items_in_batch)

    def log(self, logs: dict[str, Any], start_time: float | None = None) -> None:
        ratio = self.teacher_forcing_ratio() if "loss" in logs else None
        super().log(logs if ratio is None else logs | {"teacher_forcing_ratio": ratio}, start_time)

    def prediction_step(self, *args: Any, **kwargs: Any) -> Any:
        """Protect the model's generation config: Trainer writes all defaults into it, among them a length of 20."""
        generation_config = self.model.generation_config
        self.model.generation_config = copy.deepcopy(generation_config)
        try:
            plugin = getattr(self.accelerator.state, "fsdp_plugin", None)
            with gathered_weights(self.model, getattr(plugin, "reshard_after_forward", True)):
                return super().prediction_step(*args, **kwargs)
        finally:
            self.model.generation_config = generation_config

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """Score each row once: rows that pad the last batches of several processes are dropped, as Trainer does."""
        self.gather_function = self.accelerator.gather_for_metrics
        return super().evaluation_loop(*args, **kwargs)
