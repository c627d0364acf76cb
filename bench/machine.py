"""What this machine can do: how fast it multiplies matrices of a model's own shapes, and what it is.

    python -m bench.machine SHAPES.json DTYPE      prints seconds a step would need if it were matrix products alone

Both ways to use the cores are measured, one process with all threads and one process a core, and the faster counts.
Each product is timed whole and in blocks of rows, with its result in memory that is there already; the faster counts.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench.flops import Product
from bench.venvs import ROOT

ROWS_AT_A_TIME = 256


def all_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def num_cores() -> int:
    """Cores this process may use; OMP_NUM_THREADS lowers it, as it does for torch."""
    cores = all_cores()
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(limit)) if limit.isdigit() and int(limit) else cores


def describe_machine() -> str:
    """Processor, cores and versions, in one line."""
    import torch

    name = "unknown processor"
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    threads = "" if num_cores() == all_cores() else f" (OMP_NUM_THREADS={num_cores()})"
    return f"{name}, {all_cores()} cores{threads}, Python {sys.version.split()[0]}, torch {torch.__version__}"


def seconds_of(call: Callable[[], Any], least: float = 0.02, blocks: int = 5) -> float:
    """Median seconds of a call over a few blocks, each long enough to be timed."""
    call()
    start = time.perf_counter()
    call()
    repeats = max(1, int(least / max(1e-7, time.perf_counter() - start)))
    found = []
    for _ in range(blocks):
        start = time.perf_counter()
        for _ in range(repeats):
            call()
        found.append((time.perf_counter() - start) / repeats)
    return statistics.median(found)


def product_seconds(product: Product, dtype: str) -> float:
    """Seconds that the floating-point operations of one product take, forward and both gradients."""
    import torch

    kind = getattr(torch, dtype)

    def rate(rows: int, inner: int, columns: int) -> float:
        """Operations a second."""
        shape = (product.batch,) if product.batch > 1 else ()
        left, right = torch.randn(*shape, rows, inner).to(kind), torch.randn(*shape, inner, columns).to(kind)
        out = torch.empty(*shape, rows, columns, dtype=kind)
        best = seconds_of(lambda: torch.matmul(left, right, out=out))
        if not shape and rows >= 2 * ROWS_AT_A_TIME:
            parts = list(zip(left.split(ROWS_AT_A_TIME), out.split(ROWS_AT_A_TIME), strict=True))

            def in_parts() -> None:
                for some, into in parts:
                    torch.mm(some, right, out=into)

            best = min(best, seconds_of(in_parts))
        return 2.0 * product.batch * rows * inner * columns / best

    m, k, n = product.rows, product.inner, product.columns
    third = product.flop / 3  # forward, gradient of the left factor, gradient of the right one
    return third / rate(m, k, n) + third / rate(m, n, k) + third / rate(k, m, n)


def step_seconds(products: Sequence[Product], dtype: str) -> float:
    """Seconds that all products of a step need in this process."""
    return sum(product_seconds(product, dtype) for product in products)


def measured_rate(products: Sequence[Product], folder: Path, dtype: str = "float32") -> dict[str, float]:
    """GFLOP/s over the products of a step: one process with all threads, and one a core; `best` of both."""
    shapes = folder / "shapes.json"
    shapes.write_text(json.dumps(products), encoding="utf-8")
    flop, cores = sum(product.flop for product in products), num_cores()
    found = {"one process": _rates(shapes, flop, dtype, 1, cores)}
    if cores > 1:
        found[f"{cores} processes"] = _rates(shapes, flop, dtype, cores, 1)
    return {**found, "best": max(found.values())}


def _rates(shapes: Path, flop: float, dtype: str, processes: int, threads: int) -> float:
    """GFLOP/s of so many processes together, all at once."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "bench.machine", str(shapes), dtype]
    started = [
        subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(processes)
    ]
    outputs = [process.communicate()[0] for process in started]
    return sum(flop / float(output.split()[-1]) for output in outputs) / 1e9


def main() -> None:
    products = [Product(*values) for values in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))]
    print(step_seconds(products, sys.argv[2]))


if __name__ == "__main__":
    main()
