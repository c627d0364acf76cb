"""Vectors that are mostly zeros: one-hot words, counted and weighted documents, and how alike documents are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from seqloom.kernels.compiling import can_compile
from seqloom.kernels.products import multiply, multiply_transposed, plain_multiply, plain_multiply_transposed

ROWS_AT_A_TIME = 256


@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """A matrix by its rows: those of row i are `columns[starts[i]:starts[i + 1]]`, in ascending order, and `values`."""

    starts: np.ndarray
    """(rows + 1,) int64"""
    columns: np.ndarray
    """(entries,) int32"""
    values: np.ndarray
    """(entries,) float32"""
    num_columns: int

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.starts) - 1, self.num_columns

    def __len__(self) -> int:
        return len(self.starts) - 1

    def entry_rows(self) -> np.ndarray:
        """(entries,) the row of each entry."""
        return np.repeat(np.arange(len(self)), np.diff(self.starts))

    def with_values(self, values: np.ndarray) -> SparseMatrix:
        """Other values at the same places."""
        return SparseMatrix(self.starts, self.columns, values.astype(np.float32, copy=False), self.num_columns)

    def some_rows(self, start: int, end: int) -> SparseMatrix:
        """Rows `start` to `end`."""
        starts = self.starts[start : end + 1]
        part = slice(int(starts[0]), int(starts[-1]))
        return SparseMatrix(starts - starts[0], self.columns[part], self.values[part], self.num_columns)

    def dense(self) -> np.ndarray:
        """(rows, columns) float32, with all its zeros."""
        full = np.zeros(self.shape, np.float32)
        full[self.entry_rows(), self.columns] = self.values
        return full

    def times(self, dense: np.ndarray, threads: int = 1) -> np.ndarray:
        """self @ dense, (columns, size) -> (rows, size)."""
        return self._product(dense, len(self), multiply if can_compile() else plain_multiply, threads)

    def transposed_times(self, dense: np.ndarray, threads: int = 1) -> np.ndarray:
        """self.T @ dense, (rows, size) -> (columns, size)."""
        by = multiply_transposed if can_compile() else plain_multiply_transposed
        return self._product(dense, self.num_columns, by, threads)

    def _product(self, dense: np.ndarray, rows: int, by: object, threads: int) -> np.ndarray:
        """Every thread takes some columns of the dense matrix: none writes where another does."""
        assert callable(by)
        parts = [np.ascontiguousarray(part, np.float32) for part in np.array_split(dense, threads, axis=1)]
        products = [np.zeros((rows, part.shape[1]), np.float32) for part in parts]
        by(self.starts[:1], self.columns[:0], self.values[:0], parts[0], products[0])  # compiled before threads want it
        with ThreadPoolExecutor(threads) as workers:
            work = [
                workers.submit(by, self.starts, self.columns, self.values, part, product)
                for part, product in zip(parts, products, strict=True)
            ]
            for future in work:
                future.result()
        return np.concatenate(products, axis=1)


def sparse_matrix(rows: Iterable[Mapping[int, float]], num_columns: int) -> SparseMatrix:
    """Rows given as {column: value}."""
    starts, columns, values = [0], list[int](), list[float]()
    for row in rows:
        entries = sorted(row.items())
        columns += [column for column, _ in entries]
        values += [value for _, value in entries]
        starts.append(len(columns))
    if columns and not (min(columns) >= 0 and max(columns) < num_columns):
        raise ValueError(f"a column is outside 0 … {num_columns - 1}")
    return SparseMatrix(
        np.array(starts, np.int64), np.array(columns, np.int32), np.array(values, np.float32), num_columns
    )


def one_hot(words: Iterable[str], index: Mapping[str, int]) -> SparseMatrix:
    """A row for each word: 1 at its place, 0 elsewhere; nothing but zeros for a word without a place."""
    return sparse_matrix(({index[word]: 1.0} if word in index else {} for word in words), len(index))


def count_vectors(documents: Iterable[Sequence[str]], index: Mapping[str, int]) -> SparseMatrix:
    """A row for each document (its words): how often each word occurs; words without a place are left out."""
    return sparse_matrix((Counter(index[word] for word in words if word in index) for words in documents), len(index))


@dataclass(frozen=True, eq=False)
class TfIdf:
    """Counts weighted by how few documents have the word: those of words that are everywhere say little.

    The weight of a word in `df` of `n` documents is ln((1 + n) / (1 + df)) + 1, as if one more document had every word.
    """

    weights: np.ndarray
    """(columns,) float32"""

    def vectors(self, counts: SparseMatrix) -> SparseMatrix:
        """Weighted counts, every row of length 1 (a document without a known word stays 0)."""
        return unit_rows(counts.with_values(counts.values * self.weights[counts.columns]))


def fit_tf_idf(counts: SparseMatrix) -> TfIdf:
    """The weights for documents like these."""
    having = np.bincount(counts.columns[counts.values != 0], minlength=counts.num_columns)
    return TfIdf((np.log((1 + len(counts)) / (1 + having)) + 1).astype(np.float32))


def unit_rows(matrix: SparseMatrix) -> SparseMatrix:
    """Every row divided by its length; a row of zeros stays one."""
    rows = matrix.entry_rows()
    lengths = np.sqrt(np.bincount(rows, matrix.values.astype(np.float64) ** 2, len(matrix)))
    return matrix.with_values(matrix.values / np.where(lengths > 0, lengths, 1.0)[rows])


def cosine_similarity(first: SparseMatrix, second: SparseMatrix) -> np.ndarray:
    """(rows of first, rows of second) float32; 0 where a row is all zeros."""
    if first.num_columns != second.num_columns:
        raise ValueError(f"{first.num_columns} and {second.num_columns} columns: made with different words")
    first, second = unit_rows(first), unit_rows(second)
    parts = [
        first.times(second.some_rows(start, min(len(second), start + ROWS_AT_A_TIME)).dense().T)
        for start in range(0, len(second), ROWS_AT_A_TIME)
    ]
    return np.concatenate(parts, axis=1) if parts else np.zeros((len(first), 0), np.float32)
