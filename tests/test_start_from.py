"""Training that starts from a finished model: its weights, its vocabulary, and a run that needs it no longer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import seqloom
from conftest import tiny_recipe
from seqloom.cli.main import run as typed
from seqloom.corpus.readers import read_pairs
from seqloom.errors import RecipeError, UserError
from seqloom.experiment import train
from seqloom.model import Model
from seqloom.recipe import recipe_from
from seqloom.tasks.supervised import ExampleWork
from seqloom.training.checkpoints import load_tensors
from seqloom.training.journal import read_journal

STILL = {"steps": 2, "validate_every": 2, "checkpoint_every": 2, "learning_rate": 1e-12, "average": 1}


def going_on(tiny_run: Path, **training: Any) -> dict[str, Any]:
    """The tiny recipe on other data, from a finished run."""
    recipe = {**tiny_recipe(**training), "start_from": str(tiny_run)}
    recipe["data"]["train"] = {"grammar": "en-es", "split": "train", "size": 200}
    return recipe


def weights_of(run: Path) -> dict[str, torch.Tensor]:
    return load_tensors(run / "model" / "model.safetensors")


@pytest.mark.parametrize("place", ["run", "model"])
def test_it_begins_with_the_weights_and_the_vocabulary_of_the_other(
    tiny_run: Path, tmp_path: Path, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = going_on(tiny_run if place == "run" else tiny_run / "model", **STILL)
    model = train(recipe, tmp_path / "run")
    for name, weight in weights_of(tiny_run).items():
        torch.testing.assert_close(weights_of(tmp_path / "run")[name], weight, atol=1e-8, rtol=0)
    for name in ("tokenizer.source.json", "tokenizer.target.json"):
        assert (tmp_path / "run" / "model" / name).read_bytes() == (tiny_run / "model" / name).read_bytes()
    assert f"| started from | {recipe['start_from']} |" in (model.folder / "README.md").read_text()
    assert yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text())["start_from"] == recipe["start_from"]
    assert f"starting from the weights of {recipe['start_from']}; its vocabulary stays" in capsys.readouterr().err
    first = model.fresh().state_dict()
    for name, weight in weights_of(tiny_run).items():
        assert torch.equal(first[name], weight)


def test_it_goes_on_learning(tiny_run: Path, tmp_path: Path) -> None:
    more = train(going_on(tiny_run), tmp_path / "more")
    losses = [
        [event["loss"] for event in read_journal(run / "journal.jsonl") if event["event"] == "validation"]
        for run in (tiny_run, tmp_path / "more")
    ]
    assert losses[1][0] < losses[0][0], "the first validation is that of a model which knows something"
    assert any(not torch.equal(weights_of(tiny_run)[name], w) for name, w in weights_of(more.folder.parent).items())


class Crash(Exception):
    pass


@pytest.mark.parametrize("at", [1, 60])
def test_a_crashed_run_resumes_to_the_same_bits_without_the_other(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """At the first step, where there is no checkpoint yet, and later; the model it started from is gone."""
    other = shutil.copytree(tiny_run, tmp_path / "other")
    recipe = going_on(other)
    train(recipe, tmp_path / "whole")
    original, count = ExampleWork.loss, 0

    def loss(self: ExampleWork, *arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count == at:
            raise Crash
        return original(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(ExampleWork, "loss", loss)
        with pytest.raises(Crash):
            train(recipe, tmp_path / "crashed")
    shutil.rmtree(other)
    assert typed(["train", str(tmp_path / "crashed"), "--resume"]) == 0
    found, expected = ((tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("crashed", "whole"))
    assert found == expected


def test_on_the_command_line(tiny_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(yaml.safe_dump(tiny_recipe(**STILL)))
    run = str(tmp_path / "run")
    assert typed(["train", str(file), "--run", run, "--set", f"start_from={tiny_run}"]) == 0
    assert typed(["train", str(file), "--run", run, "--restart", "--set", f"start_from={run}"]) == 2
    assert f"start_from: {run} is this run itself; --run DIR uses another folder" in capsys.readouterr().err
    assert Model.load(run)("the dog").text == Model.load(tiny_run)("the dog").text, "nothing was thrown away"


def test_what_does_not_fit_is_refused_before_anything_is_thrown_away(tiny_run: Path, tmp_path: Path) -> None:
    kept = shutil.copytree(tiny_run, tmp_path / "kept")

    def refused(message: str, **changes: Any) -> None:
        recipe = {**going_on(tiny_run, **STILL), **changes}
        with pytest.raises(UserError, match=message) as caught:
            train(recipe, kept, restart=True)
        assert "\n" not in str(caught.value)
        assert (kept / "model" / "config.json").is_file()

    model = tiny_recipe()["model"]
    refused("start_from: .*there is no such model or run folder", start_from=str(tmp_path / "nothing"))
    refused(
        "start_from: the model section must be that of .*: .* does not fit its settings: .* expected",
        model={**model, "hidden_size": 14},
    )
    refused(
        "start_from: .* is a recurrent_translator; this recipe describes a transformer_translator",
        model={"kind": "transformer_translator", "size": 8, "num_heads": 2},
    )
    data = {name: {"text": f"grammar:en/{name}", "limit": 50} for name in ("train", "valid")}
    language = {"kind": "recurrent_lm", "size": 6, "hidden_size": 7}
    refused(
        "start_from: .* is of task translate; this recipe is of task model_language",
        task="model_language",
        data=data,
        text={},
        model=language,
        training={"steps": 2, "rows": 2, "length": 5},
    )
    with pytest.raises(RecipeError, match="start_from: an ngram_lm is counted from its text alone"):
        recipe_from(
            {"task": "model_language", "data": data, "model": {"kind": "ngram_lm"}, "start_from": str(tiny_run)}
        )


def test_a_language_model_is_read_as_the_new_recipe_says(tmp_path: Path) -> None:
    data = {name: {"text": f"grammar:en/{name}", "limit": 60} for name in ("train", "valid")}
    training = {"steps": 2, "validate_every": 2, "rows": 2, "length": 5, "samples": 0}
    recipe = {
        "task": "model_language",
        "data": data,
        "text": {"tokenizer": "word", "vocabulary_size": None},
        "model": {"kind": "recurrent_lm", "size": 6, "hidden_size": 7},
        "training": training,
    }
    train(recipe, tmp_path / "first")
    changed = {**training, "batching": "sentences", "batch_tokens": 50, "learning_rate": 1e-12}
    model = train({**recipe, "training": changed, "start_from": str(tmp_path / "first")}, tmp_path / "second")
    assert model.task.batching == "sentences"
    assert model.config["batching"] == "sentences"


# -- in Python --------------------------------------------------------------------------------------------------------


def test_continue_training(tiny_run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(tiny_run, tmp_path / "mine")
    pairs = tmp_path / "more.tsv"
    pairs.write_text("the dog slept\tel perro durmió\n" * 20, encoding="utf-8")
    model = seqloom.load(run)
    few = [f"training.{name}={value}" for name, value in STILL.items()]
    more = model.continue_training(pairs, overrides=few)
    assert more.folder == tmp_path / "mine-continued" / "model"
    recipe = more.recipe()
    assert recipe is not None
    assert recipe.start_from == str(run.resolve())  # type: ignore[attr-defined]
    assert recipe.data.train.file == str(pairs)
    assert recipe.data.valid == model.recipe().data.valid  # type: ignore[union-attr]
    assert more("the dog slept").text == model("the dog slept").text
    assert json.loads((more.folder / "config.json").read_text())["model"] == model.config["model"]
    both = model.continue_training({"train": more.corpora(default="valid")["valid"]}, tmp_path / "x", overrides=few)
    assert both.recipe().data.train == model.recipe().data.valid  # type: ignore[union-attr]
    listed = [("the dog slept", "el perro durmió"), ("a\ncat", 'un "gato"\u2028')] * 4
    third = model.continue_training(listed, tmp_path / "listed", overrides=few)
    file = third.recipe().data.train  # type: ignore[union-attr]
    assert [(pair.source, pair.target) for pair in read_pairs(file)] == listed
    assert Path(file.file).parent == tmp_path / "listed"
    with pytest.raises(UserError, match="holds a finished run"):
        model.continue_training(pairs, overrides=few)


def test_continue_training_says_what_it_takes(tiny_run: Path, tmp_path: Path) -> None:
    model = seqloom.load(tiny_run)
    for wrong in (5, None, []):
        with pytest.raises(UserError, match=r"continue_training takes files, a list of .*, or corpora of the section"):
            model.continue_training(wrong, tmp_path / "x")
    with pytest.raises(UserError, match=r"each must be \(input, target\)"):
        model.continue_training([("a", "b", "c")], tmp_path / "x")
    alone = seqloom.load(shutil.copytree(tiny_run / "model", tmp_path / "alone"))
    with pytest.raises(UserError, match="training goes on from a run folder, which knows its recipe"):
        alone.continue_training("more.tsv")
    assert not (tmp_path / "x").exists()
