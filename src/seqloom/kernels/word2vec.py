"""Skip-gram and CBOW over a part of a text, compiled: negative sampling, hierarchical softmax, softmax, subwords.

`train_part` does what `seqloom.vectors.reference.train_part` does, draw by draw; the formulas are written there. What
makes it fast: all words of a window, or of one side of it, meet the same outputs (the word in the middle and its noise,
or the nodes of its path; Ji et al. 2016), so that two inputs and three outputs at a time share what is loaded; rows are
a multiple of eight floats; the rows of the next word are asked for while this one is computed with; the loss is one
product of probabilities, whose logarithm is taken only when it gets small.

This module needs Numba when it is imported, so whoever uses it imports it when something is compiled. The compiled code
is kept beside the module, or in the user's cache where that cannot be written.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

# Compiled with the lanes of 05b3f0a760f3: a change there must be one here, or old code is used
from seqloom.kernels.lanes import load, logistic, multiply_add, prefetch, spread, store, total

STEP, FIRST, SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
HALF, LOW_HALF = np.uint64(32), np.uint64(0xFFFFFFFF)
NEGATIVE_SAMPLING, HIERARCHICAL_SOFTMAX = 0, 1
SMALL = 1e-200  # a product this small becomes a logarithm: the next factor, at least 2^-126, cannot make it 0
OUTPUTS_AT_ONCE = 3

compiled = njit(cache=True, nogil=True, fastmath={"contract", "nsz", "arcp"}, error_model="numpy")


@compiled
def mixed(state: Any) -> Any:
    """SplitMix64's number for a state (Steele et al. 2014)."""
    bits = (state ^ (state >> np.uint64(30))) * FIRST
    bits = (bits ^ (bits >> np.uint64(27))) * SECOND
    return bits ^ (bits >> np.uint64(31))


@compiled
def sides_of(plan):  # type: ignore[no-untyped-def]
    """How many parts of a window are computed with one after the other, each with noise of its own."""
    return 1 if plan.cbow or plan.subwords or plan.objective != NEGATIVE_SAMPLING else 2


@compiled
def draw_sentence(plan, tokens, start, end, state, kept, spans, noise):  # type: ignore[no-untyped-def]
    """The words of a sentence that stay, their windows and their noise; how many stay, and the state of the draws."""
    length = 0
    for place in range(start, end):
        word = tokens[place]
        state += STEP
        if (mixed(state) >> HALF) < plan.keep[word]:
            kept[length] = word
            length += 1
    words, drawn = np.uint64(plan.keep.shape[0]), plan.negatives * sides_of(plan)
    for place in range(length):
        span = plan.window
        if plan.dynamic:
            state += STEP
            span = 1 + np.int64(((mixed(state) >> HALF) * np.uint64(plan.window)) >> HALF)
        spans[place] = span
        if plan.objective == NEGATIVE_SAMPLING:
            for number in range(drawn):
                state += STEP
                bits = mixed(state)
                slot = np.int64(((bits >> HALF) * words) >> HALF)
                stays = (bits & LOW_HALF) < np.uint64(plan.shares[slot])
                noise[place * drawn + number] = slot if stays else plan.others[slot]
    return length, state


@compiled
def choose_outputs(plan, word, noise, targets, signs):  # type: ignore[no-untyped-def]
    """The rows that are to predict `word`, +1 where yes is right and -1 where no is; how many they are.

    The lists are filled up to a multiple of three with the first row, whose signs there are 0.
    """
    count = 0
    if plan.objective == NEGATIVE_SAMPLING:
        targets[0], signs[0], count = word, np.float32(1.0), 1
        for number in range(plan.negatives):
            if noise[number] != word:
                targets[count], signs[count] = noise[number], np.float32(-1.0)
                count += 1
    else:
        for number in range(plan.path_starts[word], plan.path_starts[word + 1]):
            targets[count], signs[count] = plan.path_nodes[number], plan.path_signs[number]
            count += 1
    for number in range(count, count + OUTPUTS_AT_ONCE - 1):
        targets[number], signs[number] = targets[0], np.float32(0.0)
    return count


