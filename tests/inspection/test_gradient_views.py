"""How far back a loss reaches, in tables and pictures; and `seqloom look gradients` from a run to a file."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.cli.main import run
from seqloom.errors import UserError
from seqloom.inspection.gradients import (
    EMBEDDING,
    Gradients,
    GradientTally,
    RecurrentMatrix,
    draw_gradients,
    factor_a_step,
    relative,
    series_of,
)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 8)), min_size=1, max_size=6), st.integers(0, 12))
def test_means_by_distance_are_those_of_a_plain_loop(rows: list[tuple[int, int]], steps: int) -> None:
    random = np.random.default_rng(0)
    tally, found = GradientTally(steps), dict[int, list[float]]()
    for time, end in rows:
        end = min(end, time - 1)
        norms = random.random((1, time))
        tally.add("x", norms, np.array([end]))
        for at in range(end + 1):
            if end - at <= steps:
                found.setdefault(end - at, []).append(norms[0, at])
    means = tally.means()["x"]
    assert len(means) == max(found) + 1
    assert all(means[back] == pytest.approx(np.mean(values)) for back, values in found.items())


@given(st.floats(0.01, 20.0), st.floats(1e-6, 1e6), st.integers(2, 60))
def test_the_factor_of_a_geometric_series_is_its_ratio(ratio: float, first: float, length: int) -> None:
    assert factor_a_step(first * ratio ** np.arange(length)) == pytest.approx(ratio, rel=1e-6)


def test_nothing_is_no_factor() -> None:
    assert math.isnan(factor_a_step(np.array([1.0, 0.0, 0.0])))
    assert factor_a_step(np.array([1.0, 0.25, 0.0, math.nan])) == pytest.approx(0.25)
    assert relative(np.array([2.0, 1.0])).tolist() == [1.0, 0.5]
    assert np.isnan(relative(np.array([0.0, 1.0]))).all()


def test_singular_values_and_radius_of_known_matrices() -> None:
    turned = RecurrentMatrix.of("x", [[0.0, -3.0], [3.0, 0.0]])
    assert turned.singular.tolist() == [3.0, 3.0]
    assert turned.radius == pytest.approx(3.0)
    shear = RecurrentMatrix.of("x", [[0.0, 5.0], [0.0, 0.0]])
    assert shear.singular.tolist() == [5.0, 0.0]
    assert shear.radius == 0.0


def model_of(name: str, ratio: float, *kinds: str, length: int = 12) -> Gradients:
    norms = {kind: (1 + i) * ratio ** np.arange(length) for i, kind in enumerate(kinds)}
    matrices = [RecurrentMatrix.of("layer 0 gate", 2 * np.eye(3))] if len(kinds) > 1 else []
    return Gradients(name, norms, matrices, "4 places in some.txt")


LSTM = model_of("lstm", 0.5, EMBEDDING, "layer 0 hidden", "layer 0 cell", "layer 1 hidden", "layer 1 cell")
ELMAN = model_of("elman", 0.1, EMBEDDING, "layer 0 hidden")
WINDOW = Gradients("window", {EMBEDDING: np.array([1.0, 0.5, 0.0, 0.0])}, [], "4 places in some.txt")


def words_of(picture: Path) -> str:
    """The letters of an SVG file in their order; a caption may be broken anywhere."""
    return " ".join(re.sub("<[^>]*>", " ", picture.read_text(encoding="utf-8")).split())


def test_what_is_shown_of_one_model_and_of_several() -> None:
    series, kind = series_of([LSTM])
    assert list(series) == ["layer 0 hidden", "layer 0 cell", "layer 1 hidden", "layer 1 cell"]
    assert kind == "states"
    assert list(series_of([LSTM], layer=0)[0]) == ["layer 0 hidden", "layer 0 cell"]
    series, kind = series_of([ELMAN, LSTM])
    assert (list(series), kind) == (["elman", "lstm", "lstm, cell"], "relative states")
    assert all(norms[0] == 1.0 for norms in series.values())
    assert series["lstm"] == pytest.approx(0.5 ** np.arange(12))
    series, kind = series_of([ELMAN, WINDOW])
    assert (list(series), kind) == (["elman", "window"], "relative embeddings")
    with pytest.raises(UserError, match="elman: there is no recurrent layer 1; it has 0"):
        series_of([ELMAN, LSTM], layer=1)
    with pytest.raises(UserError, match="there is no recurrent layer to choose"):
        series_of([WINDOW], layer=0)
    with pytest.raises(UserError, match="cannot be told apart"):
        series_of([ELMAN, ELMAN])


def test_tables_hold_the_figures() -> None:
    text = draw_gradients([ELMAN]).splitlines()
    lines = {line.split()[0]: line.split() for line in text if line}
    assert lines["0"][1] == "2.0e+00"
    assert lines["10"][1] == "2.0e-10"
    assert lines["11"][1] == "2.0e-11"
    assert lines["a"] == ["a", "step", "×", "0.100"]
    assert lines["layer"][-4:] == ["2.000", "2.000", "2.000", "2.000"]
    assert "4 places in some.txt" in text[0]
    table = draw_gradients([WINDOW])
    assert "window" not in table.splitlines()[0].split(":")[0]
    assert "nothing arrives from 2 steps back or more" in table
    assert "the embeddings that are read" in table


def test_pictures_are_written(tmp_path: Path) -> None:
    for name, models in {"one.svg": [LSTM], "several.png": [ELMAN, LSTM], "mixed.pdf": [ELMAN, WINDOW]}.items():
        path = tmp_path / name
        assert draw_gradients(models, path, beside=("before", models)) == str(path)
        assert path.stat().st_size > 1000


def test_a_picture_names_its_lines_and_says_what_it_shows(tmp_path: Path) -> None:
    draw_gradients([ELMAN, LSTM], tmp_path / "a.svg", beside=("before training", [ELMAN, LSTM]))
    drawn = words_of(tmp_path / "a.svg")
    for text in (
        "lstm, cell",
        "elman",
        "before training",
        "after training",
        "steps back (k)",
        "divided by that at k = 0",
    ):
        assert text in drawn
    draw_gradients([LSTM], tmp_path / "b.svg")
    drawn = words_of(tmp_path / "b.svg")
    assert "singular values" in drawn
    assert "layer 1 cell" in drawn


# -- through the command ----------------------------------------------------------------------------------------------


def recipe(**model: Any) -> dict[str, Any]:
    return {
        "task": "model_language",
        "data": {"train": {"text": "recall:4/train", "limit": 200}, "valid": {"text": "recall:4/valid", "limit": 40}},
        "text": {"tokenizer": "spaces", "vocabulary_size": None},
        "model": model,
        "training": {"steps": 2, "batching": "sentences", "validate_every": 2, "batch_tokens": 200},
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from seqloom.experiment import train

    folder = tmp_path_factory.mktemp("gradient-runs")
    lstm = recipe(kind="recurrent_lm", cell="lstm", size=6, hidden_size=7, num_layers=2)
    lstm["training"] |= {"predict": "last"}
    train(lstm, folder / "lstm")
    train(recipe(kind="recurrent_lm", cell="elman", size=6, hidden_size=7, num_layers=1), folder / "elman")
    train(recipe(kind="feed_forward_lm", size=6, hidden_size=7, window=3), folder / "window")
    return folder


def shown(capsys: pytest.CaptureFixture[str], *arguments: Any, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert run(["look", *(str(a) for a in arguments)]) == code
    found = capsys.readouterr()
    assert "Traceback" not in found.err
    return found.out, found.err


def test_look_at_a_run(runs: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out, _ = shown(capsys, runs / "lstm", "gradients")
    assert "40 places in recall:4/valid" in out
    assert "layer 1 cell" in out
    assert "layer 0 forget gate" in out
    assert out.splitlines()[-1].startswith("layer 1 output gate")
    assert "\n6 " in out  # the first symbol, the key, four others, the question: six steps lead back from the end
    assert "\n7 " not in out
    out, _ = shown(capsys, runs / "lstm", "gradients", "A b c ? A", "--layer", "1", "--untrained")
    assert "every symbol of the text" in out
    assert "before training" in out
    assert "layer 0 hidden" not in out
    out, err = shown(capsys, runs / "lstm", "gradients", "--data", "recall:9/test", "--count", 8, "--steps", 3)
    assert "8 places in recall:9/test" in out
    assert "\n4 " not in out
    out, err = shown(capsys, runs / "window", "gradients", "--compare", runs / "elman", "--save", tmp_path / "a.svg")
    assert (out, err) == ("", f"drawn into {tmp_path / 'a.svg'}\n")
    drawn = words_of(tmp_path / "a.svg")
    assert "arrives from 3 steps" in drawn
    assert "10⁻¹" in drawn
    assert "$" not in drawn


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--steps", "0"], "steps: must be greater than or equal to 1; got 0"),
        (["--steps", "10001"], "steps: must be less than or equal to 10000; got 10001"),
        (["--count", "0"], "count: must be greater than or equal to 1; got 0"),
        (["A b", "C d"], "one text in quotes"),
        (["A b", "--data", "recall:3/test"], "one text in quotes, or on data, not on both"),
        (["--layer", "7"], "lstm: there is no recurrent layer 7; it has 0, 1"),
        (["--data", "recall:3"], "such as recall:30/train"),
        (["--sentences", "3"], "--sentences is for look forcing and look heads"),
        (["--compare", "LSTM"], "models of one name cannot be told apart in a picture; got lstm, lstm"),
    ],
)
def test_mistakes_are_named(options: list[str], message: str, runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [str(runs / "lstm") if option == "LSTM" else option for option in options]
    out, err = shown(capsys, runs / "lstm", "gradients", *options, code=2)
    assert message in err
    assert out == ""


def test_what_is_no_language_model_is_refused(tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, err = shown(capsys, tiny_run, "gradients", code=2)
    assert "this is for networks that read from left to right, not for a translator; its views: attention" in err
