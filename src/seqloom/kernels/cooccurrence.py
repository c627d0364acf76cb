"""Pairs of words that stand near each other, summed: in a table of hashed places, and by sorting without Numba.

A pair is one number, first * num_words + second with first <= second: which of the two came first in the text is
forgotten, so half of a symmetric table is counted.
"""

from __future__ import annotations

import numpy as np

from seqloom.kernels.compiling import kernel

EMPTY = -1
DIGIT_BITS = 11  # places of 2048 digits fit into the first cache
MULTIPLIER = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: spreads neighbouring keys (Knuth 1973, 6.4)


@kernel
def add_pairs(
    tokens: np.ndarray,
    start: int,
    begin: int,
    weights: np.ndarray,
    num_words: int,
    bits: int,
    keys: np.ndarray,
    sums: np.ndarray,
    used: int,
) -> tuple[int, int, int]:
    """Add the pairs of a text to a table until the text ends or the table is three quarters full.

    Args:
        tokens: (tokens,) int32, -1 ends a sentence.
        start: the place to go on at.
        begin: where the sentence of `start` begins.
        weights: (window + 1,) float64: what a pair counts at this distance.
        num_words: different words.
        bits: the table has 2^bits slots.
        keys: (slots,) int64, EMPTY where there is no pair; filled in.
        sums: (slots,) float64; filled in.
        used: slots in use.

    Returns:
        the place to go on at, where its sentence begins, slots in use.
    """
    window = weights.shape[0] - 1
    mask = keys.shape[0] - 1
    room = keys.shape[0] - keys.shape[0] // 4 - window
    shift = np.uint64(64 - bits)
    for place in range(start, tokens.shape[0]):
        if used > room:
            return place, begin, used
        word = np.int64(tokens[place])
        if word < 0:
            begin = place + 1
            continue
        for near in range(max(begin, place - window), place):
            other = np.int64(tokens[near])
            key = word * num_words + other if word < other else other * num_words + word
            slot = np.int64((np.uint64(key) * np.uint64(MULTIPLIER)) >> shift)
            while keys[slot] != key:
                if keys[slot] == EMPTY:
                    keys[slot] = key
                    used += 1
                    break
                slot = (slot + 1) & mask
            sums[slot] += weights[place - near]
    return tokens.shape[0], begin, used


def sum_pairs(tokens: np.ndarray, weights: np.ndarray, num_words: int) -> tuple[np.ndarray, np.ndarray]:
    """The keys of all pairs of a text, sorted, and their sums: the twin of the kernel, in NumPy."""
    sentence = np.cumsum(tokens < 0)
    keys, parts = [np.empty(0, np.int64)], [np.empty(0)]
    for distance in range(1, len(weights)):
        left, right = tokens[:-distance].astype(np.int64), tokens[distance:].astype(np.int64)
        real = (left >= 0) & (right >= 0) & (sentence[:-distance] == sentence[distance:])
        left, right = left[real], right[real]
        keys.append(np.minimum(left, right) * num_words + np.maximum(left, right))
        parts.append(np.full(len(left), weights[distance]))
    return sum_sorted(np.concatenate(keys), np.concatenate(parts))


@kernel
def sort_pairs(
    keys: np.ndarray, values: np.ndarray, spare_keys: np.ndarray, spare_values: np.ndarray, num_digits: int
) -> tuple[np.ndarray, np.ndarray]:
    """Sort by keys from 0 to 2^(DIGIT_BITS * num_digits), digit by digit from the last one, equal keys in their order.

    Several times faster than comparing. All four arrays are written to; two of them are returned.
    """
    places = np.empty((1 << DIGIT_BITS) + 1, np.int64)
    for digit in range(num_digits):
        shift, mask = digit * DIGIT_BITS, (1 << DIGIT_BITS) - 1
        places[:] = 0
        for index in range(keys.shape[0]):
            places[((keys[index] >> shift) & mask) + 1] += 1
        for value in range(mask):
            places[value + 1] += places[value]
        for index in range(keys.shape[0]):
            value = (keys[index] >> shift) & mask
            spare_keys[places[value]] = keys[index]
            spare_values[places[value]] = values[index]
            places[value] += 1
        keys, spare_keys = spare_keys, keys
        values, spare_values = spare_values, values
    return keys, values


def sum_sorted(keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Keys in any order, some several times -> sorted keys, each once, and the sums of their values."""
    order = np.argsort(keys, kind="stable")
    return sum_equal(keys[order], values[order])


def sum_equal(keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same for keys that are sorted already."""
    if not len(keys):
        return keys, values
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return (keys, values) if len(starts) == len(keys) else (keys[starts], np.add.reduceat(values, starts))