@compiled
def update_outputs(  # type: ignore[no-untyped-def]
    source, rows, count, outputs, targets, signs, num_targets, rate, scores, errors, loss, product
):
    """`count` rows of `source` against all targets: outputs are changed, what the inputs are to gain is in `errors`.

    Two inputs at a time: rows[count] must be some row. Gives the loss and its unfinished product.
    """
    width = source.shape[1]
    nothing = spread(np.float32(0.0))
    stride = (num_targets + OUTPUTS_AT_ONCE - 1) // OUTPUTS_AT_ONCE * OUTPUTS_AT_ONCE
    for one in range(0, count, 2):
        left, right = rows[one] * width, rows[one + 1] * width
        for target in range(0, stride, OUTPUTS_AT_ONCE):
            first, second, third = targets[target] * width, targets[target + 1] * width, targets[target + 2] * width
            a, b, c, d, e, f = nothing, nothing, nothing, nothing, nothing, nothing
            for place in range(0, width, 8):
                x, y = load(source, left + place), load(source, right + place)
                u, v, w = load(outputs, first + place), load(outputs, second + place), load(outputs, third + place)
                a, b, c = multiply_add(x, u, a), multiply_add(x, v, b), multiply_add(x, w, c)
                d, e, f = multiply_add(y, u, d), multiply_add(y, v, e), multiply_add(y, w, f)
            at = one * stride + target
            scores[at] = total(a) * signs[target]
            scores[at + 1] = total(b) * signs[target + 1]
            scores[at + 2] = total(c) * signs[target + 2]
            scores[at + stride] = total(d) * signs[target]
            scores[at + stride + 1] = total(e) * signs[target + 1]
            scores[at + stride + 2] = total(f) * signs[target + 2]

    for place in range(0, count * stride, 8):
        store(scores, place, logistic(load(scores, place)))
    for one in range(count):
        for target in range(num_targets):
            chance = scores[one * stride + target]
            product *= np.float64(chance)
            if product < SMALL:
                loss -= math.log(product)
                product = 1.0
            scores[one * stride + target] = rate * signs[target] * (np.float32(1.0) - chance)
        for target in range(num_targets, stride):
            scores[one * stride + target] = np.float32(0.0)
    for target in range(stride):  # the row that only makes the inputs even
        scores[count * stride + target] = np.float32(0.0)

    for one in range(0, count, 2):
        left, right = one * width, (one + 1) * width
        for place in range(0, 2 * width, 8):
            store(errors, left + place, nothing)
        for target in range(0, stride, OUTPUTS_AT_ONCE):
            first, second, third = targets[target] * width, targets[target + 1] * width, targets[target + 2] * width
            at = one * stride + target
            a, b, c = spread(scores[at]), spread(scores[at + 1]), spread(scores[at + 2])
            at += stride
            d, e, f = spread(scores[at]), spread(scores[at + 1]), spread(scores[at + 2])
            for place in range(0, width, 8):
                u, v, w = load(outputs, first + place), load(outputs, second + place), load(outputs, third + place)
                x, y = load(errors, left + place), load(errors, right + place)
                x, y = multiply_add(a, u, x), multiply_add(d, u, y)
                x, y = multiply_add(b, v, x), multiply_add(e, v, y)
                store(errors, left + place, multiply_add(c, w, x))
                store(errors, right + place, multiply_add(f, w, y))

    for target in range(num_targets):
        row = targets[target] * width
        for one in range(0, count, 2):
            left, right = rows[one] * width, rows[one + 1] * width
            a, b = spread(scores[one * stride + target]), spread(scores[(one + 1) * stride + target])
            for place in range(0, width, 8):
                x = multiply_add(a, load(source, left + place), load(outputs, row + place))
                store(outputs, row + place, multiply_add(b, load(source, right + place), x))
    return loss, product


