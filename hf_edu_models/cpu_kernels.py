"""Run the float32 matrix products of any PyTorch model with oneDNN where it is faster than MKL.

torch ships both libraries and multiplies float32 matrices with MKL. On CPUs that are not Intel's, MKL runs its AVX2
code even where the CPU has AVX-512; oneDNN does not. `probe` times both on this machine, and `enable` routes every
product that gains to oneDNN, forward and backward:

    with cpu_kernels.enabled():
        trainer.train()

How: `aten::mm`, `aten::addmm` and `aten::addmm_` get another kernel for CPU tensors. Autograd, autocast, hooks and
functional transforms are above these kernels and do not change; compiled programs call their own and are not affected.
What oneDNN does not gain, or cannot do (other dtypes, vectors), goes to torch's kernel at a cost of a microsecond.
"""

from __future__ import annotations

import copy
import os
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch
from huggingface_hub import constants
from torch import Tensor, nn

VARIABLE = "HF_EDU_CPU_KERNELS"  # what "auto" means: "off" or a choice of `probe`
_LAYOUTS = ("nt", "nn", "tn")  # x W^T of a linear layer, g W of its inputs' gradient, g^T x of its weights'
_SMALLEST_SIDE = 4  # below it a product is one of vectors, which MKL does better
_PROBE_ROWS, _PROBE_SIDES = 64, (64, 128, 256, 512)
_PROBE_ROUNDS = 7
_MIN_GAIN = 1.1

# CPU time, so that other processes do not matter; on Windows it counts in steps of 16 milliseconds.
_clock = time.perf_counter if sys.platform == "win32" else time.process_time
_library: torch.library.Library | None = None
_choice = "off"


def is_available() -> bool:
    """Whether this torch has oneDNN, its private operator, and a way to call the kernels that are replaced."""
    has_operator = torch._C._dispatch_has_kernel_for_dispatch_key("mkldnn::_linear_pointwise", "CPU")
    return torch.backends.mkldnn.is_available() and has_operator and hasattr(torch.library, "get_kernel")


def probe() -> str:
    """Time both libraries on this machine, in some tens of milliseconds.

    Returns:
        "off", or "onednn:" and, for each of _LAYOUTS, the base-2 logarithm of the number of multiplications from which
        oneDNN is faster; "-" where it never is.
    """
    if not is_available() or _library is not None:
        return _choice
    smallest = [_smallest_gain(layout) for layout in _LAYOUTS]
    return "off" if not any(smallest) else "onednn:" + ",".join(str(size or "-") for size in smallest)


def _smallest_gain(layout: str) -> int | None:
    """Logarithm of the smallest product from which on oneDNN is faster in all that are timed."""
    found = None
    for side in reversed(_PROBE_SIDES):
        first, second = torch.rand(_PROBE_ROWS, side) - 0.5, torch.rand(side, side) - 0.5
        first = first if layout[0] == "n" else first.t().contiguous().t()
        second = second if layout[1] == "n" else second.t().contiguous().t()
        mkl, onednn = _fastest([lambda: torch.mm(first, second), lambda: _multiply(first, second)])  # noqa: B023
        if mkl < _MIN_GAIN * onednn:
            break
        found = (_PROBE_ROWS * side * side).bit_length() - 1
    return found


def _fastest(functions: list[Callable]) -> list[float]:
    """Shortest time of each; their rounds are interleaved, and the first is a warm-up."""
    best = [float("inf")] * len(functions)
    for number in range(_PROBE_ROUNDS + 1):
        for index, function in enumerate(functions):
            start = _clock()
            function()
            if number:
                best[index] = min(best[index], _clock() - start)
    return best


def enable(choice: str = "auto") -> str:
    """Route products to oneDNN until `disable`; return the choice, which can be given again for the same results.

    Args:
        choice: "auto" for that of the environment variable HF_EDU_CPU_KERNELS or of `probe`, "off", or one that
            `probe` returned.
    """
    global _library, _choice
    disable()
    if choice == "auto":
        choice = os.environ.get(VARIABLE) or "auto"
    choice = probe() if choice == "auto" else choice
    limits = read_choice(choice)
    if limits is None:
        return choice
    if not is_available():
        raise ValueError(f"torch {torch.__version__} has no oneDNN on this machine; use cpu_kernels off")
    _library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch warns of every kernel that is replaced
        for name, kernel in _kernels(limits).items():
            _library.impl(name, kernel, "CPU")
    _choice = choice
    return choice


def current() -> str:
    """The choice that is enabled."""
    return _choice


def disable() -> None:
    """Give every product back to torch."""
    global _library, _choice
    if _library is not None:
        _library._destroy()
    _library, _choice = None, "off"


@contextmanager
def enabled(choice: str = "auto") -> Iterator[str]:
    """`enable` for the duration of a `with` block; the choice before it is restored."""
    before = _choice
    try:
        yield enable(choice)
    finally:
        enable(before)


def read_choice(choice: str) -> dict[str, float] | None:
    """Number of multiplications from which oneDNN is used, by layout; None if it is off."""
    if choice == "off":
        return None
    library, _, sizes = choice.partition(":")
    words = sizes.split(",")
    if library != "onednn" or len(words) != len(_LAYOUTS) or not all(word.isdecimal() or word == "-" for word in words):
        raise ValueError(f"cpu_kernels must be auto, off or a choice that a run has saved; got {choice!r}")
    return {
        layout: float("inf") if word == "-" else 2.0 ** int(word) for layout, word in zip(_LAYOUTS, words, strict=True)
    }


