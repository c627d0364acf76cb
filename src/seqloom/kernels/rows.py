"""Sums into the rows of a large table, in one pass over what changes."""

from __future__ import annotations

import numpy as np

from seqloom.kernels.compiling import kernel


@kernel
def add_rows_to(into: np.ndarray, places: np.ndarray, rows: np.ndarray, factor: float) -> None:
    """into[places[i]] += factor * rows[i], one after the other; into (symbols, d) and rows (count, d) float32."""
    scale = np.float32(factor)
    for number in range(places.shape[0]):
        row, more = into[places[number]], rows[number]
        for index in range(row.shape[0]):
            row[index] += scale * more[index]


@kernel
def add_narrow_to(into: np.ndarray, bits: np.ndarray, everywhere: np.ndarray, factor: float) -> None:
    """into[i] += factor * (bits[i] + everywhere): float32 (rows, d), bfloat16 as uint16 (rows, d or more), (d,)."""
    scale, half, width = np.float32(factor), np.uint32(16), into.shape[1]
    whole = np.empty(width, np.uint32)
    values = whole.view(np.float32)
    for number in range(into.shape[0]):
        row, given = into[number], bits[number]
        for index in range(width):
            whole[index] = np.uint32(given[index]) << half
        for index in range(width):
            row[index] += scale * (values[index] + everywhere[index])
