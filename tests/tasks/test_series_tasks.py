"""Labels of series, of their steps, and numbers: learned from files, answered for files and arrays, measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqloom
from seqloom.cli.main import run as typed
from seqloom.errors import RecipeError, UserError
from seqloom.model import Model
from seqloom.recipe import load_recipe

CONVOLUTION = {"kind": "convolution", "size": 8, "kernel_size": 3, "num_layers": 2, "dropout": 0.0}
TRAINING = {"steps": 80, "batch_tokens": 200, "learning_rate": 1e-2, "validate_every": 40, "workers": 1, "samples": 0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Series with a bump or a hollow in the second channel: its label, where it is, and how high."""
    folder, random = tmp_path_factory.mktemp("bumps"), np.random.default_rng(1)
    for name, many in (("train", 80), ("valid", 20), ("test", 20)):
        lines = []
        for number in range(many):
            length = int(random.integers(10, 16))
            values, place = 0.2 * random.normal(size=(length, 2)), int(random.integers(0, length - 3))
            height = float(random.uniform(2, 4)) * (-1) ** number
            values[place : place + 3, 1] += height
            tags = ["bump" if place <= step < place + 3 else "flat" for step in range(length)]
            line = {"series": values.tolist(), "label": "up" if height > 0 else "down", "tags": tags, "height": height}
            lines.append(json.dumps(line) + "\n")
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return folder


def recipe(folder: Path, task: str, target: str, model: dict[str, Any], **corpus: Any) -> dict[str, Any]:
    data = {
        name: {"series": str(folder / f"{name}.jsonl"), "target": target, **corpus}
        for name in ("train", "valid", "test")
    }
    return {"task": task, "data": data, "model": {"encoder": CONVOLUTION, **model}, "training": TRAINING}


