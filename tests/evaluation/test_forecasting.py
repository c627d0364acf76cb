"""Baselines of forecasts: worked out by hand, and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest

from seqloom.evaluation.forecasting import (
    RIDGE,
    Errors,
    ForecastReport,
    WindowRegression,
    drift,
    find_period,
    last_value,
    measured,
    seasonal,
)
from seqloom.evaluation.nearest import NearestSeries, resampled

HISTORY = np.array([[[1.0], [2.0], [4.0], [7.0]]])


def test_simple_forecasts_by_hand() -> None:
    assert last_value(HISTORY, 2)[0, :, 0].tolist() == [7, 7]
    assert seasonal(HISTORY, 5, 3)[0, :, 0].tolist() == [2, 4, 7, 2, 4]
    assert drift(HISTORY, 3)[0, :, 0].tolist() == [9, 11, 13], "2 a step, from 1 to 7"


def test_errors_add_up_over_batches() -> None:
    random = np.random.default_rng(0)
    made, target = random.normal(size=(2, 7, 3, 2))
    errors = Errors()
    errors.add(made[:4], target[:4])
    errors.add(made[4:], target[4:])
    assert errors.figures["mse"] == pytest.approx(((made - target) ** 2).mean())
    assert errors.figures["mae"] == pytest.approx(np.abs(made - target).mean())
    found = measured({"zero": lambda h, n: np.zeros((len(h), n, 2))}, [(made, target)])
    assert found["zero"]["mse"] == pytest.approx((target**2).mean())


def test_regression_is_that_of_scikit_learn() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    random = np.random.default_rng(1)
    history, target = random.normal(size=(50, 6, 2)), random.normal(size=(50, 3, 2)) + 4
    ours = WindowRegression.fit([(history[:20], target[:20]), (history[20:], target[20:])])
    rows, wanted = np.moveaxis(history, 1, 2).reshape(-1, 6), np.moveaxis(target, 1, 2).reshape(-1, 3)
    theirs = linear_model.Ridge(alpha=RIDGE * (rows**2).sum() / 6).fit(rows, wanted)
    expected = np.moveaxis(theirs.predict(rows).reshape(50, 2, 3), 1, 2)
    np.testing.assert_allclose(ours(history, 3), expected, atol=1e-6)


@pytest.mark.parametrize("period", [7, 24])
def test_a_season_is_found_through_noise_and_trend(period: int) -> None:
    steps = np.arange(600)
    noise = 0.4 * np.random.default_rng(2).normal(size=(600, 2))
    values = np.sin(2 * np.pi * steps / period)[:, None] + 0.01 * steps[:, None] + noise
    assert find_period(values, 100) == period
    assert find_period(noise, 100) is None
    assert find_period(0.1 * steps[:, None].astype(float), 100) is None
    assert find_period(values[:3], 100) is None


def test_the_nearest_series_is_that_of_scikit_learn() -> None:
    neighbours = pytest.importorskip("sklearn.neighbors")
    random = np.random.default_rng(3)
    known, asked = random.normal(size=(20, 5, 2)), random.normal(size=(9, 5, 2))
    labels = [str(number % 3) for number in range(20)]
    theirs = neighbours.KNeighborsClassifier(1).fit(known.reshape(20, -1), labels).predict(asked.reshape(9, -1))
    assert NearestSeries(list(known), labels).predict(list(asked)) == theirs.tolist()


def test_series_of_other_lengths_are_drawn_out_between_their_ends() -> None:
    assert resampled(np.array([[0.0], [2.0], [4.0]]), 5)[:, 0].tolist() == [0, 1, 2, 3, 4]
    assert resampled(np.array([[3.0]]), 2)[:, 0].tolist() == [3, 3]


def test_the_report_shows_the_model_beside_the_others() -> None:
    report = ForecastReport("test", 9, 3, {"mse": 0.5, "mae": 0.25}, {"load": 2.0}, 88.0, (0.1, 0.5, 0.9))
    text = report.beside({"last value": {"mse": 1.5, "mae": 1.0}}).render()
    assert "9 windows, 3 steps ahead" in text
    assert "88.0 % of all values lie between the quantiles 0.1 and 0.9; 80.0 % should" in text
    assert [line.split() for line in text.splitlines() if line.startswith(("model", "last"))] == [
        ["model", "0.5000", "0.2500"],
        ["last", "value", "1.5000", "1.0000"],
    ]
