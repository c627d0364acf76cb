"""Products with sparse matrices, compiled and plain, against dense ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.kernels.compiling import can_compile
from seqloom.vectors import sparse
from seqloom.vectors.sparse import sparse_matrix

COLUMNS = 6


@pytest.mark.parametrize(
    "compiled", [pytest.param(True, marks=pytest.mark.skipif(not can_compile(), reason="no Numba")), False]
)
@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(st.dictionaries(st.integers(0, COLUMNS - 1), st.floats(-9, 9, width=32)), min_size=1, max_size=7),
    size=st.integers(1, 5),
    threads=st.integers(1, 3),
    data=st.data(),
)
def test_against_dense(
    compiled: bool, rows: list[dict[int, float]], size: int, threads: int, data: st.DataObject
) -> None:
    matrix = sparse_matrix(rows, COLUMNS)
    full = np.zeros((len(rows), COLUMNS), np.float32)
    for number, row in enumerate(rows):
        for column, value in row.items():
            full[number, column] = value
    assert np.array_equal(matrix.dense(), full)
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    tall: Any = random.normal(size=(COLUMNS, size))
    wide: Any = random.normal(size=(len(rows), size))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse, "can_compile", lambda: compiled)
        np.testing.assert_allclose(matrix.times(tall, threads), full @ tall, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(matrix.transposed_times(wide, threads), full.T @ wide, rtol=1e-4, atol=1e-4)
    start = data.draw(st.integers(0, len(rows)))
    end = data.draw(st.integers(start, len(rows)))
    assert np.array_equal(matrix.some_rows(start, end).dense(), full[start:end])
