"""Probabilities that mean what they say, and thresholds: what is fitted on validation data when a training is over."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

COLDEST, HOTTEST = 0.25, 10.0  # few examples, all right, would ask for certainty


def fitted_temperature(slope: Callable[[float], float]) -> float:
    """The temperature at which the derivative of the mean loss with respect to 1 / T is zero (Guo et al. 2017, 4.2).

    The loss is convex in 1 / T, so its derivative grows; where it has one sign everywhere, the bound is taken.
    """
    low, high = 1 / HOTTEST, 1 / COLDEST
    if slope(low) >= 0:
        return 1 / low
    if slope(high) <= 0:
        return 1 / high
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return float((low * high) ** -0.5)


def softmax_temperature(logits: np.ndarray, gold: np.ndarray) -> float:
    """(examples, labels), (examples,) -> the temperature of a softmax: p = softmax(logits / T)."""
    logits = np.asarray(logits, np.float64)
    logits = logits - logits.max(1, keepdims=True)
    right = logits[np.arange(len(gold)), gold]

    def slope(inverse: float) -> float:
        """Mean logit that the model expects, less that of the gold labels."""
        powers = np.exp(inverse * logits)
        return float(((powers * logits).sum(1) / powers.sum(1) - right).mean())

    return fitted_temperature(slope)


def sigmoid_temperature(logits: np.ndarray, present: np.ndarray) -> float:
    """(examples, labels) logits, zeros and ones -> the temperature of independent labels: p = sigmoid(logits / T)."""
    logits = np.asarray(logits, np.float64)

    def slope(inverse: float) -> float:
        return float(((sigmoid(inverse * logits) - present) * logits).mean())

    return fitted_temperature(slope)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(-np.abs(logits))
    return np.asarray(np.where(logits >= 0, 1.0, powers) / (1.0 + powers))


def best_threshold(probabilities: np.ndarray, present: np.ndarray) -> float:
    """(n,) probabilities of labels, (n,) whether they are there -> where to cut for the highest F1.

    Cuts lie half-way between two neighbouring probabilities; of equally good ones the one nearest to 0.5 is taken.
    """
    if not present.any():
        return 0.5
    order = np.argsort(-probabilities, kind="stable")
    sorted_ones = probabilities[order]
    right = np.cumsum(present[order] > 0)
    f1 = 2 * right / (np.arange(1, len(order) + 1) + right[-1])
    ends = np.append(sorted_ones[:-1] > sorted_ones[1:], True)  # equal probabilities are taken together
    below = np.append(sorted_ones[1:], 0.0)
    cuts = (sorted_ones + below) / 2
    best = np.flatnonzero(ends & (f1 >= f1[ends].max() - 1e-12))
    return float(min(cuts[best], key=lambda cut: abs(cut - 0.5)))


class Bin(NamedTuple):
    """Answers of about one confidence: their mean confidence and accuracy, both from 0 to 1, and their number."""

    low: float
    high: float
    confidence: float
    accuracy: float
    size: int


def reliability(confidence: np.ndarray, right: np.ndarray, bins: int) -> list[Bin]:
    """Bins of equal width with at least one answer; bin m of M holds what is above (m - 1) / M, up to m / M."""
    number = np.clip(np.ceil(np.asarray(confidence) * bins).astype(np.int64) - 1, 0, bins - 1)
    found = []
    for one in np.unique(number).tolist():
        inside = number == one
        mean, share = float(confidence[inside].mean()), float(right[inside].mean())
        found.append(Bin(one / bins, (one + 1) / bins, mean, share, int(inside.sum())))
    return found
