"""Word vectors drawn: their neighbours, the plane they are brought to, and the steps between pairs."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from seqloom.errors import UserError
from seqloom.inspection.neighbours import draw_neighbours
from seqloom.inspection.offsets import draw_offsets, find_section, pairs_of, parallelism
from seqloom.inspection.projection import (
    draw_projection,
    frequency_classes,
    group_vectors,
    principal_components,
    tsne,
    unit_rows,
)
from seqloom.vectors.settings import SubwordSettings
from seqloom.vectors.table import WordVectors

CITIES = ["athens", "oslo", "paris", "rome", "madrid"]
COUNTRIES = ["greece", "norway", "france", "italy", "spain"]


def capitals() -> WordVectors:
    """Five places along one axis, cities and countries apart along another."""
    where = np.linspace(-1, 1, 5)
    cities = np.stack([where, np.full(5, 1.0), np.full(5, 3.0)], axis=1)
    return WordVectors(
        [*CITIES, *COUNTRIES],
        np.concatenate([cities, cities * (1, -1, 1)]).astype(np.float32),
        counts=np.arange(10, 0, -1),
    )


def blobs(num: int = 30, groups: int = 3, size: int = 7) -> tuple[np.ndarray, np.ndarray]:
    """Vectors of length 1 around axes, and the axis of each."""
    random = np.random.default_rng(5)
    belongs = np.repeat(np.arange(groups), num)
    matrix = np.eye(size)[belongs] + 0.1 * random.normal(size=(groups * num, size))
    return (matrix / np.linalg.norm(matrix, axis=1, keepdims=True)).astype(np.float32), belongs


def svg_texts(path: Path) -> list[str]:
    root = ElementTree.parse(path).getroot()
    return ["".join(node.itertext()).strip() for node in root.iter("{http://www.w3.org/2000/svg}text")]


# ---------------------------------------------------------------------------------------------------------------------
# Neighbours


def test_neighbours_with_their_cosines_and_bars() -> None:
    vectors = WordVectors(["a", "b", "long", "d"], np.array([[1, 0], [3, 4], [0, 2], [-1, 0]], np.float32))
    assert draw_neighbours(vectors, ["a"], count=3, colour=False).split("\n") == [
        "a",
        "  b     0.600  ██████████████▍",  # 0.6 of 24 letters is 14.4
        "  long  0.000",
        "  d    −1.000",
    ]
    assert "\x1b[" in draw_neighbours(vectors, ["a"], colour=True)


def test_neighbours_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "n.svg"
    assert draw_neighbours(capitals(), ["Oslo", "paris"], path, count=2, title="nearest") == str(path)
    texts = svg_texts(path)
    assert {"oslo", "paris", "nearest"} <= set(texts)
    assert sum(len(text) == 4 and text[1] == "." for text in texts) == 4


@pytest.mark.parametrize(
    ("words", "count", "message"),
    [([], 3, "at least one word"), (["oslo"], 0, "1 to 200"), (["oslo"] * 51, 3, "at most 50"), (["osla"], 3, "oslo")],
)
def test_what_cannot_be_shown_is_refused(words: list[str], count: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        draw_neighbours(capitals(), words, count=count)


# ---------------------------------------------------------------------------------------------------------------------
# Formulas


def test_principal_components_by_hand() -> None:
    matrix = np.array([[3.0, 1], [-3, -1], [1, -3], [-1, 3]]) @ np.diag([1.0, 0.5])
    found, shares = principal_components(np.array([[2.0, 0, 5], [-2, 0, 5], [0, 1, 5], [0, -1, 5]]), 2)
    assert found == pytest.approx(np.array([[2, 0], [-2, 0], [0, 1], [0, -1]]))
    assert shares == pytest.approx([0.8, 0.2])
    assert principal_components(matrix, 2)[1].sum() == pytest.approx(1.0)


def test_equal_points_have_no_variance_to_share() -> None:
    """The mean of five times 0.234 is not 0.234 to the last bit."""
    assert principal_components(np.full((5, 1), 0.234), 2)[1] == pytest.approx([0.0, 0.0])


@given(
    st.tuples(st.integers(1, 9), st.integers(1, 7)).flatmap(
        lambda shape: arrays(np.float64, shape, elements=st.floats(-10, 10).map(lambda x: round(x, 3)))
    )
)
def test_principal_components_keep_all_distances_where_there_are_enough(matrix: np.ndarray) -> None:
    found, shares = principal_components(matrix, 9)
    assert found.shape == (len(matrix), 9)
    inner = (matrix - matrix.mean(axis=0)) @ (matrix - matrix.mean(axis=0)).T
    assert found @ found.T == pytest.approx(inner, abs=1e-8)
    assert (np.diff(shares) <= 1e-12).all()
    assert shares.sum() == pytest.approx(1.0 if np.ptp(matrix, axis=0).any() else 0.0)


@pytest.mark.parametrize("shape", [(50, 6), (5, 11)])
def test_principal_components_agree_with_scikit_learn(shape: tuple[int, int]) -> None:
    decomposition = pytest.importorskip("sklearn.decomposition")
    matrix = np.random.default_rng(8).normal(size=shape) @ np.diag(np.arange(1.0, shape[1] + 1))
    theirs = decomposition.PCA(2).fit(matrix)
    found, shares = principal_components(matrix, 2)
    assert np.abs(found) == pytest.approx(np.abs(theirs.transform(matrix)))
    assert shares == pytest.approx(theirs.explained_variance_ratio_)


def test_groups_that_are_apart_are_found() -> None:
    matrix, belongs = blobs()
    found, centres = group_vectors(matrix, 3, seed=1)
    assert len(set(zip(found, belongs, strict=True))) == 3
    assert np.linalg.norm(centres, axis=1) == pytest.approx(1.0)
    assert (found == group_vectors(matrix, 3, seed=1)[0]).all()


def test_no_more_groups_than_points() -> None:
    assert group_vectors(np.eye(2, dtype=np.float32), 5, seed=1)[1].shape == (2, 2)


def test_frequency_is_told_by_tens() -> None:
    classes, key = frequency_classes(np.array([0, 99, 100, 999, 1000, 9999]))
    assert classes.tolist() == [0, 0, 1, 1, 2, 2]
    assert [text for _, text in key] == ["100 most frequent words", "to rank 1,000", "to rank 10,000"]


def test_steps_are_compared_with_the_others() -> None:
    assert parallelism(np.array([[1.0, 0], [1, 0], [1, 0]])) == pytest.approx([1, 1, 1])
    # (1, 0) with the mean of (0, 1) and (1, 1), which is (0.5, 1)
    assert parallelism(np.array([[1.0, 0], [0, 1], [1, 1]]))[0] == pytest.approx(1 / np.sqrt(5))
    assert parallelism(np.eye(4)) == pytest.approx(np.zeros(4))  # steps without relation, though each is in the mean
    assert np.isfinite(parallelism(np.zeros((3, 2)))).all()


def test_t_sne_keeps_groups_together() -> None:
    pytest.importorskip("openTSNE")
    matrix, belongs = blobs()
    shares = list[float]()
    points = tsne(matrix, seed=3, threads=1, progress=lambda share, _: shares.append(share))
    distances = np.hypot(*(points[:, None] - points).T)
    np.fill_diagonal(distances, np.inf)
    assert (belongs[distances.argmin(axis=1)] == belongs).mean() > 0.98
    assert shares[0] == 0.0
    assert shares[-1] == 1.0
    assert shares == sorted(shares)


def test_without_open_tsne_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    with pytest.raises(UserError, match=r"pip install 'seqloom\[views\]'"):
        draw_projection(capitals(), method="tsne")


# ---------------------------------------------------------------------------------------------------------------------
# Projection


def test_the_heading_says_method_words_and_variance(tmp_path: Path) -> None:
    path = tmp_path / "p.svg"
    assert draw_projection(capitals(), path) == str(path)
    texts = svg_texts(path)
    unit = capitals().unit.astype(float)
    parts = np.linalg.eigvalsh(np.cov(unit.T))[::-1]
    assert any(text.startswith(f"PCA of 10 words, {parts[:2].sum() / parts.sum():.1%} of the") for text in texts)
    assert set(CITIES) <= set(texts)
    first = draw_projection(capitals(), colour=False, width=60).split("\n")[0]
    assert first.startswith("PCA of 10 words")


def test_only_the_most_frequent_words_and_those_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "p.svg"
    draw_projection(capitals(), path, most=3, words=["Spain"])
    texts = svg_texts(path)
    assert any(text.startswith("PCA of 4 words") for text in texts)
    assert "spain" in texts
    assert "athens" not in texts  # drawn, but names were asked for
    draw_projection(capitals(), path, most=0, words=["spain", "oslo", "rome"], colours="frequency")
    texts = svg_texts(path)
    assert any(text.startswith("PCA of 3 words") for text in texts)
    assert {"spain", "oslo", "rome", "100 most frequent words"} <= set(texts)


def test_a_word_made_of_its_pieces_can_be_drawn(tmp_path: Path) -> None:
    settings = SubwordSettings(shortest=3, longest=3, buckets=11)
    rows = np.random.default_rng(2).normal(size=(11, 4)).astype(np.float32)
    words = ["one", "two", "three"]
    vectors = WordVectors(words, rows[:3], subwords=settings, buckets=rows, own=rows[:3])
    path = tmp_path / "p.svg"
    draw_projection(vectors, path, words=["thirteen", "one"])
    assert "thirteen" in svg_texts(path)
    assert unit_rows(vectors, ["thirteen"])[0] == pytest.approx(
        vectors.vector("thirteen") / np.linalg.norm(vectors.vector("thirteen")), rel=1e-5
    )


def test_what_cannot_be_projected_is_refused(tmp_path: Path) -> None:
    vectors = capitals()
    for message, options in (
        ("at least 3 words", {"most": 2}),
        ("'osla' is not among", {"words": ["osla"]}),
        ("method must be", {"method": "umap"}),
        ("colours must be", {"colours": "red"}),
        ("0 or more", {"most": -1}),
        ("at most 300", {"words": ["oslo"] * 301}),
    ):
        with pytest.raises(UserError, match=message):
            draw_projection(vectors, **options)
    with pytest.raises(UserError, match="must end in"):
        draw_projection(vectors, tmp_path / "a.jpeg")
    broken = WordVectors(["a", "b", "c"], np.array([[1, 1], [np.nan, 1], [1, 0]], np.float32))
    with pytest.raises(UserError, match="'b'"):
        draw_projection(broken)


# ---------------------------------------------------------------------------------------------------------------------
# Offsets


def test_pairs_of_questions_each_once() -> None:
    questions = [("Athens", "Greece", "Oslo", "Norway"), ("Athens", "Greece", "Rome", "Italy")]
    assert pairs_of(questions) == [("Athens", "Greece"), ("Oslo", "Norway"), ("Rome", "Italy")]


def test_a_section_is_found_by_a_part_of_its_name() -> None:
    names = ["capital-common-countries", "capital-world", "family", "family-of-gods"]
    assert find_section(names, "Countries") == "capital-common-countries"
    assert find_section(names, "family") == "family"  # the whole name before a part of one
    with pytest.raises(UserError, match="capital-common-countries and capital-world"):
        find_section(names, "capital")
    with pytest.raises(UserError, match="no section; there are capital-common"):
        find_section(names, "colours")


def test_offsets_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "o.svg"
    pairs = [*zip(map(str.title, CITIES), COUNTRIES, strict=True), ("Bern", "Switzerland")]
    assert draw_offsets(capitals(), pairs, path, title="capitals") == str(path)
    texts = svg_texts(path)
    assert set(CITIES) | set(COUNTRIES) <= set(texts)
    assert any(text.startswith("capitals, 5 pairs: PCA, ") for text in texts)
    caption = " ".join(reversed(texts))  # its lines are written upwards
    assert "1.00 on average" in caption  # the steps differ in length only
    assert "Left out: 1 without vectors." in caption


def test_offsets_on_the_terminal() -> None:
    pairs = list(zip(CITIES, COUNTRIES, strict=True))
    lines = draw_offsets(capitals(), pairs, title="capitals", most=3, colour=False).split("\n")
    assert lines[0] == "capitals, 3 pairs (2 rarer left out)"
    assert [line.split()[:3:2] for line in lines[3:6]] == [[a, b] for a, b in pairs[:3]]
    assert lines[3].startswith("athens → greece   1.00  ████")
    assert lines[-1].startswith("mean              1.00  ")


def test_too_few_pairs_are_refused() -> None:
    with pytest.raises(UserError, match="only 1 of 2 pairs"):
        draw_offsets(capitals(), [("oslo", "norway"), ("bern", "switzerland")], title="capitals")
