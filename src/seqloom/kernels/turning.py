"""Pairs of numbers turned by the angles of their position, for rotary positions: one pass, whatever the layout.

This module needs Numba when it is imported, so whoever uses it imports it when something is compiled.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# Compiled with the lanes of 05b3f0a760f3: a change there must be one here, or old code is used
from seqloom.kernels.lanes import LANES, load, multiply_add, spread, store

compiled = njit(cache=True, nogil=True, fastmath={"contract", "nsz", "arcp"}, error_model="numpy")


@compiled
def turn(sizes, vectors, strides, cosines, sines, sign, out, of_out):  # type: ignore[no-untyped-def]
    """out = vectors turned on their halves by `sign` times the angles; it may be the vectors themselves.

    Args:
        sizes: batch, heads, time, half of a head.
        vectors: flat memory; `strides` are those of batch, head and time.
        cosines: (time, half) of the angles; `sines` likewise.
        sign: 1.0, or -1.0 to turn back.
        out: flat, filled in; `of_out` are its strides.
    """
    batch, heads, length, half = sizes
    whole, none = half - half % LANES, spread(np.float32(0.0))
    ahead, back = spread(np.float32(sign)), spread(np.float32(-sign))
    for number in range(batch):
        for time in range(length):
            for head in range(heads):
                here = number * strides[0] + head * strides[1] + time * strides[2]
                there = number * of_out[0] + head * of_out[1] + time * of_out[2]
                for index in range(0, whole, LANES):
                    cosine, sine = load(cosines, time * half + index), load(sines, time * half + index)
                    first, second = load(vectors, here + index), load(vectors, here + half + index)
                    crossed = multiply_add(multiply_add(second, sine, none), back, none)
                    store(out, there + index, multiply_add(first, cosine, crossed))
                    crossed = multiply_add(multiply_add(first, sine, none), ahead, none)
                    store(out, there + half + index, multiply_add(second, cosine, crossed))
                for index in range(whole, half):
                    cosine_of, sine_of = cosines[time, index], np.float32(sign) * sines[time, index]
                    one, other = vectors[here + index], vectors[here + half + index]
                    out[there + index] = one * cosine_of - other * sine_of
                    out[there + half + index] = other * cosine_of + one * sine_of
