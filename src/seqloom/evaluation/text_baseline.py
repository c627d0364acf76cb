"""The baseline that a text classifier has to beat: words and pairs of words, weighted by TF-IDF, in a linear model.

baseline = TextBaseline.fit(texts, labels)
predicted = baseline.predict(test_texts)

Multinomial logistic regression (the maximum entropy classifier of Berger et al. 1996) has one optimum, so nothing here
is drawn by chance, and nothing is to be tuned on a test set.
"""

from __future__ import annotations

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from seqloom.evaluation.metrics import assert_parallel
from seqloom.text.words import split_words
from seqloom.vectors.sparse import SparseMatrix, TfIdf, count_vectors, fit_tf_idf

Progress = Callable[[float], None]
Function = Callable[[np.ndarray], tuple[float, np.ndarray]]
"""Parameters -> value, gradient."""

MOST_ITERATIONS = 500
MOST_HALVINGS = 15
HISTORY = 6
"""How many steps L-BFGS remembers; each costs twice the memory of the weights."""


@dataclass(frozen=True, eq=False)
class TextBaseline:
    """TF-IDF and multinomial logistic regression."""

    labels: tuple[str, ...]
    """The classes, in alphabetical order."""
    index: dict[str, int]
    """Word or pair of words -> its column."""
    tf_idf: TfIdf
    weights: np.ndarray
    """(features + 1, classes); the last row is the bias."""

    @classmethod
    def fit(
        cls,
        texts: Sequence[str],
        labels: Sequence[str],
        progress: Progress | None = None,
        *,
        inverse_penalty: float = 5.0,
        min_df: int = 1,
        max_features: int = 100_000,
    ) -> TextBaseline:
        """Learn from labelled texts.

        Args:
            texts: One or more.
            labels: The label of each.
            progress: called with the share that is done.
            inverse_penalty: scikit-learn's C: the weight of the data against the penalty on large weights.
            min_df: How many texts must have a feature.
            max_features: Of more features, those that most texts have are kept.
        """
        assert_parallel(texts, labels)
        classes = tuple(sorted(set(labels)))
        column_of = {label: column for column, label in enumerate(classes)}
        gold = np.array([column_of[label] for label in labels])
        features = [text_features(text) for text in texts]
        index = feature_index(features, min_df, max_features)
        counts = sublinear(count_vectors(features, index))
        tf_idf = fit_tf_idf(counts)
        # Of two classes scikit-learn learns one vector, the difference of ours; its square is twice the sum of theirs.
        penalty = (1.0 if len(classes) > 2 else 2.0) / (inverse_penalty * len(texts))
        function = penalised_loss(tf_idf.vectors(counts), gold, penalty)
        weights = minimise(function, np.zeros((len(index) + 1, len(classes))), progress)
        return cls(classes, index, tf_idf, weights)

    def log_probs(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, classes) the log probability of each of `labels`."""
        counts = sublinear(count_vectors((text_features(text) for text in texts), self.index))
        return log_softmax(linear_scores(self.tf_idf.vectors(counts), self.weights))

    def predict(self, texts: Sequence[str]) -> list[str]:
        """The most probable label of each text."""
        return [self.labels[column] for column in self.log_probs(texts).argmax(axis=1)]


# ---------------------------------------------------------------------------------------------------------------------
# Features


def text_features(text: str) -> list[str]:
    """The lower-cased words and marks of `split_words`, and every two neighbours ("not good")."""
    words = split_words(text.lower())
    return [*words, *(f"{first} {second}" for first, second in itertools.pairwise(words))]


def feature_index(documents: Iterable[Sequence[str]], min_df: int, max_features: int) -> dict[str, int]:
    """The features that most documents have, and their columns in alphabetical order; of equals the first are kept."""
    having = Counter(itertools.chain.from_iterable(map(set, documents)))
    kept = [feature for feature, count in having.items() if count >= min_df]
    kept = sorted(kept, key=lambda feature: (-having[feature], feature))[:max_features]
    return {feature: column for column, feature in enumerate(sorted(kept))}


def sublinear(counts: SparseMatrix) -> SparseMatrix:
    """1 + ln(count): the tenth occurrence of a word says less than the first."""
    return counts.with_values(1.0 + np.log(counts.values))


# ---------------------------------------------------------------------------------------------------------------------
# Multinomial logistic regression


def linear_scores(vectors: SparseMatrix, weights: np.ndarray) -> np.ndarray:
    """(texts, features), (features + 1, classes) -> (texts, classes) float64."""
    return vectors.times(weights[:-1]) + weights[-1]


def log_softmax(scores: np.ndarray) -> np.ndarray:
    """(texts, classes) -> log probabilities, which add up to 1 in every row."""
    shifted = scores - scores.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def penalised_loss(vectors: SparseMatrix, gold: np.ndarray, penalty: float) -> Function:
    """The function to be minimised: mean of -log p(gold | text), and penalty / 2 * squared weights without the bias."""
    rows = np.arange(len(gold))

    def function(weights: np.ndarray) -> tuple[float, np.ndarray]:
        log_probs = log_softmax(linear_scores(vectors, weights))
        loss = -log_probs[rows, gold].mean() + penalty / 2 * np.vdot(weights[:-1], weights[:-1])
        # With respect to the scores, the gradient is what the model expects minus what is there.
        residual = np.exp(log_probs)
        residual[rows, gold] -= 1.0
        residual /= len(gold)
        gradient = np.vstack([vectors.transposed_times(residual) + penalty * weights[:-1], residual.sum(axis=0)])
        return float(loss), gradient

    return function


def minimise(
    function: Function, start: np.ndarray, progress: Progress | None = None, tolerance: float = 1e-5
) -> np.ndarray:
    """Where a convex function is smallest, by L-BFGS.

    Nocedal and Wright 2006, algorithms 7.4 and 7.5. A step is halved until it descends enough (their condition 3.6a);
    of a convex function this suffices, since its gradient always rises along a step, so the curvature is positive.

    Args:
        function: Parameters -> value, gradient.
        start: Where to begin.
        progress: called with the share of `MOST_ITERATIONS` that is done, and 1 at the end.
        tolerance: Where no entry of the gradient is larger, the search ends.
    """
    here = start
    value, gradient = function(here)
    history: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=HISTORY)  # (step, change of the gradient)
    for iteration in range(MOST_ITERATIONS):
        if progress is not None:
            progress(iteration / MOST_ITERATIONS)
        if np.abs(gradient).max() <= tolerance:
            break
        direction = -approximate_newton_step(gradient, history)
        slope = np.vdot(gradient, direction)
        size = 1.0 if history else 1.0 / np.linalg.norm(gradient)  # nothing is known of the curvature at first
        for _ in range(MOST_HALVINGS):
            step = size * direction
            new_value, new_gradient = function(here + step)
            if new_value <= value + 1e-4 * size * slope:
                break
            size /= 2
        else:
            break  # no step descends: the rest is below the precision of the products
        change = new_gradient - gradient
        if np.vdot(step, change) > 0:  # else rounding has eaten the curvature
            history.append((step, change))
        here, value, gradient = here + step, new_value, new_gradient
    if progress is not None:
        progress(1.0)
    return here


def approximate_newton_step(gradient: np.ndarray, history: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The inverse Hessian, as the last steps show it, times the gradient: the two loops of L-BFGS."""
    found = gradient.copy()
    shares = []
    for step, change in reversed(history):
        share = np.vdot(step, found) / np.vdot(step, change)
        found -= share * change
        shares.append(share)
    if history:
        step, change = history[-1]
        found *= np.vdot(step, change) / np.vdot(change, change)
    for (step, change), share in zip(history, reversed(shares), strict=True):
        found += (share - np.vdot(change, found) / np.vdot(step, change)) * step
    return found
