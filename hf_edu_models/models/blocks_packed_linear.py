"""Linear layers as functions, for the many small products of decoding.

A call of a module looks its weights up first. For several rows the weights are also packed once, in oneDNN's own
layout: on the one CPU where it was measured (AMD Zen 5), a step's products then take half of the time. Packing costs
about as much as a few steps, so it is not done for a single row.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Function = Callable[[Tensor], Tensor]

_MIN_ROWS = 4
_MAX_NUMBERS = 2**28  # a gigabyte of packed copies


def can_pack(linears: list[nn.Module], rows: int) -> bool:
    """Whether packing pays for so many rows, and this torch has the operators, which are private."""
    weights = [module.weight for module in linears if isinstance(module, nn.Linear)]
    if rows < _MIN_ROWS or not weights or sum(weight.numel() for weight in weights) > _MAX_NUMBERS:
        return False
    is_float_on_cpu = all(weight.device.type == "cpu" and weight.dtype == torch.float32 for weight in weights)
    operators = ("mkldnn::_linear_pointwise", "mkldnn::_reorder_linear_weight")
    has_operators = all(torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU") for name in operators)
    return is_float_on_cpu and has_operators and torch.backends.mkldnn.is_available()


def read_linear(module: nn.Module, rows: int = 0) -> Function:
    """The layer as a function; with packed weights for `rows` rows, unless it is 0."""
    if not isinstance(module, nn.Linear):
        return module.forward
    if not rows:
        return partial(F.linear, weight=module.weight, bias=module.bias)
    packed, bias = torch.ops.mkldnn._reorder_linear_weight(module.weight.detach(), rows), module.bias
    multiply = torch.ops.mkldnn._linear_pointwise.default
    return lambda states: multiply(states.contiguous(), packed, bias, "none", [], "")
