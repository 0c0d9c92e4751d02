"""Recurrent cells, and the two implementations that unroll them over a sequence.

`eager` computes the equations, one step at a time; `fused` runs torch's kernels on the same parameters. The layout of
the parameters is torch's, so a state dict of `nn.LSTM` fits after renaming its keys.

Shapes: B batch, T time steps, I input size, D hidden size.
"""

import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer

from .blocks_awd_lstm import LockedDropout, WeightDrop
from .blocks_dropout import Dropout
from .blocks_masks import padding_last, reorder, undo_reorder, update_where
from .blocks_scan import State, scan_steps
from .blocks_state_checks import check_layer_input, check_state

# torch's own kernel runs instead, and nobody has to do anything about it.
warnings.filterwarnings("ignore", message="LSTM with projections is not supported with oneDNN")


class RNNCell(nn.Module):
    """Elman 1990: h_t = tanh(W x_t + U h_{t-1} + b)

    Parameters hold the gates one below the other: `input_weight` W, `state_weight` U; b is the sum of two biases.
    """

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

    @property
    def state_sizes(self) -> list[int]:
        """The size of each tensor of the state."""
        return [self.hidden_size] * self.state_tensors

    def weights(self) -> list[Tensor]:
        """The parameters in the order in which torch's kernels take them."""
        return [self.input_weight, self.state_weight, self.input_bias, self.state_bias]

    def from_input(self, step: Tensor) -> Tensor:
        return F.linear(step, self.input_weight, self.input_bias)

    def from_state(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.state_weight, self.state_bias)

    def forward(self, step: Tensor, state: State) -> State:
        (hidden,) = state
        hidden = torch.tanh(self.from_input(step) + self.from_state(hidden))  # (B, D)
        return (hidden,)


class GRUCell(RNNCell):
    """Cho et al. 2014, Eq. (5)-(8): a reset gate r and an update gate z.

    r_t = sigmoid(W_r x_t + U_r h_{t-1})  Eq. (5)
    z_t = sigmoid(W_z x_t + U_z h_{t-1})  Eq. (6)
    h~_t = tanh(W x_t + r_t * (U h_{t-1}))  Eq. (8); the paper has U (r_t * h_{t-1}), torch and cuDNN compute this
    h_t = z_t * h_{t-1} + (1 - z_t) * h~_t  Eq. (7)

    Bahdanau et al. 2015 swap the update gate: h_t = (1 - z_t) * h_{t-1} + z_t * h~_t. We use Cho's form everywhere.
    """

    gates = 3
    fused_kernel = staticmethod(torch.gru)

    def forward(self, step: Tensor, state: State) -> State:
        (hidden,) = state
        reset_in, update_in, candidate_in = self.from_input(step).chunk(3, dim=-1)
        reset_past, update_past, candidate_past = self.from_state(hidden).chunk(3, dim=-1)
        reset_gate = torch.sigmoid(reset_in + reset_past)  # (B, D)  r_t, Eq. (5)
        update_gate = torch.sigmoid(update_in + update_past)  # (B, D)  z_t, Eq. (6)
        candidate = torch.tanh(candidate_in + reset_gate * candidate_past)  # (B, D)  h~_t, Eq. (8)
        hidden = update_gate * hidden + (1 - update_gate) * candidate  # (B, D)  h_t, Eq. (7)
        return (hidden,)


