"""The view `words`: pieces added up, bars to both sides, the picture."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.inspection.words import Contributions, draw_words, whole_words

FOUND = Contributions(
    "good", ["a", "dull", "film"], np.array([0.0, -1.0, 0.5]), 0.25, {"good": 0.5, "bad": 0.375, "none": 0.125}
)


def test_pieces_of_a_word_are_added_up() -> None:
    words, values = whole_words(["un", "·believ", "·able", "·", "film", "<eos>"], np.array([1, 2, 4, 8, 16, 32]))
    assert words == ["unbelievable", "·", "film", "<eos>"]
    assert values.tolist() == [7, 8, 16, 32]


@given(st.lists(st.tuples(st.sampled_from(["a", "·b", "·", "cd", "·e f"]), st.integers(-99, 99)), min_size=1))
def test_no_number_is_lost(symbols: list[tuple[str, int]]) -> None:
    labels, numbers = [label for label, _ in symbols], np.array([number for _, number in symbols])
    words, values = whole_words(labels, numbers)
    assert len(words) == len(values) <= len(labels)
    assert values.sum() == numbers.sum()
    assert "".join(words).replace("·", "") == "".join(labels).replace("·", "")


def test_bars_by_hand() -> None:
    assert draw_words(FOUND, colour=False, width=32).split("\n") == [
        "good: 50.0%   (bad 37.5%, none 12.5%)",
        "",
        "a      +0.00      │",
        "dull   −1.00  ████│",
        "film   +0.50      │██",
        "bias   +0.25      │█",
        "",
        # That of bad is less by log(0.5 / 0.375).
        "They add up to −0.25, the logit of good above the mean of all labels; that of bad is −0.54.",
    ]


def test_bars_for_and_against_have_two_colours() -> None:
    lines = draw_words(FOUND, colour=True, width=32).split("\n")
    assert [re.sub("\x1b[^m]*m", "", line) for line in lines] == draw_words(FOUND, colour=False, width=32).split("\n")
    hues = [re.findall("\x1b\\[38;([^m]*)m", line) for line in lines[2:6]]
    assert [len(found) for found in hues] == [0, 1, 1, 1]
    assert hues[1] != hues[2] == hues[3]


@given(st.lists(st.floats(-50, 50), min_size=1, max_size=9), st.floats(-5, 5), st.integers(30, 100))
def test_the_line_between_for_and_against_is_straight(values: list[float], bias: float, width: int) -> None:
    found = Contributions("x", ["w"] * len(values), np.array(values), bias, {"x": 1.0})
    rows = draw_words(found, colour=False, width=width).split("\n")[2:-2]
    assert len({row.index("│") for row in rows}) == 1
    assert all(len(row) <= width for row in rows)
    for row, value in zip(rows, [*values, bias], strict=True):
        left, right = row.split("│")
        assert value <= 0 or not set(left) & set("█▐")
        assert value >= 0 or not right


def test_the_picture_holds_words_numbers_and_the_sum(tmp_path: Path) -> None:
    words = [f"word{i}" for i in range(40)]
    found = Contributions("good", words, np.linspace(-1, 1, 40), 0.25, {"good": 0.75, "bad": 0.25})
    path = Path(draw_words(found, tmp_path / "a.svg", title="a review"))
    texts = [
        "".join(node.itertext()).strip()
        for node in ElementTree.parse(path).getroot().iter("{http://www.w3.org/2000/svg}text")
    ]
    assert set(words) <= set(texts)
    assert {"a review", "−1.00", "+1.00"} <= set(texts)
    caption = " ".join(reversed(texts))  # its lines are written upwards
    assert "the bias, +0.25, they add up to +0.25, the logit of good above the mean of all labels" in caption
    assert "that of bad is −0.85" in caption


def test_everything_at_zero_is_drawn(tmp_path: Path) -> None:
    found = Contributions("x", ["a"], np.zeros(1), 0.0, {"x": 1.0})
    assert "+0.00" in draw_words(found, colour=False)
    assert Path(draw_words(found, tmp_path / "a.png")).stat().st_size > 1000


@pytest.mark.parametrize("count", [2, 9])
def test_other_labels_are_named_up_to_four(count: int) -> None:
    shares = {f"label{i}": 1 / count for i in range(count)}
    text = draw_words(Contributions("label0", ["a"], np.ones(1), 0.0, shares), colour=False)
    assert ("and 4 more" in text) == (count == 9)
