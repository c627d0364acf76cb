"""GloVe's steps (Pennington et al. 2014, eq. 8), one co-occurrence after the other, with AdaGrad.

As in the authors' program, the learning rate is part of the gradient whose squares AdaGrad sums, and the sums start
at 1: a step is rate * gradient / sqrt(1 + sum of earlier (rate * gradient)^2).
"""

from __future__ import annotations

import numpy as np

from seqloom.kernels.compiling import kernel


@kernel
def glove_steps(
    rows: np.ndarray,
    columns: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray,
    rate: float,
    input: np.ndarray,
    output: np.ndarray,
    input_bias: np.ndarray,
    output_bias: np.ndarray,
    input_squares: np.ndarray,
    output_squares: np.ndarray,
    input_bias_squares: np.ndarray,
    output_bias_squares: np.ndarray,
) -> float:
    """Learn from co-occurrences in their order; all arrays after `rate` are changed.

    Args:
        rows: (pairs,) int32: the word.
        columns: (pairs,) int32: the context word.
        targets: (pairs,) float32: log of how often they met.
        weights: (pairs,) float32: f of eq. 9.
        rate: learning rate.
        input: (words, size) float32: vectors of words.
        output: (words, size) float32: vectors of contexts.
        input_bias: (words,) float32.
        output_bias: (words,) float32.
        input_squares: AdaGrad's sums, each like what it belongs to.
        output_squares: see there.
        input_bias_squares: see there.
        output_bias_squares: see there.

    Returns:
        the sum over all pairs of weight * difference^2, each as it was before its step.
    """
    size = input.shape[1]
    speed = np.float32(rate)
    total = 0.0
    for number in range(rows.shape[0]):
        row, column = rows[number], columns[number]
        left, right = input[row], output[column]
        left_squares, right_squares = input_squares[row], output_squares[column]
        difference = input_bias[row] + output_bias[column] - targets[number]
        for index in range(size):
            difference += left[index] * right[index]
        total += weights[number] * difference * difference
        pull = speed * weights[number] * difference
        for index in range(size):
            left_step, right_step = pull * right[index], pull * left[index]
            left[index] -= left_step / np.sqrt(left_squares[index])
            right[index] -= right_step / np.sqrt(right_squares[index])
            left_squares[index] += left_step * left_step
            right_squares[index] += right_step * right_step
        input_bias[row] -= pull / np.sqrt(input_bias_squares[row])
        output_bias[column] -= pull / np.sqrt(output_bias_squares[column])
        input_bias_squares[row] += pull * pull
        output_bias_squares[column] += pull * pull
    return total


def plain_glove_steps(
    rows: np.ndarray,
    columns: np.ndarray,
    targets: np.ndarray,
    weights: np.ndarray,
    rate: float,
    input: np.ndarray,
    output: np.ndarray,
    input_bias: np.ndarray,
    output_bias: np.ndarray,
    input_squares: np.ndarray,
    output_squares: np.ndarray,
    input_bias_squares: np.ndarray,
    output_bias_squares: np.ndarray,
) -> float:
    """The twin of the kernel, in NumPy."""
    total = 0.0
    for row, column, target, weight in zip(rows.tolist(), columns.tolist(), targets, weights, strict=True):
        difference = input[row] @ output[column] + input_bias[row] + output_bias[column] - target
        total += float(weight * difference * difference)
        pull = np.float32(rate) * weight * difference
        steps = (pull * output[column], pull * input[row], pull, pull)
        values = (input, output, input_bias, output_bias)
        squares = (input_squares, output_squares, input_bias_squares, output_bias_squares)
        for value, square, step, place in zip(values, squares, steps, (row, column, row, column), strict=True):
            value[place] -= step / np.sqrt(square[place])
            square[place] += step * step
    return total
