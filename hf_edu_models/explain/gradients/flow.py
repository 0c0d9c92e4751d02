"""Gradient flow: norms of the loss's gradient at each hidden state, layer and parameter.

A measurement changes nothing: the model keeps its mode, its settings and its `.grad`s, because gradients come from
`torch.autograd.grad`. Recurrent rungs run in their `eager` implementation meanwhile, where every h_t is a tensor of its
own; dropout and label smoothing are off.

Papers: Bengio, Simard & Frasconi 1994 and Hochreiter & Schmidhuber 1997 on vanishing gradients.

Shapes: B batch, T time steps, D hidden size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..inference import CELLS, layer_name, use_eager_recurrence

_LAYERS = ("WindowLayer", "TransformerLayer", "CrossAttentionLayer")
# The last two are the names in the code of checkpoints saved by earlier versions.
_EMBEDDINGS = ("TransformerEmbeddings", "BertEmbeddings", "WordsAndPositions", "Embeddings")
_LOSS_POSITIONS = ("last", "all")


@dataclass(frozen=True)
class StateFlow:
    """The gradient through time of one recurrent layer in one direction, in the order in which the cell reads.

    Args:
        hidden: (B, T), norm of dL/dh_t; NaN at padding.
        cell_state: (B, T), norm of dL/dc_t; None unless the cell is an LSTM.
        gates: (B, T, D), the share of the old state that each step keeps: the forget gate of an LSTM, the update gate
            of a GRU; 1 at padding, None for a vanilla RNN.
        positions: (T,), the position in the text that each step reads.
    """

    hidden: np.ndarray
    cell_state: np.ndarray | None
    gates: np.ndarray | None
    positions: np.ndarray

    def _last_steps(self) -> np.ndarray:
        """(B,), the last step of each row that the loss depends on; -1 if it depends on none."""
        steps = np.arange(self.hidden.shape[1])
        return np.where(np.nan_to_num(self.hidden) > 0, steps, -1).max(axis=1)

    def by_distance(self, which: str = "hidden") -> np.ndarray:
        """(T,), the mean norm by the number of steps before the row's last step, up to the longest row.

        Args:
            which: `hidden` or, for an LSTM, `cell_state`.
        """
        norms = getattr(self, which)
        if norms is None:
            raise ValueError(f"this cell has no {which}: only an LSTM has a cell state beside its hidden state")
        return _mean_by_distance([row[: last + 1] for row, last in zip(norms, self._last_steps(), strict=True)])

    def gate_products(self) -> np.ndarray:
        """(T,), by distance: the product of all gates from there to the last step, mean over units and rows.

        It is the part of the gradient that flows through the gates alone: for an LSTM dc_T/dc_t with fixed gates.
        """
        if self.gates is None:
            raise ValueError("a vanilla RNN cell has no gates; use 'gru' or 'lstm'")
        rows = []
        for gates, norms, last in zip(self.gates, self.hidden, self._last_steps(), strict=True):
            products = np.ones_like(gates[: last + 1])  # (T, D)
            products[:-1] = np.cumprod(gates[1 : last + 1][::-1], axis=0)[::-1]
            rows.append(np.where(np.isnan(norms[: last + 1]), np.nan, products.mean(axis=-1)))
        return _mean_by_distance(rows)


@dataclass(frozen=True)
class GradientFlow:
    """Norms of the gradient of one loss.

    Args:
        loss: The loss.
        states: By recurrent layer: `layer 1`, `encoder layer 2`, `layer 1 backwards`.
        layers: Norm of dL/d(states) by layer, `embeddings` first: all rows, positions and directions together.
        positions: (B, T) by layer, the same for each position; without layers that run on unpadded batches.
        parameters: Norm of dL/dW for every trainable parameter.
    """

    loss: float
    states: dict[str, StateFlow] = field(default_factory=dict)
    layers: dict[str, float] = field(default_factory=dict)
    positions: dict[str, np.ndarray] = field(default_factory=dict)
    parameters: dict[str, float] = field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        """All norms as one table: what, where, batch row and position (empty for sums over them), norm."""
        rows = [_row("layer", name, norm) for name, norm in self.layers.items()]
        rows += [_row("parameter", name, norm) for name, norm in self.parameters.items()]
        tables = [("position", name, norms, np.arange(norms.shape[1])) for name, norms in self.positions.items()]
        for name, state in self.states.items():
            tables.append(("hidden state", name, state.hidden, state.positions))
            if state.cell_state is not None:
                tables.append(("cell state", name, state.cell_state, state.positions))
        for what, name, norms, positions in tables:
            for index, row in enumerate(norms):
                rows += [_row(what, name, norm, index, int(at)) for at, norm in zip(positions, row, strict=True)]
        return rows


def _row(what: str, where: str, norm: float, row: int | str = "", position: int | str = "") -> dict[str, Any]:
    return {"what": what, "where": where, "row": row, "position": position, "norm": float(norm)}


def gradient_flow(model: Any, batch: Mapping[str, Tensor], loss_at: str = "last") -> GradientFlow:
    """Measure one batch.

    Args:
        batch: The model's inputs in training. Without `labels` a language model predicts its own input.
        loss_at: `last` keeps only the last label of each row, so that the distance to the loss is defined; `all`
            keeps every label.
    """
    if loss_at not in _LOSS_POSITIONS:
        raise ValueError(f"unknown loss_at '{loss_at}'; choose one of {', '.join(_LOSS_POSITIONS)}")
    batch = {name: value.to(model.device) for name, value in batch.items()}
    if "labels" not in batch and type(model).__name__.endswith("ForCausalLM"):
        labels, mask = batch["input_ids"], batch.get("attention_mask")
        batch["labels"] = labels if mask is None else labels.masked_fill(mask == 0, -100)
    if loss_at == "last" and batch.get("labels") is not None:
        batch["labels"] = _last_labels(batch["labels"])
    with _measuring(model) as trace:
        loss = getattr(model(**batch, return_dict=True), "loss", None)
        if loss is None:
            raise ValueError(f"{type(model).__name__} has no loss for {', '.join(batch)}; add its labels to the batch")
        return trace.flow(loss, batch)


def _last_labels(labels: Tensor) -> Tensor:
    """Only the last label of each row; labels of whole rows stay as they are."""
    if labels.ndim < 2 or torch.is_floating_point(labels):
        return labels
    positions = torch.arange(labels.shape[1], device=labels.device)
    last = torch.where(labels != -100, positions, -1).amax(dim=1, keepdim=True)  # (B, 1)
    return labels.masked_fill(positions != last, -100)


def _keep_gate(cell: Any, step: Tensor, state: Sequence[Tensor]) -> Tensor | None:
    """(B, D), the share of the old state that a step keeps: forget gate of an LSTM, update gate of a GRU."""
    if cell.gates == 1:
        return None
    preactivations = cell.from_input(step) + cell.from_state(state[0])
    return preactivations.chunk(cell.gates, dim=-1)[1].sigmoid()


class _Trace:
    """What forward hooks record in one pass, by module name."""

    def __init__(self, model: nn.Module):
        self.model = model
        self.cells = {name: module for name, module in model.named_modules() if type(module).__name__ in CELLS}
        self.steps: dict[str, list[tuple[Tensor, ...]]] = {name: [] for name in self.cells}
        self.gates: dict[str, list[Tensor]] = {name: [] for name in self.cells}
        self.outputs: dict[str, Tensor] = {}
        self.trainable = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}

    def hooks(self) -> Iterator[Any]:
        for name, cell in self.cells.items():
            yield cell.register_forward_hook(lambda *call, name=name: self.record_step(name, *call))
        for name, module in _layers_of(self.model):
            yield module.register_forward_hook(lambda *call, name=name: self.record_layer(name, *call))

    def record_step(self, name: str, cell: nn.Module, inputs: tuple, state: tuple[Tensor, ...]) -> None:
        self.steps[name].append(state)
        with torch.no_grad():
            gate = _keep_gate(cell, *inputs)
        if gate is not None:
            self.gates[name].append(gate)

    def record_layer(self, name: str, module: nn.Module, inputs: tuple, output: Any) -> None:
        self.outputs[name] = output[0] if isinstance(output, tuple) else output

    def flow(self, loss: Tensor, batch: Mapping[str, Tensor]) -> GradientFlow:
        tensors = [part for steps in self.steps.values() for state in steps for part in state]
        tensors += [*self.outputs.values(), *self.trainable.values()]
        grads = torch.autograd.grad(loss, tensors, allow_unused=True)
        grad_of = {id(tensor): grad for tensor, grad in zip(tensors, grads, strict=True)}
        states = {layer_name(name): self.state_flow(name, grad_of, batch) for name in self.cells if self.steps[name]}
        layers, positions = self.layer_norms(grad_of, states)
        return GradientFlow(
            loss=float(loss.detach()),
            states=states,
            layers=layers,
            positions=positions,
            parameters={name: float(_norms(weight, grad_of, None)) for name, weight in self.trainable.items()},
        )

    def layer_norms(self, grad_of: Mapping[int, Tensor | None], states: dict[str, StateFlow]) -> tuple[dict, dict]:
        """Norms by layer, and by layer and position, in the model's order; both directions of a layer together."""
        squares: dict[str, np.ndarray] = {}
        for name, _ in self.model.named_modules():
            if name in self.outputs:
                squares[layer_name(name)] = _norms(self.outputs[name], grad_of, -1).cpu().numpy() ** 2
            elif name in self.cells and self.steps[name]:
                state = states[layer_name(name)]
                # The reversed order is its own inverse, so the same index brings steps back to positions.
                by_position = np.nan_to_num(state.hidden[:, state.positions]) ** 2
                layer = layer_name(name).removesuffix(" backwards")
                squares[layer] = squares.get(layer, 0.0) + by_position
        layers = {name: float(np.sqrt(square.sum())) for name, square in squares.items()}
        return layers, {name: np.sqrt(square) for name, square in squares.items() if square.ndim == 2}

    def state_flow(self, name: str, grad_of: Mapping[int, Tensor | None], batch: Mapping[str, Tensor]) -> StateFlow:
        states = zip(*self.steps[name], strict=True)  # all h_t, then all c_t
        parts = [torch.stack([_norms(part, grad_of, -1) for part in steps], dim=1) for steps in states]
        gates = torch.stack(self.gates[name], dim=1).float().cpu().numpy() if self.gates[name] else None
        length = parts[0].shape[1]
        positions = np.arange(length)[:: -1 if self.is_backward(name) else 1]
        mask = self.mask_of(name, batch, length)[:, positions]  # (B, T)
        norms = [np.where(mask, part.cpu().numpy(), np.nan) for part in parts]
        if gates is not None:
            gates = np.where(mask[:, :, None], gates, 1.0)
        return StateFlow(norms[0], norms[1] if len(norms) > 1 else None, gates, positions)

    def mask_of(self, name: str, batch: Mapping[str, Tensor], length: int) -> np.ndarray:
        """(B, T), True at real inputs of a cell; a decoder without a mask is cut at its last label later."""
        is_decoder = "decoder" in name.split(".")
        mask = batch.get("decoder_attention_mask" if is_decoder else "attention_mask")
        rows = len(next(iter(batch.values())))
        return np.ones((rows, length), dtype=bool) if mask is None else mask.bool().cpu().numpy()

    def is_backward(self, name: str) -> bool:
        is_reversed = getattr(self.model.config, "reverse_source", False) and "encoder" in name.split(".")
        return is_reversed or name.endswith("backward_cell")


