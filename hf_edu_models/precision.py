"""The precision that a model runs in: its checkpoint's, float32, bfloat16, or 8-bit integers."""

from __future__ import annotations

from typing import Any

import torch

from .cpu_kernels import choose_dtype
from .models.blocks_int8 import has_exact_int8, quantize


def set_precision(model: Any, dtype: str | None = None, int8: bool = False, generates: bool = False) -> Any:
    """The model in another precision, for inference.

    Args:
        dtype: float32, bfloat16, or auto: the faster one; the checkpoint's own by default.
        int8: round linear layers to 8 bits, and compute the rest in float32; on the CPU.
        generates: whether `generate()` is what it will run; our searches have float32 alone.
    """
    device = next(model.parameters()).device.type
    if not int8:
        dtype = "float32" if dtype == "auto" and generates and device == "cpu" else dtype
        return model if dtype is None else model.to(choose_dtype(dtype, model))
    if dtype not in (None, "float32"):
        raise ValueError(f"--int8 computes what is not in 8 bits in float32; remove --dtype {dtype}")
    if device != "cpu":
        raise ValueError(f"--int8 runs on the CPU, and the model is on {device}; add --device cpu, or remove --int8")
    if not getattr(model, "_supports_sdpa", False):
        raise ValueError(
            f"--int8 is for models of linear layers and attention, and {type(model).__name__} is recurrent; remove it"
        )
    if not has_exact_int8():
        raise ValueError(f"torch {torch.__version__} does not multiply 8-bit integers on this CPU; remove --int8")
    return quantize(model.float()).eval()
