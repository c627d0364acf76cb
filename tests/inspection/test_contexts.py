"""The view `contexts`: formulas by hand, what the terminal says, the picture, mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import UserError
from seqloom.inspection.contexts import MOST_TEXTS, cosines, draw_contexts, families, marked, nearest

TEXTS = ["he broke the stick", "a stick of wood", "they stick to it", "we stick with you"]


def layers() -> list[np.ndarray]:
    """Without context all alike; then two and two; then 1 and 3 are nearest to each other and 4 to 1."""
    alike = np.tile([3.0, 4.0, 0.0], (4, 1))
    paired = np.array([[1.0, 0.1, 0.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.2]])
    last = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.05, 0.0], [1.0, -0.3, 0.1]])
    return [alike, paired, last]


def test_cosines_by_hand() -> None:
    found = cosines(np.array([[3.0, 4.0], [4.0, 3.0], [-3.0, -4.0], [0.0, 0.0]]))
    expected = [[1.0, 0.96, -1.0, 0.0], [0.96, 1.0, -0.96, 0.0], [-1.0, -0.96, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_nearest_and_families_by_hand() -> None:
    paired = cosines(layers()[1])
    assert nearest(paired).tolist() == [1, 0, 3, 2]
    assert families(paired).tolist() == [0, 0, 1, 1]
    last = cosines(layers()[2])
    assert nearest(last).tolist() == [2, 3, 0, 0]
    assert families(last).tolist() == [0, 0, 0, 0]


@given(st.integers(2, 12), st.integers(0, 2**32 - 1))
def test_everybody_is_in_the_family_of_its_nearest(count: int, seed: int) -> None:
    similar = cosines(np.random.default_rng(seed).normal(size=(count, 3)))
    near, found = nearest(similar), families(similar)
    assert (found == found[near]).all()
    assert set(found) == set(range(int(found.max()) + 1))
    assert np.bincount(found).min() >= 2


def test_the_terminal_tells_who_is_near() -> None:
    drawn = draw_contexts("stick", TEXTS, layers(), colour=False, width=70, title="tiny")
    assert "“stick” in 4 texts of tiny" in drawn
    for number, text in enumerate(TEXTS, 1):
        assert f" {number}  {marked(text, 'stick')}" in drawn
    blocks = drawn.split("\n\n")
    without, first, last = blocks[2:5]
    assert without.startswith("layer 0 (without context)")
    assert without.count("1.000") == 16
    assert without.count("all are the same") == 4
    assert [line.split("nearest to ")[1][0] for line in first.splitlines()[2:]] == ["2", "1", "4", "3"]
    assert last.startswith("layer 2 (the last)")
    assert [line.split("nearest to ")[1][0] for line in last.splitlines()[2:]] == ["3", "4", "1", "1"]
    assert "\x1b[" not in drawn
    assert "\x1b[" in draw_contexts("stick", TEXTS, layers(), colour=True, width=70)


def test_the_picture(tmp_path: Path) -> None:
    for name, layer in (("a.svg", None), ("b.png", 1), ("c.svg", 0)):
        path = draw_contexts("stick", TEXTS, layers(), tmp_path / name, layer=layer)
        assert Path(path).stat().st_size > 1000
    assert "layer 2 (the last)" in (tmp_path / "a.svg").read_text().replace("&#8220;", "“")


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        (TEXTS[:1], {}, "compared in 2 to 30 texts; got 1"),
        (TEXTS * MOST_TEXTS, {}, "got 120"),
        (TEXTS, {"layer": 3}, "counts from 0, without context, to 2; got 3"),
        (TEXTS, {"layer": -1}, "got -1"),
        (TEXTS, {"save": "x.gif"}, "gif"),
    ],
)
def test_mistakes_in_contexts_are_named(texts: list[str], options: dict[str, Any], message: str) -> None:
    vectors = [np.tile(layer, (len(texts) // 4 + 1, 1))[: len(texts)] for layer in layers()]
    with pytest.raises(UserError, match=message):
        draw_contexts("stick", texts, vectors, **options)
