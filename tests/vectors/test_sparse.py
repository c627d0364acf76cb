"""Sparse vectors by hand and against scikit-learn."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from seqloom.vectors import sparse
from seqloom.vectors.sparse import cosine_similarity, count_vectors, fit_tf_idf, one_hot, sparse_matrix, unit_rows

INDEX = {"a": 0, "b": 1, "c": 2}


def test_one_hot_and_counts_by_hand() -> None:
    assert one_hot(["b", "unknown", "a"], INDEX).dense().tolist() == [[0, 1, 0], [0, 0, 0], [1, 0, 0]]
    counts = count_vectors([["c", "a", "c", "unknown"], []], INDEX)
    assert counts.dense().tolist() == [[1, 0, 2], [0, 0, 0]]
    assert counts.shape == (2, 3)
    with pytest.raises(ValueError, match="outside 0 … 2"):
        sparse_matrix([{3: 1.0}], 3)


def test_tf_idf_by_hand() -> None:
    counts = count_vectors([["a", "b"], ["a", "a"], []], INDEX)
    weighting = fit_tf_idf(counts)
    expected = [math.log(4 / 3) + 1, math.log(4 / 2) + 1, math.log(4 / 1) + 1]
    assert weighting.weights.tolist() == pytest.approx(expected)
    found = weighting.vectors(counts).dense()
    length = math.hypot(expected[0], expected[1])
    np.testing.assert_allclose(
        found, [[expected[0] / length, expected[1] / length, 0], [1, 0, 0], [0, 0, 0]], rtol=1e-6
    )


def test_cosine_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sparse, "ROWS_AT_A_TIME", 2)
    first = sparse_matrix([{0: 3.0, 1: 4.0}, {}], 3)
    second = sparse_matrix([{0: 2.0}, {2: 1.0}, {0: -6.0, 1: -8.0}], 3)
    np.testing.assert_allclose(cosine_similarity(first, second), [[0.6, 0, -1], [0, 0, 0]], atol=1e-6)
    assert cosine_similarity(first, sparse_matrix([], 3)).shape == (2, 0)
    assert unit_rows(first).values.tolist() == pytest.approx([0.6, 0.8])
    with pytest.raises(ValueError, match="different words"):
        cosine_similarity(first, sparse_matrix([{}], 4))


def test_against_scikit_learn() -> None:
    text = pytest.importorskip("sklearn.feature_extraction.text")
    pairwise = pytest.importorskip("sklearn.metrics.pairwise")
    numbers = random.Random(3)
    words = [f"w{number}" for number in range(40)]
    documents = [
        numbers.choices(words, weights=[1 / (i + 1) for i in range(40)], k=numbers.randrange(30)) for _ in range(25)
    ]
    index = {word: place for place, word in enumerate(words)}
    options = {"analyzer": lambda document: document, "vocabulary": index}
    counts = count_vectors(documents, index)
    assert np.array_equal(counts.dense(), text.CountVectorizer(**options).transform(documents).toarray())
    theirs = text.TfidfVectorizer(**options).fit_transform(documents)
    ours = fit_tf_idf(counts).vectors(counts)
    np.testing.assert_allclose(ours.dense(), theirs.toarray(), atol=1e-6)
    np.testing.assert_allclose(
        cosine_similarity(ours, counts), pairwise.cosine_similarity(theirs, counts.dense()), atol=1e-6
    )
