"""A loop over time steps, as Python runs it and as `torch.export` records it.

A recorded Python loop has as many steps as the example it was recorded with. `scan` is one operation whose length is an
input, in `torch.export` and in ONNX; it computes the same.

Shapes: B batch, T time steps.
"""

import torch
from torch import Tensor

State = tuple[Tensor, ...]  # the hidden state h; for an LSTM also the cell state c


def scan_steps(step, state: State, *sequences: Tensor | None) -> tuple[list[Tensor], State]:
    """Call `step(state, *inputs)` for each time step; it returns the new state and a tuple of outputs.

    Args:
        sequences: (B, T, ...), of which each step gets its part; None stays None.

    Returns:
        The outputs of all steps, each (B, T, ...), and the last state.
    """
    length = next(sequence for sequence in sequences if sequence is not None).shape[1]
    is_one_step = isinstance(length, int) and length == 1  # as in decoding: nothing to loop over
    if torch.compiler.is_exporting() and not is_one_step:
        return _record_scan(step, state, sequences)
    columns = [[None] * length if sequence is None else sequence.unbind(dim=1) for sequence in sequences]
    all_outputs = []
    for inputs in zip(*columns, strict=True):
        state, outputs = step(state, *inputs)
        all_outputs.append(outputs)
    return [torch.stack(parts, dim=1) for parts in zip(*all_outputs, strict=True)], state


def _record_scan(step, state: State, sequences: tuple[Tensor | None, ...]) -> tuple[list[Tensor], State]:
    from torch._higher_order_ops.scan import scan  # private, and needed only here

    is_given = [sequence is not None for sequence in sequences]

    def combine(state, inputs):
        inputs = iter(inputs)
        state, outputs = step(state, *(next(inputs) if given else None for given in is_given))
        return state, tuple(output.clone() for output in outputs)  # `scan` takes no tensor twice

    time_first = tuple(sequence.transpose(0, 1) for sequence in sequences if sequence is not None)
    state, outputs = scan(combine, tuple(part.clone() for part in state), time_first)
    return [output.transpose(0, 1) for output in outputs], state
