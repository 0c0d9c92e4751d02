"""Truncated backpropagation through time with Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.data import SequentialSampler

from .trainers import EduTrainer


class TruncatedBPTTTrainer(EduTrainer):
    """Truncated backpropagation through time: the state goes from batch to batch, the gradient stays inside each.

    The data are rows of `contiguous_streams`, with as many streams as all processes' batches have rows. The state is
    part of a checkpoint, and starts anew with every epoch and every evaluation.
    """

    def __init__(self, *given: Any, **options: Any):
        super().__init__(*given, **options)
        if getattr(self.args, "max_tokens", None):
            raise ValueError("max_tokens sorts rows by length, but streams are read in their order; leave it out")
        self._carried = self._carried_in_evaluation = None
        if self.args.n_gpu > 1:
            raise ValueError(
                f"one process cannot carry a state on {self.args.n_gpu} devices; start one for each with torchrun "
                f"--nproc_per_node {self.args.n_gpu}, or show it one device with CUDA_VISIBLE_DEVICES=0"
            )

    def _get_train_sampler(self, train_dataset=None):
        dataset = self.train_dataset if train_dataset is None else train_dataset
        check_streams(dataset, self.args.train_batch_size * self.args.world_size)
        return SequentialSampler(dataset)

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        if "shift_labels" not in self._signature_columns:
            self._signature_columns.append("shift_labels")

    def start_epoch(self, epoch: int, first: int) -> None:
        super().start_epoch(epoch, first)
        self._carried = None

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        inputs = {**inputs, "past_key_values": self._carried, "use_cache": True}
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        self._carried = outputs.past_key_values.detach()
        return (loss, outputs) if return_outputs else loss

    def evaluation_loop(self, dataloader, *given, **options):
        check_streams(dataloader.dataset, self.args.eval_batch_size * self.args.world_size)
        self._carried_in_evaluation = None
        return super().evaluation_loop(dataloader, *given, **options)

    def prediction_step(self, model, inputs, prediction_loss_only, ignore_keys=None):
        """The loss, and each row's summed loss and number of tokens, (B, 2): what a perplexity is made of."""
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            outputs = model(**inputs, past_key_values=self._carried_in_evaluation, use_cache=True)
        self._carried_in_evaluation = outputs.past_key_values.detach()
        loss = outputs.loss.detach().mean()
        if prediction_loss_only:
            return loss, None, None
        wanted = inputs["shift_labels"]
        losses = F.cross_entropy(outputs.logits.transpose(1, 2).float(), wanted, reduction="none")  # (B, T)
        counts = (wanted != -100).sum(dim=1).to(losses.dtype)
        return loss, torch.stack([losses.sum(dim=1), counts], dim=1), inputs["labels"]

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        if self._carried is not None:
            layers = [self._carried.state(level) for level in range(len(self._carried.layers))]
            seen = [layer.seen_tokens for layer in self._carried.layers]
            torch.save({"layers": layers, "seen": seen}, self._carried_file(output_dir))

    def _load_rng_state(self, checkpoint: str | None) -> None:
        super()._load_rng_state(checkpoint)
        is_inside_epoch = self.state.epoch is not None and self.state.epoch % 1 > 0
        if checkpoint is None or not is_inside_epoch:
            return
        if not self._carried_file(checkpoint).is_file():
            raise ValueError(
                f"{checkpoint} has no carried state for process {self.args.process_index}; resume with as many "
                "processes as had written it"
            )
        from ..models.blocks_cache import RecurrentCache

        kept = torch.load(self._carried_file(checkpoint), map_location="cpu", weights_only=True)
        self._carried = RecurrentCache()
        for level, (state, seen) in enumerate(zip(kept["layers"], kept["seen"], strict=True)):
            self._carried.write(level, tuple(each.to(self.args.device) for each in state), seen)

    def _carried_file(self, folder: str) -> Path:
        return Path(folder) / f"carried_state_{self.args.process_index}.pt"


def check_streams(dataset: Any, batch_size: int, checked: int = 500) -> None:
    """Refuse rows that do not go on in the next batch: a state carried into them would be another text's."""
    rows = [dataset[place] for place in range(min(len(dataset), batch_size + checked))]
    goes_on = all(
        before["shift_labels"][-1] == after["input_ids"][0]
        for before, after in zip(rows, rows[batch_size:], strict=False)
    )
    if len(dataset) % batch_size or not goes_on:
        raise ValueError(
            f"{len(dataset)} rows are not {batch_size} streams, as many as the batches of all processes have rows; "
            f"build them with contiguous_streams(..., batch_size={batch_size})"
        )
