"""Truncated backpropagation through time with Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.data import SequentialSampler

from .trainers import EduTrainer


class TruncatedBPTTTrainer(EduTrainer):
    """Carries the hidden state, or the memory of a Transformer-XL, from batch to batch; gradients stop at its border.

    The datasets come from `contiguous_streams`, with one stream per row of the global batch (all processes). The
    carried state is saved in checkpoints, and reset at the start of every epoch and evaluation.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if getattr(self.args, "max_tokens", None):
            raise ValueError("max_tokens groups rows by length, but streams are read in order; leave it out")
        if self.args.n_gpu > 1:
            raise ValueError(
                f"one process cannot carry the state on {self.args.n_gpu} devices; start one process for each with "
                f"torchrun --nproc_per_node {self.args.n_gpu}, or use one device with CUDA_VISIBLE_DEVICES=0"
            )
        self._train_state: Any = None
        self._eval_state: Any = None

    def _get_train_sampler(self, train_dataset=None):
        dataset = self.train_dataset if train_dataset is None else train_dataset
        _check_streams(dataset, self.args.train_batch_size * self.args.world_size)
        return SequentialSampler(dataset)

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        if "shift_labels" not in self._signature_columns:
            self._signature_columns.append("shift_labels")

    def start_epoch(self, epoch: int, first_batch: int) -> None:
        super().start_epoch(epoch, first_batch)
        self._train_state = None

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        inputs = {**inputs, "past_key_values": self._train_state, "use_cache": True}
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        self._train_state = outputs.past_key_values.detach()
        return (loss, outputs) if return_outputs else loss

    def evaluation_loop(self, dataloader, *args, **kwargs):
        _check_streams(dataloader.dataset, self.args.eval_batch_size * self.args.world_size)
        self._eval_state = None
        return super().evaluation_loop(dataloader, *args, **kwargs)

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        """Return the loss, and the summed loss and token count of each row, (B, 2), for the perplexity."""
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            outputs = model(**inputs, past_key_values=self._eval_state, use_cache=True)
        self._eval_state = outputs.past_key_values.detach()
        loss = outputs.loss.detach().mean()
        if prediction_loss_only:
            return loss, None, None
        labels = inputs["shift_labels"]
        losses = F.cross_entropy(outputs.logits.transpose(1, 2).float(), labels, reduction="none")  # (B, T)
        counts = (labels != -100).sum(dim=1).to(losses.dtype)
        return loss, torch.stack([losses.sum(dim=1), counts], dim=1), inputs["labels"]

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        if self._train_state is not None:
            layers = [self._train_state.state(level) for level in range(len(self._train_state.layers))]
            seen = [layer.seen_tokens for layer in self._train_state.layers]
            torch.save({"layers": layers, "seen": seen}, self._state_file(output_dir))

    def _load_rng_state(self, checkpoint: str | None) -> None:
        super()._load_rng_state(checkpoint)
        # The end of an epoch, where the next one starts without a state; a stream has no end.
        is_inside_epoch = self._train_stream is not None or (self.state.epoch is not None and self.state.epoch % 1 > 0)
        if checkpoint is None or not is_inside_epoch:
            return
        if not self._state_file(checkpoint).is_file():
            raise ValueError(
                f"{checkpoint} has no carried state for process {self.args.process_index}; resume with the world size "
                "that it was written with"
            )
        from ..models.blocks_cache import RecurrentCache

        saved = torch.load(self._state_file(checkpoint), map_location="cpu", weights_only=True)
        self._train_state = RecurrentCache()
        for level, (state, seen) in enumerate(zip(saved["layers"], saved["seen"], strict=True)):
            self._train_state.write(level, tuple(each.to(self.args.device) for each in state), seen)

    def _state_file(self, folder: str) -> Path:
        return Path(folder) / f"carried_state_{self.args.process_index}.pt"


def _check_streams(dataset: Any, batch_size: int, num_checked: int = 500) -> None:
    """Check that each row continues the row at the same index of the previous batch."""
    rows = [dataset[index] for index in range(min(len(dataset), batch_size + num_checked))]
    is_contiguous = all(
        before["shift_labels"][-1] == after["input_ids"][0]
        for before, after in zip(rows, rows[batch_size:], strict=False)
    )
    if len(dataset) % batch_size or not is_contiguous:
        raise ValueError(
            f"{len(dataset)} rows are not {batch_size} contiguous streams, one per row of the global batch; build them "
            f"with contiguous_streams(..., batch_size={batch_size})"
        )
