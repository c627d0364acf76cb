"""Series as a source: scaled by training data, inverted exactly, kept without pickle; wrong shapes are told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from seqloom.corpus.series import SeriesSettings
from seqloom.errors import UserError
from seqloom.sources.series import Scaling, SeriesSource, SeriesSourceSettings

pieces = st.lists(
    arrays.arrays(np.float32, st.tuples(st.integers(1, 9), st.just(2)), elements=st.floats(-1e3, 1e3, width=32)),
    min_size=1,
    max_size=5,
)


@given(pieces)
def test_scaling_in_pieces_is_that_of_all_at_once(given: list[np.ndarray]) -> None:
    whole = np.concatenate(given).astype(np.float64)
    standard, robust = Scaling.learn(iter(given), "standard"), Scaling.learn(iter(given), "robust")
    np.testing.assert_allclose(standard.centre, whole.mean(0), atol=1e-6)
    moving = whole.std(0) > 1e-4
    np.testing.assert_allclose(standard.scale[moving], whole.std(0)[moving], rtol=1e-5)
    np.testing.assert_allclose(robust.centre, np.median(whole, 0))
    assert (robust.scale > 0).all()
    none = Scaling.learn(iter(given), "none")
    np.testing.assert_array_equal(none.apply(given[0]), given[0])
    for scaling in (standard, robust):
        np.testing.assert_allclose(scaling.invert(scaling.apply(given[0])), given[0], atol=1e-2, rtol=1e-4)


def test_a_channel_that_never_changes_is_only_centred() -> None:
    scaling = Scaling.learn([np.array([[5.0, 1.0], [5.0, 3.0]], np.float32)], "standard")
    np.testing.assert_allclose(scaling.apply(np.array([[5.0, 2.0], [6.0, 3.0]])), [[0, 0], [1, 1]])


@pytest.fixture
def source(tmp_path: Path) -> SeriesSource:
    (tmp_path / "x.csv").write_text("a,b,label\n1,10,up\n3,30,up\n")
    corpus = SeriesSettings(series=str(tmp_path / "x.csv"), target="label")
    return SeriesSource.learn(corpus, SeriesSourceSettings())


def test_it_travels_in_a_folder_and_reads_files_as_it_learned_to(source: SeriesSource, tmp_path: Path) -> None:
    about = json.loads(json.dumps(source.save(tmp_path)))
    assert "x.csv" not in json.dumps(about), "the name of the training file is nobody's business"
    again = SeriesSource.load(tmp_path, {"series": about})
    assert (again.channels, again.key()) == (source.channels, source.key())
    (tmp_path / "y.csv").write_text("b,a\n20,2\n")  # no label, other order
    [found] = again.inputs([str(tmp_path / "y.csv")])
    np.testing.assert_array_equal(found, [[2, 20]])
    np.testing.assert_array_equal(again.inputs(["[[2, 20], [4, 40]]"])[0], [[2, 20], [4, 40]])
    assert again.encode([[[2, 20]]])["values"][0].tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ([[1, 2, 3]], r"the model reads 2 channels \(a, b\); the series has 3"),
        ([[1, 2], [3]], "not a series: step 2 must have 2 numbers"),
        ([["x", 2]], "not a series: step 1: expected a number"),
        ([], "not a series: a series must be a list of steps"),
        (np.zeros((0, 2)), "the series is empty"),
        (np.array([[np.inf, 1.0]]), "infinite numbers"),
        (np.array([[1.0, 2.0], [np.nan, 1.0]]), "step 2, channel 'a': the number is missing"),
        (np.array(["a"]), "a series is an array of"),
        (5, "not a series"),
    ],
)
def test_what_is_no_series_is_told(source: SeriesSource, raw: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        source.array(raw)


def test_damaged_scaling_is_refused(source: SeriesSource, tmp_path: Path) -> None:
    about = source.save(tmp_path)
    with pytest.raises(UserError, match="not a number for each of 3 channels"):
        SeriesSource.load(tmp_path, {"series": {**about, "channels": ["a", "b", "c"]}})
    with pytest.raises(UserError, match="series must say the channels"):
        SeriesSource.load(tmp_path, {})
