"""A model in the state in which its attention can be looked at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from transformers import PreTrainedModel


@contextmanager
def weights_shown(model: PreTrainedModel) -> Iterator[None]:
    """Without dropout and gradients, and with the form of attention that has weights to show; then all as it was."""
    was_training, form = model.training, model.config._attn_implementation
    changes_form = form not in (None, "eager")
    model.eval()
    try:
        if changes_form:
            model.set_attn_implementation("eager")
        with torch.no_grad():
            yield
    finally:
        model.train(was_training)
        if changes_form:
            model.set_attn_implementation(form)
