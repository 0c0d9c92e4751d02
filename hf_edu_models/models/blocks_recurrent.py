"""Recurrent cells, and the two ways to run them over a sequence.

`eager` is the equations, one step at a time; `fused` hands the same parameters to torch's kernels. The layout of the
parameters is torch's, so a state dict of `nn.LSTM` fits with its names changed.

Shapes: B batch, T time steps, I input size, D hidden size.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer

from .blocks_dropout import Dropout
from .blocks_masks import keep_where, put_back, real_first, reorder

State = tuple[Tensor, ...]  # the hidden state first; the LSTM's memory follows


class RNNCell(nn.Module):
    """Elman 1990: the new state is a squashed sum of input and old state."""

    state_tensors = 1
    gates = 1
    fused_kernel = staticmethod(torch.rnn_tanh)

    def __init__(self, input_size: int, hidden_size: int):
        super().__init__()
        self.hidden_size = hidden_size
        self.input_weight = nn.Parameter(torch.empty(self.gates * hidden_size, input_size))  # W
        self.state_weight = nn.Parameter(torch.empty(self.gates * hidden_size, hidden_size))  # U
        self.input_bias = nn.Parameter(torch.empty(self.gates * hidden_size))
        self.state_bias = nn.Parameter(torch.empty(self.gates * hidden_size))
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(hidden_size**-0.5), hidden_size**-0.5)

    def from_input(self, step: Tensor) -> Tensor:
        return F.linear(step, self.input_weight, self.input_bias)

    def from_state(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.state_weight, self.state_bias)

    def start(self, inputs: Tensor) -> State:
        """The state before the first step: zeros."""
        return (inputs.new_zeros(inputs.shape[0], self.hidden_size),) * self.state_tensors

    def forward(self, step: Tensor, state: State) -> State:
        (hidden,) = state
        hidden = torch.tanh(self.from_input(step) + self.from_state(hidden))  # (B, D)
        return (hidden,)


class GRUCell(RNNCell):
    """Cho et al. 2014: a reset gate and an update gate.

    As in torch and cuDNN the reset gate acts after the product with U, not before it as in the paper.
    """

    gates = 3
    fused_kernel = staticmethod(torch.gru)

    def forward(self, step: Tensor, state: State) -> State:
        (hidden,) = state
        reset_in, update_in, candidate_in = self.from_input(step).chunk(3, dim=-1)
        reset_past, update_past, candidate_past = self.from_state(hidden).chunk(3, dim=-1)
        reset_gate = torch.sigmoid(reset_in + reset_past)  # (B, D)  r
        update_gate = torch.sigmoid(update_in + update_past)  # (B, D)  z
        candidate = torch.tanh(candidate_in + reset_gate * candidate_past)  # (B, D)  h tilde
        hidden = update_gate * hidden + (1 - update_gate) * candidate  # (B, D)
        return (hidden,)


class LSTMCell(RNNCell):
    """Hochreiter & Schmidhuber 1997, with the forget gate of Gers et al. 2000: gates guard a memory."""

    state_tensors = 2
    gates = 4
    fused_kernel = staticmethod(torch.lstm)

    def forward(self, step: Tensor, state: State) -> State:
        hidden, memory = state
        gates = self.from_input(step) + self.from_state(hidden)
        input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=-1)
        forget_gate = torch.sigmoid(forget_gate)  # (B, D)  what of the memory is kept
        input_gate = torch.sigmoid(input_gate)  # (B, D)  what of the candidate is written
        candidate = torch.tanh(candidate)  # (B, D)
        output_gate = torch.sigmoid(output_gate)  # (B, D)  what of the memory is shown
        memory = forget_gate * memory + input_gate * candidate  # (B, D)  cell state
        hidden = output_gate * torch.tanh(memory)  # (B, D)
        return hidden, memory


CELLS = {"rnn": RNNCell, "gru": GRUCell, "lstm": LSTMCell}


def unroll(cell: RNNCell, inputs: Tensor, state: State, keep: Tensor | None) -> tuple[Tensor, State]:
    """Run a cell along time; a padded step leaves the state as it was and shows zeros."""
    outputs = []
    for position, step in enumerate(inputs.unbind(dim=1)):
        new_state = cell(step, state)
        shown = new_state[0]  # (B, D)
        if keep is not None:
            new_state = keep_where(keep[:, position], new_state, state)
            shown = shown * keep[:, position, None]
        state = new_state
        outputs.append(shown)
    return torch.stack(outputs, dim=1), state


class RecurrentLayer(GradientCheckpointingLayer):
    """One layer, in one direction or in both; outputs and states of both are side by side, forward first."""

    def __init__(self, cell_type: str, input_size: int, hidden_size: int, bidirectional: bool = False):
        super().__init__()
        self.forward_cell = CELLS[cell_type](input_size, hidden_size)
        self.backward_cell = CELLS[cell_type](input_size, hidden_size) if bidirectional else None

    def forward(
        self, inputs: Tensor, state: State | None, keep: Tensor | None, implementation: str
    ) -> tuple[Tensor, State]:
        run = self.run_fused if implementation == "fused" else self.run_eager
        return run(inputs, state or self.start(inputs), keep)

    def cells(self) -> list[RNNCell]:
        return [self.forward_cell] if self.backward_cell is None else [self.forward_cell, self.backward_cell]

    def start(self, inputs: Tensor) -> State:
        return side_by_side([cell.start(inputs) for cell in self.cells()])

    def run_eager(self, inputs: Tensor, state: State, keep: Tensor | None) -> tuple[Tensor, State]:
        if self.backward_cell is None:
            return unroll(self.forward_cell, inputs, state, keep)
        forward_state, backward_state = zip(*(part.chunk(2, dim=-1) for part in state), strict=True)
        seen, forward_state = unroll(self.forward_cell, inputs, forward_state, keep)
        flipped_keep = None if keep is None else keep.flip(1)
        coming, backward_state = unroll(self.backward_cell, inputs.flip(1), backward_state, flipped_keep)
        return torch.cat([seen, coming.flip(1)], dim=-1), side_by_side([forward_state, backward_state])

    def run_fused(self, inputs: Tensor, state: State, keep: Tensor | None) -> tuple[Tensor, State]:
        if keep is None:
            return self.run_kernel(inputs, state)
        order = real_first(keep)
        # A row with no token in this stretch still needs one step to be packed; its state is put back below.
        lengths = keep.sum(dim=1).clamp(min=1).cpu()
        packed = pack_padded_sequence(reorder(inputs, order), lengths, batch_first=True, enforce_sorted=False)
        row_order, row_places = packed.sorted_indices, packed.unsorted_indices
        outputs, new_state = self.run_kernel(packed, tuple(part[row_order] for part in state))
        outputs, _ = pad_packed_sequence(outputs, batch_first=True, total_length=inputs.shape[1])
        new_state = tuple(part[row_places] for part in new_state)
        return put_back(outputs, order, keep), keep_where(keep.any(dim=1), new_state, state)

    def run_kernel(self, inputs, state: State):
        """Call torch's kernel on a tensor or on a packed batch."""
        cells = self.cells()
        weights = [
            weight
            for cell in cells
            for weight in (cell.input_weight, cell.state_weight, cell.input_bias, cell.state_bias)
        ]
        # The kernels want (directions, B, D), and a bare tensor unless there are two.
        start = [torch.stack(part.chunk(len(cells), dim=-1)).contiguous() for part in state]
        start = start[0] if len(start) == 1 else start
        kernel = self.forward_cell.fused_kernel
        is_packed = not isinstance(inputs, Tensor)
        if is_packed:
            options = (True, 1, 0.0, self.training, len(cells) == 2)
            outputs, *end = kernel(inputs.data, inputs.batch_sizes, start, weights, *options)
            outputs = inputs._replace(data=outputs)
        else:
            options = (True, 1, 0.0, self.training, len(cells) == 2, True)
            outputs, *end = kernel(inputs, start, weights, *options)
        return outputs, tuple(torch.cat(part.unbind(0), dim=-1) for part in end)


