"""Learning curves: on the terminal, in files, and where their names go."""

from __future__ import annotations

import itertools
import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.errors import UserError
from seqloom.inspection.curves import Curve, draw_curves, keep_apart, round_numbers


def test_blocks_over_the_same_time_and_range() -> None:
    curves = [Curve("long", [(0.0, 0.0), (9.0, 80.0)], 81.0), Curve("short", [(3.0, 40.0)]), Curve("level", [], 80.0)]
    assert draw_curves(curves, measured="BLEU", columns=10, decimals=1).splitlines() == [
        "BLEU over 9 minutes of training (▁ 0 to █ 80)",
        "long   ▁▁▂▃▄▅▆▇██  81.0",  # 0, 8.9, 17.8 … in eighths of the range
        "short     ▅        40.0",
        "level  ██████████  80.0",
    ]


def test_a_logarithmic_line_falls_by_equal_steps() -> None:
    points = [(float(x), 2.0 ** (8 - x)) for x in range(9)]
    lines = draw_curves([Curve("a", points)], measured="perplexity", logarithmic=True, columns=9).splitlines()
    assert lines[0] == "perplexity over 8 minutes of training (▁ 1 to █ 256, logarithmic)"
    assert lines[1] == "a  ██▇▆▅▄▃▂▁  1.00"


def test_what_has_no_logarithm_is_drawn_plainly() -> None:
    text = draw_curves([Curve("a", [(1.0, 0.0), (2.0, 5.0)])], measured="perplexity", logarithmic=True)
    assert "logarithmic" not in text


@given(st.floats(0.01, 1e4), st.integers(2, 60))
def test_the_longest_training_fills_its_line(longest: float, columns: int) -> None:
    line = draw_curves([Curve("a", [(0.0, 1.0), (longest, 2.0)])], measured="BLEU", columns=columns).split("\n")[1]
    assert line == f"a  {line[3:].split()[0]}  2.00"
    assert len(line) == len("a    2.00") + columns


figures = st.floats(-1e6, 1e6)
curves = st.builds(
    Curve,
    st.sampled_from(["", "a", "a long name", "日本", "two\nlines"]),
    st.lists(st.tuples(st.floats(0, 1e5), figures), max_size=5).map(sorted),
    st.none() | figures,
)


@given(st.lists(curves, min_size=1, max_size=12), st.booleans(), st.integers(2, 60))
def test_every_curve_is_a_line_of_the_same_width(some: list[Curve], logarithmic: bool, columns: int) -> None:
    some.append(Curve("one more", [], 1.0))
    text = draw_curves(some, measured="BLEU", logarithmic=logarithmic, columns=columns)
    lines = text.split("\n")[1:]
    assert len(lines) == sum(bool(curve.figures) for curve in some)
    assert all(re.search("[▁▂▃▄▅▆▇█]", line) for line in lines)
    level = lines[-1]
    assert len(re.findall("[▁▂▃▄▅▆▇█]", level)) == columns
    assert all(len(re.findall("[▁▂▃▄▅▆▇█]", line)) <= columns for line in lines)


def test_nothing_to_draw() -> None:
    with pytest.raises(UserError, match="no validation"):
        draw_curves([Curve("a", [])], measured="BLEU")


def test_a_picture_names_every_model_with_its_figure(tmp_path: Path) -> None:
    some = [Curve(f"run-{i}", [(1.0, 300.0 + i), (2.0 + i, 100.0 + i)], 99.5 + i) for i in range(11)]
    some.append(Curve("kn5", [], 141.2))
    path = draw_curves(
        some, tmp_path / "a.svg", measured="perplexity", title="A title", caption="A caption.", logarithmic=True
    )
    drawn = Path(path).read_text()
    texts = re.findall(r"<text[^>]*>([^<]+)</text>", drawn)
    assert {f"run-{i}  {99.5 + i:.2f}" for i in range(11)} | {"kn5  141.20", "A title", "A caption."} <= set(texts)
    assert {"minutes of training", "perplexity (logarithmic)", "100", "200", "300"} <= set(texts)


