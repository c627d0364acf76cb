"""Names never cover each other, whatever the points."""

from __future__ import annotations

import itertools
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.inspection import page, scatter
from seqloom.inspection.scatter import Cloud, boxes_around, place_every_label, place_labels, scatter_text, to_page
from seqloom.inspection.terminal import display_width

WIDTH, HEIGHT = 7.0, 5.0


def apart(first: Any, second: Any) -> bool:
    return bool(
        first[2] <= second[0] + 1e-9
        or second[2] <= first[0] + 1e-9
        or first[3] <= second[1] + 1e-9
        or second[3] <= first[1] + 1e-9
    )


def cloud_of(num: int, names: list[str] | None = None, **more: Any) -> Cloud:
    random = np.random.default_rng(num)
    given = {
        "points": random.normal(size=(num, 2)) * (3.0, 1.0),
        "names": names or [f"word{i}" for i in range(num)],
        "groups": random.integers(2, size=num),
        "key": [("#0072b2", "nouns"), ("#d55e00", "verbs")],
        "order": range(num),
        "labels": 60,
    }
    return Cloud(**{**given, **more})


places = st.lists(st.tuples(st.floats(0, WIDTH), st.floats(0, HEIGHT), st.floats(0.05, 2.5)), min_size=1, max_size=40)


@given(places, st.integers(1, 30))
def test_names_are_on_the_page_and_overlap_nothing(found: list[tuple[float, float, float]], most: int) -> None:
    anchors = np.array([(x, y) for x, y, _ in found])
    sizes = np.array([(wide, 0.14) for _, _, wide in found])
    labels = place_labels(anchors, lambda i: sizes[i], WIDTH, HEIGHT, most)
    assert len(labels) <= most
    assert len({label.point for label in labels}) == len(labels)
    for label in labels:
        left, bottom, right, top = label.box
        assert 0 <= left < right <= WIDTH
        assert 0 <= bottom < top <= HEIGHT
        assert (right - left, top - bottom) == pytest.approx(tuple(sizes[label.point]))
    assert all(apart(a.box, b.box) for a, b in itertools.combinations(labels, 2))
    for label, other in itertools.product(labels, labels):
        x, y = anchors[other.point]
        assert apart(label.box, (x, y, x, y))


@given(places)
def test_every_name_that_is_placed_is_free_too(found: list[tuple[float, float, float]]) -> None:
    anchors = np.array([(x, y) for x, y, _ in found])
    sizes = np.array([(wide, 0.14) for _, _, wide in found])
    labels = place_every_label(anchors, sizes, WIDTH, HEIGHT, np.empty((0, 2)))
    assert all(apart(a.box, b.box) for a, b in itertools.combinations(labels, 2))
    for label, anchor in itertools.product(labels, anchors):
        assert apart(label.box, (*anchor, *anchor))


def test_where_there_is_room_every_name_is_placed_even_on_one_spot() -> None:
    anchors = np.tile([WIDTH / 2, HEIGHT / 2], (25, 1)) + np.random.default_rng(1).normal(size=(25, 2)) * 0.1
    labels = place_every_label(anchors, np.tile([0.6, 0.14], (25, 1)), WIDTH, HEIGHT, np.empty((0, 2)))
    assert len(labels) == 25
    assert any(label.line for label in labels)


def test_a_lonely_name_stands_right_of_its_point() -> None:
    (label,) = place_labels(np.array([[1.0, 2.0]]), lambda _: (0.5, 0.2), WIDTH, HEIGHT, 5, reach=0.1)
    assert label.box == pytest.approx((1.1, 1.9, 1.6, 2.1))
    (label,) = place_labels(np.array([[6.9, 2.0]]), lambda _: (0.5, 0.2), WIDTH, HEIGHT, 5, reach=0.1)
    assert label.box == pytest.approx((6.3, 1.9, 6.8, 2.1))  # at the right edge it stands left


def test_the_first_of_a_region_is_named_and_every_region_is_heard() -> None:
    corner = np.random.default_rng(2).normal(size=(200, 2)) * 0.02 + 1.0
    anchors = np.concatenate([corner, [[6.0, 4.0]]])  # the rarest word lies alone
    labels = place_labels(anchors, lambda _: (0.4, 0.14), WIDTH, HEIGHT, 4)
    named = [label.point for label in labels]
    assert named[:2] == [0, 200]


