"""Which units a dropout keeps, from a counter: the same seed gives the same choice, so none is ever stored.

Number i of the sequence is SplitMix64's (Steele et al. 2014) for the seed; its eight bytes decide units 8 i … 8 i + 7.
A unit is dropped when its byte is below `levels`, so the rate is a multiple of 1/256.
"""

from __future__ import annotations

import numpy as np

from seqloom.kernels.compiling import kernel

LEVELS = 256
STEP, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def kept_units(count: int, seed: int, levels: int) -> np.ndarray:
    """(count,) True where a unit is kept: the reference of the kernel."""
    bits = np.uint64(seed) + np.arange(1, (count + 7) // 8 + 1, dtype=np.uint64) * np.uint64(STEP)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(FIRST)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(SECOND)
    bits ^= bits >> np.uint64(31)
    return np.asarray(bits.astype("<u8").view(np.uint8)[:count] >= levels)


@kernel
def drop(values: np.ndarray, seed: np.uint64, levels: int, scale: float, out: np.ndarray) -> None:
    """out = values where kept, times `scale`; else 0. All in one pass; both (count,) float32."""
    count = values.shape[0]
    keep, none, limit = np.float32(scale), np.float32(0.0), np.uint64(levels)
    for index in range(count // 8):
        bits = seed + np.uint64(index + 1) * np.uint64(STEP)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(FIRST)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(SECOND)
        bits = bits ^ (bits >> np.uint64(31))
        for place in range(8):
            byte = (bits >> np.uint64(8 * place)) & np.uint64(255)
            out[8 * index + place] = values[8 * index + place] * (keep if byte >= limit else none)
    bits = seed + np.uint64(count // 8 + 1) * np.uint64(STEP)  # the last few, if eight do not divide the count
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(FIRST)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(SECOND)
    bits = bits ^ (bits >> np.uint64(31))
    for place in range(count % 8):
        byte = (bits >> np.uint64(8 * place)) & np.uint64(255)
        out[count - count % 8 + place] = values[count - count % 8 + place] * (keep if byte >= limit else none)
