"""Gradient flow: how much of the loss reaches each hidden state, each layer and each weight.

Nothing is changed: the measured model keeps its mode, its settings and its `.grad`s, and gradients are taken with
`torch.autograd.grad`, so a measurement in the middle of training leaves training as it was. Recurrent rungs run in
their `eager` form meanwhile, where every h_t exists by itself; dropout and label smoothing are off.

Papers: Bengio, Simard & Frasconi 1994 and Hochreiter & Schmidhuber 1997 on why gradients vanish.

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

# By name, because a model that was loaded with trust_remote_code has classes of its own.
CELLS = ("RNNCell", "GRUCell", "LSTMCell")
LAYERS = ("WindowLayer", "TransformerLayer", "CrossAttentionLayer")
EMBEDDINGS = ("WordsAndPositions", "Embeddings")
LOSS_PLACES = ("last", "all")


@dataclass(frozen=True)
class StateFlow:
    """The gradient along time of one recurrent layer in one direction, in the order in which the cell read.

    Args:
        hidden: (B, T), norm of dL/dh_t; nan where the input is padding.
        memory: (B, T), norm of dL/dc_t; None but for the LSTM.
        gates: (B, T, D), what of the old state each step keeps: the LSTM's forget gate, the GRU's update gate; 1 at
            padding, None for the plain cell.
        positions: (T,), where in the text each step reads.
    """

    hidden: np.ndarray
    memory: np.ndarray | None
    gates: np.ndarray | None
    positions: np.ndarray

    @property
    def ends(self) -> np.ndarray:
        """(B,), the last step of each row that the loss depends on; -1 where it depends on none."""
        steps = np.arange(self.hidden.shape[1])
        return np.where(np.nan_to_num(self.hidden) > 0, steps, -1).max(axis=1)

    def by_distance(self, what: str = "hidden") -> np.ndarray:
        """(T,), the mean norm so many real steps before the row's last one; no entry where no row is so long.

        Args:
            what: `hidden` or, for the LSTM, `memory`.
        """
        norms = getattr(self, what)
        if norms is None:
            raise ValueError(f"this cell has no {what}: only an LSTM has a memory beside its hidden state")
        return _mean_by_distance([row[: end + 1] for row, end in zip(norms, self.ends, strict=True)])

    def gate_products(self) -> np.ndarray:
        """(T,), by distance: the product of all gates from there to the last step, mean over units and rows.

        It is what the way through the gates alone lets pass: for the LSTM dc_end/dc_t with the gates held fixed.
        """
        if self.gates is None:
            raise ValueError("a plain recurrent cell has no gates; use 'gru' or 'lstm'")
        rows = []
        for gates, norms, end in zip(self.gates, self.hidden, self.ends, strict=True):
            later = np.ones_like(gates[: end + 1])  # (T, D)
            later[:-1] = np.cumprod(gates[1 : end + 1][::-1], axis=0)[::-1]
            rows.append(np.where(np.isnan(norms[: end + 1]), np.nan, later.mean(axis=-1)))
        return _mean_by_distance(rows)


@dataclass(frozen=True)
class GradientFlow:
    """Norms of the loss's gradient.

    Args:
        loss: The loss whose gradient it is.
        states: By recurrent layer, as `layer 1`, `encoder layer 2`, `layer 1 backwards`.
        layers: Norm of dL/d(states) by layer, `words` first: all rows, positions and directions together.
        positions: (B, T) by layer, the same position by position; none for layers that were run without their padding.
        parameters: Norm of dL/dW for every weight that learns.
    """

    loss: float
    states: dict[str, StateFlow] = field(default_factory=dict)
    layers: dict[str, float] = field(default_factory=dict)
    positions: dict[str, np.ndarray] = field(default_factory=dict)
    parameters: dict[str, float] = field(default_factory=dict)

    def rows(self) -> list[dict[str, Any]]:
        """All norms as one table: what, where, batch row and position (empty for sums over them), norm."""
        found = [_row("layer", name, norm) for name, norm in self.layers.items()]
        found += [_row("parameter", name, norm) for name, norm in self.parameters.items()]
        tables = [("position", name, norms, range(norms.shape[1])) for name, norms in self.positions.items()]
        for name, state in self.states.items():
            tables.append(("hidden state", name, state.hidden, state.positions))
            if state.memory is not None:
                tables.append(("memory", name, state.memory, state.positions))
        for what, name, norms, places in tables:
            for number, row in enumerate(norms):
                found += [_row(what, name, norm, number, int(place)) for place, norm in zip(places, row, strict=True)]
        return found


def _row(what: str, where: str, norm: float, row: int | str = "", position: int | str = "") -> dict[str, Any]:
    return {"what": what, "where": where, "row": row, "position": position, "norm": float(norm)}


def gradient_flow(model: nn.Module, batch: Mapping[str, Tensor], loss_at: str = "last") -> GradientFlow:
    """Measure one batch.

    Args:
        batch: What the model takes in training. Without `labels` a language model predicts its own input.
        loss_at: `last` counts only the last label of each row, so that distance means something; `all` counts all.
    """
    if loss_at not in LOSS_PLACES:
        raise ValueError(f"loss_at '{loss_at}' is not known; choose one of {', '.join(LOSS_PLACES)}")
    batch = {name: value.to(model.device) for name, value in batch.items()}
    batch = with_labels(model, batch)
    if loss_at == "last" and batch.get("labels") is not None:
        batch["labels"] = last_labels(batch["labels"])
    with _measuring(model) as trace:
        loss = getattr(model(**batch, return_dict=True), "loss", None)
        if loss is None:
            raise ValueError(f"{type(model).__name__} gave no loss for {', '.join(batch)}; add its labels to the batch")
        return trace.flow(loss, batch)


def with_labels(model: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """The batch, with a language model's own input as its labels."""
    if "labels" in batch or not type(model).__name__.endswith("ForCausalLM"):
        return batch
    labels, mask = batch["input_ids"].clone(), batch.get("attention_mask")
    return batch | {"labels": labels if mask is None else labels.masked_fill(mask == 0, -100)}


