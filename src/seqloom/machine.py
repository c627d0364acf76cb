"""What this machine offers."""

from __future__ import annotations

import os


def num_cores() -> int:
    """Cores this process may use; OMP_NUM_THREADS lowers it, as it does elsewhere."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    told = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(told)) if told.isdigit() and int(told) else cores