def side_by_side(states: list[State]) -> State:
    """Join the states of several directions part by part."""
    return tuple(torch.cat(parts, dim=-1) for parts in zip(*states, strict=True))


class RecurrentStack(nn.Module):
    """Layers on top of each other."""

    def __init__(
        self,
        cell_type: str,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        dropout: float,
        bidirectional: bool = False,
    ):
        super().__init__()
        output_size = 2 * hidden_size if bidirectional else hidden_size
        sizes = [input_size] + [output_size] * (num_layers - 1)
        self.layers = nn.ModuleList(RecurrentLayer(cell_type, size, hidden_size, bidirectional) for size in sizes)
        self.dropout = Dropout(dropout)

    def forward(
        self, hidden_states: Tensor, states: list[State | None], keep: Tensor | None, implementation: str
    ) -> tuple[list[Tensor], list[State]]:
        """The outputs of every layer, lowest first, and every layer's last state."""
        outputs, new_states = [], []
        for layer, state in zip(self.layers, states, strict=True):
            # Dropout between layers only: along time it would erase the memory (Zaremba et al. 2014).
            layer_input = self.dropout(hidden_states) if outputs else hidden_states
            hidden_states, state = layer(layer_input, state, keep, implementation)
            outputs.append(hidden_states)
            new_states.append(state)
        return outputs, new_states


def init_cell_biases(cell: RNNCell, forget_gate_bias: float) -> None:
    """Biases start at zero, but for the LSTM's forget gate."""
    bias = torch.zeros_like(cell.input_bias)
    if isinstance(cell, LSTMCell):
        bias[cell.hidden_size : 2 * cell.hidden_size] = forget_gate_bias
    init.copy_(cell.input_bias, bias)
    init.zeros_(cell.state_bias)


def init_uniformly(module: nn.Module, bound: float, forget_gate_bias: float) -> None:
    """Weights within plus and minus `bound`, as in Zaremba et al. 2014 and Sutskever et al. 2014; biases as above."""
    if isinstance(module, RNNCell):
        init.uniform_(module.input_weight, -bound, bound)
        init.uniform_(module.state_weight, -bound, bound)
        init_cell_biases(module, forget_gate_bias)
    elif isinstance(module, nn.Linear | nn.Embedding):
        init.uniform_(module.weight, -bound, bound)
        if getattr(module, "bias", None) is not None:
            init.zeros_(module.bias)


def orthogonal_blocks(weight: Tensor, blocks: int) -> Tensor:
    """An orthogonal matrix for each gate, one below the other, of the size of `weight`."""
    values = torch.empty_like(weight)
    for block in values.chunk(blocks):
        nn.init.orthogonal_(block)
    return values