def _kernels(limits: dict[str, float]) -> dict[str, Callable]:
    """The kernels that replace torch's, by the name of the operator."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)
    names = ("mm", "addmm", "addmm_")
    mm, addmm, addmm_ = (torch.library.get_kernel(f"aten::{name}", "CPU").call_boxed for name in names)
    of_row_major = limits["nn"], limits["nt"]

    def gains(first: Tensor, second: Tensor) -> bool:
        (rows, inner), columns = first.shape, second.shape[1]
        limit = of_row_major[second.stride(0) == 1] if first.stride(1) == 1 else limits["tn"]
        is_matrix = rows >= _SMALLEST_SIDE and inner >= _SMALLEST_SIDE and columns >= _SMALLEST_SIDE
        return rows * inner * columns >= limit and is_matrix and first.dtype is torch.float32

    def onednn_mm(first: Tensor, second: Tensor) -> Tensor:
        return _multiply(first, second) if gains(first, second) else mm(keys, first, second)

    def onednn_addmm(added: Tensor, first: Tensor, second: Tensor, *, beta=1, alpha=1) -> Tensor:
        if beta != 1 or alpha != 1 or not gains(first, second):
            return addmm(keys, added, first, second, beta=beta, alpha=alpha)
        is_bias = added.ndim == 1 and added.is_contiguous() and len(added) == second.shape[1]
        return _multiply(first, second, added) if is_bias else _multiply(first, second).add_(added)

    def onednn_addmm_(total: Tensor, first: Tensor, second: Tensor, *, beta=1, alpha=1) -> Tensor:
        if beta != 1 or alpha != 1 or not gains(first, second):
            return addmm_(keys, total, first, second, beta=beta, alpha=alpha)
        return total.add_(_multiply(first, second))

    return {"mm": onednn_mm, "addmm": onednn_addmm, "addmm_": onednn_addmm_}


def _multiply(first: Tensor, second: Tensor, bias: Tensor | None = None) -> Tensor:
    """`first @ second + bias` by oneDNN.

    It reads `first` row by row: a transpose is copied, or the transposed product computed if that copies less. `second`
    may be a transpose but no part of a wider matrix, which takes a reference implementation, tens of times slower.
    """
    rows, columns = first.shape[0], second.shape[1]
    if bias is None and first.stride(1) != 1 and first.numel() > second.numel() + rows * columns:
        return _multiply(second.t(), first.t()).t().contiguous()
    weight = second.t()
    if not (second.is_contiguous() or weight.is_contiguous()):
        weight = weight.contiguous()
    return torch.ops.mkldnn._linear_pointwise.default(first.contiguous(), weight, bias, "none", [], None)


def choose_dtype(name: str, model: nn.Module) -> torch.dtype:
    """The dtype to run a model in: float32, bfloat16, or with "auto" the faster one.

    bfloat16 is for models of linear layers and attention: the fused loops of recurrent models are written for float32.
    """
    if name != "auto":
        if name not in ("float32", "bfloat16"):
            raise ValueError(f"dtype must be float32, bfloat16 or auto; got {name!r}")
        return getattr(torch, name)
    device = next(model.parameters()).device.type
    has_attention_only = getattr(model, "_supports_sdpa", False)
    if not has_attention_only or (device == "cuda" and not torch.cuda.is_bf16_supported()):
        return torch.float32
    return torch.bfloat16 if device != "cpu" or has_fast_bfloat16() else torch.float32


def has_fast_bfloat16() -> bool:
    """Whether this CPU computes faster in bfloat16; measured once per machine and kept beside the Hub's cache.

    Another process measures: some virtual machines report AMX and do not allow it, which ends the process.
    """
    machine = f"{_cpu_name()}, torch {torch.__version__}, {torch.get_num_threads()} threads"
    file = Path(constants.HF_HOME) / "hf_edu_models" / "bfloat16.txt"
    with suppress(OSError):
        for line in file.read_text("utf-8").splitlines():
            if line.startswith(machine + ": "):
                return line.endswith(": faster")
    code = f"import torch; from {__name__} import _measure_bfloat16; _measure_bfloat16({torch.get_num_threads()})"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    answer = "faster" if done.returncode == 0 and float(done.stdout) >= _MIN_GAIN else "not faster"
    with suppress(OSError):  # a read-only home: measured again next time
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as lines:
            lines.write(f"{machine}: {answer}\n")
    return answer == "faster"


def _measure_bfloat16(threads: int) -> None:
    """Print how many times faster a feed-forward network is in bfloat16 than in float32."""
    torch.set_num_threads(threads)
    exact = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256), nn.LayerNorm(256))
    rough = copy.deepcopy(exact).bfloat16()
    inputs = torch.rand(512, 256)
    with torch.no_grad(), enabled():
        float32, bfloat16 = _fastest([lambda: exact(inputs), lambda: rough(inputs.bfloat16())])
    print(float32 / bfloat16)


def _cpu_name() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
