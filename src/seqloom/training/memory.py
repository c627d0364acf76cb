"""Memory of this process: how much it took at the most, and how to keep it from being given back at every step."""

from __future__ import annotations

import ctypes
import platform
import sys

LARGEST = 2**31 - 1
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # as in glibc's malloc.h


def keep_freed_memory() -> bool:
    """Ask the C library to keep what is freed for the next request; False where it cannot be asked.

    Every step of a training asks for the same large blocks. Left alone, glibc returns them to the kernel and gets
    them back page by page, zeroed: a fifth of the time of a small model's step.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    large = any(mallopt(_MMAP_THRESHOLD, 2**size) == 1 for size in (30, 25))  # older ones refuse more than 2**25
    return large and mallopt(_TRIM_THRESHOLD, LARGEST) == 1 and mallopt(_TOP_PAD, 2**26) == 1


def peak_memory() -> int | None:
    """Bytes this process has held at the most; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)
