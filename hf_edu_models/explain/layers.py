"""Which layers a task reads: the learnt weights of every scalar mix (Peters et al. 2018, Figure 2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..plotting import INK, colour, new_figure


def layer_weights(model: Any) -> dict[str, dict[str, float]]:
    """The share of each layer, lowest first, for each model that layers are mixed of."""
    found: dict[str, dict[str, float]] = {}
    for name, module in model.named_modules():
        if name.rpartition(".")[2] == "layer_mix" and hasattr(module, "weights"):
            config = getattr(model.get_submodule(name.rpartition(".")[0]), "body", model).config
            shares = module.weights().tolist()
            first = config.num_hidden_layers + 1 - len(shares)  # 0 are the token vectors
            layers = ["token vectors", *(f"layer {number}" for number in range(1, config.num_hidden_layers + 1))]
            label = config.model_type.removeprefix("edu_")
            label += f" {len(found) + 1}" if label in found else ""
            found[label] = dict(zip(layers[first:], shares, strict=True))
    if not found:
        raise ValueError(
            f"{type(model).__name__} learns no weights of layers; give an ELMo tagger or classifier, or a recurrent "
            "one with --features, whose layer_mix or feature_mix is 'scalar'"
        )
    return found


def draw_layer_weights(weights: Mapping[str, Mapping[str, float]], title: str = "") -> Any:
    """Bars for each model; a dotted line marks equal weights."""
    figure, axes = new_figure(5.5, 0.9 + 1.3 * len(weights), rows=len(weights), sharex=True)
    for number, (axis, (name, shares)) in enumerate(zip(np.atleast_1d(axes), weights.items(), strict=True)):
        axis.barh(list(shares), list(shares.values()), color=colour(number))
        axis.axvline(1 / len(shares), color=INK, linewidth=0.8, linestyle=":")
        axis.set_title(name, loc="left")
        axis.grid(False, axis="y")
    np.atleast_1d(axes)[-1].set_xlabel("weight")
    figure.suptitle(title, fontsize=11)
    return figure
