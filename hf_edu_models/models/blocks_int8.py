"""Linear layers with weights of 8 bits, for inference on a CPU: a quarter of the memory to read.

Dynamic quantisation: weights are rounded once, the inputs of a layer at each call, and the product of both is exact
in whole numbers. Each output of the layer and each row of its inputs has a scale of its own, so that a result does not
depend on the other rows of a batch.

Shapes: I inputs and O outputs of a layer, R rows.
"""

import torch
from torch import Tensor, nn

_LARGEST = 127  # of 8 bits with a sign; -128 is left out, so that 0 is the middle


class Int8Linear(nn.Module):
    """y_o = s_o r (q . w_o) + b_o, where W is about s w, x is about r q, and w and q are whole numbers."""

    columns: Tensor
    scales: Tensor
    bias: Tensor | None

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight, scales = _round(linear.weight.detach().float())
        self.register_buffer("columns", weight.t().contiguous())  # w^T (I, O)
        self.register_buffer("scales", scales.flatten())  # s (O,)
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().float())

    def forward(self, states: Tensor) -> Tensor:
        rows, scales = _round(states.reshape(-1, self.in_features))
        outputs = torch._int_mm(rows, self.columns) * self.scales
        outputs = outputs.mul_(scales) if self.bias is None else torch.addcmul(self.bias, outputs, scales)
        return outputs.view(*states.shape[:-1], self.out_features)

    def _save_to_state_dict(self, *args):
        raise ValueError("int8 weights are rounded and only for inference; save the model that they were made from")


def _round(states: Tensor) -> tuple[Tensor, Tensor]:
    """Each row of a matrix as 8-bit integers, and the scale of the row."""
    scales = torch.linalg.vector_norm(states, torch.inf, -1, keepdim=True).mul_(1 / _LARGEST).clamp_(min=1e-30)
    return (states / scales).round_().to(torch.int8), scales


def has_exact_int8() -> bool:
    """Whether this torch multiplies 8-bit integers without overflow on this CPU: the largest products are right."""
    largest = torch.full((1, 64), _LARGEST, dtype=torch.int8)
    try:
        products = torch._int_mm(largest, largest.t().repeat(1, 8))
    except (AttributeError, RuntimeError):
        return False
    return bool((products == 64 * _LARGEST**2).all())


def quantize(model: nn.Module) -> nn.Module:
    """Replace every linear layer of a model on the CPU, in place."""
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear):
                setattr(module, name, Int8Linear(child))
    return model
