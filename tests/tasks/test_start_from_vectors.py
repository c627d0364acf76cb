"""Runs whose embeddings start from vectors: through `seqloom.train`, on the embedded grammar and its English side."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

import seqloom
from seqloom.cli.main import run as typed
from seqloom.corpus.readers import CorpusSettings, read_pairs
from seqloom.errors import RecipeError, UserError
from seqloom.model import Model
from seqloom.recipe import load_recipe
from seqloom.tasks import find_task
from seqloom.text.special import SPECIAL
from seqloom.text.words import split_words
from seqloom.vectors.formats import write_vectors
from seqloom.vectors.table import WordVectors

SIZE = 10
MODELS: dict[str, dict[str, Any]] = {
    "recurrent_translator": {"kind": "recurrent_translator", "cell": "gru", "embedding_size": SIZE, "hidden_size": 12},
    "transformer_translator": {
        "kind": "transformer_translator",
        "size": SIZE,
        "num_heads": 2,
        "feed_forward_size": 12,
        "encoder_layers": 1,
        "decoder_layers": 1,
    },
}
BOTH_SIDES: dict[str, dict[str, Any]] = {
    "bidirectional_lm": {"kind": "bidirectional_lm", "size": SIZE, "num_layers": 1},
    "masked_lm": {
        "kind": "masked_lm",
        "size": SIZE,
        "num_heads": 2,
        "num_layers": 1,
        "feed_forward_size": 12,
        "context": 30,
        "hidden": 0.5,
    },
}
TASKS = {"bidirectional_lm": "model_bidirectional_language", "masked_lm": "model_masked_language"}
DATA = {
    "train": {"grammar": "en-es", "split": "train", "size": 120},
    "valid": {"grammar": "en-es", "split": "valid", "size": 20},
}
TRAINING = {"steps": 6, "validate_every": 3, "average": 2, "learning_rate": 0.05}


def recipe(kind: str, pretrained: dict[str, Any] | None, **training: Any) -> dict[str, Any]:
    return {
        "data": DATA,
        "text": {"tokenizer": "word", "vocabulary_size": None, "joint": False},
        "model": {**MODELS[kind], "dropout": 0.1, **({"pretrained": pretrained} if pretrained else {})},
        "training": {**TRAINING, "batch_tokens": 200, "validation_sentences": 2, **training},
    }


def language_recipe(kind: str, pretrained: dict[str, Any], text: Path, **training: Any) -> dict[str, Any]:
    """Of a model that sees both sides of a word."""
    return {
        "task": TASKS[kind],
        "data": {"train": {"text": str(text)}, "valid": {"text": str(text), "limit": 20}},
        "text": {"tokenizer": "word", "vocabulary_size": None},
        "model": {**BOTH_SIDES[kind], "dropout": 0.1, "pretrained": pretrained},
        "training": {**TRAINING, "batch_tokens": 400, "batching": "sentences", "metric": "loss", **training},
    }


def frozen_recipe(kind: str, vectors: Path, text: Path, **training: Any) -> dict[str, Any]:
    if kind in BOTH_SIDES:
        return language_recipe(kind, {"text": str(vectors), "freeze": True}, text, **training)
    return recipe(kind, {"source": str(vectors), "freeze": True}, **training)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The English side of the corpus."""
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("".join(f"{pair.source}\n" for pair in read_pairs(CorpusSettings(**DATA["train"]))))
    return path


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors of half the English words of the corpus, in lower case, as a GloVe file."""
    pairs = read_pairs(CorpusSettings(**DATA["train"]))
    words = sorted({word.lower() for pair in pairs for word in split_words(pair.source)})[::2]
    matrix = np.random.default_rng(3).normal(size=(len(words), SIZE), scale=4.0).astype(np.float32)
    path = tmp_path_factory.mktemp("vectors") / "glove.txt"
    write_vectors(WordVectors(words, matrix), path, "glove")
    return path


def found_rows(model: Model, path: Path) -> dict[int, np.ndarray]:
    """Row -> its direction by the file."""
    lines = [line.split(" ") for line in path.read_text().splitlines()]
    known = {word: np.array(numbers, np.float64) for word, *numbers in lines}
    tokenizer = next(iter(model.task.tokenizers().values()))
    labels = tokenizer.labels(range(len(tokenizer)))
    return {
        row: known[label.lower()] for row, label in enumerate(labels) if row >= len(SPECIAL) and label.lower() in known
    }


def embedding_of(model: Model, network: Any = None) -> torch.Tensor:
    """The table that the vectors of `frozen_recipe` went into."""
    tables = model.task.embeddings(model.network if network is None else network)
    return next(iter(tables.values())).weight.detach()  # type: ignore[no-any-return]


def begun(settings: dict[str, Any], run: Path, *, vectors: bool) -> Any:
    """The network of a run as it began, or as it would have begun without vectors."""
    parsed = load_recipe(settings)
    task: Any = find_task(parsed.task).kept(run / "text")
    torch.manual_seed(parsed.seed)
    model = task.build(parsed.model)
    if vectors:
        task.start(model, parsed.model, lambda text: None)
    return model


def directions(weight: np.ndarray) -> np.ndarray:
    return weight / np.linalg.norm(weight, axis=1, keepdims=True)


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_frozen_vectors_stay_and_the_model_needs_no_file(
    kind: str, optimizer: str, vectors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "vectors.txt"
    own.write_bytes(vectors.read_bytes())
    settings = recipe(kind, {"source": str(own), "freeze": True}, optimizer=optimizer, weight_decay=0.1)
    model = seqloom.train(settings, tmp_path / "run")
    expected = found_rows(model, own)
    weight = embedding_of(model).numpy()
    assert 10 < len(expected) < len(weight) - len(SPECIAL)
    printed = capsys.readouterr().err
    line = f"{len(expected)} of {len(weight) - len(SPECIAL)} source symbols have a vector in {own} and keep it"
    assert line in printed

    random, start = (embedding_of(model, begun(settings, tmp_path / "run", vectors=given)) for given in (False, True))
    rows = list(expected)
    assert np.array_equal(weight[rows], start.numpy()[rows]), "bit for bit as they began"
    np.testing.assert_allclose(directions(weight[rows]), directions(np.array(list(expected.values()))), atol=1e-5)
    others = [row for row in range(1, len(weight)) if row not in expected]
    assert torch.equal(start[others], random[others])
    assert (weight[others] != random[others].numpy()).any(1).mean() > 0.8, "the others have learned"

    own.unlink()
    again = seqloom.load(tmp_path / "run")
    assert again("the witch").text == model("the witch").text


def test_vectors_that_learn_on(vectors: Path, tmp_path: Path) -> None:
    model = seqloom.train(recipe("recurrent_translator", {"source": str(vectors)}), tmp_path / "run")
    expected = found_rows(model, vectors)
    weight = embedding_of(model).numpy()
    cosines = (directions(weight[list(expected)]) * directions(np.array(list(expected.values())))).sum(1)
    assert cosines.mean() > 0.5, "near where they began"
    assert (cosines < 1 - 1e-6).any(), "but not there"


@pytest.mark.parametrize("tie", [False, True])
@pytest.mark.parametrize("kind", BOTH_SIDES)
def test_models_of_both_sides_keep_frozen_vectors(
    kind: str, tie: bool, vectors: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "vectors.txt"
    own.write_bytes(vectors.read_bytes())
    settings = frozen_recipe(kind, own, text, optimizer="adamw", weight_decay=0.1)
    settings["model"]["tie"] = tie
    model = seqloom.train(settings, tmp_path / "run")
    expected, weight = found_rows(model, own), embedding_of(model)
    assert 10 < len(expected) < len(weight) - len(SPECIAL)
    printed = capsys.readouterr().err
    assert f"{len(expected)} of {len(weight) - len(SPECIAL)} text symbols have a vector in {own} and keep it" in printed

    random, start = (begun(settings, tmp_path / "run", vectors=given) for given in (False, True))
    rows, others = list(expected), [row for row in range(len(SPECIAL), len(weight)) if row not in expected]
    np.testing.assert_allclose(
        directions(weight.numpy()[rows]), directions(np.array(list(expected.values()))), atol=1e-5
    )
    assert torch.equal(weight[rows], start.embedding.weight[rows]), "bit for bit as they began"
    assert torch.equal(start.embedding.weight[others], random.embedding.weight[others])
    assert (weight[others] != random.embedding.weight[others]).any(1).float().mean() > 0.8, "the others have learned"
    output = model.network.output.weight
    if tie:
        assert output is model.network.embedding.weight
    else:
        assert (output[rows] != start.output.weight[rows]).any(1).all(), "a table of its own learns all of its rows"
    if kind == "masked_lm":
        assert torch.equal(start.mask, random.mask), "the mask is no word"
        assert (model.network.mask != start.mask).all(), "and learns"

    own.unlink()
    again = Model.load(tmp_path / "run")
    corpus = load_recipe(settings).data.valid
    assert again.evaluate(corpus).loss == model.evaluate(corpus).loss


@pytest.mark.parametrize("kind", BOTH_SIDES)
def test_vectors_of_both_sides_that_learn_on(kind: str, vectors: Path, text: Path, tmp_path: Path) -> None:
    settings = language_recipe(kind, {"text": str(vectors)}, text)
    model = seqloom.train(settings, tmp_path / "run")
    expected, weight = found_rows(model, vectors), embedding_of(model).numpy()
    start = begun(settings, tmp_path / "run", vectors=True).embedding.weight.detach().numpy()
    rows, wanted = list(expected), directions(np.array(list(expected.values())))
    np.testing.assert_allclose(directions(start[rows]), wanted, atol=1e-5)
    cosines = (directions(weight[rows]) * wanted).sum(1)
    assert cosines.mean() > 0.5, "near where they began"
    assert (cosines < 1 - 1e-6).mean() > 0.8, "but not there"


@pytest.mark.parametrize("kind", ["recurrent_translator", *BOTH_SIDES])
def test_a_stopped_run_goes_on_with_its_rows_frozen(kind: str, vectors: Path, text: Path, tmp_path: Path) -> None:
    settings = frozen_recipe(kind, vectors, text, average=1, checkpoint_every=3)
    whole = seqloom.train(settings, tmp_path / "whole")
    seqloom.train(settings | {"training": settings["training"] | {"steps": 3}}, tmp_path / "half")
    half = tmp_path / "half"
    shutil.rmtree(half / "model")
    values = yaml.safe_load((half / "recipe.yaml").read_text())
    values["training"]["steps"] = 6
    (half / "recipe.yaml").write_text(yaml.safe_dump(values))
    state = next((half / "checkpoints").glob("step-*3")) / "state.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | {"finished": False}))
    resumed = seqloom.train(half, resume=True)
    for name, weight in whole.network.named_parameters():
        assert torch.equal(weight, dict(resumed.network.named_parameters())[name]), name


@pytest.mark.parametrize("kind", ["recurrent_translator", *BOTH_SIDES])
def test_shards_freeze_the_same_rows(kind: str, vectors: Path, text: Path, tmp_path: Path) -> None:
    """Rows that moved in one of them would change what it adds to the gradients, and with these every weight."""
    settings = frozen_recipe(kind, vectors, text, steps=3, optimizer="sgd", learning_rate=0.5)
    settings["model"]["dropout"] = 0.0
    alone, together = (
        seqloom.train(settings, tmp_path / str(number), overrides=[f"training.shards={number}", "training.workers=2"])
        for number in (1, 2)
    )
    expected, weight = found_rows(together, vectors), embedding_of(together).numpy()
    np.testing.assert_allclose(
        directions(weight[list(expected)]), directions(np.array(list(expected.values()))), atol=1e-5
    )
    if kind != "masked_lm":  # two shards hide other symbols than one does
        for name, found in together.network.named_parameters():
            torch.testing.assert_close(found, alone.network.get_parameter(name), atol=1e-5, rtol=1e-4, msg=name)


def test_mistakes_are_named(vectors: Path, tmp_path: Path) -> None:
    wide = recipe("recurrent_translator", {"target": str(vectors)})
    wide["model"]["embedding_size"] = 12
    with pytest.raises(UserError, match=r"model\.pretrained\.target .*the vectors have 10 numbers, the embedding 12"):
        seqloom.train(wide, tmp_path / "a")
    with pytest.raises(UserError, match=r"nothing\.txt: there is no such"):
        seqloom.train(recipe("recurrent_translator", {"source": str(tmp_path / "nothing.txt")}), tmp_path / "b")
    with pytest.raises(RecipeError, match="name vectors for source, target or both"):
        load_recipe(recipe("recurrent_translator", {"freeze": True}))
    shared = recipe("recurrent_translator", {"source": "a", "target": "b"})
    shared["model"]["share_embeddings"] = True
    with pytest.raises(RecipeError, match="name vectors for source or for target, not both"):
        load_recipe(shared)
    tied = recipe("transformer_translator", {"source": "a", "target": "b"})
    tied["model"]["tie"] = ["source", "target", "output"]
    with pytest.raises(RecipeError, match="name vectors for source or for target, not both"):
        load_recipe(tied)


def test_vectors_need_a_table_of_words_of_their_size(vectors: Path, text: Path, tmp_path: Path) -> None:
    spelled = language_recipe("bidirectional_lm", {"text": "a"}, text)
    spelled["model"]["characters"] = {}
    with pytest.raises(
        RecipeError, match="model: pretrained needs an embedding of words; with characters there is none: leave one out"
    ):
        load_recipe(spelled)
    for kind in BOTH_SIDES:
        wide = language_recipe(kind, {"text": str(vectors)}, text)
        wide["model"]["size"] = 12
        with pytest.raises(UserError, match=r"model\.pretrained\.text .*the vectors have 10 numbers, the embedding 12"):
            seqloom.train(wide, tmp_path / kind)


@pytest.mark.parametrize("kind", BOTH_SIDES)
def test_as_typed_by_a_user(
    kind: str, vectors: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my.yaml").write_text(yaml.safe_dump(frozen_recipe(kind, vectors, text)))
    run = str(tmp_path / "run")
    assert typed(["train", str(tmp_path / "my.yaml"), "--run", run]) == 0
    assert "text symbols have a vector in" in capsys.readouterr().err
    assert typed(["list", "parameters", run, "--format", "json"]) == 0
    counted = json.loads(capsys.readouterr().out)["parameters"]
    assert counted == sum(weight.numel() for weight in Model.load(run).network.parameters())
