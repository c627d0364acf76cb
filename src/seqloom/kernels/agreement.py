"""How far two softmaxes of one vocabulary disagree, and the gradient of that, while their rows are in the cache."""

from __future__ import annotations

import numpy as np

from seqloom.kernels.compiling import kernel


@kernel
def agree(
    first: np.ndarray,
    second: np.ndarray,
    difference: np.ndarray,
    symbols: int,
    sums: np.ndarray,
    shifts: np.ndarray,
    strength: float,
    found: np.ndarray,
) -> None:
    """Rows of exp(logits - largest) become the gradient of cross-entropy (without its gold part) and disagreement.

    With p = first / sums[0], q = second / sums[1] and d = log p - log q = difference - shifts:

        found = sum (p - q) d,                                 the divergences of p from q and of q from p together
        first = p + strength (p (d - sum p d) + p - q),  second = q + strength (q (sum q d - d) + q - p)

    Args:
        first: (rows, symbols) of one pass, overwritten.
        second: of the other, overwritten.
        difference: (rows, symbols) logits of the first minus logits of the second.
        symbols: of each row; what follows them fills the memory up.
        sums: (2, rows) of `first` and `second`.
        shifts: (rows,) log-sum of the first minus that of the second.
        strength: what the disagreement counts.
        found: (rows,) is filled in.
    """
    factor = np.float32(strength)
    for number in range(first.shape[0]):
        p, q, d = first[number][:symbols], second[number][:symbols], difference[number][:symbols]
        scale_p, scale_q = np.float32(1.0) / sums[0, number], np.float32(1.0) / sums[1, number]
        shift = shifts[number]
        mean_p, mean_q = np.float32(0.0), np.float32(0.0)
        for index in range(p.shape[0]):
            gap = d[index] - shift
            mean_p += p[index] * gap
            mean_q += q[index] * gap
        mean_p *= scale_p
        mean_q *= scale_q
        found[number] = mean_p - mean_q
        for index in range(p.shape[0]):
            one, other, gap = p[index] * scale_p, q[index] * scale_q, d[index] - shift
            apart = one - other
            p[index] = one + factor * (one * (gap - mean_p) + apart)
            q[index] = other + factor * (other * (mean_q - gap) - apart)
