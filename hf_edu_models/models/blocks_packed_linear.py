"""Linear layers as functions, for the many small products of decoding.

A step reads every weight once, and takes as long as that. So the weights are copied into another layout first: for
one row transposed, which MKL reads from memory in one stream; for several rows packed by oneDNN. On the one CPU where
it was measured (AMD Zen 5), products then took half of the time. A copy costs as much as a few steps and is kept for
the next call, as long as its layer lives and the weights are the same.
"""

from collections.abc import Callable
from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Function = Callable[[Tensor], Tensor]

_MIN_ROWS = 4  # for packed weights
_MAX_NUMBERS = 2**28  # a gigabyte of copies
_MAX_KEPT = 2**26  # larger models are copied at each call


class Copy(NamedTuple):
    """The weights of a layer in the layout for so many rows, and what they were copied from."""

    layout: int
    version: int
    row_sums: Tensor
    weight: Tensor


_copies: WeakKeyDictionary[nn.Module, Copy] = WeakKeyDictionary()


def can_pack(linears: list[nn.Module], rows: int) -> bool:
    """Whether other layouts pay for so many rows, and this torch has the operators, which are private."""
    weights = _weights(linears)
    if 1 < rows < _MIN_ROWS or not weights or sum(weight.numel() for weight in weights) > _MAX_NUMBERS:
        return False
    is_float_on_cpu = all(weight.device.type == "cpu" and weight.dtype == torch.float32 for weight in weights)
    if not is_float_on_cpu or not all(weight.is_contiguous() for weight in weights):
        return False
    operators = ("mkldnn::_linear_pointwise", "mkldnn::_reorder_linear_weight")
    has_operators = all(torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU") for name in operators)
    return rows == 1 or (has_operators and torch.backends.mkldnn.is_available())


def can_keep(linears: list[nn.Module]) -> bool:
    """Whether copies of these layers may be kept for the next call. Inference tensors do not count their changes."""
    weights = _weights(linears)
    return sum(weight.numel() for weight in weights) <= _MAX_KEPT and not any(map(torch.is_inference, weights))


def _weights(modules: list[nn.Module]) -> list[Tensor]:
    return [module.weight for module in modules if isinstance(module, nn.Linear)]


def read_linear(module: nn.Module, rows: int = 0, is_kept: bool = False) -> Function:
    """The layer as a function; with another layout for `rows` rows, unless it is 0. One row is a vector."""
    if not isinstance(module, nn.Linear):
        return module.forward
    weight, bias = module.weight, module.bias
    if not rows:
        return lambda states: F.linear(states, weight, bias)
    packed = _copy(module, rows) if is_kept else _arrange(weight, rows)
    if rows == 1:
        columns = packed.t()
        if bias is None:
            return lambda states: torch.mv(columns, states)
        return lambda states: torch.addmv(bias, columns, states)
    multiply = torch.ops.mkldnn._linear_pointwise.default
    return lambda states: multiply(states.contiguous(), packed, bias, "none", [], "")


def _arrange(weight: Tensor, rows: int) -> Tensor:
    weight = weight.detach()
    return weight.t().contiguous() if rows == 1 else torch.ops.mkldnn._reorder_linear_weight(weight, rows)


def _copy(module: nn.Linear, rows: int) -> Tensor:
    """The weights in the layout for `rows` rows: those of the last call, if they have not changed since.

    A change through `weight.data` is not counted, so every row's sum, of its bits as whole numbers, is compared too.
    """
    bits = module.weight.detach().view(torch.int64 if module.in_features % 2 == 0 else torch.int32)
    layout, version, row_sums = rows.bit_length(), module.weight._version, bits.sum(dim=1)
    copy = _copies.get(module)
    is_same = copy is not None and (copy.layout, copy.version) == (layout, version)
    if copy is None or not is_same or not torch.equal(copy.row_sums, row_sums):
        copy = _copies[module] = Copy(layout, version, row_sums, _arrange(module.weight, rows))
    return copy.weight
