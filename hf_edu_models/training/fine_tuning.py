"""Discriminative fine-tuning and gradual unfreezing: lower learning rates for lower layers, trained top layer first.

Paper: Howard & Ruder 2018, arXiv:1801.06146.
"""

from __future__ import annotations

import re

from torch import nn
from transformers import TrainerCallback

_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_EMBEDDING = re.compile(r"(?:^|\.)\w*embed\w*(?:\.|$)")


def layer_depths(model: nn.Module) -> dict[str, int]:
    """Depth of each parameter by name: 0 for embeddings, 1 to N for the layers, N + 1 for the head."""
    names = [name for name, _ in model.named_parameters()]
    layers = {name: int(match[1]) + 1 for name in names if (match := _LAYER.search(name))}
    head = max(layers.values(), default=0) + 1
    return {name: layers.get(name, 0 if _EMBEDDING.search(name) else head) for name in names}


def layer_groups(
    model: nn.Module, learning_rate: float, lr_decay: float, weight_decay: float, decayed: list[str]
) -> list[dict]:
    """Parameter groups for an optimizer; the top group has `learning_rate`, each one below `lr_decay` times as much.

    Args:
        lr_decay: Learning rate of a layer divided by that of the layer above.
        decayed: Names of the parameters to which weight decay applies.
    """
    depths = layer_depths(model)
    top = max(depths.values())  # a head that is tied to the embeddings has no parameters of its own
    groups: dict[tuple[int, bool], dict] = {}
    for name, parameter in model.named_parameters():
        group = {
            "params": [],
            "lr": learning_rate * lr_decay ** (top - depths[name]),
            "weight_decay": weight_decay if name in decayed else 0.0,
        }
        groups.setdefault((depths[name], name in decayed), group)["params"].append(parameter)
    return [groups[key] for key in sorted(groups, reverse=True)]


class GradualUnfreezing(TrainerCallback):
    """Trains only the top at first, and unfreezes one more layer, from the top down, every `every` epochs."""

    def __init__(self, every: float):
        self.every = every

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        if args.world_size > 1:
            raise ValueError(
                "unfreeze_every works in one process only: DDP never synchronises parameters frozen at the start"
            )
        self.depths = layer_depths(model)
        self.on_step_begin(args, state, control, model)

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        lowest = max(self.depths.values()) - int((state.epoch or 0.0) / self.every + 1e-9)
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(self.depths[name] >= lowest)

    def on_train_end(self, args, state, control, model=None, **kwargs):
        for parameter in model.parameters():
            parameter.requires_grad_(True)
