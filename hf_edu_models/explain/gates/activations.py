"""Gates of LSTM and GRU, token by token: what a cell lets in, keeps and shows.

The model runs in its `eager` implementation, and the equations of its cells (`models/blocks_recurrent.py`) are computed
again from what each step reads. Shapes: T tokens, D hidden size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from ...plotting import add_caption, colour, escape_dollars, new_figure
from ..gradients.batch import labelled_batch
from ..inference import CELLS, evaluation_mode, layer_name, use_eager_recurrence

# The gate that decides how much of the old state stays.
_KEEPS = {"LSTMCell": "forget gate", "GRUCell": "update gate"}


@dataclass(frozen=True, eq=False)
class GateActivations:
    """One recurrent layer, in one direction, on one text.

    Args:
        cell: LSTMCell, GRUCell or RNNCell.
        tokens: The T tokens, in the order of the text.
        values: (T, D) by name: gates, candidate, cell state and hidden state, those that the cell has.
    """

    cell: str
    tokens: list[str]
    values: dict[str, np.ndarray]

    @property
    def gate_names(self) -> list[str]:
        return [name for name in self.values if name.endswith("gate")]

    def kept(self) -> np.ndarray:
        """(T,), how much of the state after each token is left at the end: the product of the gates that follow it."""
        if self.cell not in _KEEPS:
            raise ValueError(f"{self.cell} has no gates; train with cell_type lstm or gru")
        gates = self.values[_KEEPS[self.cell]]
        products = np.ones_like(gates)
        products[:-1] = np.cumprod(gates[1:][::-1], axis=0)[::-1]
        return products.mean(axis=-1)

    def saturation(self, name: str, low: float = 0.1, high: float = 0.9) -> tuple[np.ndarray, np.ndarray]:
        """(D,) twice: how often each unit of a gate is nearly closed (below `low`) and nearly open (above `high`).

        As in Karpathy et al. 2016, arXiv:1506.02078, Section 4.3.
        """
        gate = self.values[name]
        return (gate < low).mean(axis=0), (gate > high).mean(axis=0)

    def rows(self, layer: str) -> list[dict[str, Any]]:
        """One row for each token and unit."""
        length, size = next(iter(self.values.values())).shape
        return [
            {"layer": layer, "position": position, "token": self.tokens[position], "unit": unit}
            | {name: float(values[position, unit]) for name, values in self.values.items()}
            for position in range(length)
            for unit in range(size)
        ]


@torch.no_grad()
def _cell_values(
    cell: Any, step: Tensor, state: tuple[Tensor, ...], new_state: tuple[Tensor, ...]
) -> dict[str, Tensor]:
    """Everything that a cell computes in one step, by name."""
    from_input, from_state = cell.from_input(step), cell.from_state(state[0])
    if type(cell).__name__ == "LSTMCell":
        input_gate, forget_gate, candidate, output_gate = (from_input + from_state).chunk(4, dim=-1)
        gates = {"input gate": input_gate, "forget gate": forget_gate, "output gate": output_gate}
        found = {name: gate.sigmoid() for name, gate in gates.items()}
        return found | {"candidate": candidate.tanh(), "cell state": new_state[1], "hidden state": new_state[0]}
    if type(cell).__name__ == "GRUCell":
        (reset, update, candidate), (reset_past, update_past, past) = from_input.chunk(3, -1), from_state.chunk(3, -1)
        found = {"reset gate": (reset + reset_past).sigmoid(), "update gate": (update + update_past).sigmoid()}
        found["candidate"] = (candidate + found["reset gate"] * past).tanh()
        return found | {"hidden state": new_state[0]}
    return {"hidden state": new_state[0]}


def gate_activations(model: Any, tokenizer: Any, text: str, target: str | None = None) -> dict[str, GateActivations]:
    """The gates of every recurrent layer on one text: by `layer 1`, `encoder layer 1 backwards`, `word layer 1`.

    Args:
        target: of an encoder-decoder; by default what it generates.
    """
    cells = {name: module for name, module in model.named_modules() if type(module).__name__ in CELLS}
    if not cells:
        raise ValueError(f"{type(model).__name__} has no recurrent cells, so it has no gates")
    recorded: dict[str, list[dict[str, Tensor]]] = {name: [] for name in cells}
    batch, tokens = _batch_of(model, tokenizer, text, target)
    with ExitStack() as stack:
        for manager in (evaluation_mode(model), use_eager_recurrence(model)):
            stack.enter_context(manager)
        for name, cell in cells.items():

            def record(cell, inputs, state, name=name):
                recorded[name].append(_cell_values(cell, inputs[0], inputs[1], state))

            stack.callback(cell.register_forward_hook(record).remove)
        model(**batch)
    return {layer_name(name): each for name, each in _by_layer(model, cells, recorded, batch, tokens)}


def _batch_of(model: Any, tokenizer: Any, text: str, target: str | None) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """The inputs, and the tokens by the part of the model that reads them."""
    if not hasattr(model.base_model, "sentence_reader"):
        batch, sides = labelled_batch(model, tokenizer, text, target)
        return batch, {"input": sides["input"], "decoder": sides.get("target", [])}
    from ...data.sentences import cut_sentences

    sentences = cut_sentences(text)
    if not sentences:
        raise ValueError("the text is empty; give at least one word")
    batch = {name: values[None] for name, values in tokenizer(sentences, padding=True, return_tensors="pt").items()}
    batch = {name: batch[name].to(model.device) for name in ("input_ids", "attention_mask")}
    real = batch["attention_mask"][0].bool()
    return batch, {
        "input": tokenizer.convert_ids_to_tokens(batch["input_ids"][0][real].tolist()),
        "sentence_reader": sentences,
    }


def _by_layer(
    model: Any, cells: dict, recorded: dict, batch: dict, tokens: dict
) -> Iterator[tuple[str, GateActivations]]:
    for name, steps in recorded.items():
        if not steps:
            continue
        parts = name.split(".")
        side = next((side for side in ("decoder", "sentence_reader") if side in parts), "input")
        is_reversed = getattr(model.config, "reverse_source", False) and "encoder" in parts
        values = {key: torch.stack([step[key] for step in steps], dim=1) for key in steps[0]}  # (B, T, D)
        if is_reversed or parts[-1] == "backward_cell":
            values = {key: value.flip(1) for key, value in values.items()}
        mask = batch["attention_mask"][0].bool() if "word_reader" in parts else None
        kept = {key: value[mask] if mask is not None else value[0] for key, value in values.items()}
        arrays = {key: value.float().cpu().numpy() for key, value in kept.items()}
        yield name, GateActivations(type(cells[name]).__name__, tokens[side], arrays)


def draw_gates(activations: GateActivations, title: str, units: int = 24) -> Figure:
    """A heat map for each value (units by tokens), and how much of each state is left at the end."""
    names = list(activations.values)
    has_gates = activations.cell in _KEEPS
    count, length = len(names) + has_gates, len(activations.tokens)
    figure, axes = new_figure(max(7.0, 0.35 * length + 2.5), 1.7 * count + 0.6, rows=count, sharex=True)
    panels = list(np.ravel(axes))
    for axis, name in zip(panels, names, strict=False):
        low = 0.0 if name.endswith("gate") else -1.0
        table = activations.values[name][:, :units].T
        image = axis.imshow(table, aspect="auto", cmap="Blues" if low == 0 else "RdBu_r", vmin=low, vmax=1.0)
        axis.set_ylabel("unit")
        axis.yaxis.set_major_locator(MaxNLocator(5, integer=True))
        axis.set_title(name, fontsize=9, loc="left")
        axis.grid(False)
        figure.colorbar(image, ax=axis, pad=0.01)
    if has_gates:
        panels[-1].plot(activations.kept(), "o-", color=colour(0), markersize=3)
        panels[-1].set_ylim(0, 1.05)
        panels[-1].set_title(f"product of the {_KEEPS[activations.cell]}s from here to the end", fontsize=9, loc="left")
    panels[-1].set_xticks(range(length), escape_dollars(activations.tokens), rotation=60, ha="right", fontsize=8)
    figure.suptitle(title, fontsize=11)
    size = next(iter(activations.values.values())).shape[1]
    add_caption(figure, f"The first {min(units, size)} of {size} units." if size > units else f"All {size} units.")
    return figure