def last_labels(labels: Tensor) -> Tensor:
    """Only the last label of each row; one label for a whole row is left as it is."""
    if labels.ndim < 2 or torch.is_floating_point(labels):
        return labels
    places = torch.arange(labels.shape[1], device=labels.device)
    last = torch.where(labels != -100, places, -1).amax(dim=1, keepdim=True)  # (B, 1)
    return labels.masked_fill(places != last, -100)


def keep_gate(cell: nn.Module, step: Tensor, state: Sequence[Tensor]) -> Tensor | None:
    """(B, D), the share of the old state that a step keeps: forget gate of an LSTM, update gate of a GRU."""
    if cell.gates == 1:
        return None
    from_both = cell.from_input(step) + cell.from_state(state[0])
    return from_both.chunk(cell.gates, dim=-1)[1].sigmoid()


class _Trace:
    """What hooks saw in one forward pass, by module name."""

    def __init__(self, model: nn.Module):
        self.model = model
        self.cells = {name: module for name, module in model.named_modules() if type(module).__name__ in CELLS}
        self.steps: dict[str, list[tuple[Tensor, ...]]] = {name: [] for name in self.cells}
        self.gates: dict[str, list[Tensor]] = {name: [] for name in self.cells}
        self.outputs: dict[str, Tensor] = {}
        self.learning = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}

    def hooks(self) -> Iterator[Any]:
        for name, cell in self.cells.items():
            yield cell.register_forward_hook(lambda *call, name=name: self.see_step(name, *call))
        for name, module in _layers_of(self.model):
            yield module.register_forward_hook(lambda *call, name=name: self.see_layer(name, *call))

    def see_step(self, name: str, cell: nn.Module, inputs: tuple, state: tuple[Tensor, ...]) -> None:
        self.steps[name].append(state)
        with torch.no_grad():
            gate = keep_gate(cell, *inputs)
        if gate is not None:
            self.gates[name].append(gate)

    def see_layer(self, name: str, module: nn.Module, inputs: tuple, output: Any) -> None:
        self.outputs[name] = output[0] if isinstance(output, tuple) else output

    def flow(self, loss: Tensor, batch: Mapping[str, Tensor]) -> GradientFlow:
        tensors = [part for steps in self.steps.values() for state in steps for part in state]
        tensors += [*self.outputs.values(), *self.learning.values()]
        grads = torch.autograd.grad(loss, tensors, allow_unused=True)
        found = {id(tensor): grad for tensor, grad in zip(tensors, grads, strict=True)}
        states = {_spoken(name): self.state_flow(name, found, batch) for name in self.cells if self.steps[name]}
        layers, positions = self.layer_norms(found, states)
        return GradientFlow(
            loss=float(loss.detach()),
            states=states,
            layers=layers,
            positions=positions,
            parameters={name: float(_norms(weight, found, None)) for name, weight in self.learning.items()},
        )

    def layer_norms(self, found: dict[int, Tensor | None], states: dict[str, StateFlow]) -> tuple[dict, dict]:
        """Norms by layer and by layer and position, in the model's order; both directions of a layer as one."""
        squares: dict[str, np.ndarray] = {}
        for name, _ in self.model.named_modules():
            if name in self.outputs:
                squares[_spoken(name)] = _norms(self.outputs[name], found, -1).cpu().numpy() ** 2
            elif name in self.cells and self.steps[name]:
                state = states[_spoken(name)]
                by_place = np.nan_to_num(state.hidden[:, state.positions]) ** 2  # its own inverse: turned or as it is
                layer = _spoken(name).removesuffix(" backwards")
                squares[layer] = squares.get(layer, 0.0) + by_place
        layers = {name: float(np.sqrt(square.sum())) for name, square in squares.items()}
        return layers, {name: np.sqrt(square) for name, square in squares.items() if square.ndim == 2}

    def state_flow(self, name: str, found: dict[int, Tensor | None], batch: Mapping[str, Tensor]) -> StateFlow:
        states = zip(*self.steps[name], strict=True)  # all h_t, then all c_t
        parts = [torch.stack([_norms(part, found, -1) for part in steps], dim=1) for steps in states]
        gates = torch.stack(self.gates[name], dim=1).float().cpu().numpy() if self.gates[name] else None
        length = parts[0].shape[1]
        positions = np.arange(length)[:: -1 if self.is_backwards(name) else 1]
        keep = self.mask_of(name, batch, length)[:, positions]  # (B, T)
        norms = [np.where(keep, part.cpu().numpy(), np.nan) for part in parts]
        if gates is not None:
            gates = np.where(keep[:, :, None], gates, 1.0)
        return StateFlow(norms[0], norms[1] if len(norms) > 1 else None, gates, positions)

    def mask_of(self, name: str, batch: Mapping[str, Tensor], length: int) -> np.ndarray:
        """(B, T), which inputs of a cell are real; a decoder's are up to its last label, and `ends` sees to that."""
        mask = batch.get("decoder_attention_mask" if _is_decoder(name) else "attention_mask")
        rows = len(next(iter(batch.values())))
        return np.ones((rows, length), dtype=bool) if mask is None else mask.bool().cpu().numpy()

    def is_backwards(self, name: str) -> bool:
        turned = getattr(self.model.config, "reverse_source", False) and "encoder" in name.split(".")
        return turned or name.endswith("backward_cell")