@compiled
def update_all_outputs(source, row, outputs, right, rate, scores, errors, place_of_error):  # type: ignore[no-untyped-def]
    """One row of `source` against every output, the softmax in full: outputs and errors change; gives the loss."""
    words, width = outputs.shape
    largest = np.float32(-3.4e38)
    for word in range(words):
        score = spread(np.float32(0.0))
        for place in range(0, width, 8):
            score = multiply_add(load(source, row * width + place), load(outputs, word * width + place), score)
        scores[word] = total(score)
        largest = max(largest, scores[word])
    everything = 0.0
    for word in range(words):
        everything += math.exp(scores[word] - largest)
    loss = math.log(everything) + largest - scores[right]
    for place in range(0, width, 8):
        store(errors, place_of_error * width + place, spread(np.float32(0.0)))
    for word in range(words):
        chance = math.exp(scores[word] - largest) / everything
        step = spread(np.float32(rate * ((1.0 if word == right else 0.0) - chance)))
        for place in range(0, width, 8):
            output = load(outputs, word * width + place)
            error = load(errors, place_of_error * width + place)
            store(errors, place_of_error * width + place, multiply_add(step, output, error))
            store(outputs, word * width + place, multiply_add(step, load(source, row * width + place), output))
    return loss


@compiled
def add_row(matrix, row, factor, other, other_row):  # type: ignore[no-untyped-def]
    """matrix[row] += factor * other[other_row]"""
    width = matrix.shape[1]
    step = spread(factor)
    for place in range(0, width, 8):
        more = load(other, other_row * width + place)
        store(matrix, row * width + place, multiply_add(step, more, load(matrix, row * width + place)))


@compiled
def enter(plan, inputs, word, slot, slots, entered):  # type: ignore[no-untyped-def]
    """A word comes into the window: the mean of its own row and its pieces' rows."""
    start, end = plan.piece_starts[word], plan.piece_starts[word + 1]
    slots[slot, :] = np.float32(0.0)
    share = np.float32(1.0) / np.float32(end - start)
    for number in range(start, end):
        add_row(slots, slot, share, inputs, np.int64(plan.piece_rows[number]))
    entered[slot, :] = slots[slot, :]


@compiled
def leave(plan, inputs, word, slot, slots, entered):  # type: ignore[no-untyped-def]
    """A word goes out of the window: what it gained there is what each of its rows gains."""
    add_row(slots, slot, np.float32(-1.0), entered, slot)
    for number in range(plan.piece_starts[word], plan.piece_starts[word + 1]):
        add_row(inputs, np.int64(plan.piece_rows[number]), np.float32(1.0), slots, slot)


@compiled
def prefetch_row(matrix, row):  # type: ignore[no-untyped-def]
    for place in range(0, matrix.shape[1], 16):
        prefetch(matrix, row * matrix.shape[1] + place)


