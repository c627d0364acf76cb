"""Several labels an example, and what is fitted after training: from a recipe to answers."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqloom
from seqloom.corpus.readers import read_pairs
from seqloom.errors import RecipeError, UserError
from seqloom.evaluation.calibration import best_threshold
from seqloom.model import Model
from seqloom.recipe import load_recipe

CLUES = {"animal": ["cat", "dog", "cow"], "colour": ["red", "green", "blue"], "negated": ["not", "never"]}
FILLERS = ["the", "a", "of", "that", "and", "it", "was", "very"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Any of three clues among fillers; of the labels a tenth is left out or put in by mistake."""
    folder, draw = tmp_path_factory.mktemp("sets"), random.Random(2)
    for name, size in (("train", 300), ("valid", 60), ("test", 60)):
        lines = []
        for _ in range(size):
            labels = [label for label in CLUES if draw.random() < 0.4]
            words = draw.choices(FILLERS, k=4)
            for label in labels:
                words.insert(draw.randint(0, len(words)), draw.choice(CLUES[label]))
            noisy = [label for label in CLUES if (label in labels) != (draw.random() < 0.1)]
            lines.append(json.dumps({"text": " ".join(words), "labels": noisy}) + "\n")
        (folder / f"{name}.jsonl").write_text("".join(lines))
    return {
        name: {"file": str(folder / f"{name}.jsonl"), "source": "text", "target": "labels"}
        for name in ("train", "valid", "test")
    }


def recipe(data: dict[str, Any], **values: Any) -> dict[str, Any]:
    training = {"steps": 80, "batch_tokens": 300, "learning_rate": 0.03, "validate_every": 20}
    encoder = {"kind": "embeddings", "size": 12}
    return {
        "task": "classify",
        "labels_separator": ",",
        "data": data,
        "model": {"kind": "classifier", "encoder": encoder, "pooling": "sum"},
        "training": {**training, **values},
    }


@pytest.fixture(scope="module")
def run(data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "each"
    seqloom.train(recipe(data, thresholds="each", metric="micro_f1"), folder)
    return folder


@pytest.fixture(scope="module")
def model(run: Path) -> Model:
    return seqloom.load(run)


def test_sets_of_labels_are_learned(model: Model) -> None:
    assert model("the red cat was").labels == ["animal", "colour"]
    assert model("of the").labels == []
    assert model("of the").text == ""
    found = model("it was not a dog")
    assert found.text == "animal,negated"
    assert json.loads(json.dumps(found.to_dict()))["labels"] == ["animal", "negated"]
    [(name, corpus)] = model.corpora().items()
    report = model.evaluate(corpus, name=name, baselines=True)
    assert report.figures["micro_f1"] > 80
    assert report.figures["accuracy"] > report.baselines["most frequent labels"]["accuracy"] + 20
    assert "micro F1" in report.render()
    assert json.dumps(report.to_dict())


def test_thresholds_are_the_best_on_the_validation_data(model: Model, data: dict[str, Any]) -> None:
    pairs = list(read_pairs(load_recipe(recipe(data)).data.valid))
    answers = model.predict([pair.source for pair in pairs])
    present = np.array(model.task.target.rows([pair.target for pair in pairs]))
    for column, label in enumerate(model.task.target.names):
        probabilities = np.array([answer.probabilities[label] for answer in answers])
        threshold = model.task.thresholds[column]
        assert threshold == pytest.approx(best_threshold(probabilities, present[:, column]), abs=1e-6)
        for answer in answers:
            assert (label in answer.labels) == (answer.probabilities[label] >= threshold)


def test_one_threshold_for_all(data: dict[str, Any], tmp_path: Path) -> None:
    model = seqloom.train(recipe(data, thresholds="one", calibrate=False), tmp_path / "run")
    assert len(set(model.task.thresholds)) == 1
    assert model.task.temperature == 1.0
    assert "chosen on the validation data" in (tmp_path / "run" / "model" / "README.md").read_text()


def test_what_each_word_adds_to_a_label_by_itself(model: Model) -> None:
    picture = model.look("words", "the red cat")
    found = picture.to_dict()
    logit = sum(found["contributions"]) + found["bias"]
    probability = found["probabilities"][found["label"]]
    assert logit == pytest.approx(np.log(probability / (1 - probability)), abs=1e-3)
    assert "above 0 it is more likely than not" in picture.to_text()


def test_a_temperature_changes_probabilities_and_no_label(data: dict[str, Any], tmp_path: Path) -> None:
    """Trained twice to the same bits, once without: log odds differ by one factor, and the validation loss falls."""
    labelled = {name: {**corpus, "target": "{labels}"} for name, corpus in data.items()}
    for corpus in labelled.values():  # one label an example: the first, or none
        lines = [json.loads(line) for line in Path(corpus["file"]).read_text().splitlines()]
        file = tmp_path / Path(corpus["file"]).name
        file.write_text(
            "".join(json.dumps({**line, "labels": (line["labels"] or ["none"])[0]}) + "\n" for line in lines)
        )
        corpus["file"], corpus["target"] = str(file), "labels"
    models = []
    for calibrate in (True, False):
        values = {**recipe(labelled, calibrate=calibrate, steps=150), "labels_separator": None}
        models.append(seqloom.train(values, tmp_path / f"{calibrate}"))
    ours, plain = models
    assert ours.task.temperature > 1.0, "noisy labels make a model too sure"
    valid = load_recipe(values).data.valid
    texts = [pair.source for pair in read_pairs(valid)]
    for calibrated, raw in zip(ours.predict(texts), plain.predict(texts), strict=True):
        assert calibrated.label == raw.label
        first, second = (sorted(answer.probabilities) for answer in (calibrated, raw))
        assert first == second
        odds = [np.log(answer.probabilities[first[0]] / answer.probabilities[first[1]]) for answer in (calibrated, raw)]
        assert odds[0] * ours.task.temperature == pytest.approx(odds[1], rel=1e-3, abs=1e-3)
    assert ours.evaluate(valid).figures["loss"] < plain.evaluate(valid).figures["loss"]
    assert "temperature" in (tmp_path / "True" / "model" / "README.md").read_text()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"temperature": 0}, "temperature must be a number above 0; got 0"),
        ({"temperature": "1"}, "temperature must be a number above 0; got '1'"),
        ({"thresholds": [0.5]}, "thresholds must be 3 numbers from 0 to 1, one for each label"),
        ({"thresholds": [0.5, 2, 0.5]}, "thresholds must be 3 numbers from 0 to 1, one for each label"),
        ({"labels_separator": 3}, "labels_separator must be a short text; got 3"),
    ],
)
def test_a_forged_folder_is_refused(run: Path, values: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(run / "model", tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **values}))
    with pytest.raises(UserError, match=message):
        seqloom.load(folder)


def test_contradictions_are_named(data: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match=r"class_weights and training\.focal are for one label an example"):
        load_recipe(recipe(data, focal=2.0))
    with pytest.raises(RecipeError, match=r"metric: micro_f1 is for several labels an example"):
        load_recipe({**recipe(data, metric="micro_f1"), "labels_separator": None})
    subwords = {"kind": "embeddings", "subwords": {}}
    with pytest.raises(RecipeError, match=r"subwords are pieces of words, and text\.tokenizer bpe does not give words"):
        load_recipe(
            {**recipe(data), "text": {"tokenizer": "bpe"}, "model": {"kind": "classifier", "encoder": subwords}}
        )
