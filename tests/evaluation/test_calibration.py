"""Temperatures, thresholds and bins: optimal by brute force, and right for data of a known temperature."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.evaluation.calibration import (
    COLDEST,
    HOTTEST,
    best_threshold,
    reliability,
    sigmoid,
    sigmoid_temperature,
    softmax_temperature,
)
from seqloom.evaluation.classification import expected_calibration_error


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(powers / powers.sum(1, keepdims=True))


@pytest.mark.parametrize("true", [0.5, 1.0, 3.0])
def test_the_temperature_that_made_the_data_is_found(true: float) -> None:
    random = np.random.default_rng(1)
    logits = random.normal(size=(20_000, 4)) * 3
    gold = (softmax(logits / true).cumsum(1) > random.random((20_000, 1))).argmax(1)
    assert softmax_temperature(logits, gold) == pytest.approx(true, rel=0.05)
    present = random.random(logits.shape) < sigmoid(logits / true)
    assert sigmoid_temperature(logits, present) == pytest.approx(true, rel=0.05)


@given(st.integers(0, 10_000))
def test_no_other_temperature_has_a_smaller_loss(seed: int) -> None:
    random = np.random.default_rng(seed)
    logits, gold = random.normal(size=(30, 3)) * 4, random.integers(0, 3, 30)
    present = random.random(logits.shape) < 0.5
    temperatures = [softmax_temperature(logits, gold), sigmoid_temperature(logits, present)]
    losses = [
        lambda t: -np.log(softmax(logits / t)[np.arange(30), gold]).mean(),
        lambda t: np.logaddexp(0, np.where(present, -logits, logits) / t).mean(),
    ]
    for found, loss in zip(temperatures, losses, strict=True):
        assert COLDEST <= found <= HOTTEST
        assert loss(found) <= min(loss(other) for other in np.geomspace(COLDEST, HOTTEST, 60)) + 1e-9


def test_where_all_is_right_or_nothing_the_bound_is_taken() -> None:
    logits = np.array([[3.0, 0.0], [0.0, 2.0]])
    assert softmax_temperature(logits, np.array([0, 1])) == COLDEST
    assert softmax_temperature(logits, np.array([1, 0])) == HOTTEST


@given(st.lists(st.tuples(st.sampled_from([0.1, 0.2, 0.25, 0.5, 0.7, 0.9]), st.booleans()), min_size=1, max_size=12))
def test_no_other_threshold_has_a_higher_f1(found: list[tuple[float, bool]]) -> None:
    probabilities, present = np.array([p for p, _ in found]), np.array([there for _, there in found])

    def f1(threshold: float) -> float:
        chosen = probabilities >= threshold
        return 2 * int((chosen & present).sum()) / max(1, int(chosen.sum() + present.sum()))

    threshold = best_threshold(probabilities, present)
    assert 0 < threshold < 1
    assert f1(threshold) == pytest.approx(max(f1(cut) for cut in np.linspace(0.01, 0.99, 99)))


def test_bins_by_hand_and_as_the_calibration_error_has_them() -> None:
    """Above 0 up to 0.5: confidences 0.4 and 0.5, one of them right; above: 0.8 and 1.0, both right."""
    confidence, right = np.array([0.5, 0.8, 0.4, 1.0]), np.array([1.0, 1.0, 0.0, 1.0])
    first, second = reliability(confidence, right, 2)
    assert first == pytest.approx((0.0, 0.5, 0.45, 0.5, 2))
    assert second == pytest.approx((0.5, 1.0, 0.9, 1.0, 2))
    random = np.random.default_rng(3)
    probabilities = softmax(random.normal(size=(200, 3)))
    gold = random.integers(0, 3, 200)
    bins = reliability(probabilities.max(1), probabilities.argmax(1) == gold, 15)
    expected = expected_calibration_error([str(label) for label in gold], probabilities, ["0", "1", "2"])
    assert 100 * sum(one.size * abs(one.accuracy - one.confidence) for one in bins) / 200 == pytest.approx(expected)
