"""Gradient flow while a model trains: one row of norms every so many steps, and a picture at the end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback

ROWS_FILE, PICTURE_FILE = "gradients.jsonl", "pictures/gradients.png"


class GradientFlowCallback(TrainerCallback):
    """Writes the norm of each layer's gradient, and of its update over its weights, to `gradients.jsonl`.

    Norms are taken where the optimizer takes the gradients: summed over accumulated batches, after clipping. A row is
    {"step", "epoch", "gradient_norm": {layer: ...}, "update_ratio": {layer: ...}}. No number of the training changes;
    a resumed run goes on in the same file.

    Args:
        every: Steps between measurements.
        folder: Where to write; the run's own folder unless it is given.
    """

    def __init__(self, every: int = 20, folder: str | os.PathLike | None = None):
        if every < 1:
            raise ValueError(f"every must be at least 1 step, got {every}")
        self.every = every
        self.folder = None if folder is None else Path(folder)
        self._row: dict[str, Any] | None = None
        self._before: dict[str, list[Tensor]] = {}

    def on_train_begin(self, args, state, control, **kwargs):
        self.folder = Path(args.output_dir) if self.folder is None else self.folder
        if not state.is_world_process_zero:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        # What was measured after the checkpoint that this run goes on from will be measured again.
        kept = [row for row in read_gradients(self.folder, missing_ok=True) if row["step"] <= state.global_step]
        draft = self.folder / f".{ROWS_FILE}"
        draft.write_text("".join(json.dumps(row) + "\n" for row in kept))
        os.replace(draft, self.folder / ROWS_FILE)

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        step = state.global_step + 1
        if (step - 1) % self.every or not state.is_world_process_zero:
            return
        groups = layer_parameters(model)
        self._row = {"step": step, "epoch": state.epoch, "gradient_norm": layer_norms(groups, _gradients)}
        self._before = {name: [weight.detach().clone() for weight in group] for name, group in groups.items()}

    def on_optimizer_step(self, args, state, control, model=None, **kwargs):
        if self._row is None:
            return
        groups = layer_parameters(model)
        weights = layer_norms(self._before, _themselves)
        moved = {
            name: torch._foreach_sub([w.detach() for w in group], self._before[name]) for name, group in groups.items()
        }
        moved = layer_norms(moved, _themselves)
        self._row["update_ratio"] = {name: moved[name] / weights[name] if weights[name] else 0.0 for name in groups}
        # One short write at the end of the file: a reader sees whole lines only.
        with open(self.folder / ROWS_FILE, "a", encoding="utf-8") as file:
            file.write(json.dumps(self._row) + "\n")
        self._row, self._before = None, {}

    def on_train_end(self, args, state, control, **kwargs):
        if not state.is_world_process_zero:
            return
        rows = read_gradients(self.folder)
        if rows:
            from .figure_style import save_figure
            from .gradient_pictures import draw_training

            save_figure(draw_training(rows), self.folder / PICTURE_FILE)


def read_gradients(folder: str | os.PathLike, missing_ok: bool = False) -> list[dict[str, Any]]:
    """The rows that a `GradientFlowCallback` wrote."""
    path = Path(folder) / ROWS_FILE
    if not path.exists():
        if missing_ok:
            return []
        raise FileNotFoundError(f"{path} is not there; train with GradientFlowCallback() among the callbacks first")
    rows = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:  # the last line of a run that was killed while it wrote
            break
    return rows


def layer_parameters(model: nn.Module) -> dict[str, list[nn.Parameter]]:
    """The weights that learn, by layer, in the model's own order; outside numbered layers by module."""
    groups: dict[str, list[nn.Parameter]] = {}
    for name, weight in model.named_parameters():
        if weight.requires_grad:
            groups.setdefault(layer_of(name), []).append(weight)
    return groups


def layer_of(parameter: str) -> str:
    """`model.encoder.layers.0.feed_forward.inner_proj.weight` belongs to "encoder layer 1"."""
    parts = [part for part in parameter.split(".") if part not in ("module", "model", "_orig_mod", "stack")]
    for place, part in enumerate(parts):
        if part.isdigit() and place and parts[place - 1] in ("layers", "layer", "h"):
            return " ".join([*parts[: place - 1], f"layer {int(part) + 1}"])
    return " ".join(parts[:-1][:2]) or parts[0]


def layer_norms(groups: Mapping[str, list[Tensor]], of: Any) -> dict[str, float]:
    """One norm a group, with one wait for the device for all of them."""
    norms = []
    for group in groups.values():
        tensors = of(group)
        parts = torch._foreach_norm(tensors) if tensors else [torch.zeros(())]
        norms.append(torch.linalg.vector_norm(torch.stack([part.float() for part in parts])))
    return dict(zip(groups, torch.stack([norm.cpu() for norm in norms]).tolist(), strict=True))


def _gradients(group: Iterable[Tensor]) -> list[Tensor]:
    return [weight.grad.detach() for weight in group if weight.grad is not None]


def _themselves(group: Iterable[Tensor]) -> list[Tensor]:
    return [weight.detach() for weight in group]
