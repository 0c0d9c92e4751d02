"""The vanishing gradient lesson: untrained RNN, GRU and LSTM on one sequence, with the loss at its last step alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .flow import StateFlow, gradient_flow


@dataclass(frozen=True)
class VanishingLesson:
    """Gradient norms by distance from the loss, for untrained cells.

    Args:
        norms: By cell: (length,), norm of dL/dh_t by the number of steps before the loss, 0 first.
        cell_states: The same for the LSTM's dL/dc_t.
        gate_products: By gated cell: (length,), the product of the forget (LSTM) or update (GRU) gates in between.
    """

    norms: dict[str, np.ndarray]
    cell_states: dict[str, np.ndarray]
    gate_products: dict[str, np.ndarray]
    length: int
    hidden_size: int
    gate_bias: float
    seed: int

    def rows(self) -> list[dict[str, Any]]:
        """One row for each cell and distance, for a table."""
        rows = []
        for cell, norms in self.norms.items():
            columns = {"gradient_norm": norms, "cell_state_norm": self.cell_states.get(cell)}
            columns["gate_product"] = self.gate_products.get(cell)
            for distance in range(len(norms)):
                values = {name: "" if part is None else float(part[distance]) for name, part in columns.items()}
                rows.append({"cell": cell, "distance": distance} | values)
        return rows


def vanishing_gradient_lesson(
    cells: Sequence[str] = ("rnn", "gru", "lstm"),
    length: int = 100,
    hidden_size: int = 64,
    gate_bias: float = 1.0,
    batch_size: int = 16,
    seed: int = 0,
) -> VanishingLesson:
    """Measure untrained cells on random token ids, with the loss at the last step alone.

    Args:
        length: Number of steps, the one with the loss included.
        gate_bias: Initial bias of the forget gate (LSTM) and of the update gate (GRU), the same so that the cells can
            be compared. The rung's LSTM has 1; with 3 the gates start at 0.95 and nearly nothing is lost.
    """
    if length < 2 or hidden_size < 1 or batch_size < 1:
        raise ValueError(
            f"length {length}, hidden_size {hidden_size} and batch_size {batch_size} are too small; "
            "length must be at least 2, the others at least 1"
        )
    flows = {cell: flow_of_cell(cell, length, hidden_size, gate_bias, batch_size, seed) for cell in cells}
    gated = [(cell, flow) for cell, flow in flows.items() if flow.gates is not None]
    return VanishingLesson(
        norms={cell: flow.by_distance() for cell, flow in flows.items()},
        cell_states={cell: flow.by_distance("cell_state") for cell, flow in gated if flow.cell_state is not None},
        gate_products={cell: flow.gate_products() for cell, flow in gated},
        length=length,
        hidden_size=hidden_size,
        gate_bias=gate_bias,
        seed=seed,
    )


def flow_of_cell(
    cell: str, length: int, hidden_size: int, gate_bias: float, batch_size: int, seed: int, radius: float | None = None
) -> StateFlow:
    """The gradient through an untrained cell.

    Args:
        radius: Spectral radius that the recurrent matrix of an RNN is scaled to.
    """
    model, input_ids = untrained_model(cell, length, hidden_size, gate_bias, batch_size, seed)
    if radius is not None:
        with torch.no_grad():
            matrix = model.model.stack.layers[0].forward_cell.state_weight
            matrix *= radius / torch.linalg.eigvals(matrix).abs().max()
    return gradient_flow(model, {"input_ids": input_ids}).states["layer 1"]


def untrained_model(
    cell: str, length: int, hidden_size: int, gate_bias: float, batch_size: int, seed: int
) -> tuple[Any, torch.Tensor]:
    """A language model of one layer, and random token ids: one more than steps, because the last one is predicted."""
    from ...models.configuration_recurrent import EduRecurrentConfig
    from ...models.modeling_recurrent import EduRecurrentForCausalLM

    config = EduRecurrentConfig(
        cell_type=cell,
        vocab_size=100,
        hidden_size=hidden_size,
        num_hidden_layers=1,
        dropout=0.0,
        forget_gate_bias=gate_bias,
        initializer_range=hidden_size**-0.5,  # torch's default initialisation of recurrent cells
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        input_ids = torch.randint(3, 100, (batch_size, length + 1))
        # In float64, because the RNN's gradient underflows float32 after a hundred steps.
        model = EduRecurrentForCausalLM(config).double()
    if cell == "gru":
        with torch.no_grad():
            model.model.stack.layers[0].forward_cell.input_bias[hidden_size : 2 * hidden_size] = gate_bias
    return model, input_ids
