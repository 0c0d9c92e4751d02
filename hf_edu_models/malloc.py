"""Configure glibc's malloc for work on a CPU: returning freed memory to the system costs page faults every step."""

from __future__ import annotations

import ctypes
import platform

# Parameters of glibc's mallopt, from its malloc.h.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
_MAX_THRESHOLD = 2**30
_OLD_MAX_THRESHOLD = 2**25  # the limit of glibc before 2.35


def configure_malloc() -> bool:
    """Let glibc reuse freed memory for tensors of up to 1 GiB; return whether it accepted the setting.

    Only a training run and the server call this: a process that imports the library keeps its own settings.
    """
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    is_set = mallopt(MMAP_THRESHOLD, _MAX_THRESHOLD) or mallopt(MMAP_THRESHOLD, _OLD_MAX_THRESHOLD)
    return bool(is_set and mallopt(TRIM_THRESHOLD, 2 * _MAX_THRESHOLD - 1))


keep_freed_memory = configure_malloc  # the earlier name