@pytest.fixture(scope="module")
def classifier(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Model:
    values = recipe(folder, "classify", "label", {"kind": "classifier", "pooling": "max"})
    return seqloom.train(values, tmp_path_factory.mktemp("run") / "classifier")


def test_series_are_classified_beside_their_baselines(classifier: Model, folder: Path) -> None:
    report = classifier.evaluate(classifier.corpora()["test"], name="test", baselines=True)
    assert report.figures["accuracy"] >= 95
    assert set(report.baselines) == {"majority class", "nearest neighbour"}
    answers = classifier.predict(classifier.task.inputs([str(folder / "test.jsonl")]))
    assert [answer.label for answer in answers] == report.answers
    one = json.loads((folder / "test.jsonl").read_text().splitlines()[0])["series"]
    assert classifier(one).label == classifier(np.array(one)).label == answers[0].label
    json.dumps(classifier(np.array(one)).to_dict())


def test_a_file_may_hold_several_series(classifier: Model, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed(["predict", str(classifier.folder), str(folder / "test.jsonl")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 20
    with pytest.raises(UserError, match="holds 20 series"):
        classifier(str(folder / "test.jsonl"))


@pytest.mark.parametrize("method", ["gradient", "occlusion"])
def test_what_counted_is_seen(classifier: Model, folder: Path, tmp_path: Path, method: str) -> None:
    picture = classifier.look("saliency", str(folder / "test.jsonl"), method=method, number=2, width=3)
    values = np.array(picture.to_dict()["saliency"])
    tags = json.loads((folder / "test.jsonl").read_text().splitlines()[1])["tags"]
    bump = np.array([tag == "bump" for tag in tags])
    assert np.maximum(values, 0)[bump].sum() > 0.5 * np.maximum(values, 0).sum()
    text = picture.to_text(60, colour=False)
    assert "Half of what speaks for it" in text
    pytest.importorskip("matplotlib")
    assert "saliency" in picture.save(tmp_path / "x.svg").read_text()
    with pytest.raises(UserError, match="--number 21"):
        classifier.look("saliency", str(folder / "test.jsonl"), number=21)
    with pytest.raises(UserError, match="a series has no words; see 'saliency'"):
        classifier.look("words", str(folder / "test.jsonl"))


def test_every_step_gets_its_label(folder: Path, tmp_path: Path) -> None:
    values = recipe(folder, "tag_steps", "tags", {"kind": "step_tagger"}, label_of="each")
    model = seqloom.train(values, tmp_path / "run")
    report = model.evaluate(model.corpora()["test"], name="test", baselines=True)
    assert report.figures["accuracy"] >= 95
    assert set(report.baselines) == {"majority class", "nearest mean"}
    lines = [json.loads(line) for line in (folder / "test.jsonl").read_text().splitlines()]
    assert report.count == sum(len(line["tags"]) for line in lines)
    answer = model(lines[0]["series"])
    assert len(answer.labels) == len(lines[0]["tags"])
    assert [label for label, start, end in answer.spans for _ in range(end - start)] == answer.labels
    assert json.loads(json.dumps(answer.to_dict()))["spans"][0]["start"] == 0


def test_a_series_gets_a_number(folder: Path, tmp_path: Path) -> None:
    model = seqloom.train(
        recipe(folder, "regress", "height", {"kind": "regressor", "pooling": "max"}), tmp_path / "run"
    )
    report = model.evaluate(model.corpora()["test"], name="test", baselines=True)
    assert report.figures["mse"] < 0.2 * report.baselines["mean"]["mse"]
    line = json.loads((folder / "test.jsonl").read_text().splitlines()[0])
    assert model(line["series"]).values[0] == pytest.approx(line["height"], abs=1.5)


def test_what_does_not_fit_together_is_told(folder: Path) -> None:
    values = recipe(folder, "classify", "label", {"kind": "classifier", "word_dropout": 0.1})
    values["text"] = {"tokenizer": "character"}
    values["data"]["test"] = {"grammar": "en-es"}
    with pytest.raises(RecipeError) as caught:
        load_recipe(values)
    told = "\n".join(caught.value.problems)
    assert "data.test.test has text, but data.train has series" in told
    assert "text is for texts; the data are series" in told
    assert "model.word_dropout is for texts" in told
    with pytest.raises(RecipeError, match=r"data\.train\.label_of must be each"):
        load_recipe(recipe(folder, "tag_steps", "tags", {"kind": "step_tagger"}))
    wrong = recipe(folder, "classify", "label", {"kind": "classifier"})
    wrong["data"]["train"]["windw"] = 3
    with pytest.raises(RecipeError, match=r"data\.train\.windw is not a setting \(did you mean 'window'\?\)"):
        load_recipe(wrong)


def test_examples_without_one_label_are_named(folder: Path, tmp_path: Path) -> None:
    values = recipe(folder, "classify", "tags", {"kind": "classifier"}, label_of="each")
    with pytest.raises(UserError, match="needs one label"):
        seqloom.train(values, tmp_path / "run")
    values = recipe(folder, "regress", "label", {"kind": "regressor"})
    with pytest.raises(UserError, match="the target must be a number, or several with spaces between; found 'up'"):
        seqloom.train(values, tmp_path / "other")


def test_pieces_are_for_labels_and_not_for_steps_that_have_their_own(folder: Path, tmp_path: Path) -> None:
    """A model that labels steps answers a whole recording, however its training was cut."""
    values = recipe(folder, "tag_steps", "tags", {"kind": "step_tagger"}, label_of="each", window=5)
    model = seqloom.train(values | {"training": TRAINING | {"steps": 2, "validate_every": 2}}, tmp_path / "run")
    answers = model.predict(model.task.inputs([str(folder / "test.jsonl")]))
    assert len(answers) == 20
    assert {len(answer.labels) for answer in answers} <= set(range(10, 16))


def test_words_of_a_text_have_saliency_too(tmp_path: Path) -> None:
    texts = [("good film", "good"), ("bad film", "bad")] * 30
    (tmp_path / "x.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in texts))
    corpus = {"file": str(tmp_path / "x.tsv")}
    values = {
        "task": "classify",
        "data": {"train": corpus, "valid": corpus},
        "model": {"kind": "classifier", "encoder": {"kind": "embeddings", "size": 8}},
        "training": TRAINING,
    }
    model = seqloom.train(values, tmp_path / "run")
    for method in ("gradient", "occlusion"):
        found = model.look("saliency", "good film", method=method, width=1).to_dict()
        assert found["steps"][:2] == ["good", "film"]
        assert found["saliency"][0] > 5 * abs(found["saliency"][1])
    pytest.importorskip("matplotlib")
    assert "film" in model.look("saliency", "good film").save(tmp_path / "x.svg").read_text()
