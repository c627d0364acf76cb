"""Letters to phones, as recipes for it are written: each side with a tokenizer of its own, judged by error rates."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import seqloom
from seqloom.cli.main import run as typed
from seqloom.corpus.readers import CorpusSettings, read_pairs
from seqloom.errors import RecipeError
from seqloom.evaluation.error_rates import phone_error_rate, word_error_rate
from seqloom.model import Model
from seqloom.recipe import load_recipe
from seqloom.text.special import SPECIAL
from seqloom.training.journal import read_journal

SOUNDS = {"a": "ɒ", "b": "bː", "c": "t͡ʃ", "e": "ɛ̃", "x": "k s"}
"""Of each letter: one character, a length mark, a tie bar, a mark that no composed character has, two phones."""
PHONES = sorted({phone for sound in SOUNDS.values() for phone in sound.split()})


def pronounced(word: str) -> str:
    return " ".join(SOUNDS[letter] for letter in word)


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder, draw = tmp_path_factory.mktemp("sounds"), random.Random(4)
    for name, size in (("train", 600), ("valid", 30), ("test", 30)):
        words = ["".join(draw.choices("abcex", k=draw.randint(1, 5))) for _ in range(size)]
        (folder / f"{name}.tsv").write_text("".join(f"{word}\t{pronounced(word)}\n" for word in words))
    return {
        "data": {name: {"file": str(folder / f"{name}.tsv")} for name in ("train", "valid", "test")},
        "text": {
            "vocabulary_size": None,
            "source": {"tokenizer": "character"},
            "target": {"tokenizer": "spaces", "normalise": "none"},
        },
        "model": {
            "kind": "recurrent_translator",
            "cell": "gru",
            "embedding_size": 16,
            "hidden_size": 32,
            "dropout": 0.0,
        },
        "training": {
            "steps": 300,
            "batch_tokens": 300,
            "learning_rate": 1e-2,
            "validate_every": 100,
            "metric": "phone_error_rate",
            "precision": "float32",
        },
        "decoding": {"method": "greedy"},
        "metrics": ["word_error_rate", "phone_error_rate"],
    }


@pytest.fixture(scope="module")
def run(values: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "sounds"
    seqloom.train(values, folder)
    return folder


@pytest.fixture(scope="module")
def model(run: Path) -> Model:
    return seqloom.load(run)


def test_a_phone_is_one_symbol(model: Model, run: Path) -> None:
    source, target = (model.task.tokenizers()[side] for side in ("source", "target"))
    assert len(source) == len(SPECIAL) + len(SOUNDS) + 1  # and the space before a text
    assert sorted(target.labels(range(len(SPECIAL), len(target)))) == PHONES
    assert {path.name for path in (run / "model").glob("tokenizer*")} == {
        "tokenizer.source.json",
        "tokenizer.target.json",
    }


@given(st.text("abcex", min_size=1, max_size=9))
def test_phones_survive_the_round_trip(model: Model, word: str) -> None:
    """From training data to numbers and back, in the tokenizers that travel with the model."""
    target = model.task.target.tokenizer
    ids = target.encode(pronounced(word))
    assert len(ids) == sum(len(SOUNDS[letter].split()) for letter in word)
    assert target.decode(ids) == pronounced(word)
    assert target.encode_many([pronounced(word)]) == [ids]


def test_words_are_pronounced(model: Model, values: dict[str, Any]) -> None:
    pairs = list(read_pairs(CorpusSettings(**values["data"]["test"])))
    answers = model.predict([pair.source for pair in pairs])
    assert sum(answer.text == pair.target for answer, pair in zip(answers, pairs, strict=True)) >= 0.8 * len(pairs)
    assert {phone for answer in answers for phone in answer.text.split(" ")} <= set(PHONES)
    assert all(answer.tokens == answer.text.split(" ") for answer in answers)


def test_figures_are_those_that_the_recipe_names(model: Model, values: dict[str, Any]) -> None:
    [(name, corpus)] = model.corpora().items()
    report = model.evaluate(corpus, name=name)
    assert list(report.figures) == ["word_error_rate", "phone_error_rate"]
    pairs = list(read_pairs(corpus))
    references = [pair.target for pair in pairs]
    assert report.figures["word_error_rate"] == pytest.approx(word_error_rate(report.answers, references))
    assert report.figures["phone_error_rate"] == pytest.approx(phone_error_rate(report.answers, references))
    for title in ("word error rate", "phone error rate"):
        assert title in report.render()
    assert "BLEU" not in report.render().split("\n\n")[1], "nobody asked for it"


def test_what_is_trained_for_is_validated_and_kept(run: Path) -> None:
    events = [event for event in read_journal(run / "journal.jsonl") if event["event"] == "validation"]
    assert all({"loss", "word_error_rate", "phone_error_rate"} <= event.keys() for event in events)
    assert not any("bleu" in event for event in events)
    best = [event["phone_error_rate"] for event in events if event["best"]]
    assert best == sorted(best, reverse=True), "lower is better"
    assert best[-1] == min(event["phone_error_rate"] for event in events)
    assert "phone_error_rate" in (run / "model" / "README.md").read_text()


def test_they_are_shown_on_the_command_line(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert typed(["evaluate", str(run), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"word_error_rate", "phone_error_rate"} <= found.keys()
    assert typed(["compare", str(run), "--format", "json"]) == 0
    compared = capsys.readouterr().out
    assert "phone_error_rate" in compared
    assert "word_error_rate" in compared
    assert typed(["predict", str(run), "abba"]) == 0
    assert set(capsys.readouterr().out.split()) <= set(PHONES)


def test_a_metric_that_is_none(values: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match=r"metrics must be of bleu, .*; got 'per'"):
        load_recipe(values | {"metrics": ["per"]})
    with pytest.raises(RecipeError, match=r"training\.metric must be one of .*; got 'per'"):
        load_recipe(values | {"training": values["training"] | {"metric": "per"}})
    with pytest.raises(RecipeError, match="metrics"):
        load_recipe(values | {"metrics": []})
