"""Gradient flow during training: one row of norms every N steps, and a picture at the end."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback

from ...run_folder import write_atomically

_ROWS_FILE, _PICTURE_FILE = "gradients.jsonl", "pictures/gradients.png"


class GradientFlowCallback(TrainerCallback):
    """Write the gradient norm of each layer, and the ratio of its update to its weights, to `gradients.jsonl`.

    Norms are those of the gradients that the optimizer uses: accumulated over batches and clipped. A row is
    {"step", "epoch", "gradient_norm": {layer: ...}, "update_ratio": {layer: ...}}. Training is not changed; a resumed
    run appends to the same file.

    Args:
        every: Steps between measurements.
        folder: Output folder; by default the run's.
    """

    def __init__(self, every: int = 20, folder: str | os.PathLike | None = None):
        if every < 1:
            raise ValueError(f"every must be at least 1 step, got {every}")
        self.every = every
        self.folder: Any = None if folder is None else Path(folder)
        self._row: dict[str, Any] | None = None
        self._before: dict[str, list[Tensor]] = {}

    def on_train_begin(self, args, state, control, **kwargs):
        self.folder = Path(args.output_dir) if self.folder is None else self.folder
        if not state.is_world_process_zero:
            return
        # Steps after the checkpoint that this run resumes from will be measured again.
        rows = [row for row in read_gradients(self.folder, missing_ok=True) if row["step"] <= state.global_step]
        write_atomically(self.folder / _ROWS_FILE, "".join(json.dumps(row) + "\n" for row in rows))

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        step = state.global_step + 1
        if (step - 1) % self.every or not state.is_world_process_zero:
            return
        groups = _parameters_by_layer(model)
        grads = {name: [w.grad.detach() for w in group if w.grad is not None] for name, group in groups.items()}
        self._row = {"step": step, "epoch": state.epoch, "gradient_norm": _norms_by_layer(grads)}
        self._before = {name: [weight.detach().clone() for weight in group] for name, group in groups.items()}

    def on_optimizer_step(self, args, state, control, model=None, **kwargs):
        if self._row is None:
            return
        weights = _norms_by_layer(self._before)
        groups = _parameters_by_layer(model).items()
        updates = _norms_by_layer(
            {name: torch._foreach_sub([w.detach() for w in group], self._before[name]) for name, group in groups}
        )
        self._row["update_ratio"] = {name: updates[name] / norm if norm else 0.0 for name, norm in weights.items()}
        # One short write at the end of the file, so that a reader sees whole lines only.
        with open(self.folder / _ROWS_FILE, "a", encoding="utf-8") as file:
            file.write(json.dumps(self._row) + "\n")
        self._row, self._before = None, {}

    def on_train_end(self, args, state, control, **kwargs):
        if not state.is_world_process_zero:
            return
        rows = read_gradients(self.folder)
        if rows:
            from ...plotting import save_figure
            from .pictures import draw_training

            save_figure(draw_training(rows), self.folder / _PICTURE_FILE)


def read_gradients(folder: str | os.PathLike, missing_ok: bool = False) -> list[dict[str, Any]]:
    """The rows that a `GradientFlowCallback` wrote."""
    path = Path(folder) / _ROWS_FILE
    if not path.exists():
        if missing_ok:
            return []
        raise FileNotFoundError(f"{path} does not exist; train with GradientFlowCallback() among the callbacks first")
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:  # the last line of a run that was killed while writing
            break
    return rows


def _parameters_by_layer(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """Trainable parameters by layer, in the model's order; outside numbered layers by module."""
    groups: dict[str, list[nn.Parameter]] = {}
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            groups.setdefault(layer_of(name), []).append(weight)
    return groups


def layer_of(parameter: str) -> str:
    """`model.encoder.layers.0.feed_forward.inner_proj.weight` belongs to "encoder layer 1"."""
    parts = [part for part in parameter.split(".") if part not in ("module", "model", "_orig_mod", "stack")]
    for i, part in enumerate(parts):
        if part.isdigit() and i and parts[i - 1] in ("layers", "layer", "h"):
            return " ".join([*parts[: i - 1], f"layer {int(part) + 1}"])
    return " ".join(parts[:-1][:2]) or parts[0]


def _norms_by_layer(groups: Mapping[str, Any]) -> dict[str, float]:
    """One norm for each group, with a single device synchronisation for all of them."""
    norms = []
    for tensors in groups.values():
        parts = torch._foreach_norm(tensors) if tensors else [torch.zeros(())]
        norms.append(torch.linalg.vector_norm(torch.stack([part.float() for part in parts])))
    return dict(zip(groups, torch.stack([norm.cpu() for norm in norms]).tolist(), strict=True))
