"""PPMI by hand and against a dense computation; the SVD against NumPy's; the vectors against the matrix."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from seqloom.batches.tokens import TokenCorpus, write_tokens
from seqloom.errors import UserError
from seqloom.text.counts import WordCounts, count_words
from seqloom.vectors.cooccurrence import count_cooccurrences
from seqloom.vectors.ppmi import ppmi_matrix, randomized_svd, train_ppmi
from seqloom.vectors.settings import PpmiSettings, VectorTrainingSettings
from seqloom.vectors.sparse import SparseMatrix, sparse_matrix


def text(folder: Path, words: int = 30) -> tuple[TokenCorpus, WordCounts]:
    random = np.random.default_rng(5)
    frequencies = 1 / np.arange(1, words + 1)
    lines = [
        " ".join(f"w{number}" for number in random.choice(words, 12, p=frequencies / frequencies.sum()))
        for _ in range(80)
    ]
    counts = count_words(lines)
    return write_tokens(lines, counts, str.split, "random", folder=folder / "tokens"), counts


def test_by_hand(tmp_path: Path) -> None:
    lines = ["a b a", "c"]
    counts = count_words(lines)
    corpus = write_tokens(lines, counts, str.split, "k", folder=tmp_path)
    pairs = count_cooccurrences(corpus, 3, 1, tmp_path / "pairs", by_distance=False)
    # a b and b a, 2 times each: P(a, b) = 1/2, P(a) = P(b) = 1/2, so log 2; c meets nobody
    assert ppmi_matrix(pairs, 1.0).dense() == pytest.approx(np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]]) * math.log(2))
    assert ppmi_matrix(pairs, 0.0).dense() == pytest.approx(np.array([[0, 1, 0], [1, 0, 0], [0, 0, 0]]) * math.log(2))
    assert ppmi_matrix(pairs, 1.0, shift=1.5).dense()[0, 1] == pytest.approx(math.log(2 / 1.5))
    assert len(ppmi_matrix(pairs, 1.0, shift=2.5).values) == 0


@pytest.mark.parametrize(("smoothing", "shift"), [(1.0, 1.0), (0.75, 1.0), (0.75, 3.0), (0.0, 1.0)])
def test_against_a_dense_computation(tmp_path: Path, smoothing: float, shift: float) -> None:
    corpus, counts = text(tmp_path)
    pairs = count_cooccurrences(corpus, len(counts), 2, tmp_path / "pairs", by_distance=False)
    full = np.zeros((len(counts), len(counts)))
    for rows, columns, values in pairs.blocks():
        full[rows, columns] = values
    context = full.sum(0) ** smoothing
    with np.errstate(divide="ignore"):
        information = np.log(full / full.sum() / np.outer(full.sum(1) / full.sum(), context / context.sum()))
    expected = np.maximum(0, information - np.log(shift))
    found = ppmi_matrix(pairs, smoothing, shift)
    np.testing.assert_allclose(found.dense(), expected, rtol=1e-5, atol=1e-6)
    assert (found.values > 0).all()


def random_matrix(rows: int, columns: int) -> SparseMatrix:
    random = np.random.default_rng(11)
    return sparse_matrix(
        [
            {int(c): float(random.exponential()) for c in random.choice(columns, columns // 3, False)}
            for _ in range(rows)
        ],
        columns,
    )


@pytest.mark.parametrize(("rows", "columns", "size"), [(41, 29, 5), (29, 41, 29), (13, 13, 1)])
def test_svd_against_numpy(rows: int, columns: int, size: int) -> None:
    matrix = random_matrix(rows, columns)
    exact_left, exact, exact_right = np.linalg.svd(matrix.dense().astype(np.float64), full_matrices=False)
    left, values, right = randomized_svd(matrix, size, seed=3)
    np.testing.assert_allclose(values, exact[:size], rtol=2e-3, atol=1e-4)
    np.testing.assert_allclose(left.T @ left, np.eye(size), atol=1e-4)
    np.testing.assert_allclose(right.T @ right, np.eye(size), atol=1e-4)
    best = (exact_left[:, :size] * exact[:size]) @ exact_right[:size]
    error = np.linalg.norm(matrix.dense() - (left * values) @ right.T)
    assert error <= np.linalg.norm(matrix.dense() - best) * 1.001 + 1e-3
    assert (left[np.abs(left).argmax(0), np.arange(size)] > 0).all()


def test_a_matrix_of_low_rank_is_found_again_and_wrong_sizes_are_refused() -> None:
    random = np.random.default_rng(2)
    full = random.normal(size=(20, 3)) @ random.normal(size=(3, 15))
    matrix = sparse_matrix([dict(enumerate(row)) for row in full.tolist()], 15)
    left, values, right = randomized_svd(matrix, 6, seed=1, threads=2)
    np.testing.assert_allclose((left * values) @ right.T, full, atol=1e-4)
    assert (values[3:] < 1e-4).all()
    for size in (0, 16):
        with pytest.raises(ValueError, match="between 1 and 15"):
            randomized_svd(matrix, size, seed=1)


def test_vectors_make_the_matrix_again(tmp_path: Path) -> None:
    corpus, counts = text(tmp_path)
    pairs = count_cooccurrences(corpus, len(counts), 2, tmp_path / "pairs", by_distance=False)
    for power in (0.5, 0.0, 1.0):
        model = PpmiSettings(kind="ppmi", size=len(counts), window=2, eigenvalue_power=power)
        told: list[float] = []

        def tell(share: float, figures: str, told: list[float] = told) -> None:
            told.append(share)

        found = train_ppmi(corpus, counts, model, VectorTrainingSettings(), seed=1, folder=tmp_path, tell=tell)
        np.testing.assert_allclose(found.input @ found.output.T, ppmi_matrix(pairs).dense(), atol=2e-4)
        assert found.vectors is found.input
        assert found.input.dtype == found.output.dtype == np.float32
        assert told == sorted(told)
        np.testing.assert_allclose(
            np.linalg.norm(found.input, axis=0), found.singular_values**power, rtol=1e-3, atol=1e-3
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pairs", "tokens"]


def test_words_that_mean_the_same_are_near(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    groups = [["cat", "dog", "pet"], ["red", "blue", "green"], ["run", "walk", "jump"]]
    lines = [" ".join(random.choice(groups[number % 3], 4)) for number in range(300)]
    counts = count_words(lines)
    corpus = write_tokens(lines, counts, str.split, "groups", folder=tmp_path)
    model = PpmiSettings(kind="ppmi", size=3, window=3)
    found = train_ppmi(corpus, counts, model, VectorTrainingSettings(), seed=1, folder=tmp_path).vectors
    unit = found / np.linalg.norm(found, axis=1, keepdims=True)
    for group in groups:
        inside = [counts.index[word] for word in group]
        outside = [place for place in range(len(counts)) if place not in inside]
        assert (unit[inside] @ unit[inside].T).min() > 0.9
        assert np.abs(unit[inside] @ unit[outside].T).max() < 0.2


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    corpus, counts = text(tmp_path)
    with pytest.raises(UserError, match=r"model\.size is 100, but only \d+ words"):
        train_ppmi(
            corpus, counts, PpmiSettings(kind="ppmi", size=100), VectorTrainingSettings(), seed=1, folder=tmp_path
        )
    with pytest.raises(UserError, match="more often than by chance"):
        train_ppmi(
            corpus,
            counts,
            PpmiSettings(kind="ppmi", size=2, shift=1e9),
            VectorTrainingSettings(),
            seed=1,
            folder=tmp_path,
        )
