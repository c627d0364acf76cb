"""Runs whose embeddings start from vectors: through `seqloom.train`, on the embedded grammar."""

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
from seqloom.corpus.readers import CorpusSettings, read_pairs
from seqloom.errors import RecipeError, UserError
from seqloom.recipe import load_recipe
from seqloom.tasks.translate import Translation
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
DATA = {
    "train": {"grammar": "en-es", "split": "train", "size": 120},
    "valid": {"grammar": "en-es", "split": "valid", "size": 20},
}


def recipe(kind: str, pretrained: dict[str, Any] | None, **training: Any) -> dict[str, Any]:
    return {
        "data": DATA,
        "text": {"tokenizer": "word", "vocabulary_size": None, "joint": False},
        "model": {**MODELS[kind], "dropout": 0.1, **({"pretrained": pretrained} if pretrained else {})},
        "training": {
            "steps": 6,
            "batch_tokens": 200,
            "validate_every": 3,
            "validation_sentences": 2,
            "average": 2,
            "threads": 1,
            "learning_rate": 0.05,
            **training,
        },
    }


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Vectors of half the English words of the corpus, in lower case, as a GloVe file."""
    pairs = read_pairs(CorpusSettings(**DATA["train"]))
    words = sorted({word.lower() for pair in pairs for word in split_words(pair.source)})[::2]
    matrix = np.random.default_rng(3).normal(size=(len(words), SIZE), scale=4.0).astype(np.float32)
    path = tmp_path_factory.mktemp("vectors") / "glove.txt"
    write_vectors(WordVectors(words, matrix), path, "glove")
    return path


def found_rows(model: Any, path: Path) -> dict[int, np.ndarray]:
    """Row -> its direction by the file."""
    lines = [line.split(" ") for line in path.read_text().splitlines()]
    known = {word: np.array(numbers, np.float64) for word, *numbers in lines}
    labels = model.task.source.labels(range(len(model.task.source)))
    return {
        row: known[label.lower()] for row, label in enumerate(labels) if row >= len(SPECIAL) and label.lower() in known
    }


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
    weight = model.model.source_embedding.weight.detach().numpy()
    assert 10 < len(expected) < len(weight) - len(SPECIAL)
    told = capsys.readouterr().err
    assert f"{len(expected)} of {len(weight) - len(SPECIAL)} source symbols have a vector in {own} and keep it" in told

    task = Translation.load(tmp_path / "run" / "text")
    parsed = load_recipe(settings)
    torch.manual_seed(parsed.seed)
    fresh = task.build(parsed.model)
    random = fresh.source_embedding.weight.detach().clone()  # type: ignore[union-attr]
    task.start_from_vectors(fresh, parsed.model, lambda text: None)
    start = fresh.source_embedding.weight.detach()  # type: ignore[union-attr]
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
    weight = model.model.source_embedding.weight.detach().numpy()
    cosines = (directions(weight[list(expected)]) * directions(np.array(list(expected.values())))).sum(1)
    assert cosines.mean() > 0.5, "near where they began"
    assert (cosines < 1 - 1e-6).any(), "but not there"


def test_a_stopped_run_goes_on_with_its_rows_frozen(vectors: Path, tmp_path: Path) -> None:
    settings = recipe("recurrent_translator", {"source": str(vectors), "freeze": True}, average=1, checkpoint_every=3)
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
    for name, weight in whole.model.named_parameters():
        assert torch.equal(weight, dict(resumed.model.named_parameters())[name]), name


def test_several_processes_freeze_the_same_rows(vectors: Path, tmp_path: Path) -> None:
    settings = recipe("recurrent_translator", {"source": str(vectors), "freeze": True}, processes=2, steps=3)
    model = seqloom.train(settings, tmp_path / "run")
    expected = found_rows(model, vectors)
    weight = model.model.source_embedding.weight.detach().numpy()
    np.testing.assert_allclose(
        directions(weight[list(expected)]), directions(np.array(list(expected.values()))), atol=1e-5
    )


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
