"""Products of a sparse matrix with a dense one. The sparse one is given by rows: `starts` says where each begins."""

from __future__ import annotations

import numpy as np

from seqloom.kernels.compiling import kernel


@kernel
def multiply(
    starts: np.ndarray, columns: np.ndarray, values: np.ndarray, dense: np.ndarray, product: np.ndarray
) -> None:
    """product += sparse @ dense: (rows, columns) @ (columns, size) -> (rows, size)."""
    for row in range(starts.shape[0] - 1):
        target = product[row]
        for place in range(starts[row], starts[row + 1]):
            source, value = dense[columns[place]], values[place]
            for index in range(target.shape[0]):
                target[index] += value * source[index]


@kernel
def multiply_transposed(
    starts: np.ndarray, columns: np.ndarray, values: np.ndarray, dense: np.ndarray, product: np.ndarray
) -> None:
    """product += sparse.T @ dense: (columns, rows) @ (rows, size) -> (columns, size)."""
    for row in range(starts.shape[0] - 1):
        source = dense[row]
        for place in range(starts[row], starts[row + 1]):
            target, value = product[columns[place]], values[place]
            for index in range(source.shape[0]):
                target[index] += value * source[index]


def plain_multiply(
    starts: np.ndarray, columns: np.ndarray, values: np.ndarray, dense: np.ndarray, product: np.ndarray
) -> None:
    """The twin of `multiply`, in NumPy."""
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    for index in range(dense.shape[1]):
        product[:, index] += np.bincount(rows, values * dense[columns, index], len(product))


def plain_multiply_transposed(
    starts: np.ndarray, columns: np.ndarray, values: np.ndarray, dense: np.ndarray, product: np.ndarray
) -> None:
    """The twin of `multiply_transposed`, in NumPy."""
    rows = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    for index in range(dense.shape[1]):
        product[:, index] += np.bincount(columns, values * dense[rows, index], len(product))
