"""Attention of many short heads, compiled: scores, softmax and context of a head while it is in the cache, and back.

torch's attention is made for long texts; a batch of sentences is many small heads. Here a head's vectors are copied
into small blocks whose sides are filled up to whole lanes, and everything about them is a product of such blocks, four
rows at a time. The weights are kept for the way back. `seqloom.nn.attention.attend` is the twin.

A tensor is given as the flat memory it lies in and three strides (of batch, head and time); its last axis is dense.
This module needs Numba when it is imported, so whoever uses it imports it when something is compiled.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# Compiled with the lanes of 05b3f0a760f3: a change there must be one here, or old code is used
from seqloom.kernels.lanes import (
    LANES,
    divide,
    exponential,
    larger,
    largest,
    load,
    multiply_add,
    spread,
    spread_from,
    store,
    total,
    where_positive,
)

STRIP = 4  # rows that are computed at once
HIDDEN = np.float32(-1e30)  # the score of a key that must not be seen
BLIND = np.float32(-1e29)  # a row whose best score is below sees nothing

compiled = njit(cache=True, nogil=True, fastmath={"contract", "nsz", "arcp"}, error_model="numpy")


def filled_up(size: int) -> int:
    """The next multiple of the lanes."""
    return -(-size // LANES) * LANES


@compiled
def multiply_strip(left, at, row, column, right, width, first, last, out, out_at, columns):  # type: ignore[no-untyped-def]
    """Four rows of a product: out[r, c] = sum of left[at + r * row + k * column] * right[k, c] over first <= k < last.

    Rows of `right` are `width` floats, and so are those of `out`, from `out_at` on; `columns` of them are computed.
    """
    place = 0
    while place + 2 * LANES <= columns:
        a0 = a1 = b0 = b1 = c0 = c1 = d0 = d1 = spread(np.float32(0.0))
        for k in range(first, last):
            source = k * width + place
            x = load(right, source)
            y = load(right, source + LANES)
            here = at + k * column
            one = spread_from(left, here)
            a0 = multiply_add(one, x, a0)
            a1 = multiply_add(one, y, a1)
            one = spread_from(left, here + row)
            b0 = multiply_add(one, x, b0)
            b1 = multiply_add(one, y, b1)
            one = spread_from(left, here + 2 * row)
            c0 = multiply_add(one, x, c0)
            c1 = multiply_add(one, y, c1)
            one = spread_from(left, here + 3 * row)
            d0 = multiply_add(one, x, d0)
            d1 = multiply_add(one, y, d1)
        target = out_at + place
        store(out, target, a0)
        store(out, target + LANES, a1)
        store(out, target + width, b0)
        store(out, target + width + LANES, b1)
        store(out, target + 2 * width, c0)
        store(out, target + 2 * width + LANES, c1)
        store(out, target + 3 * width, d0)
        store(out, target + 3 * width + LANES, d1)
        place += 2 * LANES
    if place < columns:
        a0 = b0 = c0 = d0 = spread(np.float32(0.0))
        for k in range(first, last):
            x = load(right, k * width + place)
            here = at + k * column
            a0 = multiply_add(spread_from(left, here), x, a0)
            b0 = multiply_add(spread_from(left, here + row), x, b0)
            c0 = multiply_add(spread_from(left, here + 2 * row), x, c0)
            d0 = multiply_add(spread_from(left, here + 3 * row), x, d0)
        target = out_at + place
        store(out, target, a0)
        store(out, target + width, b0)
        store(out, target + 2 * width, c0)
        store(out, target + 3 * width, d0)


@compiled
def carry(source, at, stride, length, size, factor, target, to, to_stride):  # type: ignore[no-untyped-def]
    """target[to + t * to_stride + d] = factor * source[at + t * stride + d]; what fills a block up is left as it is."""
    whole, factors, none = size - size % LANES, spread(factor), spread(np.float32(0.0))
    for time in range(length):
        here, there = at + time * stride, to + time * to_stride
        for index in range(0, whole, LANES):
            store(target, there + index, multiply_add(factors, load(source, here + index), none))
        for index in range(whole, size):
            target[there + index] = factor * source[here + index]


@compiled
def take_turned(source, at, stride, length, size, width, block):  # type: ignore[no-untyped-def]
    """block[d, t] = source[at + t * stride + d]."""
    for time in range(length):
        here = at + time * stride
        for index in range(size):
            block[index * width + time] = source[here + index]


@compiled
def weigh(weights, at, columns, visible, own):  # type: ignore[no-untyped-def]
    """Scores of one row become weights that sum to 1, in place; what is not `visible`, or after `own`, is hidden.

    A row that sees nothing gets zeros. Where a score is not a number, no weight of its row is one: maxima and powers
    alone would pass over it.
    """
    for index in range(own + 1, columns):
        weights[at + index] = HIDDEN
    most, spoiled = spread(HIDDEN), spread(np.float32(0.0))
    for place in range(0, columns, LANES):
        score = where_positive(load(visible, place), load(weights, at + place), spread(HIDDEN))
        store(weights, at + place, score)
        most = larger(most, score)
        spoiled = multiply_add(score, spread(np.float32(0.0)), spoiled)
    best, none_or_zero = largest(most), total(spoiled)
    if best < BLIND and none_or_zero == np.float32(0.0):
        for index in range(columns):
            weights[at + index] = np.float32(0.0)
        return
    sums, lower = spread(np.float32(0.0)), spread(-best)
    for place in range(0, columns, LANES):
        raised = exponential(multiply_add(lower, spread(np.float32(1.0)), load(weights, at + place)))
        store(weights, at + place, raised)
        sums = multiply_add(raised, spread(np.float32(1.0)), sums)
    scale = divide(spread(np.float32(1.0)), spread(total(sums) + none_or_zero))
    for place in range(0, columns, LANES):
        store(weights, at + place, multiply_add(load(weights, at + place), scale, spread(np.float32(0.0))))


@compiled
def look(sizes, query, of_query, keys, of_keys, values, of_values, visible, causal, weights, context):  # type: ignore[no-untyped-def]
    """Fills `weights` (batch, heads, queries filled up, keys filled up) and `context` (batch, queries, heads, size).

    Args:
        sizes: batch, heads, queries, keys, head size.
        query: flat memory; `of_query` are its strides; likewise `keys` and `values`.
        visible: (batch or 1, keys filled up) 1 where a key may be seen, else 0.
        causal: whether a query sees only the keys up to its own place.
        weights: flat, filled in.
        context: flat, filled in.
    """
    batch, heads, num_queries, num_keys, size = sizes
    tall, wide, deep = filled(num_queries), filled(num_keys), filled(size)
    one, scale = np.float32(1.0), np.float32(1.0 / np.sqrt(size))
    own_query, own_keys = np.zeros(tall * deep, np.float32), np.zeros(size * wide, np.float32)
    own_values, own_context = np.zeros(wide * deep, np.float32), np.zeros(tall * deep, np.float32)
    for number in range(batch):
        shown = visible[number if visible.shape[0] > 1 else 0]
        for head in range(heads):
            place = number * of_query[0] + head * of_query[1]
            carry(query, place, of_query[2], num_queries, size, scale, own_query, 0, deep)
            place = number * of_keys[0] + head * of_keys[1]
            take_turned(keys, place, of_keys[2], num_keys, size, wide, own_keys)
            place = number * of_values[0] + head * of_values[1]
            carry(values, place, of_values[2], num_keys, size, one, own_values, 0, deep)
            base = (number * heads + head) * tall * wide
            for start in range(0, num_queries, STRIP):
                columns = min(wide, filled(start + STRIP)) if causal else wide
                depth = min(num_keys, start + STRIP) if causal else num_keys
                at = base + start * wide
                multiply_strip(own_query, start * deep, deep, 1, own_keys, wide, 0, size, weights, at, columns)
                for row in range(STRIP):
                    weigh(weights, at + row * wide, columns, shown, min(start + row, num_keys) if causal else num_keys)
                multiply_strip(weights, at, wide, 1, own_values, deep, 0, depth, own_context, start * deep, deep)
            out = (number * num_queries * heads + head) * size
            carry(own_context, 0, deep, num_queries, size, one, context, out, heads * size)


@compiled
def filled(size):  # type: ignore[no-untyped-def]
    """`filled_up`, for compiled code."""
    return (size + LANES - 1) // LANES * LANES


@compiled
def look_back(  # type: ignore[no-untyped-def]
    sizes, query, of_query, keys, of_keys, values, of_values, causal, weights, of_context, by_context, pulls, stride
):
    """The gradients of `look`: of query, keys and values, each (batch, time, heads, size) and flat, in `pulls`.

    `of_context` is the gradient of the context, `by_context` its strides; `stride` is that of time in the pulls.
    """
    batch, heads, num_queries, num_keys, size = sizes
    tall, wide, deep = filled(num_queries), filled(num_keys), filled(size)
    one, none, scale = np.float32(1.0), spread(np.float32(0.0)), np.float32(1.0 / np.sqrt(size))
    own_query, own_pull = np.zeros(tall * deep, np.float32), np.zeros(tall * deep, np.float32)
    own_keys, own_values = np.zeros(wide * deep, np.float32), np.zeros(size * wide, np.float32)
    of_scores, found = np.zeros(tall * wide, np.float32), np.zeros(max(tall, wide) * deep, np.float32)
    pull_query, pull_keys, pull_values = pulls
    for number in range(batch):
        for head in range(heads):
            place = number * of_query[0] + head * of_query[1]
            carry(query, place, of_query[2], num_queries, size, scale, own_query, 0, deep)
            place = number * of_keys[0] + head * of_keys[1]
            carry(keys, place, of_keys[2], num_keys, size, one, own_keys, 0, deep)
            place = number * of_values[0] + head * of_values[1]
            take_turned(values, place, of_values[2], num_keys, size, wide, own_values)
            place = number * by_context[0] + head * by_context[1]
            carry(of_context, place, by_context[2], num_queries, size, one, own_pull, 0, deep)
            base = (number * heads + head) * tall * wide
            for start in range(0, num_queries, STRIP):
                columns = min(wide, filled(start + STRIP)) if causal else wide
                depth = min(num_keys, start + STRIP) if causal else num_keys
                at = start * wide
                multiply_strip(own_pull, start * deep, deep, 1, own_values, wide, 0, size, of_scores, at, columns)
                for row in range(at, at + STRIP * wide, wide):
                    sums = none
                    for lane in range(row, row + columns, LANES):
                        sums = multiply_add(load(weights, base + lane), load(of_scores, lane), sums)
                    mean = spread(-total(sums))
                    for lane in range(row, row + columns, LANES):
                        apart = multiply_add(mean, spread(one), load(of_scores, lane))
                        store(of_scores, lane, multiply_add(load(weights, base + lane), apart, none))
                multiply_strip(of_scores, at, wide, 1, own_keys, deep, 0, depth, found, start * deep, deep)
            out = number * num_queries * stride + head * size
            carry(found, 0, deep, num_queries, size, scale, pull_query, out, stride)
            out = number * num_keys * stride + head * size
            for start in range(0, num_keys, STRIP):
                first = start if causal else 0
                multiply_strip(
                    of_scores, start, 1, wide, own_query, deep, first, num_queries, found, start * deep, deep
                )
            carry(found, 0, deep, num_keys, size, one, pull_keys, out, stride)
            for start in range(0, num_keys, STRIP):
                first = start if causal else 0
                multiply_strip(
                    weights, base + start, 1, wide, own_pull, deep, first, num_queries, found, start * deep, deep
                )
            carry(found, 0, deep, num_keys, size, one, pull_values, out, stride)
