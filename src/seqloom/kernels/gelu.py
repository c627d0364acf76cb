"""x Φ(x), the Gaussian error linear unit, and its slope in one pass: both need the same power of e.

Φ is the share of a normal distribution below x. Its tail is a polynomial of t = 1 / (1 + p |x| / √2) times exp(-x² / 2)
(Abramowitz & Stegun 1964, 7.1.26), right to 1e-7.

This module needs Numba when it is imported, so whoever uses it imports it when something is compiled.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

# Compiled with the lanes of 05b3f0a760f3: a change there must be one here, or old code is used
from seqloom.kernels.lanes import (
    LANES,
    absolute,
    divide,
    exponential,
    load,
    multiply_add,
    spread,
    store,
    where_positive,
)

P = np.float32(0.3275911 / math.sqrt(2))
A1, A2, A3, A4, A5 = (np.float32(a / 2) for a in (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429))
DENSITY = np.float32(1 / math.sqrt(2 * math.pi))  # of a normal distribution at 0

compiled = njit(cache=True, nogil=True, fastmath={"contract", "nsz", "arcp"}, error_model="numpy")


@compiled
def bend(values, bias, out, slopes):  # type: ignore[no-untyped-def]
    """out = x * Φ(x) and slopes = Φ(x) + x * φ(x) of x = values + bias.

    `values`, `out` and `slopes` are rows of bias.shape[0] numbers, which lanes divide, without anything between rows;
    `slopes` may be `values`.
    """
    none, one, minus, half = (
        spread(np.float32(0.0)),
        spread(np.float32(1.0)),
        spread(np.float32(-1.0)),
        spread(np.float32(-0.5)),
    )
    column, columns = 0, bias.shape[0]
    for place in range(0, values.shape[0], LANES):
        x = multiply_add(load(bias, column), one, load(values, place))
        column = column + LANES if column + LANES < columns else 0
        t = divide(one, multiply_add(spread(P), absolute(x), one))
        power = exponential(multiply_add(multiply_add(x, x, none), half, none))
        tail = multiply_add(spread(A5), t, spread(A4))
        tail = multiply_add(tail, t, spread(A3))
        tail = multiply_add(tail, t, spread(A2))
        tail = multiply_add(tail, t, spread(A1))
        tail = multiply_add(multiply_add(tail, t, none), power, none)
        below = where_positive(x, multiply_add(tail, minus, one), tail)
        store(out, place, multiply_add(x, below, none))
        store(slopes, place, multiply_add(multiply_add(x, spread(DENSITY), none), power, below))
