"""The classical dense vectors: counts -> positive pointwise mutual information -> the best short vectors by an SVD."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqloom.errors import UserError
from seqloom.machine import num_cores
from seqloom.text.counts import WordCounts
from seqloom.vectors.cooccurrence import Cooccurrences, Corpus, Tell, count_cooccurrences
from seqloom.vectors.settings import PpmiSettings, VectorTrainingSettings
from seqloom.vectors.sparse import SparseMatrix

OVERSAMPLING = 10
POWER_STEPS = 4


@dataclass(frozen=True)
class PpmiResult:
    """Vectors of words and of contexts whose products come nearest to the PPMI matrix."""

    input: np.ndarray
    """(words, size) float32"""
    output: np.ndarray
    """(words, size) float32"""
    singular_values: np.ndarray
    """(size,) float32, the largest first"""
    seconds: float

    @property
    def vectors(self) -> np.ndarray:
        return self.input


def train_ppmi(
    corpus: Corpus,
    counts: WordCounts,
    model: PpmiSettings,
    training: VectorTrainingSettings,
    *,
    seed: int,
    folder: Path,
    tell: Tell | None = None,
) -> PpmiResult:
    """Count, weigh, decompose. There is nothing to resume: a second try counts again.

    Args:
        corpus: the text as numbers.
        counts: its words.
        model: size, window, smoothing, shift.
        training: only its threads matter.
        seed: of the random directions that the SVD starts from.
        folder: for the co-occurrences, removed in the end.
        tell: told about the progress.
    """
    told = tell or (lambda share, figures: None)
    if model.size > len(counts):
        raise UserError(
            f"model.size is {model.size}, but only {len(counts):,} words have a vector; lower it, or words.min_count"
        )
    began = time.monotonic()
    threads = 1 if training.deterministic else training.threads or num_cores()
    counted = folder / "ppmi-counted"
    shutil.rmtree(counted, ignore_errors=True)

    def progress(share: float) -> None:
        told(0.5 * share, f"counting co-occurrences {share:4.0%}")

    try:
        pairs = count_cooccurrences(corpus, len(counts), model.window, counted, by_distance=False, progress=progress)
        matrix = ppmi_matrix(pairs, model.smoothing, model.shift)
    finally:
        shutil.rmtree(counted, ignore_errors=True)
    if not len(matrix.values):
        raise UserError("no two words meet more often than by chance; give more text, or lower model.shift")
    told(0.5, f"decomposing {len(matrix.values):,} values")
    left, values, right = randomized_svd(
        matrix, model.size, seed, threads, lambda share: told(0.5 + 0.5 * share, "decomposing")
    )
    power = model.eigenvalue_power
    # 0 ** 0 is 1: directions that the matrix does not have must stay 0.
    scale = np.where(values > 0, values**power, 0.0).astype(np.float32)
    other = np.where(values > 0, values ** (1 - power), 0.0).astype(np.float32)
    return PpmiResult(left * scale, right * other, values, time.monotonic() - began)


def ppmi_matrix(pairs: Cooccurrences, smoothing: float = 0.75, shift: float = 1.0) -> SparseMatrix:
    """max(0, log(P(word, context) / (P(word) P(context))) - log(shift)); only what is above 0 is kept.

    The probabilities of contexts are their frequencies raised to `smoothing`, so that rare contexts do not look more
    telling than they are (Levy et al. 2015); the shift is that of Levy and Goldberg 2014.
    """
    frequencies = np.zeros(pairs.num_words)
    for rows, _, values in pairs.blocks():
        frequencies += np.bincount(rows, values, pairs.num_words)
    smoothed = frequencies**smoothing * (frequencies > 0)  # a word that met none has no probability, 0 ** 0 or not
    with np.errstate(divide="ignore"):
        # log P(word, context) - log P(word) - log P(context): the number of pairs cancels in the first two
        of_word, of_context = np.log(frequencies), np.log(smoothed / max(smoothed.sum(), 1e-300)) + np.log(shift)
    lengths = np.zeros(pairs.num_words, np.int64)
    kept_columns, kept_values = [np.empty(0, np.int32)], [np.empty(0, np.float32)]
    for rows, columns, values in pairs.blocks():
        information = np.log(values.astype(np.float64)) - of_word[rows] - of_context[columns]
        kept = information > 0
        lengths += np.bincount(rows[kept], minlength=pairs.num_words)
        kept_columns.append(columns[kept])
        kept_values.append(information[kept].astype(np.float32))
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return SparseMatrix(starts, np.concatenate(kept_columns), np.concatenate(kept_values), pairs.num_words)


def randomized_svd(
    matrix: SparseMatrix,
    size: int,
    seed: int,
    threads: int = 1,
    progress: Callable[[float], None] | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The `size` largest singular values and their vectors (Halko et al. 2011, algorithms 4.4 and 5.1).

    A few more random directions than asked for go through the matrix and back several times, which turns them towards
    the large singular values; the small matrix that is left in their space is decomposed exactly.

    Returns:
        (rows, size), (size,), (columns, size): matrix ~ left * values @ right.T. The largest entry of every left vector
        is positive, since a vector and its opposite do as well.
    """
    rows, columns = matrix.shape
    if not 1 <= size <= min(rows, columns):
        raise ValueError(f"size must be between 1 and {min(rows, columns)}; got {size}")
    width = min(size + OVERSAMPLING, rows, columns)
    start = np.random.default_rng([seed, 0]).standard_normal((columns, width), np.float32)
    basis = np.linalg.qr(matrix.times(start, threads))[0]
    for step in range(POWER_STEPS):
        back = np.linalg.qr(matrix.transposed_times(basis, threads))[0]
        basis = np.linalg.qr(matrix.times(back, threads))[0]
        if progress is not None:
            progress((step + 1) / (POWER_STEPS + 1))
    right, values, turn = np.linalg.svd(matrix.transposed_times(basis, threads), full_matrices=False)
    left = basis @ turn.T
    left, values, right = left[:, :size], values[:size], right[:, :size]
    signs = np.sign(left[np.abs(left).argmax(0), np.arange(size)])
    return left * signs, values, right * signs
