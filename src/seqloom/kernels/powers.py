"""exp(x - max) and its sum, row by row, while the row is in the cache: what a softmax over a vocabulary costs most."""

from __future__ import annotations

import numpy as np

from seqloom.kernels.compiling import kernel

AT_ONCE = 1024
LOG2_E = 1.4426950408889634
# 2^f for 0 <= f < 1, to 1e-7: minimax polynomial, highest power first
C5, C4, C3, C2, C1, C0 = 1.8775767e-3, 8.9893397e-3, 5.5826318e-2, 2.4015361e-1, 6.9315308e-1, 9.9999994e-1


@kernel
def powers(logits: np.ndarray, bias: np.ndarray, largest: np.ndarray, sums: np.ndarray) -> None:
    """logits (rows, symbols) become exp(logits + bias - largest of that); `largest` and `sums` (rows,) are filled in.

    Of each row only as many count as `bias` has; what follows them fills the memory up.

    exp(x) = 2^m 2^f with m whole: 2^m is m put into the exponent of a float, 2^f a polynomial.
    """
    exponents = np.empty(AT_ONCE, np.int32)
    scales = exponents.view(np.float32)
    log2_e = np.float32(LOG2_E)
    for number in range(logits.shape[0]):
        row = logits[number][: bias.shape[0]]
        most = np.float32(-3.4e38)
        for index in range(row.shape[0]):
            value = row[index] + bias[index]
            most = value if value > most else most
        total = np.float32(0.0)
        for start in range(0, row.shape[0], AT_ONCE):
            end = min(row.shape[0], start + AT_ONCE)
            part, offsets = row[start:end], bias[start:end]
            for index in range(part.shape[0]):
                power = (part[index] + offsets[index] - most) * log2_e
                power = power if power > np.float32(-126.0) else np.float32(-126.0)
                whole = np.int32(power + np.float32(127.0))  # rounds down: it is positive
                rest = power - (np.float32(whole) - np.float32(127.0))
                value = np.float32(C5)
                value = value * rest + np.float32(C4)
                value = value * rest + np.float32(C3)
                value = value * rest + np.float32(C2)
                value = value * rest + np.float32(C1)
                value = value * rest + np.float32(C0)
                part[index] = value
                exponents[index] = whole << np.int32(23)
            for index in range(part.shape[0]):
                value = part[index] * scales[index]
                part[index] = value
                total += value
        largest[number] = most
        sums[number] = total


@kernel
def narrow_powers(logits: np.ndarray, bias: np.ndarray, largest: np.ndarray, sums: np.ndarray) -> None:
    """`powers` of bfloat16 numbers: `logits` are their bits, uint16, which are the upper half of a float32's.

    What is written is rounded to the nearest, of two equally near to the even one; what is summed up is not.
    """
    bits, exponents = np.empty(AT_ONCE, np.uint32), np.empty(AT_ONCE, np.int32)
    values, scales = bits.view(np.float32), exponents.view(np.float32)
    log2_e, half = np.float32(LOG2_E), np.uint32(16)
    for number in range(logits.shape[0]):
        row = logits[number][: bias.shape[0]]
        most = np.float32(-3.4e38)
        for start in range(0, row.shape[0], AT_ONCE):
            end = min(row.shape[0], start + AT_ONCE)
            part, offsets = row[start:end], bias[start:end]
            for index in range(part.shape[0]):
                bits[index] = np.uint32(part[index]) << half
            for index in range(part.shape[0]):
                value = values[index] + offsets[index]
                most = value if value > most else most
        total = np.float32(0.0)
        for start in range(0, row.shape[0], AT_ONCE):
            end = min(row.shape[0], start + AT_ONCE)
            part, offsets = row[start:end], bias[start:end]
            for index in range(part.shape[0]):
                bits[index] = np.uint32(part[index]) << half
            for index in range(part.shape[0]):
                power = (values[index] + offsets[index] - most) * log2_e
                power = power if power > np.float32(-126.0) else np.float32(-126.0)
                whole = np.int32(power + np.float32(127.0))  # rounds down: it is positive
                rest = power - (np.float32(whole) - np.float32(127.0))
                value = np.float32(C5)
                value = value * rest + np.float32(C4)
                value = value * rest + np.float32(C3)
                value = value * rest + np.float32(C2)
                value = value * rest + np.float32(C1)
                value = value * rest + np.float32(C0)
                values[index] = value
                exponents[index] = whole << np.int32(23)
            for index in range(part.shape[0]):
                value = values[index] * scales[index]
                values[index] = value
                total += value
            for index in range(part.shape[0]):
                whole_bits = bits[index]
                odd = (whole_bits >> half) & np.uint32(1)
                part[index] = np.uint16((whole_bits + np.uint32(0x7FFF) + odd) >> half)
        largest[number] = most
        sums[number] = total