@contextmanager
def _measuring(model: nn.Module) -> Iterator[_Trace]:
    """A trace of the model, which is as it was when this is over."""
    trace = _Trace(model)
    modes = {module: module.training for module in model.modules()}
    frozen = [weight for weight in model.parameters() if not weight.requires_grad]
    with ExitStack() as stack:
        stack.enter_context(torch.enable_grad())
        stack.enter_context(_eager(model))
        for hook in trace.hooks():
            stack.callback(hook.remove)
        try:
            model.eval()
            for weight in frozen:  # or nothing below the first trained weight would have a gradient
                weight.requires_grad_(True)
            yield trace
        finally:
            for weight in frozen:
                weight.requires_grad_(False)
            for module, mode in modes.items():
                module.training = mode


@contextmanager
def _eager(model: nn.Module) -> Iterator[None]:
    """Recurrent layers run step by step, so that every hidden state is a tensor of its own."""
    configs = {id(module.config): module.config for module in model.modules() if hasattr(module, "config")}
    chosen = [config for config in configs.values() if hasattr(config, "recurrent_implementation")]
    before = [config.recurrent_implementation for config in chosen]
    try:
        for config in chosen:
            config.recurrent_implementation = "eager"
        yield
    finally:
        for config, implementation in zip(chosen, before, strict=True):
            config.recurrent_implementation = implementation


def _layers_of(model: nn.Module) -> list[tuple[str, nn.Module]]:
    modules = list(model.named_modules())
    with_positions = any(type(module).__name__ in EMBEDDINGS for _, module in modules)
    return [
        (name, module)
        for name, module in modules
        if type(module).__name__ in LAYERS
        or (type(module).__name__ in EMBEDDINGS if with_positions else name.endswith("embed_tokens"))
    ]


def _spoken(name: str) -> str:
    """`model.encoder.stack.layers.0.backward_cell` is "encoder layer 1 backwards"."""
    parts = name.split(".")
    side = next((part + " " for part in parts if part in ("encoder", "decoder")), "")
    if any(part.startswith("embed") for part in parts):
        return side + "words"
    number = int(parts[parts.index("layers") + 1]) + 1 if "layers" in parts else 1
    return f"{side}layer {number}" + (" backwards" if parts[-1] == "backward_cell" else "")


def _is_decoder(name: str) -> bool:
    return "decoder" in name.split(".")


def _norms(tensor: Tensor, found: dict[int, Tensor | None], dim: int | None) -> Tensor:
    """Norms of a tensor's gradient, zeros where the loss does not depend on it."""
    grad = found[id(tensor)]
    grad = torch.zeros_like(tensor) if grad is None else grad
    # In float64: a gradient of 1e-30 has a square that float32 does not know.
    return torch.linalg.vector_norm(grad.detach(), dim=dim, dtype=torch.float64)


def _mean_by_distance(rows: list[np.ndarray]) -> np.ndarray:
    """Rows that end at distance 0 and have nan at padding, as one mean for each distance."""
    turned = [row[~np.isnan(row)][::-1] for row in rows]
    longest = max(len(row) for row in turned)
    return np.array([np.mean([row[place] for row in turned if place < len(row)]) for place in range(longest)])
