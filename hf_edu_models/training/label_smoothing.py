"""Trainer's own label smoothing, which computes the loss from the logits, with the penalties of the model."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..models.blocks_losses import shift_labels as next_labels


class PenalisedSmoother:
    """Wraps the `label_smoother` of a Trainer, which hands a model no labels: its loss has no penalty for its heads.

    Args:
        smoother: computes the loss from outputs and labels.
        model: the model whose `penalise` adds to a loss in training.
    """

    def __init__(self, smoother: Any, model: Any):
        self.smoother, self.model = smoother, model
        self.attention_mask: Tensor | None = None  # of the batch

    def __call__(self, outputs: Any, labels: Tensor, shift_labels: bool = False, num_items_in_batch: Any = None):
        loss = self.smoother(outputs, labels, shift_labels=shift_labels, num_items_in_batch=num_items_in_batch)
        targets = next_labels(labels) if shift_labels else labels
        return self.model.penalise(loss, outputs, self.attention_mask, targets, num_items_in_batch)
