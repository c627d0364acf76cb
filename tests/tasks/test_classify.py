"""Classification from a recipe to answers: it learns, says how sure it is and why, and is measured beside baselines."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seqloom
from seqloom.batches.collate import Batch
from seqloom.cli.main import run as typed
from seqloom.corpus.examples import Pair
from seqloom.corpus.readers import read_pairs
from seqloom.errors import RecipeError, UserError
from seqloom.evaluation.classification import accuracy, macro_f1
from seqloom.model import Model
from seqloom.recipe import load_recipe
from seqloom.tasks.classify import Classification
from seqloom.training.journal import read_journal
from seqloom.vectors.formats import write_vectors
from seqloom.vectors.table import WordVectors

FILLERS = ["the", "a", "of", "that", "and", "it", "was", "very"]
CLUES = {"animal": ["cat", "dog", "cow"], "colour": ["red", "green", "blue"], "negated": ["not", "never"]}
LABELS = sorted(CLUES)
ENCODERS: dict[str, dict[str, Any]] = {
    "embeddings": {"kind": "embeddings", "size": 12},
    "recurrent": {"kind": "recurrent", "cell": "gru", "embedding_size": 8, "hidden_size": 12, "dropout": 0.0},
    "transformer": {"kind": "transformer", "size": 12, "num_heads": 2, "feed_forward_size": 16, "num_layers": 1},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One clue among fillers; animals are twice as frequent as each of the others."""
    folder, draw = tmp_path_factory.mktemp("labelled"), random.Random(2)
    for name, size in (("train", 300), ("valid", 40), ("test", 40)):
        lines = []
        for _ in range(size):
            label = draw.choice(["animal", *LABELS])
            words = draw.choices(FILLERS, k=draw.randint(1, 6))
            words.insert(draw.randint(0, len(words)), draw.choice(CLUES[label]))
            lines.append(f"__label__{label} {' '.join(words)}\n")
        (folder / f"{name}.txt").write_text("".join(lines))
    return {name: {"file": str(folder / f"{name}.txt"), "format": "labelled"} for name in ("train", "valid", "test")}


def recipe(
    data: dict[str, Any], encoder: str = "embeddings", model: dict[str, Any] | None = None, **training: Any
) -> Any:
    return {
        "task": "classify",
        "data": data,
        "model": {"kind": "classifier", "encoder": ENCODERS[encoder], **(model or {})},
        "training": {
            "steps": 60,
            "batch_tokens": 300,
            "learning_rate": 0.02,
            "validate_every": 20,
            "precision": "float32",
            **training,
        },
    }


