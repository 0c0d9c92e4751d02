"""Fine-tuning layer by layer: smaller learning rates below, and layers that wait for those above them.

Paper: Howard & Ruder 2018, arXiv:1801.06146 (discriminative fine-tuning, gradual unfreezing).
"""

from __future__ import annotations

import re

from torch import nn
from transformers import TrainerCallback

LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
EMBEDDING = re.compile(r"(?:^|\.)\w*embed\w*(?:\.|$)")


def depth_of(name: str, layers: int) -> int:
    """How high a parameter stands: 0 the embeddings, then the layers, and what reads the last layer on top."""
    found = LAYER.search(name)
    if found:
        return int(found[1]) + 1
    return 0 if EMBEDDING.search(name) else layers + 1


def layer_count(model: nn.Module) -> int:
    found = [LAYER.search(name) for name, _ in model.named_parameters()]
    return max((int(each[1]) + 1 for each in found if each), default=0)


def depths(model: nn.Module) -> dict[str, int]:
    layers = layer_count(model)
    return {name: depth_of(name, layers) for name, _ in model.named_parameters()}


def layer_groups(
    model: nn.Module, learning_rate: float, lr_decay: float, weight_decay: float, decayed: list[str]
) -> list[dict]:
    """Parameters as an optimizer takes them: the top learns at `learning_rate`, each layer below at a part of it.

    Args:
        lr_decay: a layer's rate as a part of the one above.
        decayed: the names of the parameters that weight decay is for.
    """
    heights, decayed = depths(model), set(decayed)
    top = max(heights.values())  # a head that is tied to the embeddings is none of its own
    groups: dict[tuple[int, bool], dict] = {}
    for name, parameter in model.named_parameters():
        key = heights[name], name in decayed
        group = {
            "params": [],
            "lr": learning_rate * lr_decay ** (top - heights[name]),
            "weight_decay": weight_decay if name in decayed else 0.0,
        }
        groups.setdefault(key, group)["params"].append(parameter)
    return [groups[key] for key in sorted(groups, reverse=True)]


class GradualUnfreezing(TrainerCallback):
    """First only the top learns; every so many epochs one more layer joins, from the top down."""

    def __init__(self, every: float):
        self.every = every

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        if args.world_size > 1:
            raise ValueError("unfreeze_every works in one process: several share only what learns from the start")
        self.heights = depths(model)
        self.top = max(self.heights.values())
        self.apply(model, state.epoch or 0.0)

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        self.apply(model, state.epoch or 0.0)

    def apply(self, model: nn.Module, epoch: float) -> None:
        lowest = self.top - int(epoch / self.every + 1e-9)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(self.heights[name] >= lowest)

    def on_train_end(self, args, state, control, model=None, **kwargs):
        for parameter in model.parameters():
            parameter.requires_grad_(True)
