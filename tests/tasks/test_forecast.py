"""Forecasting from a recipe to answers: windows as the literature counts them, the data's own units, clear refusals."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seqloom
from seqloom.cli.main import run as typed
from seqloom.errors import RecipeError, UserError
from seqloom.model import Model
from seqloom.recipe import load_recipe
from seqloom.tasks.forecast import Forecasting, pinball

ETT = Path(os.environ.get("SEQLOOM_DATA", "../shared/data"), "ett", "ETTh1.csv")


def recipe(path: Path | str, model: dict[str, Any], forecast: dict[str, Any] | None = None, **training: Any) -> Any:
    parts = {"train": [0, 300], "valid": [300, 380], "test": [380, 460]}
    return {
        "task": "forecast",
        "data": {name: {"series": str(path), "rows": rows} for name, rows in parts.items()},
        "forecast": {"history": 24, "horizon": 6, **(forecast or {})},
        "model": model,
        "training": {
            "steps": 150,
            "batch_windows": 16,
            "learning_rate": 1e-2,
            "validate_every": 50,
            "workers": 1,
            **training,
        },
    }


@pytest.fixture(scope="module")
def waves(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two waves without noise, one of large numbers: a linear map of the window knows what follows."""
    path = tmp_path_factory.mktemp("waves") / "waves.csv"
    rows = [
        f"{1000 + 100 * math.sin(t * math.pi / 6):.6f},{0.01 * math.cos(t * math.pi / 6):.8f}\n" for t in range(460)
    ]
    path.write_text("large,small\n" + "".join(rows))
    return path