class LSTMCell(RNNCell):
    """Hochreiter & Schmidhuber 1997, with the forget gate f that Gers et al. 2000 added.

    i_t = sigmoid(W_i x_t + U_i h_{t-1} + b_i);  f_t and o_t likewise
    g_t = tanh(W_g x_t + U_g h_{t-1} + b_g)
    c_t = f_t * c_{t-1} + i_t * g_t
    h_t = o_t * tanh(c_t)
    """

    state_tensors = 2
    gates = 4
    fused_kernel = staticmethod(torch.lstm)

    def forward(self, step: Tensor, state: State) -> State:
        hidden, cell_state = state
        gates = self.from_input(step) + self.from_state(hidden)
        input_gate, forget_gate, candidate, output_gate = gates.chunk(4, dim=-1)
        forget_gate = torch.sigmoid(forget_gate)  # (B, D)  f_t: how much of the cell state stays
        input_gate = torch.sigmoid(input_gate)  # (B, D)  i_t: how much of the candidate is added
        candidate = torch.tanh(candidate)  # (B, D)  g_t
        output_gate = torch.sigmoid(output_gate)  # (B, D)  o_t: how much of the cell state is shown
        cell_state = forget_gate * cell_state + input_gate * candidate  # (B, D)  c_t
        hidden = output_gate * torch.tanh(cell_state)  # (B, D)  h_t
        return hidden, cell_state


class ProjectedLSTMCell(LSTMCell):
    """Sak et al. 2014, arXiv:1402.1128: a large cell state c_t behind a small hidden state, r_t = W_r h_t.

    The gates read r_{t-1} instead of h_{t-1}: a language model has many cells, but no matrix of cells by cells.
    """

    def __init__(self, input_size: int, cell_size: int, projection_size: int):
        super().__init__(input_size, cell_size)
        self.projection_size = projection_size
        self.state_weight = nn.Parameter(torch.empty(self.gates * cell_size, projection_size))  # U
        self.projection_weight = nn.Parameter(torch.empty(projection_size, cell_size))  # W_r
        for parameter in (self.state_weight, self.projection_weight):
            nn.init.uniform_(parameter, -(cell_size**-0.5), cell_size**-0.5)

    @property
    def state_sizes(self) -> list[int]:
        return [self.projection_size, self.hidden_size]

    def weights(self) -> list[Tensor]:
        return [*super().weights(), self.projection_weight]

    def forward(self, step: Tensor, state: State) -> State:
        hidden, cell_state = super().forward(step, state)
        hidden = F.linear(hidden, self.projection_weight)  # (B, D)  r_t
        return hidden, cell_state


CELLS = {"rnn": RNNCell, "gru": GRUCell, "lstm": LSTMCell}


def unroll(cell: RNNCell, inputs: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State]:
    """Run a cell along time; at padding the state stays as it was and the output is zero."""

    def step(state, inputs, is_real):
        new_state = cell(inputs, state)
        output = new_state[0]  # (B, D)
        if is_real is None:
            return new_state, (output,)
        return update_where(is_real, new_state, state), (output * is_real[:, None],)

    (outputs,), state = scan_steps(step, state, inputs, mask)
    return outputs, state


