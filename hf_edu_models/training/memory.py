"""Freed memory is kept for the next step: on Linux CPUs, giving it back to the system costs page faults every step."""

from __future__ import annotations

import ctypes
import platform

# Parameters of glibc's mallopt, from its malloc.h.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
LARGEST = 2**30
LARGEST_BEFORE = 2**25  # what glibc before 2.35 allows


def keep_freed_memory() -> bool:
    """Tell glibc to serve tensors of up to a gigabyte from memory that it keeps; return whether it could be told.

    For training runs: a process that only imports the library keeps its own settings.
    """
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    is_told = mallopt(MMAP_THRESHOLD, LARGEST) or mallopt(MMAP_THRESHOLD, LARGEST_BEFORE)
    return bool(is_told and mallopt(TRIM_THRESHOLD, 2 * LARGEST - 1))