@pytest.fixture(scope="module")
def model(waves: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    return seqloom.train(recipe(waves, {"kind": "linear_forecaster"}), tmp_path_factory.mktemp("run") / "linear")


def test_it_learns_what_is_linear_and_answers_in_the_units_of_the_data(model: Model, waves: Path) -> None:
    values = np.loadtxt(waves, delimiter=",", skiprows=1)
    answer = model(values[:400])
    assert answer.values.shape == (6, 2)
    np.testing.assert_allclose(answer.values, values[400:406], rtol=0.01, atol=2e-4)
    assert answer.names == ["large", "small"]
    assert answer.text.startswith("large: ")
    assert model(values[300:400]).text == answer.text, "the last steps are read"
    np.testing.assert_allclose(model(values[:400].tolist()).values, answer.values, rtol=1e-5)
    [from_file] = model.predict(model.task.inputs([str(waves)]))
    np.testing.assert_allclose(from_file.values, model(values).values, rtol=1e-5)


def test_all_windows_are_measured_on_scaled_values(model: Model) -> None:
    [(name, corpus)] = model.corpora().items()
    report = model.evaluate(corpus, name=name, baselines=True)
    assert report.count == 80 - 6 + 1, "the history of the first one lies before the test rows"
    assert report.figures["mse"] < 1e-3
    found = json.loads(json.dumps(report.to_dict()))
    assert {"mse", "mae", "horizon", "channels", "baselines"} <= found.keys()
    assert set(found["baselines"]) == {"last value", "season of 12", "drift", "linear regression"}
    assert found["baselines"]["season of 12"]["mse"] < 1e-6, "nothing but a season"
    assert found["baselines"]["last value"]["mse"] > 0.1
    scale = dict(zip(model.task.source.channels, model.task.source.scaling.scale, strict=True))
    assert found["channels"]["large"] / scale["large"] < 0.05


def test_quantiles_cover_what_they_should(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    path = tmp_path / "noise.csv"
    path.write_text("v\n" + "\n".join(f"{value:.5f}" for value in 10 + 2 * random.normal(size=460)))
    asked = {"quantiles": [0.1, 0.5, 0.9], "history": 4, "horizon": 2}
    how = {"learning_rate": 1e-2, "metric": "loss", "steps": 300}
    made = seqloom.train(recipe(path, {"kind": "linear_forecaster"}, asked, **how), tmp_path / "run")
    report = made.evaluate("test")
    assert 65 < report.covered < 95
    answer = made(10 + 2 * random.normal(size=(9, 1)))
    assert list(answer.quantiles) == [0.1, 0.5, 0.9]
    assert (answer.quantiles[0.1] < answer.values).all()
    assert (answer.values < answer.quantiles[0.9]).all()
    assert answer.quantiles[0.9].mean() - answer.quantiles[0.1].mean() == pytest.approx(2 * 1.2816 * 2, rel=0.3)


def test_the_pinball_loss_by_hand() -> None:
    made, target = torch.tensor([[[1.0, 4.0, 6.0]]]), torch.tensor([[5.0]])
    by_hand = 2 * (0.1 * 4 + 0.5 * 1 + (0.9 - 1) * (5 - 6)) / 3
    assert float(pinball(made, target, (0.1, 0.5, 0.9))) == pytest.approx(by_hand)
    assert float(pinball(torch.tensor([[[3.0]]]), target, (0.5,))) == pytest.approx(2.0), "the absolute error"


def test_what_does_not_fit_is_told(model: Model, waves: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match="the model reads 24 steps; the series has 5"):
        model(np.ones((5, 2)))
    with pytest.raises(UserError, match=r"the model reads 2 channels \(large, small\); the series has 3"):
        model(np.ones((30, 3)))
    corpus = model.task.corpora([str(waves)])["data"].model_copy(update={"rows": (0, 20)})
    with pytest.raises(UserError, match="no window of 24 \\+ 6 steps fits"):
        model.evaluate(corpus)
    assert typed(["predict", str(model.folder), "[[1, 2], [3]]"]) == 2
    assert "step 2 must have 2 numbers as step 1 has" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("forecast", "model", "message"),
    [
        ({"quantiles": [0.1, 0.9]}, {}, "0.5 is one of them"),
        ({"period": 30}, {}, "period 30 is longer than history 24"),
        ({}, {"patch": 25}, "model.patch 25 is longer than forecast.history 24"),
        ({"quantiles": [0.5]}, {"steps": "recursive"}, "forecast.quantiles need model.steps: direct"),
    ],
)
def test_contradictions_of_a_recipe(forecast: dict[str, Any], model: dict[str, Any], message: str) -> None:
    encoder = {"kind": "encoder_forecaster", "encoder": {"kind": "convolution", "size": 4}, **model}
    with pytest.raises(RecipeError, match=message):
        load_recipe(recipe("made:seasons", encoder, forecast))
    values = recipe("made:seasons", encoder, forecast)
    values["data"]["train"]["windw"] = 5
    with pytest.raises(RecipeError, match=r"data\.train\.windw is not a setting"):
        load_recipe(values)


def test_a_window_to_look_at(model: Model, waves: Path) -> None:
    [values] = model.task.inputs([str(waves)])
    asked = model.task.ask(model.network, values, None)
    assert asked.start == 454
    np.testing.assert_array_equal(asked.truth, values[454:])
    assert model.task.ask(model.network, values, 460).truth is None
    assert len(model.task.ask(model.network, values, 457).truth) == 3
    with pytest.raises(UserError, match="a forecast can begin at steps 24 to 460 of this series; got 5"):
        model.task.ask(model.network, values, 5)


@pytest.mark.parametrize("ending", ["svg", "html"])
def test_it_can_be_seen(model: Model, waves: Path, tmp_path: Path, ending: str) -> None:
    pytest.importorskip("matplotlib")
    picture = model.look("forecast", str(waves), channel=("small",))
    page = picture.save(tmp_path / f"x.{ending}").read_text()
    assert "history" in page
    assert "what followed" in page
    text = picture.to_text(60)
    assert all(len(line) <= 60 for line in text.splitlines()[:3])
    assert picture.to_dict()["channels"] == ["small"]
    assert model.look("forecast").to_dict()["start"] == 98, "the recipe's test data, with what is read before"
    with pytest.raises(UserError, match="--channel must be one of"):
        model.look("forecast", str(waves), channel=("big",))


@pytest.mark.skipif(not ETT.is_file(), reason="the data set ETTh1 is not at hand (SEQLOOM_DATA)")
def test_windows_of_ett_are_those_of_the_literature() -> None:
    """8640/2880/2880 hours: Zeng et al. 2023 have 8209, 2785 and 2785 windows of 336 + 96 hours."""
    loaded: Any = load_recipe("etth1")
    task = Forecasting.learn(loaded, lambda text: None)
    counts = [len(task.windows(loaded.data.train, before=False)), len(task.windows(loaded.data.valid))]
    assert [*counts, len(task.windows(loaded.data.test["test"]))] == [8209, 2785, 2785]
    assert task.settings.period == 24
