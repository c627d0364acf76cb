"""Recipes: what ships is valid, what is wrong is said at once and completely."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import tiny_recipe
from seqloom.errors import RecipeError, UserError
from seqloom.recipe import find_recipe, load_recipe, recipe_from, recipe_text, shipped_recipes


@pytest.mark.parametrize("name", sorted(shipped_recipes()))
def test_every_shipped_recipe_is_valid_and_described(name: str) -> None:
    recipe = load_recipe(name)
    assert recipe.description
    assert recipe_from(yaml.safe_load(recipe_text(recipe))) == recipe


def test_all_problems_are_reported_together() -> None:
    values = tiny_recipe(batch_token=3, schedule="cosinus", learning_rate=-1)
    values["model"] |= {"attention": "aditive", "hidden_size": "many"}
    values["modle"] = {}
    del values["data"]["valid"]
    with pytest.raises(RecipeError) as caught:
        recipe_from(values, "mine.yaml")
    problems = "\n".join(caught.value.problems)
    for expected in (
        "training.batch_token is not a setting (did you mean 'batch_tokens'?)",
        "training.schedule must be one of constant, cosine, inverse_square_root, plateau; got 'cosinus' "
        "(did you mean 'cosine'?)",
        "training.learning_rate: must be greater than 0; got -1",
        "model.attention must be one of additive, dot, multiplicative, scaled_dot; got 'aditive' "
        "(did you mean 'additive'?)",
        "model.hidden_size: must be a valid integer",
        "modle is not a setting (did you mean 'model'?)",
        "data.valid is missing",
    ):
        assert expected in problems
    assert len(caught.value.problems) == 7
    assert str(caught.value).startswith("mine.yaml: 7 problems\n  - ")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (None, "model: must be a section"),
        (5, "model: must be a section with a kind; got 5"),
        ({}, "model.kind is missing; it is one of encoder_decoder, recurrent_translator, transformer_translator"),
        ({"kind": "recurrent_transltor"}, "did you mean 'recurrent_translator'?"),
        ({"kind": []}, "recurrent_translator, transformer_translator; got []"),
        ({"kind": "classifier"}, "model.kind must be one of encoder_decoder, recurrent_translator"),
    ],
)
def test_a_model_without_a_kind(model: object, message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        recipe_from({**tiny_recipe(), "model": model})
    assert message in str(caught.value)


def test_shared_embeddings_need_one_vocabulary() -> None:
    values = tiny_recipe()
    values["model"]["share_embeddings"] = True
    with pytest.raises(RecipeError, match=r"share_embeddings.* needs text\.joint"):
        recipe_from(values)


SMALL = {"embedding_size": 8, "hidden_size": 8}
TABLES = {
    "kind": "encoder_decoder",
    "encoder": {"kind": "recurrent", **SMALL},
    "decoder": {"kind": "recurrent", **SMALL},
    "tie": ["source", "target"],
}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": TABLES}, r"one table for both sides .* needs text\.joint"),
        (
            {"model": TABLES, "text": {"target": {"tokenizer": "word"}}},
            r"one table for both sides .* needs text\.joint",
        ),
        ({"training": {"steps": 1, "metric": "aer"}, "model": {"decoder": "state"}}, "metric: aer needs .* attention"),
        ({"metrics": ["bleu", "wer"]}, "metrics must be of bleu, .*, phone_error_rate; got 'wer'"),
        ({"text": {"joint": True, "source": {"tokenizer": "word"}}}, "their settings differ: leave joint out"),
        ({"model": {"kind": "encoder_decoder"}}, r"model\.encoder is missing"),
        (
            {"model": {**TABLES, "encoder": {"kind": "recurren"}}},
            r"model\.encoder\.kind must be one of .*'recurrent'\?",
        ),
        (
            {"model": {**TABLES, "decoder": {"kind": "recurrent", "looks": "back"}}},
            r"model\.decoder\.looks must be one of",
        ),
        ({"model": {**TABLES, "tie": ["source"]}}, "tie names two or three different tables, or none"),
        ({"task": "translat"}, r"task must be one of .*; got 'translat' \(did you mean 'translate'\?\)"),
        ({"task": ["translate"]}, r"task must be one of .*; got \['translate'\]"),
    ],
)
def test_contradictions_are_named(changes: dict[str, Any], message: str) -> None:
    values = tiny_recipe()
    if "kind" not in changes.get("model", {"kind": ""}):
        changes = {**changes, "model": {**values["model"], **changes["model"]}}
    with pytest.raises(RecipeError, match=message):
        recipe_from({**values, **changes})


def test_each_side_has_a_tokenizer_after_a_recipe_was_written_too() -> None:
    values = tiny_recipe()
    values["text"] = {"vocabulary_size": None, "source": {"tokenizer": "character"}, "target": {"tokenizer": "spaces"}}
    values["metrics"] = ["phone_error_rate"]
    recipe = recipe_from(values)
    again = recipe_from(yaml.safe_load(recipe_text(recipe)))
    assert again == recipe
    assert [again.text.side(side).tokenizer for side in ("source", "target")] == ["character", "spaces"]
    assert not again.text.joint


@pytest.mark.parametrize("name", sorted(shipped_recipes()))
def test_every_recipe_names_its_corpora(name: str) -> None:
    recipe = load_recipe(name)
    corpora = recipe.data.corpora()
    assert corpora["train"] == recipe.data.train
    assert {test: corpora[test] for test in recipe.data.test} == recipe.data.test
    assert set(corpora) == {"train", *recipe.data.test, *(["valid"] if hasattr(recipe.data, "valid") else [])}


def test_extends_changes_what_differs(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(tiny_recipe()))
    (tmp_path / "b.yaml").write_text("extends: a.yaml\nmodel: {cell: lstm}\n")
    recipe = load_recipe(tmp_path / "b.yaml", ["training.steps=3"])
    assert recipe.model.model_dump()["cell"] == "lstm"
    assert recipe.model.model_dump()["hidden_size"] == 12
    assert recipe.training.steps == 3
    (tmp_path / "a.yaml").write_text("extends: b.yaml\n")
    with pytest.raises(UserError, match="extends itself"):
        load_recipe(tmp_path / "b.yaml")


def test_extends_replaces_a_corpus_whole_and_finds_shipped_recipes(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: demo.yaml\ndata: {train: {file: a.tsv}, test: {file: b.tsv}}\n")
    data = load_recipe(tmp_path / "mine.yaml").data
    assert data.train.file == "a.tsv"
    assert data.train.grammar is None
    assert data.valid.grammar == "en-es"
    assert list(data.test) == ["test"]


def test_extends_with_another_kind_of_model_takes_nothing_of_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: demo.yaml\nmodel: {kind: transformer_translator, size: 12}\n")
    model = load_recipe(tmp_path / "mine.yaml").model.model_dump()
    assert model["kind"] == "transformer_translator"
    assert model["size"] == 12
    assert "cell" not in model
    (tmp_path / "same.yaml").write_text("extends: demo.yaml\nmodel: {kind: recurrent_translator, cell: gru}\n")
    model = load_recipe(tmp_path / "same.yaml").model.model_dump()
    assert (model["cell"], model["embedding_size"]) == ("gru", 64)


def test_names_of_recipes() -> None:
    for name in ("demo", "demo.yaml", "recipes/demo.yaml"):
        assert find_recipe(name).samefile(shipped_recipes()["demo"])
    with pytest.raises(UserError, match="did you mean 'demo'"):
        find_recipe("dmo")


def test_one_test_corpus_or_several() -> None:
    values = tiny_recipe()
    assert list(recipe_from(values).data.test) == ["test"]
    values["data"]["test"] = {"a": {"grammar": "en-fr"}, "b": {"file": "x.tsv"}}
    assert list(recipe_from(values).data.test) == ["a", "b"]
