"""How ULMFiT fine-tunes: lower learning rates for lower layers, a slanted triangular schedule, gradual unfreezing.

Paper: Howard & Ruder 2018, arXiv:1801.06146. `halving` is the schedule of Zaremba et al. 2014, arXiv:1409.2329.
"""

from __future__ import annotations

import math
import re

from torch import nn
from transformers import TrainerCallback

_LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
_EMBEDDING = re.compile(r"(?:^|\.)\w*embed\w*(?:\.|$)")


def layer_depths(model: nn.Module) -> dict[str, int]:
    """Depth of each parameter by name: 0 for embeddings, 1 to N for the layers, N + 1 for the head.

    Embeddings that the output layer of a language model shares are its head: they learn what is said in a new domain.
    """
    names = [name for name, _ in model.named_parameters()]
    layers = {name: int(match[1]) + 1 for name in names if (match := _LAYER.search(name))}
    head = max(layers.values(), default=0) + 1
    output = getattr(model, "get_output_embeddings", lambda: None)()
    shared = {id(weight) for weight in output.parameters()} if output is not None else set()
    return {
        name: head if id(parameter) in shared else layers.get(name, 0 if _EMBEDDING.search(name) else head)
        for name, parameter in model.named_parameters()
    }


def layer_groups(
    model: nn.Module, learning_rate: float, lr_decay: float, weight_decay: float, decayed: list[str]
) -> list[dict]:
    """Parameter groups for an optimizer; the top group has `learning_rate`, each one below `lr_decay` times as much.

    Args:
        lr_decay: Learning rate of a layer divided by that of the layer above.
        decayed: Names of the parameters to which weight decay applies.
    """
    depths = layer_depths(model)
    top = max(depths.values())
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


def slanted_triangular(step: int, num_steps: int, cut_frac: float, ratio: float) -> float:
    """The learning rate of a step as a fraction of the highest one: a short rise, a long decay (Eq. 3).

    cut = floor(T cut_frac);  p = t / cut before it, then 1 - (t - cut) / (cut (1 / cut_frac - 1))
    eta_t = eta_max (1 + p (ratio - 1)) / ratio

    Differs from the paper where T cut_frac is no integer: its divisor would make the last rates negative, so the decay
    takes T - cut steps, which is the same otherwise; and the rise takes at least one step.

    Args:
        step: t, from 0 on; `num_steps` is T.
        cut_frac: The fraction of the steps in which the rate rises.
        ratio: The highest rate divided by the lowest.
    """
    cut = max(int(num_steps * cut_frac + 1e-9), 1)
    p = step / cut if step < cut else 1 - (step - cut) / max(num_steps - cut, 1)
    return (1 + max(p, 0.0) * (ratio - 1)) / ratio


def halving(step: int, steps_per_epoch: float, after: float) -> float:
    """The learning rate of a step as a fraction of the first one: half after so many epochs, then half of that, ..."""
    epochs = int(step / steps_per_epoch + 1e-9)
    return 0.5 ** max(math.ceil(epochs + 1 - after), 0)
