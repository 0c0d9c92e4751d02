"""What the benchmarks share: interleaved rounds on the CPU's clock, the machine, the peak of its kernels, memory.

Seconds are CPU time of the process: on a shared machine it varies far less than the wall time. With more than one
thread it is the sum of all of them.
"""

import ctypes
import platform
import statistics
import time
from pathlib import Path

import torch
import torch.nn.functional as F

from hf_edu_models import cpu_kernels


def medians(functions, rounds):
    """Median seconds of each function by name; they take turns, and the first round is a warm-up."""
    times = {name: [] for name in functions}
    for number in range(rounds + 1):
        for name, function in functions.items():
            start = time.process_time()
            function()
            if number:
                times[name].append(time.process_time() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def machine(choice):
    """CPU, torch, threads and kernels in one line."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "cpu family"))]
    cpu = " family ".join(names[1::-1]) or platform.processor() or platform.machine()
    return f"{cpu}, torch {torch.__version__}, {torch.get_num_threads()} thread(s), kernels {choice}"


def matrix_peaks(choices, rounds=15):
    """GFLOP/s of one large matrix product with each choice of `cpu_kernels`."""
    rows, inner, columns = 1024, 512, 1024
    left, right = torch.rand(rows, inner), torch.rand(columns, inner)
    functions = {choice: with_kernels(choice, lambda: F.linear(left, right)) for choice in choices}
    return {name: 2 * rows * inner * columns / seconds / 1e9 for name, seconds in medians(functions, rounds).items()}


def with_kernels(choice, function):
    def run():
        with cpu_kernels.enabled(choice):
            return function()

    return run


def resident_growth(function):
    """Bytes by which the process grows while `function` runs, None where the system does not count them.

    torch's own count does not show a heap that grows because its free parts are too small.
    """
    status, reset = Path("/proc/self/status"), Path("/proc/self/clear_refs")
    if not reset.exists():
        return None

    def read(name):
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith(name)) * 1024

    trim = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: None)  # only glibc has it
    trim(0)
    reset.write_text("5")  # the peak starts at what is resident now
    before = read("VmRSS")
    function()
    return max(read("VmHWM") - before, 0)