@given(st.integers(4, 32))
def test_boxes_around_a_point_leave_it_free(num: int) -> None:
    anchor, size = np.array([3.0, 2.0]), np.array([0.9, 0.14])
    boxes = boxes_around(anchor, size, 0.06, num)
    assert boxes.shape == (num, 4)
    for box in boxes:
        assert apart(box, (*anchor, *anchor))
        assert (box[2] - box[0], box[3] - box[1]) == pytest.approx(tuple(size))


def test_points_keep_their_proportions_on_the_page() -> None:
    points = np.array([[0.0, 0.0], [4.0, 0.0], [0.0, 3.0], [4.0, 3.0]])
    placed, width, height = to_page(points)
    assert np.hypot(*(placed[1] - placed[0])) / np.hypot(*(placed[2] - placed[0])) == pytest.approx(4 / 3)
    assert placed.min() >= scatter.EDGE - 1e-9
    assert (placed <= np.array([width, height]) - scatter.EDGE + 1e-9).all()
    assert np.isfinite(to_page(np.ones((3, 2)))[0]).all()  # all in one place


@pytest.mark.parametrize("everyone", [False, True])
def test_the_letters_that_are_drawn_do_not_overlap(everyone: bool) -> None:
    names = ["Donaudampfschifffahrt", "i", "gjpqy", "ÅÉ", "$5", "naïve"] * 6
    cloud = cloud_of(36, names, everyone=everyone, arrows=[(0, 1), (2, 3)], mean=True)
    with page.look():
        drawn = scatter.scatter_page(cloud, "a title", "a caption")
        canvas = drawn.axes[0]
        boxes = [text.get_window_extent() for text in canvas.texts if text.get_text()]
        frame = canvas.get_window_extent()
    assert len(boxes) == 36 if everyone else len(boxes) > 10
    for first, second in itertools.combinations([(b.x0, b.y0, b.x1, b.y1) for b in boxes], 2):
        assert apart(first, second)
    assert all(frame.x0 <= box.x0 and box.x1 <= frame.x1 for box in boxes)


def test_a_hundred_thousand_points_make_a_small_file(tmp_path: Path) -> None:
    colours = [(f"#{17 * i:02x}55{255 - 17 * i:02x}", f"group {i}") for i in range(8)]
    cloud = cloud_of(100_000, key=colours, groups=np.arange(100_000) % 8)
    path = scatter.scatter(cloud, tmp_path / "a.svg", "many", "points")
    assert path.stat().st_size < 1_500_000
    root = ElementTree.parse(path).getroot()
    texts = ["".join(node.itertext()).strip() for node in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"many", "points", "group 0", "group 7", "word0"} <= set(texts)
    assert len(list(root.iter("{http://www.w3.org/2000/svg}image"))) == 1  # the points are one picture


def test_equal_clouds_are_equal_files(tmp_path: Path) -> None:
    for suffix in (".svg", ".png", ".pdf"):
        first, second = (scatter.scatter(cloud_of(30), tmp_path / f"{i}{suffix}", "t").read_bytes() for i in "ab")
        assert first == second


# ---------------------------------------------------------------------------------------------------------------------
# On the terminal


@given(
    st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=30, unique=True),
    st.integers(20, 120),
    st.booleans(),
)
def test_a_line_is_never_wider_than_the_terminal(names: list[str], width: int, colour: bool) -> None:
    text = scatter_text(cloud_of(len(names), names, key=[("#0072b2", ""), ("#d55e00", "")]), colour=colour, width=width)
    plain = text if not colour else _without_colours(text)
    assert all(display_width(line) <= width for line in plain.split("\n"))


def _without_colours(text: str) -> str:
    import re

    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def test_corners_of_the_cloud_are_corners_of_the_drawing() -> None:
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    cloud = Cloud(points, ["sw", "se", "nw", "ne"], np.zeros(4, dtype=int), [("#000000", "")], range(4), 4)
    lines = scatter_text(cloud, colour=False, width=20, height=8).split("\n")
    assert lines[0] == "•nw" + " " * 14 + "ne•"
    assert lines[-1] == "•sw" + " " * 14 + "se•"


def test_one_point_is_one_dot() -> None:
    points = np.array([[0.0, 0.0], [1.0, 1.0]])
    cloud = Cloud(points, ["a", "b"], np.zeros(2, dtype=int), [("#000000", "")], (), 0)
    lines = scatter_text(cloud, colour=False, width=20, height=8).split("\n")
    assert lines[0] == " " * 19 + "⠈"  # the upper right dot of the last letter
    assert lines[-1] == "⡀"
