"""The weights of a checkpoint as one safetensors file in float32, float16 or int8, for the page."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from ..checkpoints import weight_files

PRECISIONS = ("float32", "float16", "int8")
_FLOAT32_UP_TO, _FLOAT16_UP_TO = 500_000, 4_000_000  # parameters: a page of 3 MB, and one of 11 MB
_SMALLEST_INT8 = 4_096  # values of a matrix; rounding smaller ones saves nothing


def choose_precision(parameters: int) -> str:
    """How a page stores so many parameters."""
    if parameters <= _FLOAT32_UP_TO:
        return "float32"
    return "float16" if parameters <= _FLOAT16_UP_TO else "int8"


def count_parameters(folder: Path) -> int:
    """Number of parameters, by the headers of the weight files."""
    from safetensors import safe_open

    total = 0
    for file in weight_files(folder):
        with safe_open(file, framework="np") as weights:
            total += sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
    return total


def pack(folder: Path, precision: str) -> bytes:
    """A safetensors file; an int8 matrix `name` has one scale for each row in `name.scales`.

    Integers, such as the spellings of a vocabulary, stay as they are.
    """
    from safetensors.numpy import save
    from safetensors.torch import load_file

    tensors: dict[str, np.ndarray] = {}
    for file in weight_files(folder):
        for name, tensor in load_file(file).items():
            tensors[name] = (tensor.float() if tensor.is_floating_point() else tensor).numpy()
    packed = {}
    for name, values in tensors.items():
        if values.dtype != np.float32:
            packed[name] = values
        elif precision == "int8" and values.ndim == 2 and values.size >= _SMALLEST_INT8:
            packed[name], packed[f"{name}.scales"] = _round_rows(values)
        else:
            packed[name] = values.astype(np.float16 if precision == "float16" else np.float32)
    return save({name: np.ascontiguousarray(values) for name, values in packed.items()})


def _round_rows(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A matrix in int8, with the scale of each row: its largest value becomes 127."""
    scales = np.abs(matrix).max(axis=1) / 127
    safe = np.where(scales > 0, scales, 1)
    return np.rint(matrix / safe[:, None]).astype(np.int8), scales.astype(np.float32)