def test_names_in_a_picture_do_not_overlap(tmp_path: Path) -> None:
    some = [Curve(f"run-{i}", [(1.0, 1.0), (2.0, 50.0 + i / 1000)]) for i in range(12)]
    drawn = Path(draw_curves(some, tmp_path / "a.svg", measured="BLEU")).read_text()
    places = {
        name: float(y) for y, name in re.findall(r"<text[^>]*?translate\([\d.]+ ([\d.]+)\)[^>]*>(run-\d+)  ", drawn)
    } or {name: float(y) for y, name in re.findall(r'<text[^>]*? y="([\d.]+)"[^>]*>(run-\d+)  ', drawn)}
    assert len(places) == 12
    heights = sorted(places.values())
    assert min(b - a for a, b in itertools.pairwise(heights)) > 10  # points; letters have 9
    assert sorted(places, key=lambda name: -places[name]) == [f"run-{i}" for i in range(12)]  # as the lines end


@pytest.mark.parametrize("suffix", [".png", ".pdf"])
def test_pictures_of_one_point_and_of_levels_alone(suffix: str, tmp_path: Path) -> None:
    draw_curves([Curve("a", [(0.5, 3.0)])], tmp_path / f"a{suffix}", measured="BLEU")
    draw_curves([Curve("a", [], 3.0)], tmp_path / f"b{suffix}", measured="perplexity", logarithmic=True)
    assert (tmp_path / f"a{suffix}").stat().st_size > 1000 < (tmp_path / f"b{suffix}").stat().st_size


places = st.lists(st.floats(-5, 15), min_size=1, max_size=8).map(sorted)


@given(places)
def test_names_are_kept_apart_within_the_page(some: list[float]) -> None:
    found = keep_apart(some, 0.5, 0.0, 10.0)
    assert all(b - a >= 0.5 - 1e-9 for a, b in itertools.pairwise(found))
    assert found[0] >= 0.0
    assert found[-1] <= 10.0 + 1e-9


@settings(max_examples=40)
@given(places, st.randoms(use_true_random=False))
def test_no_other_places_are_nearer(some: list[float], draw: random.Random) -> None:
    def moved(others: list[float]) -> float:
        return sum((a - b) ** 2 for a, b in zip(some, others, strict=True))

    found = keep_apart(some, 0.5, 0.0, 10.0)
    for _ in range(20):
        level = sorted(draw.uniform(0.0, 10.0 - 0.5 * (len(some) - 1)) for _ in some)
        other = [place + 0.5 * index for index, place in enumerate(level)]
        share = draw.choice([1.0, 0.1, 0.01])  # any mixture of two that fit fits too
        mixed = [share * b + (1 - share) * a for a, b in zip(found, other, strict=True)]
        assert moved(found) <= moved(mixed) + 1e-9


def test_two_names_that_meet_part_evenly() -> None:
    assert keep_apart([1.0, 1.0], 0.5, 0.0, 10.0) == [0.75, 1.25]
    assert keep_apart([0.0, 5.0], 0.5, 0.0, 10.0) == [0.0, 5.0]
    assert keep_apart([9.9, 9.9, 9.9], 0.5, 0.0, 10.0) == [9.0, 9.5, 10.0]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (90.0, 720.0, [100, 150, 200, 300, 400, 500, 700]),
        (1.0, 1000.0, [1, 10, 100, 1000]),
        (82.0, 130.0, [90, 100, 120]),
    ],
)
def test_round_numbers(low: float, high: float, expected: list[float]) -> None:
    assert round_numbers(low, high) == expected


@given(st.floats(1e-6, 1e9), st.floats(1.001, 1e12))
def test_round_numbers_lie_within_and_rise(low: float, ratio: float) -> None:
    found = round_numbers(low, low * ratio)
    assert 2 <= len(found) <= 8
    assert all(a < b for a, b in itertools.pairwise(found))
    assert low * (1 - 1e-12) <= found[0]
    assert found[-1] <= low * ratio * (1 + 1e-12)