class RecurrentLayer(GradientCheckpointingLayer):
    """One layer, in one direction or in both; outputs and states of both are concatenated, forward first."""

    def __init__(
        self,
        cell_type: str,
        input_size: int,
        hidden_size: int,
        bidirectional: bool = False,
        weight_dropout: float = 0.0,
    ):
        super().__init__()
        self.cell_class, self.input_size = CELLS[cell_type], input_size
        self.forward_cell = self.cell_class(input_size, hidden_size)
        self.backward_cell = self.cell_class(input_size, hidden_size) if bidirectional else None
        self.state_sizes = [size * len(self.cells()) for size in self.forward_cell.state_sizes]  # of all directions
        self.weight_drop = WeightDrop(weight_dropout)

    def forward(self, inputs: Tensor, mask: Tensor | None, implementation: str, *state: Tensor) -> tuple[Tensor, ...]:
        """The outputs, then the parts of the new state: reentrant checkpointing sees no tensors inside tuples."""
        run = self.run_fused if implementation == "fused" and self.can_fuse(mask) else self.run_eager
        state = state or self.start(inputs)
        check_layer_input(inputs, self.input_size, next(self.parameters()).dtype)
        check_state(state, [(inputs.shape[0], size) for size in self.state_sizes], inputs.dtype)
        cells = [self.weight_drop(cell) for cell in self.cells()]
        outputs, state = run(cells, inputs, state, mask)
        return outputs, *state

    def can_fuse(self, mask: Tensor | None) -> bool:
        """A traced program does not know the lengths that packing needs, and a traced kernel fixes the length.

        A cell that is wrapped, by PEFT for one, is called: its parameters alone are not what it computes.
        """
        if any(type(cell) is not self.cell_class for cell in self.cells()):
            return False
        return not torch.compiler.is_exporting() and (mask is None or not torch.compiler.is_compiling())

    def cells(self) -> list[RNNCell]:
        return [self.forward_cell] if self.backward_cell is None else [self.forward_cell, self.backward_cell]

    def start(self, inputs: Tensor) -> State:
        """The state before the first step: zeros."""
        return tuple(inputs.new_zeros(inputs.shape[0], size) for size in self.state_sizes)

    def run_eager(self, cells: list, inputs: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State]:
        forward_cell, *backward = cells
        if not backward:
            return unroll(forward_cell, inputs, state, mask)
        forward_state, backward_state = zip(*(part.chunk(2, dim=-1) for part in state), strict=True)
        forward_outputs, forward_state = unroll(forward_cell, inputs, forward_state, mask)
        flipped_mask = None if mask is None else mask.flip(1)
        backward_outputs, backward_state = unroll(backward[0], inputs.flip(1), backward_state, flipped_mask)
        return torch.cat([forward_outputs, backward_outputs.flip(1)], dim=-1), _concatenate_states(
            [forward_state, backward_state]
        )

    def run_fused(self, cells: list, inputs: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State]:
        if mask is None:
            return self.run_kernel(cells, inputs, state)
        order = padding_last(mask)
        # Packing needs a length of at least 1; a row without a token gets its old state back below.
        lengths = mask.sum(dim=1).clamp(min=1).cpu()
        packed = pack_padded_sequence(reorder(inputs, order), lengths, batch_first=True, enforce_sorted=False)
        row_order, row_positions = packed.sorted_indices, packed.unsorted_indices
        outputs, new_state = self.run_kernel(cells, packed, tuple(part[row_order] for part in state))
        outputs, _ = pad_packed_sequence(outputs, batch_first=True, total_length=inputs.shape[1])
        new_state = tuple(part[row_positions] for part in new_state)
        return undo_reorder(outputs, order, mask), update_where(mask.any(dim=1), new_state, state)

    def run_kernel(self, cells: list, inputs, state: State):
        """Call torch's kernel on a tensor or on a packed sequence."""
        weights = [weight for cell in cells for weight in cell.weights()]
        # The kernels take (directions, B, D), and a tensor instead of a list if there is only one.
        start = [torch.stack(part.chunk(len(cells), dim=-1)).contiguous() for part in state]
        start = start[0] if len(start) == 1 else start
        kernel = self.cell_class.fused_kernel
        is_packed = not isinstance(inputs, Tensor)
        if is_packed:
            options = (True, 1, 0.0, self.training, len(cells) == 2)
            outputs, *end = kernel(inputs.data, inputs.batch_sizes, start, weights, *options)
            outputs = inputs._replace(data=outputs)
        else:
            options = (True, 1, 0.0, self.training, len(cells) == 2, True)
            outputs, *end = kernel(inputs, start, weights, *options)
        return outputs, tuple(torch.cat(part.unbind(0), dim=-1) for part in end)


def _concatenate_states(states: list[State]) -> State:
    """Concatenate the states of several directions."""
    return tuple(torch.cat(parts, dim=-1) for parts in zip(*states, strict=True))


class ProjectedLSTMLayer(RecurrentLayer):
    """One layer of an LSTM with projection, in one direction."""

    def __init__(self, input_size: int, cell_size: int, projection_size: int):
        GradientCheckpointingLayer.__init__(self)
        self.cell_class, self.input_size = ProjectedLSTMCell, input_size
        self.forward_cell, self.backward_cell = ProjectedLSTMCell(input_size, cell_size, projection_size), None
        self.state_sizes = self.forward_cell.state_sizes
        self.weight_drop = WeightDrop(0.0)

    def can_fuse(self, mask: Tensor | None) -> bool:
        """torch's kernel takes a projection to as many units as the cell has for none at all."""
        return super().can_fuse(mask) and len(set(self.state_sizes)) == 2


