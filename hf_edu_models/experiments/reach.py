"""How far back a model sees: replace one token of a text, and compare the predictions after it.

The change is the total variation distance between the two predicted distributions: 0 where the replaced token does not
matter, 1 where it decides. Shapes: N texts, T tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor

from ..explain.inference import evaluation_mode
from ..plotting import add_caption, colour, log_axis, new_figure


def token_texts(tokenizer: Any, texts: list[str], length: int, count: int) -> Tensor:
    """(N, T), pieces of equal length of the texts, one behind the other."""
    ids: list[int] = []
    for text in texts:
        ids += tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(ids) >= length * count:
            break
    rows = min(count, len(ids) // length)
    if rows < 2:
        raise ValueError(
            f"the texts have {len(ids)} tokens, fewer than two pieces of {length}; give a smaller --length or more text"
        )
    return torch.tensor(ids[: rows * length]).view(rows, length)


def reach(model: Any, input_ids: Tensor) -> np.ndarray:
    """(T,), the mean change of the prediction by distance: 1 is the token right after the one that is replaced.

    The first token of each text becomes the first one of another text; where both are the same, the text is left out.
    """
    if not type(model).__name__.endswith(("ForCausalLM", "ForMaskedLM", "ForPreTraining", "LMHeadModel")):
        raise ValueError(f"{type(model).__name__} predicts no tokens of the text that it reads; give a language model")
    replaced = input_ids.clone()
    replaced[:, 0] = input_ids[:, 0].roll(1)
    differs = replaced[:, 0] != input_ids[:, 0]
    if not differs.any():
        raise ValueError("all texts begin with the same token, so none can be replaced; give other texts")
    with evaluation_mode(model):
        before, after = (_predictions(model, each[differs].to(model.device)) for each in (input_ids, replaced))
    return (before - after).abs().sum(-1).mean(0).double().cpu().numpy() / 2


def _predictions(model: Any, input_ids: Tensor) -> Tensor:
    outputs = model(input_ids=input_ids)
    logits = outputs.logits if "logits" in outputs else outputs.prediction_logits
    return logits.float().softmax(-1)


def draw_reach(changes: Mapping[str, np.ndarray], about: str) -> Figure:
    """One line for each model; a line ends where nothing changes any more."""
    figure, axis = new_figure(8, 4.6)
    for number, (name, change) in enumerate(changes.items()):
        shown = np.where(change > 0, change, np.nan)
        # A later line may cover an earlier one.
        axis.plot(
            range(1, len(change) + 1), shown, color=colour(number), label=name, linewidth=max(2.0, 5.5 - 1.5 * number)
        )
    log_axis(axis, np.concatenate(list(changes.values())))
    axis.set(title="How far back a model sees", xlabel="distance from the replaced token (tokens)")
    axis.set_ylabel("change of the prediction (total variation)")
    axis.legend(frameon=False, fontsize=9)
    add_caption(figure, about)
    return figure
