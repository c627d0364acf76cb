"""Learning rates at the steps that matter, by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.errors import RecipeError
from seqloom.settings import validated
from seqloom.training.schedules import Plateau, scheduled_rate
from seqloom.training.settings import TrainingSettings


def chosen(**given: Any) -> TrainingSettings:
    return TrainingSettings(**{"steps": 110, "learning_rate": 0.4} | given)


def test_constant() -> None:
    assert [scheduled_rate(step, chosen()) for step in (1, 7, 999)] == [0.4] * 3


@pytest.mark.parametrize("schedule", ["constant", "inverse_square_root", "cosine", "plateau"])
def test_warm_up_is_a_straight_line_to_the_peak(schedule: str) -> None:
    s = chosen(schedule=schedule, warmup_steps=10)
    assert [scheduled_rate(step, s) for step in (1, 5, 10)] == pytest.approx([0.04, 0.2, 0.4])
    assert scheduled_rate(11, s) == pytest.approx(0.4, rel=0.06)  # no jump after it


def test_inverse_square_root() -> None:
    s = chosen(schedule="inverse_square_root", warmup_steps=10, min_learning_rate=0.05)
    assert scheduled_rate(40, s) == pytest.approx(0.2)
    assert scheduled_rate(90, s) == pytest.approx(0.4 / 3)
    assert scheduled_rate(640, s) == pytest.approx(0.05)
    assert scheduled_rate(10_000, s) == 0.05


def test_cosine() -> None:
    s = chosen(schedule="cosine", warmup_steps=10, min_learning_rate=0.1)
    assert scheduled_rate(60, s) == pytest.approx(0.25)  # half way
    assert scheduled_rate(35, s) == pytest.approx(0.1 + 0.3 * (1 + math.sqrt(0.5)) / 2)  # a quarter
    assert scheduled_rate(110, s) == pytest.approx(0.1)
    assert scheduled_rate(500, s) == pytest.approx(0.1)
    assert scheduled_rate(20, chosen(schedule="cosine", decay_steps=40)) == pytest.approx(0.2)


def test_cosine_over_epochs_or_minutes_goes_by_what_is_done_of_the_run() -> None:
    s = chosen(schedule="cosine", warmup_steps=10, steps=None, epochs=3)
    assert scheduled_rate(11, s) == 0.4  # nothing is known to be done
    assert scheduled_rate(61, s, 60 / 110) == pytest.approx(
        scheduled_rate(61, chosen(schedule="cosine", warmup_steps=10))
    )
    assert scheduled_rate(111, s, 1.0) == pytest.approx(0.0, abs=1e-3)


def test_cosine_goes_by_the_nearest_of_several_limits() -> None:
    alone = chosen(schedule="cosine", warmup_steps=10)  # 110 steps
    both = chosen(schedule="cosine", warmup_steps=10, minutes=5)
    assert scheduled_rate(61, both, 60 / 110) == pytest.approx(scheduled_rate(61, alone))
    assert scheduled_rate(61, both, 0.9) < scheduled_rate(61, alone) / 2  # the clock is nearly there
    assert scheduled_rate(61, chosen(schedule="cosine", steps=10**6, minutes=5), 1.0) == pytest.approx(0.0, abs=1e-3)
    assert scheduled_rate(20, chosen(schedule="cosine", decay_steps=40, minutes=5), 0.1) == pytest.approx(0.2)


def test_cosine_that_ends_before_its_warm_up() -> None:
    s = chosen(schedule="cosine", warmup_steps=50, decay_steps=10, min_learning_rate=0.1)
    assert scheduled_rate(50, s) == pytest.approx(0.4)
    assert scheduled_rate(51, s) == pytest.approx(0.1)


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from(["constant", "inverse_square_root", "cosine"]),
    st.integers(1, 200),
    st.integers(1, 300),
    st.integers(1, 500),
)
def test_a_rate_is_never_above_the_peak_nor_rises_after_warm_up(
    schedule: str, warmup: int, steps: int, step: int
) -> None:
    s = chosen(schedule=schedule, warmup_steps=warmup, steps=steps, min_learning_rate=0.001)
    rate, following = scheduled_rate(step, s), scheduled_rate(step + 1, s)
    assert 0 < rate <= 0.4 * (1 + 1e-12)
    assert (following > rate * (1 + 1e-12)) == (step < warmup)


def test_plateau_by_hand() -> None:
    s = chosen(schedule="plateau", plateau_patience=1, plateau_factor=0.5, min_learning_rate=0.11)
    plateau, rates = Plateau(), []
    for improved in (True, False, True, False, False, False, False, False, False):
        plateau.hear(improved, s)
        rates.append(plateau.rate(7, s))
    assert rates == pytest.approx([0.4, 0.4, 0.4, 0.4, 0.2, 0.2, 0.11, 0.11, 0.11])


def test_plateau_without_patience_and_with_warm_up() -> None:
    s = chosen(schedule="plateau", plateau_patience=0, plateau_factor=0.25, warmup_steps=10)
    plateau = Plateau()
    plateau.hear(False, s)
    assert plateau.rate(5, s) == pytest.approx(0.05)
    assert plateau.rate(10, s) == pytest.approx(0.1)


def test_other_schedules_do_not_listen() -> None:
    plateau = Plateau()
    for _ in range(5):
        plateau.hear(False, chosen())
    assert plateau == Plateau()


def test_a_plateau_survives_a_checkpoint() -> None:
    s = chosen(schedule="plateau")
    plateau = Plateau()
    for improved in (True, False, False, False):
        plateau.hear(improved, s)
    copy = Plateau(**plateau.to_dict())
    assert copy == plateau == Plateau(factor=0.5, waited=1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give at least one of epochs, steps, minutes"),
        (dict(steps=1, schedule="inverse_square_root"), "the inverse_square_root schedule needs warmup_steps"),
        (dict(steps=1, metric="bleu", validation_sentences=0), "metric: bleu needs validation_sentences above 0"),
        (
            dict(steps=1, learning_rate=0.1, min_learning_rate=0.2),
            "min_learning_rate must not be above learning_rate",
        ),
    ],
)
def test_settings_that_do_not_fit(given: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        validated(TrainingSettings, given)
    assert caught.value.problems == [message]
