"""The time left is told within a factor of two once ten seconds have passed, on what was recorded and on worse."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.training.progress import Pace, Progress

# Recorded on a machine that others used too: (seconds, share) after a piece of work.
TRAINING = (  # a small Transformer, validated five times
    *((0.0, 0.002), (1.3, 0.024), (2.5, 0.046), (3.8, 0.068), (4.9, 0.09), (6.1, 0.112), (7.4, 0.134), (8.7, 0.156)),
    *((10.0, 0.178), (11.2, 0.2), (13.1, 0.222), (14.4, 0.244), (15.6, 0.266), (16.9, 0.288), (18.2, 0.31)),
    *((19.4, 0.332), (20.6, 0.354), (21.9, 0.376), (23.2, 0.398), (25.2, 0.42), (26.4, 0.442), (27.6, 0.464)),
    *((28.9, 0.486), (30.1, 0.508), (31.3, 0.53), (32.5, 0.552), (33.8, 0.574), (35.1, 0.596), (37.0, 0.618)),
    *((38.2, 0.64), (39.3, 0.662), (40.5, 0.684), (41.7, 0.706), (43.0, 0.728), (44.3, 0.75), (45.4, 0.772)),
    *((46.7, 0.794), (48.6, 0.816), (49.8, 0.838), (51.1, 0.86), (52.4, 0.882), (53.6, 0.904), (54.9, 0.926)),
    *((56.1, 0.948), (57.3, 0.97), (58.5, 0.992), (59.0, 1.0)),
)

EVALUATING = (  # a corpus searched by a beam of 12, the longest sentences first
    *(
        (0.0, 0.004),
        (4.5, 0.024),
        (9.4, 0.045),
        (13.7, 0.065),
        (17.2, 0.086),
        (20.9, 0.106),
        (24.4, 0.127),
        (27.8, 0.147),
    ),
    *(
        (31.0, 0.168),
        (34.0, 0.189),
        (36.5, 0.209),
        (38.8, 0.23),
        (41.2, 0.251),
        (43.5, 0.272),
        (46.1, 0.292),
        (49.0, 0.313),
    ),
    *(
        (51.8, 0.334),
        (54.3, 0.355),
        (58.2, 0.375),
        (61.5, 0.396),
        (64.8, 0.417),
        (67.2, 0.438),
        (71.0, 0.459),
        (73.4, 0.48),
    ),
    *(
        (75.8, 0.501),
        (78.1, 0.522),
        (80.3, 0.543),
        (82.7, 0.564),
        (84.8, 0.585),
        (87.5, 0.606),
        (89.8, 0.627),
        (92.0, 0.648),
    ),
    *(
        (94.2, 0.668),
        (96.4, 0.689),
        (98.7, 0.71),
        (100.8, 0.731),
        (103.0, 0.752),
        (105.2, 0.773),
        (107.4, 0.794),
        (109.4, 0.814),
    ),
    *(
        (112.7, 0.835),
        (115.3, 0.856),
        (117.8, 0.877),
        (120.6, 0.898),
        (123.2, 0.919),
        (125.7, 0.939),
        (128.8, 0.96),
        (131.6, 0.981),
    ),
    *((134.0, 1.0),),
)


def told(points: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float, float]]:
    """After each piece: when it was, what is told of the time left, and what was left."""
    pace, end = Pace(), points[-1][0]
    for seconds, share in points:
        pace.hear(seconds, share)
        left = pace.left()
        if left is not None:
            yield seconds, left, end - seconds


def within_a_factor_of_two(points: Sequence[tuple[float, float]]) -> None:
    found = [(seconds, left, true) for seconds, left, true in told(points) if seconds >= 10.0]
    assert len(found) > len(points) / 3
    for seconds, left, true in found:
        assert true / 2 - 1 <= left <= 2 * true + 1, f"at {seconds} s: {left} told, {true} left"


def even(pieces: int, each: float, first: float = 0.0) -> list[tuple[float, float]]:
    """Pieces of equal length; the first but one takes longer, as what is compiled does."""
    return [((number - 1) * each + (first if number > 1 else 0.0), number / pieces) for number in range(1, pieces + 1)]


@pytest.mark.parametrize(
    "points",
    [
        TRAINING,
        EVALUATING,
        even(144, 0.8),
        even(144, 0.8, first=34.0),  # the heads of a Transformer: two minutes, of which once 1:21:47 was told
        even(2880, 0.04, first=1.7),
        even(20, 6.0, first=60.0),
    ],
    ids=["training", "evaluating", "even", "compiled first", "many small pieces", "few large pieces"],
)
def test_the_time_left_is_told_within_a_factor_of_two(points: Sequence[tuple[float, float]]) -> None:
    within_a_factor_of_two(points)


def test_what_becomes_faster_is_told_by_its_new_pace() -> None:
    slow = [(2.0 * number, number / 400) for number in range(1, 21)]
    fast = [(40.0 + 0.1 * number, (20 + number) / 400) for number in range(1, 381)]
    (left,) = [left for seconds, left, _ in told([*slow, *fast]) if seconds == pytest.approx(42.0)]
    assert left > 100.0  # it has hardly begun to be faster
    late = [(left, true) for seconds, left, true in told([*slow, *fast]) if seconds > 77.0]
    assert all(left <= 2 * true + 0.5 for left, true in late)


@given(st.lists(st.tuples(st.floats(0.0, 100.0), st.floats(0.0, 1.0)), max_size=300))
def test_whatever_is_heard_the_time_left_is_a_number_or_nothing(pieces: list[tuple[float, float]]) -> None:
    pace, now = Pace(), 0.0
    for seconds, share in pieces:
        now += seconds
        pace.hear(now, share)
        left = pace.left()
        assert left is None or 0.0 <= left < float("inf")
    assert len(pace.points) <= 205


def test_nothing_is_told_of_the_first_moments(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False)
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    with Progress("working") as bar:
        for number in range(1, 5):
            clock[0] += 0.4
            bar.update(number / 100, "")
        assert bar.left() == ""
        for number in range(5, 60):
            clock[0] += 0.4
            bar.update(number / 100, f"{number} done")
        assert bar.left() == "0:16 left"
    assert "working  38%  38 done  0:25 left" in capsys.readouterr().err