@pytest.fixture(scope="module", params=ENCODERS)
def run(request: pytest.FixtureRequest, data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classify") / str(request.param)
    seqloom.train(recipe(data, request.param), folder)
    return folder


@pytest.fixture(scope="module")
def model(run: Path) -> Model:
    return seqloom.load(run)


def test_labels_are_learned(model: Model) -> None:
    [(name, corpus)] = model.corpora().items()
    report = model.evaluate(corpus, name=name)
    pairs = list(read_pairs(corpus))
    gold = [pair.target for pair in pairs]
    assert report.answers == [answer.label for answer in model.predict([pair.source for pair in pairs])]
    assert report.figures["accuracy"] == pytest.approx(accuracy(gold, report.answers))
    assert report.figures["macro_f1"] == pytest.approx(macro_f1(gold, report.answers))
    assert report.figures["accuracy"] > 90


def test_an_answer_is_a_label_and_how_sure_the_model_is(model: Model) -> None:
    for answer in model.predict(["the cat was red", "it was", "", "never seen this"]):
        assert sorted(answer.probabilities) == LABELS
        assert sum(answer.probabilities.values()) == pytest.approx(1.0, abs=1e-9)
        assert list(answer.probabilities.values()) == sorted(answer.probabilities.values(), reverse=True)
        assert answer.probability == max(answer.probabilities.values()) == answer.probabilities[answer.label]
        assert answer.text == answer.label
        assert answer.score == pytest.approx(np.log(answer.probability))
        found = json.loads(json.dumps(answer.to_dict()))
        assert found["label"] == answer.label
        assert found["source"] == answer.source


def test_a_text_of_which_it_knows_nothing_gets_a_warning(model: Model) -> None:
    known, unknown = model(["the cat", "THE CAT"])
    assert known.warnings == []
    assert unknown.warnings == unknown.to_dict()["warnings"]
    assert unknown.warnings[0].endswith("'THE', 'CAT'; in lower case it knows all of them")


def test_what_each_word_adds_sums_up_to_the_answer(model: Model) -> None:
    """Contributions and the bias are the logits: their softmax are the probabilities."""
    text = "it was not a cat"
    trace = model.trace(text)
    view = trace["contributions"]
    assert view.columns == ["it", "was", "not", "a", "cat", "<eos>"]
    assert view.rows == LABELS
    logits = torch.from_numpy(view.values).double().sum(-1) + model.network.output.bias.detach().double()
    with torch.inference_mode():
        direct = model.network(Batch(model.task.source.batch([text]), None))[0].double()
    torch.testing.assert_close(logits, direct, atol=1e-5, rtol=1e-5)
    probabilities = model(text).probabilities
    assert logits.softmax(-1).tolist() == pytest.approx([probabilities[label] for label in LABELS], abs=1e-5)
    assert trace.to_dict() == model(text).trace.to_dict()
    with pytest.raises(UserError, match="there is nothing to look at: give a text"):
        model.trace("  ")
    with pytest.raises(UserError, match="it takes no target"):
        model.trace(text, "animal")


def test_baselines_stand_beside_the_model(model: Model, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [(name, corpus)] = model.corpora().items()
    plain, report = model.evaluate(corpus, name=name), model.evaluate(corpus, name=name, baselines=True)
    assert report.figures == plain.figures
    baselines = report.to_dict()["baselines"]
    gold = [pair.target for pair in read_pairs(corpus)]
    assert baselines["majority class"]["label"] == "animal", "the most frequent one"
    assert baselines["majority class"]["accuracy"] == pytest.approx(100 * gold.count("animal") / len(gold))
    assert baselines["TF-IDF + logistic regression"]["accuracy"] > baselines["majority class"]["accuracy"]
    for title in ("majority class", "TF-IDF + logistic regression", "always animal"):
        assert title in report.render()
        assert title not in plain.render()
    assert typed(["evaluate", str(run), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["baselines"] == json.loads(json.dumps(baselines))


def test_validation_decides_by_accuracy(run: Path, model: Model, data: dict[str, Any]) -> None:
    events = [event for event in read_journal(run / "journal.jsonl") if event["event"] == "validation"]
    assert all({"loss", "accuracy", "macro_f1"} <= event.keys() for event in events)
    best = [event["accuracy"] for event in events if event["best"]]
    assert best == sorted(best)
    assert best[-1] == max(event["accuracy"] for event in events)
    valid = load_recipe(recipe(data)).data.valid
    assert model.evaluate(valid).figures["accuracy"] == pytest.approx(best[-1], abs=1e-3)
    sample = events[-1]["samples"][0]
    assert sample.keys() == {"source", "reference", "answer"}
    assert sample["answer"] in LABELS


def test_a_label_that_training_never_met(model: Model, data: dict[str, Any], tmp_path: Path) -> None:
    """In a test set it is a mistake like others; for validation during training it must be known."""
    report = model.evaluate([Pair("a cat", "animal"), Pair("a chair", "furniture")])
    assert report.figures["accuracy"] == 50.0
    assert np.isfinite(report.figures["loss"])
    (tmp_path / "valid.txt").write_text("colours the red cow\n")
    wrong = recipe({**data, "valid": {"file": str(tmp_path / "valid.txt"), "format": "labelled"}})
    with pytest.raises(UserError, match=r"the label 'colours' is not in the training data \(did you mean 'colour'\?\)"):
        seqloom.train(wrong, tmp_path / "run")
    with pytest.raises(UserError, match="mine: there is no example in it"):
        model.evaluate([], name="mine")


def test_embeddings_start_from_vectors(data: dict[str, Any], tmp_path: Path) -> None:
    matrix = np.random.default_rng(1).normal(size=(2, 12)).astype(np.float32)
    write_vectors(WordVectors(["cat", "red"], matrix), tmp_path / "v.txt", "glove")
    pretrained = {"text": str(tmp_path / "v.txt"), "freeze": True}
    model = seqloom.train(recipe(data, model={"pretrained": pretrained}, steps=4, validate_every=2), tmp_path / "run")
    table, tokenizer = model.task.embeddings(model.network)["text"], model.task.tokenizers()["text"]
    for word, vector in zip(["cat", "red"], matrix, strict=True):
        row = table.weight[tokenizer.encode(word)[0]].detach().numpy()
        np.testing.assert_allclose(row / np.linalg.norm(row), vector / np.linalg.norm(vector), atol=1e-5)


def test_its_data_is_examined(data: dict[str, Any], tmp_path: Path) -> None:
    """Words and labels that training never met are counted."""
    (tmp_path / "valid.txt").write_text("animal the cat sleeps\nfurniture a chair\n")
    odd = {**data, "valid": {"file": str(tmp_path / "valid.txt"), "format": "labelled"}}
    found = Classification.examine(load_recipe(recipe(odd)), lambda text: None)
    assert json.dumps(found.values)
    corpora = found.values["counts"]
    assert corpora["valid"]["source_unknown"] == pytest.approx(2 / 5)
    assert corpora["valid"]["target_unknown"] == pytest.approx(1 / 2)
    assert corpora["train"]["source_unknown"] == corpora["train"]["target_unknown"] == 0
    assert Classification.examine(load_recipe(recipe(data)), lambda text: None).ok


def test_contradictions_are_named(data: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match=r"text\.dropout is for translation; here a text is read in one way"):
        load_recipe(recipe(data) | {"text": {"dropout": 0.1}})
    with pytest.raises(RecipeError, match=r"pooling: last is of recurrent encoders; got encoder\.kind: transformer"):
        load_recipe(recipe(data, "transformer", {"pooling": "last"}))
    with pytest.raises(RecipeError, match="metric: accuracy needs validation_sentences above 0"):
        load_recipe(recipe(data, validation_sentences=0))
    unknown = recipe(data)
    unknown["model"]["encoder"] = {"kind": "recurent"}
    with pytest.raises(
        RecipeError, match=r"model\.encoder\.kind must be one of .*; got 'recurent' \(did you mean 'recurrent'"
    ):
        load_recipe(unknown)
    del unknown["model"]["encoder"]["kind"]
    with pytest.raises(
        RecipeError,
        match=r"model\.encoder\.kind is missing; it is one of convolution, embeddings, recurrent, text_con",
    ):
        load_recipe(unknown)
    unknown["model"]["encoder"] = {"kind": "embeddings", "sise": 3}
    with pytest.raises(RecipeError, match=r"model\.encoder\.sise is not a setting \(did you mean 'size'\?\)"):
        load_recipe(unknown)
