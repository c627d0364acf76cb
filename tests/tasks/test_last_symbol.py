"""Models asked only for the last symbol of a line: what is asked, what it costs, how it is measured and remembered."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqloom.batches.running import collate_lines
from seqloom.batches.samplers import Position
from seqloom.cli.main import run
from seqloom.corpus.plain import PlainTextSettings
from seqloom.errors import RecipeError, UserError
from seqloom.evaluation.language import LastSymbolReport
from seqloom.experiment import train
from seqloom.model import Model
from seqloom.recipe import recipe_from
from seqloom.tasks.model_language import LanguageModelling
from seqloom.text.special import EOS_ID, PAD_ID

FIRST = EOS_ID


def small(**training: Any) -> dict[str, Any]:
    """A recipe that learns to recall over two symbols in about two seconds."""
    return {
        "task": "model_language",
        "data": {"train": {"text": "recall:2/train", "limit": 2000}, "valid": {"text": "recall:2/valid", "limit": 200}},
        "text": {"tokenizer": "spaces", "vocabulary_size": None},
        "model": {"kind": "recurrent_lm", "cell": "gru", "size": 12, "hidden_size": 24, "num_layers": 1},
        "training": {
            "steps": 150,
            "batching": "sentences",
            "predict": "last",
            "batch_tokens": 300,
            "learning_rate": 0.02,
            "validate_every": 50,
            "metric": "accuracy",
            **training,
        },
    }


lines_of_ids = st.lists(st.lists(st.integers(4, 50), min_size=1, max_size=9), min_size=1, max_size=6)


@given(lines_of_ids)
def test_only_the_symbol_before_the_end_is_asked_for(lines: list[list[int]]) -> None:
    batch = collate_lines([[*line, EOS_ID] for line in lines], FIRST, only_last=True)
    assert batch.lengths is not None
    for row, line in enumerate(lines):
        asked = batch.targets[row].nonzero()[:, 0].tolist()
        assert asked == [len(line) - 1]
        assert int(batch.targets[row, asked[0]]) == line[-1]
        assert batch.inputs[row, : len(line)].tolist() == [FIRST, *line[:-1]]
        assert int(batch.lengths[row]) == len(line)
        assert (batch.inputs[row, len(line) :] == PAD_ID).all()
    assert batch.num_tokens == len(lines)


@given(lines_of_ids)
def test_the_same_is_read_whatever_is_asked(lines: list[list[int]]) -> None:
    """All symbols but the end are read alike, so a model answers alike."""
    ended = [[*line, EOS_ID] for line in lines]
    last, everything = collate_lines(ended, FIRST, only_last=True), collate_lines(ended, FIRST)
    width = last.inputs.shape[1]
    asked = last.targets != PAD_ID
    assert torch.equal(last.targets[asked], everything.targets[:, :width][asked])
    for row, line in enumerate(lines):
        assert torch.equal(last.inputs[row, : len(line)], everything.inputs[row, : len(line)])


@pytest.fixture(scope="module")
def task() -> LanguageModelling:
    values = small()
    values["data"]["train"] = {"text": "recall:3/train", "limit": 50}
    return LanguageModelling.learn(recipe_from(values), lambda text: None)


def report_of(task: LanguageModelling, model: Any, **corpus: Any) -> LastSymbolReport:
    found = task.evaluate(model, PlainTextSettings(**corpus), "some", recipe_from(small()).decoding)
    assert isinstance(found, LastSymbolReport)
    return found


def test_figures_are_those_of_a_plain_count(task: LanguageModelling) -> None:
    """Line by line, without padding, in numpy."""
    model = task.build(recipe_from(small()).model).eval()
    corpus = {"text": "recall:1-6/test", "limit": 40}
    nll, right = 0.0, 0
    for line in task.text.texts(PlainTextSettings(**corpus)):
        ids = task.text.tokenizer.encode(line)
        with torch.no_grad():
            features = model(torch.tensor([[task.text.first, *ids[:-1]]]))[0][0, -1]
            logits = model.output(features).double().numpy()
        nll -= logits[ids[-1]] - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
        right += int(logits.argmax() == ids[-1])
    found = report_of(task, model, **corpus)
    assert found.asked == 40
    assert found.right == right
    assert found.nll == pytest.approx(nll, rel=1e-6)
    assert found.accuracy == pytest.approx(100 * right / 40)
    assert found.perplexity == pytest.approx(math.exp(nll / 40), rel=1e-6)


def test_lines_without_a_symbol_are_not_asked_about(task: LanguageModelling, tmp_path: Path) -> None:
    (tmp_path / "some.txt").write_text("A b ? A\n\n\nC\n")
    model = task.build(recipe_from(small()).model).eval()
    assert report_of(task, model, text=str(tmp_path / "some.txt")).asked == 2
    (tmp_path / "none.txt").write_text("\n\n")
    with pytest.raises(UserError, match=r"none\.txt: there is no line with a symbol to ask for"):
        report_of(task, model, text=str(tmp_path / "none.txt"))


def test_the_loss_is_that_of_the_last_symbols(task: LanguageModelling) -> None:
    recipe = recipe_from(small())
    work = task.work(recipe)
    model = task.build(recipe.model).eval()
    first, lines = task.text.first, task.text.encode_lines(["A b c ? A", "C d ? C", "H ? H"])
    batch = collate_lines(lines, first, only_last=True)
    expected = sum(
        -float(model.output(model(torch.tensor([[first, *ids[:-2]]]))[0][0, -1]).log_softmax(-1)[ids[-2]].detach())
        for ids in lines
    )
    assert float(work.loss(model, batch).nll) == pytest.approx(expected, rel=1e-5)
    _, drawn = next(work.batches(Position()))
    assert drawn.num_tokens == len(drawn)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batching": "stream"}, "predict: last needs batching: sentences; batching: stream knows no lines"),
        ({"batching": "windows"}, "predict: last needs batching: sentences"),
        ({"predict": "all"}, "metric: accuracy is measured only with predict: last"),
        ({"metric": "bits_per_character"}, "bits_per_character is of whole texts"),
        ({"predict": "first"}, "predict"),
    ],
)
def test_contradictions_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match="training") as caught:
        recipe_from(small(**changes))
    assert message in str(caught.value)


def test_recall_is_learned_remembered_and_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Through the door that users take: train, load, evaluate."""
    model = train(small(), tmp_path / "run")
    assert json.loads((tmp_path / "run/model/config.json").read_text())["predict"] == "last"
    report = model.evaluate(PlainTextSettings(text="recall:2/test", limit=300), name="test")
    assert isinstance(report, LastSymbolReport)
    assert report.accuracy > 99  # chance is 12.5
    capsys.readouterr()
    assert run(["evaluate", str(tmp_path / "run"), "--data", "recall:2/test", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["accuracy"] > 99
    assert found["symbols"] == 10_000
    assert run(["evaluate", str(tmp_path / "run")]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("accuracy")
    card = (tmp_path / "run/model/README.md").read_text()
    assert "accuracy" in card


def test_a_folder_keeps_what_its_model_is_asked_for(tmp_path: Path) -> None:
    train(small(steps=2, validate_every=2), tmp_path / "run")
    assert Model.load(tmp_path / "run").task.predicts == "last"
    config = tmp_path / "run/model/config.json"
    values = json.loads(config.read_text())
    for wrong in ("some", None):
        config.write_text(json.dumps({**values, "predict": wrong}))
        with pytest.raises(UserError, match=f"predict must be one of all, last; got {wrong!r}"):
            Model.load(tmp_path / "run")
