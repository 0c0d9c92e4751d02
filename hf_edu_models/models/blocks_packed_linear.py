"""Linear layers as functions, for the many small products of decoding.

A step reads every weight once, and takes as long as that. So the weights are copied into another layout first: for
one row transposed, for several rows packed by oneDNN. On the CPUs where it was measured (AMD Zen 4 and Zen 5),
products then took half of the time. A copy costs as much as a few steps and is kept for the next call, as long as its
layer lives and the weights are the same.
"""

from collections.abc import Callable, Iterable
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
    """Weights of a module in the layout for so many rows, and what they were copied from."""

    layout: int
    versions: list[int]
    sums: Tensor
    weight: Tensor


_copies: WeakKeyDictionary[nn.Module, dict[str, Copy]] = WeakKeyDictionary()


def can_pack(linears: Iterable[nn.Module], rows: int) -> bool:
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


def can_keep(linears: Iterable[nn.Module]) -> bool:
    """Whether copies of these layers may be kept for the next call. Inference tensors do not count their changes."""
    weights = _weights(linears)
    return sum(weight.numel() for weight in weights) <= _MAX_KEPT and not any(map(torch.is_inference, weights))


def _weights(modules: Iterable[nn.Module]) -> list[Tensor]:
    """The matrices of all modules but embeddings."""
    readers = [module for module in modules if not isinstance(module, nn.Embedding)]
    owned = [weight for module in readers for weight in module._parameters.values()]
    return [weight for weight in owned if weight is not None and weight.ndim == 2]


def read_linear(module: nn.Module, rows: int = 0, is_kept: bool = False) -> Function:
    """The layer as a function of states (rows, I); with another layout for `rows` rows, unless it is 0."""
    if not isinstance(module, nn.Linear):
        return module.forward
    weight, bias = module.weight, module.bias
    if not rows:
        return lambda states: F.linear(states, weight, bias)
    return read_matrix(module, "weight", [weight], bias, rows, is_kept)


def read_matrix(
    owner: nn.Module, name: str, weights: list[Tensor], bias: Tensor | None, rows: int, is_kept: bool
) -> Function:
    """x W^T + b as a function of x (rows, I), where W is `weights`, one below the other.

    Args:
        owner, name: for how long the copy is kept, and what it is called.
    """
    packed = _copy(owner, name, weights, rows) if is_kept else _arrange(weights, rows)
    if rows == 1:
        return read_columns(packed, bias, rows)
    multiply = torch.ops.mkldnn._linear_pointwise.default
    return lambda states: multiply(states.contiguous(), packed, bias, "none", [], "")


def read_columns(columns: Tensor, bias: Tensor | None, rows: int) -> Function:
    """x W^T + b as a function of x (rows, I), where `columns` is W^T.

    For one row that is a sum of the columns of W, weighted by x. `embedding_bag` computes such a sum, and its kernel
    for x86 reads memory faster than MKL's product with a vector; but on one thread.
    """
    has_kernel = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512") and columns.dtype == torch.float32
    if rows > 1 or columns.device.type != "cpu" or not has_kernel or torch.get_num_threads() > 1:
        if bias is None:
            return lambda states: torch.mm(states, columns)
        return lambda states: torch.addmm(bias, states, columns)
    bag, start = torch.embedding_bag, torch.zeros(1, dtype=torch.int32)
    every, no, is_sum = torch.arange(len(columns), dtype=torch.int32), False, 0
    if bias is None:
        return lambda states: bag(columns, every, start, no, is_sum, no, states[0])[0]
    return lambda states: bag(columns, every, start, no, is_sum, no, states[0])[0].add_(bias)


def _arrange(weights: list[Tensor], rows: int) -> Tensor:
    weight = weights[0].detach() if len(weights) == 1 else torch.cat([weight.detach() for weight in weights])
    return weight.t().contiguous() if rows == 1 else torch.ops.mkldnn._reorder_linear_weight(weight, rows)


def _copy(owner: nn.Module, name: str, weights: list[Tensor], rows: int) -> Tensor:
    """The weights in the layout for `rows` rows: those of the last call, if they have not changed since.

    A change through `weight.data` is not counted, so W v is compared, too, where the elements of v all differ. A change
    too small to be seen there is as small in a result.
    """
    layout, versions = rows.bit_length(), [weight._version for weight in weights]
    sums = torch.cat([_sum_rows(weight.detach()) for weight in weights])
    copies = _copies.setdefault(owner, {})
    copy = copies.get(name)
    is_same = copy is not None and (copy.layout, copy.versions) == (layout, versions)
    if copy is None or not is_same or not torch.equal(copy.sums, sums):
        copy = copies[name] = Copy(layout, versions, sums, _arrange(weights, rows))
    return copy.weight


def _sum_rows(weight: Tensor) -> Tensor:
    return torch.mv(weight, torch.linspace(1, 2, weight.shape[1], dtype=weight.dtype))
