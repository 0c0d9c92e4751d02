"""The vanishing-gradient lesson: three new cells read the same sequence, and only its last step is asked about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from .gradients import gradient_flow


@dataclass(frozen=True)
class VanishingLesson:
    """Gradient by distance from the loss, for new and untrained cells.

    Args:
        norms: By cell: (length,), norm of dL/dh_t so many steps before the loss, first the step of the loss itself.
        memories: The same of the LSTM's dL/dc_t.
        gate_products: By gated cell: (length,), the product of the forget (LSTM) or update (GRU) gates in between.
    """

    norms: dict[str, np.ndarray]
    memories: dict[str, np.ndarray]
    gate_products: dict[str, np.ndarray]
    length: int
    hidden_size: int
    gate_bias: float
    seed: int

    def rows(self) -> list[dict[str, float | int | str]]:
        """One row for each cell and distance, for a table."""
        found = []
        for cell, norms in self.norms.items():
            parts = {"gradient_norm": norms, "memory_norm": self.memories.get(cell)}
            parts["gate_product"] = self.gate_products.get(cell)
            for distance in range(len(norms)):
                values = {name: "" if part is None else float(part[distance]) for name, part in parts.items()}
                found.append({"cell": cell, "distance": distance} | values)
        return found


def vanishing_gradient_lesson(
    cells: Sequence[str] = ("rnn", "gru", "lstm"),
    length: int = 100,
    hidden_size: int = 64,
    gate_bias: float = 1.0,
    batch_size: int = 16,
    seed: int = 0,
) -> VanishingLesson:
    """Measure new cells on random words, the loss at the last step alone.

    Args:
        length: Steps up to and with the one of the loss.
        gate_bias: Where the gates that keep the state start, in both gated cells so that they can be compared. A new
            LSTM of ours has 1; with 3 the gates start at 0.95 and nearly nothing is lost.
    """
    if length < 2 or hidden_size < 1 or batch_size < 1:
        raise ValueError(
            f"length {length}, hidden_size {hidden_size} and batch_size {batch_size} leave nothing to see; "
            "length must be at least 2, the others at least 1"
        )
    flows = {cell: _flow_of(cell, length, hidden_size, gate_bias, batch_size, seed) for cell in cells}
    return VanishingLesson(
        norms={cell: flow.by_distance() for cell, flow in flows.items()},
        memories={cell: flow.by_distance("memory") for cell, flow in flows.items() if flow.memory is not None},
        gate_products={cell: flow.gate_products() for cell, flow in flows.items() if flow.gates is not None},
        length=length,
        hidden_size=hidden_size,
        gate_bias=gate_bias,
        seed=seed,
    )


def _flow_of(cell: str, length: int, hidden_size: int, gate_bias: float, batch_size: int, seed: int):
    from ..models.configuration_recurrent import EduRecurrentConfig
    from ..models.modeling_recurrent import EduRecurrentForCausalLM

    config = EduRecurrentConfig(
        cell_type=cell,
        vocab_size=100,
        hidden_size=hidden_size,
        num_hidden_layers=1,
        dropout=0.0,
        forget_gate_bias=gate_bias,
        initializer_range=hidden_size**-0.5,  # torch's own start: as large as is usual, so that nothing is exaggerated
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        words = torch.randint(3, 100, (batch_size, length + 1))
        # In float64, because a plain cell's gradient after a hundred steps is below what float32 can hold.
        model = EduRecurrentForCausalLM(config).double()
    if cell == "gru":
        with torch.no_grad():
            model.model.stack.layers[0].forward_cell.input_bias[hidden_size : 2 * hidden_size] = gate_bias
    return gradient_flow(model, {"input_ids": words}).states["layer 1"]