@contextmanager
def _measuring(model: nn.Module) -> Iterator[_Trace]:
    """A trace of the model; its mode and settings are restored afterwards."""
    trace = _Trace(model)
    modes = {module: module.training for module in model.modules()}
    frozen = [weight for weight in model.parameters() if not weight.requires_grad]
    with ExitStack() as stack:
        stack.enter_context(torch.enable_grad())
        stack.enter_context(use_eager_recurrence(model))
        for hook in trace.hooks():
            stack.callback(hook.remove)
        try:
            model.eval()
            for weight in frozen:  # otherwise layers below the first trainable weight would have no gradient
                weight.requires_grad_(True)
            yield trace
        finally:
            for weight in frozen:
                weight.requires_grad_(False)
            for module, mode in modes.items():
                module.training = mode


def _layers_of(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Layers and embeddings; embeddings with their positions if the model has such a module."""
    modules = list(model.named_modules())
    with_positions = any(type(module).__name__ in _EMBEDDINGS for _, module in modules)
    return [
        (name, module)
        for name, module in modules
        if type(module).__name__ in _LAYERS
        or (type(module).__name__ in _EMBEDDINGS if with_positions else name.endswith("embed_tokens"))
    ]


def _norms(tensor: Tensor, grad_of: Mapping[int, Tensor | None], dim: int | None) -> Tensor:
    """Norms of a tensor's gradient, zeros if the loss does not depend on it."""
    grad = grad_of[id(tensor)]
    grad = torch.zeros_like(tensor) if grad is None else grad
    # In float64: the square of 1e-30 underflows in float32.
    return torch.linalg.vector_norm(grad.detach(), dim=dim, dtype=torch.float64)


def _mean_by_distance(rows: list[np.ndarray]) -> np.ndarray:
    """One mean for each distance, over rows that end at distance 0 and are NaN at padding."""
    reversed_rows = [row[~np.isnan(row)][::-1] for row in rows]
    longest = max(len(row) for row in reversed_rows)
    return np.array([np.mean([row[i] for row in reversed_rows if i < len(row)]) for i in range(longest)])
