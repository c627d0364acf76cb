"""Counts -> probabilities. Each rule is one mixture: a share of what was seen, and the rest for a shorter context.

    p(w | context) = (c(w) - D(c(w))) / total(context) + backoff(context) * p(w | shorter context)

Kneser–Ney takes D from every count; add-k takes nothing, but adds k for every word to the total and mixes with equal
chances for all words. An n-gram that is dropped gives its whole count to the rest. So every rule sums to 1 with any
n-grams dropped, and can be kept in the back-off form of ARPA files: p of the n-grams that are there, and the factor of
each context for all others.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

FALLBACK = (0.5, 1.0, 1.5)
"""Discounts of a text too small to estimate any."""


class Estimates(NamedTuple):
    probabilities: np.ndarray
    """(n-grams,) float64"""
    backoffs: np.ndarray
    """(contexts,) float64: the share of a context that a shorter one fills"""


def estimate_discounts(counts: np.ndarray) -> np.ndarray:
    """What is taken from counts of 1, of 2, and of 3 and more (Chen and Goodman 1998, equation 26).

    D_i = i - (i + 1) Y n_(i+1) / n_i with Y = n_1 / (n_1 + 2 n_2), n_i being how many n-grams have the count i. These
    are no discounts where one of n_1 to n_3 is 0 or a result is not between 0 and i: then all three are `FALLBACK`.
    """
    ones, twos, threes, fours = (int((counts == number).sum()) for number in (1, 2, 3, 4))
    if 0 in (ones, twos, threes):
        return np.array(FALLBACK)
    share = ones / (ones + 2 * twos)
    found = np.array([1 - 2 * share * twos / ones, 2 - 3 * share * threes / twos, 3 - 4 * share * fours / threes])
    return found if (found > 0).all() else np.array(FALLBACK)  # never above i: nothing is added to i


def kneser_ney(
    counts: np.ndarray,
    contexts: np.ndarray,
    num_contexts: int,
    shorter: np.ndarray | float,
    discounts: np.ndarray,
    kept: np.ndarray | None,
) -> Estimates:
    """One order of interpolated modified Kneser–Ney (Chen and Goodman 1998, equation 24).

    Args:
        counts: (n-grams,) of the highest order, or continuation counts below it.
        contexts: (n-grams,) the id of each one's context.
        num_contexts: how many there are.
        shorter: (n-grams,) the probability of each one's last word in the shorter context.
        discounts: (3,) of counts 1, 2, and more.
        kept: (n-grams,) False where one is dropped; None: all are kept.
    """
    taken = np.concatenate([[0.0], discounts])[np.minimum(counts, 3)]
    if kept is not None:
        taken = np.where(kept, taken, counts)
    totals = _sum_by(contexts, counts, num_contexts)
    rest = _sum_by(contexts, taken, num_contexts)
    seen = totals > 0
    totals[~seen] = 1.0
    backoffs = np.where(seen, rest / totals, 1.0)
    return Estimates((counts - taken) / totals[contexts] + backoffs[contexts] * shorter, backoffs)


def add_k(
    counts: np.ndarray,
    contexts: np.ndarray,
    num_contexts: int,
    num_words: int,
    k: float,
    kept: np.ndarray | None,
) -> Estimates:
    """One order of (c + k) / (total + k words); equal chances in contexts that were never seen.

    Args:
        counts: (n-grams,) how often each occurs; 0 for those that only lead to longer ones.
        contexts: (n-grams,) the id of each one's context.
        num_contexts: how many there are.
        num_words: how many different words can follow.
        k: added to every count.
        kept: (n-grams,) False where one is dropped; None: all are kept.
    """
    totals = _sum_by(contexts, counts, num_contexts)
    seen = totals > 0
    totals += k * num_words
    rest = np.full(num_contexts, k * num_words)
    held = counts
    if kept is not None:
        rest += _sum_by(contexts, np.where(kept, 0, counts), num_contexts)
        held = np.where(kept, counts, 0)
    backoffs = np.where(seen, rest / totals, 1.0)
    return Estimates(held / totals[contexts] + backoffs[contexts] / num_words, backoffs)


def _sum_by(contexts: np.ndarray, values: np.ndarray, num_contexts: int) -> np.ndarray:
    """The sum of the values of each context; `bincount` alone gives whole numbers where there is no value at all."""
    return np.bincount(contexts, values, num_contexts).astype(np.float64, copy=False)