@compiled
def train_part(plan, tokens, seed, first_rate, last_rate, inputs, outputs):  # type: ignore[no-untyped-def]
    """Sentences of word numbers, each ended by -1: changes inputs and outputs, gives (loss, predictions) summed up."""
    size, width, window = tokens.shape[0], inputs.shape[1], plan.window
    most_inputs, most_outputs = 2 * window + 2, plan.negatives + 4
    if plan.objective == HIERARCHICAL_SOFTMAX:
        for word in range(plan.keep.shape[0]):
            most_outputs = max(most_outputs, plan.path_starts[word + 1] - plan.path_starts[word] + 3)
    kept, spans = np.empty(size, np.int64), np.empty(size, np.int64)
    sides = sides_of(plan)
    drawn = plan.negatives * sides
    noise = np.empty(size * drawn if plan.objective == NEGATIVE_SAMPLING else 0, np.int64)
    rows, weights = np.empty(most_inputs, np.int64), np.ones(most_inputs, np.float32)
    targets, signs = np.zeros(most_outputs, np.int64), np.zeros(most_outputs, np.float32)
    scores = np.zeros(max((most_inputs + 1) * most_outputs, outputs.shape[0]) + 8, np.float32)
    errors, hidden = np.zeros((most_inputs, width), np.float32), np.zeros((1, width), np.float32)
    only = np.zeros(2, np.int64)
    ring = 2 * window + 1 if plan.subwords else 1
    slots, entered = np.zeros((ring, width), np.float32), np.zeros((ring, width), np.float32)
    source = slots if plan.subwords else inputs
    state, loss, product, predictions, start = seed, 0.0, 1.0, 0, 0
    while start < size:
        end = start
        while end < size and tokens[end] >= 0:
            end += 1
        rate = np.float32(first_rate + (last_rate - first_rate) * (start / size))
        length, state = draw_sentence(plan, tokens, start, end, state, kept, spans, noise)
        start = end + 1
        for middle in range(length):
            word = kept[middle]
            if middle + 1 < length:
                if plan.objective == NEGATIVE_SAMPLING:
                    for number in range((middle + 1) * drawn, (middle + 2) * drawn):
                        prefetch_row(outputs, noise[number])
                elif plan.objective == HIERARCHICAL_SOFTMAX:
                    soon = kept[middle + 1]
                    for number in range(plan.path_starts[soon], plan.path_starts[soon + 1]):
                        prefetch_row(outputs, np.int64(plan.path_nodes[number]))
            if plan.subwords:
                if middle > window:
                    gone = middle - window - 1
                    leave(plan, inputs, kept[gone], gone % ring, slots, entered)
                for coming in range(middle + window if middle else 0, min(length, middle + window + 1)):
                    enter(plan, inputs, kept[coming], coming % ring, slots, entered)
            elif middle + window + 1 < length:
                prefetch_row(inputs, kept[middle + window + 1])
            for side in range(sides):
                begin, until = max(0, middle - spans[middle]), min(length, middle + spans[middle] + 1)
                if sides == 2 and side == 0:
                    until = middle
                elif sides == 2:
                    begin = middle + 1
                count, weight = 0, np.float32(0.0)
                for other in range(begin, until):
                    if other == middle:
                        continue
                    rows[count] = other % ring if plan.subwords else kept[other]
                    if plan.subwords:
                        neighbour = kept[other]
                        weights[count] = np.float32(plan.piece_starts[neighbour + 1] - plan.piece_starts[neighbour])
                    weight += weights[count]
                    count += 1
                if count == 0:
                    continue
                rows[count] = rows[0]
                num_targets = 0
                if plan.objective <= HIERARCHICAL_SOFTMAX:
                    own = noise[middle * drawn + side * plan.negatives :]
                    num_targets = choose_outputs(plan, word, own, targets, signs)
                if plan.cbow:
                    hidden[0, :] = np.float32(0.0)
                    for one in range(count):
                        add_row(hidden, 0, weights[one] / weight, source, rows[one])
                    if plan.objective <= HIERARCHICAL_SOFTMAX:
                        loss, product = update_outputs(
                            hidden, only, 1, outputs, targets, signs, num_targets, rate, scores, errors, loss, product
                        )
                    else:
                        loss += update_all_outputs(hidden, 0, outputs, word, rate, scores, errors, 0)
                    for one in range(count):
                        add_row(source, rows[one], np.float32(1.0), errors, 0)
                    predictions += 1
                else:
                    if plan.objective <= HIERARCHICAL_SOFTMAX:
                        loss, product = update_outputs(
                            source,
                            rows,
                            count,
                            outputs,
                            targets,
                            signs,
                            num_targets,
                            rate,
                            scores,
                            errors,
                            loss,
                            product,
                        )
                    else:
                        for one in range(count):
                            loss += update_all_outputs(source, rows[one], outputs, word, rate, scores, errors, one)
                    for one in range(count):
                        add_row(source, rows[one], np.float32(1.0), errors, one)
                    predictions += count
        if plan.subwords:
            for gone in range(max(0, length - 1 - window), length):
                leave(plan, inputs, kept[gone], gone % ring, slots, entered)
    return loss - math.log(product), predictions
