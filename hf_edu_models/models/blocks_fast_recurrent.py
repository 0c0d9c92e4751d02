"""The recurrent decoders on one new token of each row, faster: functions of tensors alone.

A step reads every weight once, and takes little longer than that if it calls few torch functions. So weights that read
the same vector are one matrix, and what the source adds to the cell and to the readout is computed before the first
step: W (sum_j alpha_j h_j) = sum_j alpha_j (W h_j).

Shapes: N sentences, M beams, R = N * M rows, D hidden size, G gates of the cell times D, S source length, A alignment
size, O linear units of the readout.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .blocks_fused_attention import SourceProjection
from .blocks_fused_steps import FUSED_CELLS
from .blocks_generation import is_as_written
from .blocks_losses import is_plain_linear
from .blocks_packed_linear import Function, can_keep, can_pack, read_columns, read_matrix
from .blocks_readout import LinearReadout, MaxoutReadout
from .blocks_recurrent import RecurrentLayer, RecurrentStack, RNNCell, State

Read = Callable[..., Function]  # (owner, name, weights, bias): makes a function of some weights


def reader(module: nn.Module, rows: int) -> Read | None:
    """How to read the weights of a module for so many rows; None where its `forward` has to be called."""
    inner = list(module.modules())
    linear = [child for child in inner if isinstance(child, nn.Linear)]
    is_written = all(map(is_as_written, inner)) and all(map(is_plain_linear, linear))
    if (
        not is_written
        or not can_pack(inner, rows)
        or any(type(weight) is not nn.Parameter for weight in module.parameters())
    ):
        return None
    return partial(read_matrix, rows=rows, is_kept=can_keep(inner))


class FastCell:
    """A cell, as a function of what inputs and state add to its gates (R, G) and of its state."""

    def __init__(self, cell: RNNCell):
        form: Any = FUSED_CELLS[type(cell).__name__]
        self.step = form.step

    def __call__(self, from_input: Tensor, from_state: Tensor, state: State) -> State:
        hidden, cell_state = state if len(state) > 1 else (*state, None)
        hidden, cell_state, _ = self.step(from_input, from_state, hidden, cell_state)
        return (hidden,) if cell_state is None else (hidden, cell_state)


class FastReadout:
    """A readout, as a function of the new state and of what all else adds to its linear units (R, O)."""

    def __init__(self, readout: LinearReadout, read: Read):
        self.from_state = read(readout, "state", [readout.state_proj.weight], None)
        self.has_pairs = type(readout) is MaxoutReadout

    def __call__(self, hidden: Tensor, others: Tensor) -> Tensor:
        units = self.from_state(hidden).add_(others)
        return torch.maximum(units[:, ::2], units[:, 1::2]) if self.has_pairs else units


class FastStack:
    """Recurrent layers, as a function of what a token adds to the gates of the first one (R, G) and of the states."""

    def __init__(self, stack: RecurrentStack, read: Read):
        self.layers: list[tuple] = []
        for layer in stack.layers:
            cell: Any = layer.forward_cell
            from_input = read(cell, "input", [cell.input_weight], cell.input_bias) if self.layers else None
            self.layers.append((from_input, read(cell, "state", [cell.state_weight], cell.state_bias), FastCell(cell)))

    @staticmethod
    def can_read(stack: RecurrentStack) -> bool:
        return all(type(layer) is RecurrentLayer and layer.backward_cell is None for layer in stack.layers)

    def __call__(self, gates: Tensor, states: list[State]) -> list[State]:
        new_states: list[State] = []
        for (from_input, from_state, cell), state in zip(self.layers, states, strict=True):
            gates = gates if from_input is None else from_input(new_states[-1][0])
            new_states.append(cell(gates, from_state(state[0]), state))
        return new_states


class FastStackSteps:
    """A language model, or a decoder that gets nothing of its source but the first state."""

    def __init__(self, stack: RecurrentStack, read: Read):
        cell: Any = stack.layers[0].forward_cell
        self.from_token = read(cell, "input", [cell.input_weight], cell.input_bias)
        self.stack = FastStack(stack, read)

    def __call__(self, embeddings: Tensor, states: list[State]) -> tuple[Tensor, list[State]]:
        states = self.stack(self.from_token(embeddings), states)
        return states[-1][0], states

    def keep(self, rows: Tensor) -> None:
        """There is nothing to drop."""


class FastContextSteps:
    """A decoder whose first layer and readout read one context vector (R, D) at each step."""

    def __init__(self, stack: RecurrentStack, readout: LinearReadout, read: Read, contexts: Tensor):
        cell: Any = stack.layers[0].forward_cell
        size, self.gates = readout.word_proj.in_features, len(cell.input_weight)
        self.from_token = read(cell, "token", [cell.input_weight[:, :size], readout.word_proj.weight], None)
        matrix = torch.cat([cell.input_weight[:, size:], readout.context_proj.weight])
        self.from_context = F.linear(contexts, matrix, torch.cat([cell.input_bias, readout.state_proj.bias]))
        self.stack, self.readout = FastStack(stack, read), FastReadout(readout, read)

    def __call__(self, embeddings: Tensor, states: list[State]) -> tuple[Tensor, list[State]]:
        sums = self.from_token(embeddings).add_(self.from_context)  # (R, G + O)
        states = self.stack(sums[:, : self.gates], states)
        return self.readout(states[-1][0], sums[:, self.gates :]), states

    def keep(self, rows: Tensor) -> None:
        self.from_context = self.from_context[rows]


class FastAttentiveSteps:
    """A decoder that attends over its source at each step.

    Args:
        source, annotations, mask: with one row for each beam; the mask (R, S) is True for a real token, or None.
    """

    def __init__(
        self, decoder: Any, read: Read, source: SourceProjection, annotations: Tensor, mask: Tensor | None, beams: int
    ):
        cell, score, readout = decoder.cell, decoder.score, decoder.readout
        tokens = [cell.input_weight[:, : readout.word_proj.in_features], readout.word_proj.weight]
        self.from_token = read(cell, "token", tokens, torch.cat([cell.input_bias, readout.state_proj.bias]))
        queries = [score.query_weight] if hasattr(score, "query_weight") else []
        self.queries = sum(map(len, queries))
        bias = F.pad(cell.state_bias, (self.queries, 0))
        self.from_state = read(score, "state", [*queries, cell.state_weight], bias)
        self.cell, self.readout = FastCell(cell), FastReadout(readout, read)
        self.gates, self.beams = len(cell.input_weight), beams
        self.score, self.keys, self.vector = score.fused, source.score_keys, getattr(score, "score_vector", None)
        self.scratch, self.is_hidden = self.score.new_scratch(self.keys), None if mask is None else ~mask
        from_source = F.linear(annotations[::beams], readout.context_proj.weight)
        values = torch.cat([source.cell_inputs[::beams], from_source], dim=-1)  # (N, S, G + O)
        self.values = values
        self.sum_values = read_columns(self.values[0], None, rows=1)

    def __call__(self, embeddings: Tensor, states: list[State]) -> tuple[Tensor, list[State]]:
        (state,) = states
        sums = self.from_state(state[0])  # (R, A + G)
        scores = self.score.step(state[0], sums[:, : self.queries], self.keys, self.vector, self.scratch)
        if self.is_hidden is not None:
            scores = scores.masked_fill(self.is_hidden, torch.finfo(scores.dtype).min)
        inputs = self.add_source(self.from_token(embeddings), scores.softmax(dim=-1))  # (R, G + O)
        state = self.cell(inputs[:, : self.gates], sums[:, self.queries :], state)
        return self.readout(state[0], inputs[:, self.gates :]), [state]

    def add_source(self, inputs: Tensor, weights: Tensor) -> Tensor:
        """Add the mean of the values that the weights (R, S) make."""
        if len(weights) == 1:
            return inputs.add_(self.sum_values(weights))
        sentences = len(self.values)
        weights, inputs = weights.view(sentences, self.beams, -1), inputs.view(sentences, self.beams, -1)
        return torch.baddbmm(inputs, weights, self.values).flatten(0, 1)

    def keep(self, rows: Tensor) -> None:
        self.keys, self.values = self.keys[rows], self.values[rows[:: self.beams] // self.beams]
        self.is_hidden = None if self.is_hidden is None else self.is_hidden[rows]
        self.sum_values = read_columns(self.values[0], None, rows=1)