class RecurrentStack(nn.Module):
    """Several layers; each reads the outputs of the one below.

    Args:
        weight_dropout: of the hidden-to-hidden weights.
        variational: whether dropout has one mask for all time steps.
    """

    def __init__(
        self,
        cell_type: str,
        input_size: int,
        hidden_size: int,
        num_layers: int,
        dropout: float,
        bidirectional: bool = False,
        weight_dropout: float = 0.0,
        variational: bool = False,
    ):
        super().__init__()
        output_size = 2 * hidden_size if bidirectional else hidden_size
        sizes = [input_size] + [output_size] * (num_layers - 1)
        self.layers = nn.ModuleList(
            RecurrentLayer(cell_type, size, hidden_size, bidirectional, weight_dropout) for size in sizes
        )
        self.dropout = LockedDropout(dropout) if variational else Dropout(dropout)

    def forward(
        self, hidden_states: Tensor, states: list[State | None], mask: Tensor | None, implementation: str
    ) -> tuple[list[Tensor], list[State]]:
        """The outputs and the last state of every layer, lowest first."""
        outputs, new_states = [], []
        for layer, state in zip(self.layers, states, strict=True):
            # Dropout between layers only: along time it would erase the state (Zaremba et al. 2014).
            layer_input = self.dropout(hidden_states) if outputs else hidden_states
            hidden_states, *new_state = layer(layer_input, mask, implementation, *(state or ()))
            outputs.append(hidden_states)
            new_states.append(tuple(new_state))
        return outputs, new_states


def _init_cell_biases(cell: RNNCell, forget_gate_bias: float) -> None:
    """Biases are initialised to zero, except that of the LSTM's forget gate."""
    bias = torch.zeros_like(cell.input_bias)
    if isinstance(cell, LSTMCell):
        bias[cell.hidden_size : 2 * cell.hidden_size] = forget_gate_bias
    init.copy_(cell.input_bias, bias)
    init.zeros_(cell.state_bias)


def init_uniformly(module: nn.Module, bound: float, forget_gate_bias: float) -> None:
    """Uniform in [-bound, bound], as in Zaremba et al. 2014 and Sutskever et al. 2014; biases as above."""
    if isinstance(module, RNNCell):
        init.uniform_(module.input_weight, -bound, bound)
        init.uniform_(module.state_weight, -bound, bound)
        if isinstance(module, ProjectedLSTMCell):
            init.uniform_(module.projection_weight, -bound, bound)
        _init_cell_biases(module, forget_gate_bias)
    elif isinstance(module, nn.Linear | nn.Embedding):
        init.uniform_(module.weight, -bound, bound)
        if getattr(module, "bias", None) is not None:
            init.zeros_(module.bias)


def init_orthogonally(module: nn.Module, std: float, forget_gate_bias: float) -> None:
    """Normal with deviation `std`; recurrent matrices orthogonal, gate by gate (Bahdanau et al. 2015, App. B.1)."""
    if isinstance(module, RNNCell):
        init.normal_(module.input_weight, std=std)
        init.copy_(module.state_weight, _orthogonal_blocks(module.state_weight, module.gates))
        _init_cell_biases(module, forget_gate_bias)
    elif isinstance(module, nn.Linear | nn.Embedding):
        init.normal_(module.weight, std=std)
        if getattr(module, "bias", None) is not None:
            init.zeros_(module.bias)


def _orthogonal_blocks(weight: Tensor, blocks: int) -> Tensor:
    """An orthogonal matrix for each gate, one below the other, in the shape of `weight`."""
    values = torch.empty_like(weight)
    for block in values.chunk(blocks):
        nn.init.orthogonal_(block)
    return values
