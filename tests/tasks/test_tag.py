"""Tagging from a recipe to answers: it learns, answers with spans and how sure it is, and is measured."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import seqloom
from seqloom.cli.main import run as typed
from seqloom.corpus.examples import Pair
from seqloom.corpus.readers import read_pairs
from seqloom.errors import RecipeError, UserError
from seqloom.evaluation.spans import follows, spans_of
from seqloom.model import Model
from seqloom.recipe import load_recipe
from seqloom.tasks.tag import Tagging
from seqloom.training.journal import read_journal
from seqloom.vectors.formats import write_vectors
from seqloom.vectors.table import WordVectors

FILLERS = ["we", "saw", "it", "and", "then", "of", "1999"]
NAMES = {"place": ["Paris", "Rome", "New York"], "person": ["Ann", "Bob Lee", "Eve"]}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Names among fillers, some of two words; in the test set there are names that training never met."""
    folder, draw = tmp_path_factory.mktemp("tagged"), random.Random(2)
    for name, size in (("train", 150), ("valid", 30), ("test", 30)):
        blocks = []
        for _ in range(size):
            rows = []
            for _ in range(draw.randint(1, 5)):
                if draw.random() < 0.4:
                    label = draw.choice(sorted(NAMES))
                    words = draw.choice(NAMES[label]).split()
                    rows += [f"{word} {mark}-{label}" for word, mark in zip(words, "BI", strict=False)]
                else:
                    rows.append(f"{draw.choice(FILLERS)} O")
            blocks.append("\n".join(rows) + "\n")
        (folder / f"{name}.conll").write_text("\n".join(blocks))
    return {name: {"file": str(folder / f"{name}.conll")} for name in ("train", "valid", "test")}


def recipe(data: dict[str, Any], model: dict[str, Any] | None = None, tags: str = "data", **training: Any) -> Any:
    encoder = {"kind": "recurrent", "cell": "gru", "embedding_size": 10, "hidden_size": 12, "dropout": 0.0}
    return {
        "task": "tag",
        "data": data,
        "tags": {"scheme": tags},
        "model": {"kind": "tagger", "encoder": encoder, "characters": {"kind": "cnn", "size": 4}, **(model or {})},
        "training": {
            "steps": 45,
            "batch_tokens": 200,
            "learning_rate": 0.02,
            "validate_every": 15,
            "metric": "f1",
            **training,
        },
    }


WAYS = [("data", "crf"), ("bioes", "crf"), ("data", "softmax")]


@pytest.fixture(scope="module", params=WAYS, ids=["crf", "bioes", "softmax"])
def run(request: pytest.FixtureRequest, data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    tags, output = request.param
    folder = tmp_path_factory.mktemp("tag") / f"{tags}-{output}"
    seqloom.train(recipe(data, {"output": output}, tags), folder)
    return folder


@pytest.fixture(scope="module")
def model(run: Path) -> Model:
    return seqloom.load(run)


def test_spans_are_learned(model: Model) -> None:
    [(name, corpus)] = model.corpora().items()
    report = model.evaluate(corpus, name=name)
    assert report.figures["f1"] > 95
    pairs = list(read_pairs(corpus))
    assert report.answers == [" ".join(answer.tags) for answer in model.predict([pair.source for pair in pairs])]
    baseline = model.evaluate(corpus, name=name, baselines=True).to_dict()["baselines"]["most frequent tag"]
    assert baseline["accuracy"] > 80


def test_it_takes_texts_and_words_and_is_measured_on_lists(model: Model) -> None:
    text, words = "we saw Bob", ("we", "saw", "Bob")
    assert model(words).tags == model(text).tags == model([text])[0].tags == model([list(words)])[0].tags
    assert [len(answer.tags) for answer in model([text, words, list(words[:2])])] == [3, 3, 2]
    with pytest.raises(UserError, match="predict takes a text, or a tuple of its words, or a list with several; got 5"):
        model(5)
    tags = ["O", "O", "B-person"]
    for report in (
        model.evaluate([text], [tags]),
        model.evaluate([list(words)], [tags]),
        model.evaluate([(words, tags)]),
    ):
        assert report.figures["accuracy"] == pytest.approx(100 * sum(map(str.__eq__, model(text).tags, tags)) / 3)
    with pytest.raises(UserError, match="input 1 has 3 words, but 2 tags"):
        model.evaluate([text], [["O", "O"]])


def test_an_answer_has_words_tags_spans_and_probabilities(model: Model) -> None:
    answer = model("we saw Bob  Lee and it's New York")
    assert answer.tokens == ["we", "saw", "Bob", "Lee", "and", "it", "'s", "New", "York"]
    assert answer.tags[2:5] == ["B-person", "I-person", "O"]
    assert answer.tags[7:] == ["B-place", "I-place"]
    assert [tuple(span) for span in answer.spans if span.label == "person"] == [("person", 2, 4, "Bob  Lee")]
    assert answer.text.startswith("we/O saw/O Bob/B-person Lee/I-person and/O it/")
    for shares, chosen in zip(answer.probabilities, answer.chosen, strict=True):
        assert sum(shares.values()) == pytest.approx(1.0)
        assert set(shares) == {"B-person", "B-place", "I-person", "I-place", "O"}
        assert 0 < chosen <= 1
    assert answer.score <= 0
    found = json.loads(json.dumps(answer.to_dict()))
    assert found["spans"][0] == {"label": "person", "start": 2, "end": 4, "text": "Bob  Lee"}
    assert len(found["tokens"]) == len(found["tags"]) == len(found["probabilities"]) == 9
    page = model(("<b>", "New", "York"))._repr_html_()
    assert "&lt;b&gt;" in page
    assert "<mark>New York <small><b>place" in page


def test_tuples_of_words_are_taken_as_they_are(model: Model) -> None:
    answer = model(("we", "saw", "New", "York"))
    assert answer.tokens == ["we", "saw", "New", "York"]
    assert answer.tags == model("we saw New York").tags
    assert answer.spans[-1].text == "New York"
    assert model(()).tags == model("  ").tags == []
    assert model("  ").source == "  "
    with pytest.raises(UserError, match="give a text or a tuple of words"):
        model(("a", ""))


def test_the_score_is_the_log_probability_of_all_tags(model: Model) -> None:
    """Of a text of one word: the probability of its tag, before tags were changed for being shown."""
    answer = model(("Rome",))
    trace = answer.trace
    probabilities = trace["probabilities"]
    assert probabilities.rows == ["Rome"]
    np.testing.assert_allclose(probabilities.values.sum(-1), 1.0, atol=1e-6)
    assert answer.score == pytest.approx(float(np.log(probabilities.values.max())), abs=1e-6)
    with pytest.raises(UserError, match="it takes no target"):
        model.trace("Rome", "O")
    with pytest.raises(UserError, match="there is nothing to look at: give a text"):
        model.trace(" ")


def test_answers_are_always_sound(model: Model) -> None:
    """Also where a model was just made, and has no idea."""
    fresh = model.fresh().eval()
    draw = random.Random(3)
    inputs = [[draw.choice([*FILLERS, "Lee", "York", "Zoe"]) for _ in range(7)] for _ in range(30)]
    for _, answer in model.task.predict(fresh, inputs, None):
        moves = zip([None, *answer.tags], [*answer.tags, None], strict=True)
        assert all(follows(a, b, "bio") for a, b in moves)
        assert [tuple(span[:3]) for span in answer.spans] == [tuple(span) for span in spans_of(answer.tags)]


def test_evaluate_prints_its_figures(run: Path, capsys: pytest.CaptureFixture[str], data: dict[str, Any]) -> None:
    assert typed(["evaluate", str(run), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"f1", "precision", "recall", "accuracy"} <= found.keys()
    assert typed(["evaluate", str(run)]) == 0
    assert "most frequent tag" in capsys.readouterr().out
    assert typed(["evaluate", str(run / "model"), "--data", data["valid"]["file"]]) == 0
    assert "F1 of spans" in capsys.readouterr().out
    assert typed(["predict", str(run), "we saw Rome", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["tags"][-1] == "B-place"


def test_validation_decides_by_f1(run: Path, model: Model) -> None:
    events = [event for event in read_journal(run / "journal.jsonl") if event["event"] == "validation"]
    assert all({"loss", "f1", "precision", "recall", "accuracy"} <= event.keys() for event in events)
    best = [event["f1"] for event in events if event["best"]]
    assert best[-1] == max(event["f1"] for event in events)
    assert model.evaluate(model.recipe().data.valid).figures["f1"] == pytest.approx(best[-1], abs=1e-3)


def test_tags_that_are_no_spans(data: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "pos.conll").write_text("the DET\ncat NOUN\n\na DET\ndog NOUN\n")
    pos = {name: {"file": str(tmp_path / "pos.conll")} for name in ("train", "valid", "test")}
    with pytest.raises(UserError, match=r"training\.metric: f1 is of tags of spans .*, not of DET, NOUN"):
        seqloom.train(recipe(pos), tmp_path / "run")
    model = seqloom.train(recipe(pos, steps=2, validate_every=1, metric="accuracy"), tmp_path / "run", restart=True)
    report = model.evaluate(pos_corpus := model.recipe().data.valid)
    assert report.figures.keys() == {"accuracy"}
    assert model("the cat").spans == []
    assert model.task.describe(pos_corpus) == "pos.conll"
    assert "<small><b>" in model("the cat")._repr_html_()


def test_a_tag_that_training_never_met(model: Model, data: dict[str, Any], tmp_path: Path) -> None:
    """In a test set it is a mistake like others; for validation during training it must be known."""
    report = model.evaluate([Pair(("we", "Oslo"), ("O", "B-town"))])
    assert report.figures["recall"] == 0.0
    (tmp_path / "valid.conll").write_text("Oslo B-town\n")
    wrong = recipe({**data, "valid": {"file": str(tmp_path / "valid.conll")}})
    with pytest.raises(UserError, match="the tag 'B-town' is not in the training data"):
        seqloom.train(wrong, tmp_path / "run")
    with pytest.raises(UserError, match="mine: there is no example in it"):
        model.evaluate([], name="mine")


def test_texts_of_one_word_are_trained_on(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("\n".join(f"{word} {tag}\n" for word, tag in (("a", "X"), ("b", "Y")) * 3))
    one = {name: {"file": str(tmp_path / "a.conll")} for name in ("train", "valid")}
    recipes = load_recipe(recipe(one, metric="accuracy"))
    work = Tagging.learn(recipes, lambda text: None).work(recipes)
    assert work.summary()["examples"] == 6
    assert work.summary()["left_out"] == 0


def test_embeddings_start_from_vectors(data: dict[str, Any], tmp_path: Path) -> None:
    matrix = np.random.default_rng(1).normal(size=(2, 6)).astype(np.float32)
    write_vectors(WordVectors(["rome", "saw"], matrix), tmp_path / "v.txt", "glove")
    pretrained = {"text": str(tmp_path / "v.txt"), "freeze": True}
    model = seqloom.train(recipe(data, {"pretrained": pretrained}, steps=4, validate_every=2), tmp_path / "run")
    table, words = model.task.embeddings(model.network)["text"], model.task.source.words
    for word, vector in zip(["Rome", "saw"], matrix, strict=True):
        row = table.weight[words.encode([word])[0]].detach().numpy()
        np.testing.assert_allclose(row / np.linalg.norm(row), vector / np.linalg.norm(vector), atol=1e-5)


def test_its_data_is_examined(data: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "valid.conll").write_text("we O\nOslo B-town\n")
    odd = {**data, "valid": {"file": str(tmp_path / "valid.conll")}}
    found = Tagging.examine(load_recipe(recipe(odd)), lambda text: None)
    assert json.dumps(found.values)
    corpora = found.values["counts"]
    assert corpora["valid"]["source_unknown"] == corpora["valid"]["target_unknown"] == pytest.approx(1 / 2)
    assert corpora["train"]["source_unknown"] == corpora["train"]["target_unknown"] == 0


def test_contradictions_are_named(data: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match=r"training\.label_smoothing is for model\.output: softmax"):
        load_recipe(recipe(data, label_smoothing=0.1))
    load_recipe(recipe(data, {"output": "softmax"}, label_smoothing=0.1))
    with pytest.raises(RecipeError, match=r"training\.candidates is for the choice among many symbols"):
        load_recipe(recipe(data, candidates=3))
    with pytest.raises(RecipeError, match="metric: f1 needs validation_sentences above 0"):
        load_recipe(recipe(data, validation_sentences=0))


def test_bfloat16_products_leave_the_chain_in_float32(data: dict[str, Any], tmp_path: Path) -> None:
    model = seqloom.train(recipe(data, steps=6, precision="bfloat16", validate_every=3), tmp_path / "run")
    assert all(weight.dtype == torch.float32 for weight in model.network.parameters())
    assert np.isfinite(model("we saw Rome").score)


# -- a label of the whole text beside the tags -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def labelled(data: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The same texts, each labelled by whether somebody or some place is named first."""
    folder, found = tmp_path_factory.mktemp("labelled"), {}
    for name, corpus in data.items():
        blocks = Path(corpus["file"]).read_text().split("\n\n")
        marked = []
        for block in blocks:
            first = next((line for line in block.splitlines() if " B-" in line), " B-nothing")
            marked.append(f"# about = {first.partition(' B-')[2]}\n{block.strip()}\n")
        (folder / f"{name}.conll").write_text("\n".join(marked))
        found[name] = {"file": str(folder / f"{name}.conll"), "label": "about"}
    return found


@pytest.fixture(scope="module")
def both(labelled: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Model:
    values = recipe(labelled, tags="bioes", steps=90, metric="exact_match")
    return seqloom.train(values, tmp_path_factory.mktemp("both") / "run")


def test_tags_and_a_label_are_learned_together(both: Model, tmp_path: Path) -> None:
    [(name, corpus)] = both.corpora().items()
    report = both.evaluate(corpus, name=name, baselines=True)
    assert report.figures["f1"] > 90
    assert report.figures["label_accuracy"] > 90
    pairs = list(read_pairs(corpus))
    answers = both.predict([pair.source for pair in pairs])
    right = [answer.label == pair.target.label for answer, pair in zip(answers, pairs, strict=True)]
    assert report.figures["label_accuracy"] == pytest.approx(100 * float(np.mean(right)))
    whole = [
        answer.label == pair.target.label and tuple(answer.tags) == pair.target.tags
        for answer, pair in zip(answers, pairs, strict=True)
    ]
    assert report.figures["exact_match"] == pytest.approx(100 * float(np.mean(whole)))
    assert report.answers[0] == f"{answers[0].label}\t{' '.join(answers[0].tags)}"
    assert report.to_dict()["baselines"]["most frequent tag"]["label_accuracy"] < 80
    events = read_journal(both.folder.parent / "journal.jsonl")
    assert all("exact_match" in event for event in events if event["event"] == "validation")


def test_an_answer_has_the_label_too(both: Model) -> None:
    answer = both("we saw Bob Lee")
    label = answer.label
    assert sorted(answer.labels) == ["nothing", "person", "place"]
    assert label == max(answer.labels, key=answer.labels.__getitem__)
    assert answer.text.startswith(f"{label}\twe/O")
    assert sum(answer.labels.values()) == pytest.approx(1.0)
    assert list(answer.labels.values()) == sorted(answer.labels.values(), reverse=True)
    assert answer.to_dict()["label"] == label
    assert f"<b>{label}</b>" in answer._repr_html_()
    assert both("").label is None
    picture = both.look("tags", "we saw Bob Lee")
    assert picture.title.startswith(f"tags of run: {label} ")
    assert picture.to_text(60, colour=False).startswith(f"tags of run: {label}")


def test_data_without_labels_is_measured_by_its_tags(both: Model, data: dict[str, Any], model: Model) -> None:
    [corpus] = both.task.corpora([data["test"]["file"]]).values()
    assert both.evaluate(corpus).figures.keys() == {"f1", "precision", "recall", "accuracy"}
    [corpus] = both.corpora().values()
    assert "label_accuracy" not in model.evaluate(corpus).figures, "nor by a model that knows none"


def test_labels_of_one_corpus_only_are_a_contradiction(labelled: dict[str, Any], data: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match=r"data\.train and data\.valid: give both a label, or none of them"):
        load_recipe(recipe({**labelled, "valid": data["valid"]}))
    with pytest.raises(RecipeError, match=r"metric: label_accuracy needs a label of every text: data\.train\.label"):
        load_recipe(recipe(data, metric="label_accuracy"))


# -- turns of a conversation -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def talks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A question is answered; what is said next is a remark. The answer alone does not tell that it is one."""
    folder, draw, found = tmp_path_factory.mktemp("talks"), random.Random(4), {}
    for name, size in (("train", 60), ("valid", 10), ("test", 15)):
        lines = []
        for _ in range(size):
            turns, acts = list[str](), list[str]()
            for _ in range(draw.randint(1, 4)):
                if draw.random() < 0.5:
                    turns += [f"do you {draw.choice(['cook', 'sing', 'run'])} ?", "I do"]
                    acts += ["question", "answer"]
                else:
                    turns += ["well well", "I do"]
                    acts += ["remark", "remark"]
            lines.append(json.dumps({"turns": turns, "acts": acts}) + "\n")
        (folder / f"{name}.jsonl").write_text("".join(lines))
        found[name] = {"file": str(folder / f"{name}.jsonl"), "source": "turns", "target": "acts"}
    return found


def test_turns_of_a_conversation(talks: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    encoder = {"kind": "recurrent", "cell": "gru", "embedding_size": 8, "hidden_size": 10, "dropout": 0.0}
    model = {"encoder": encoder, "turns": {**encoder, "hidden_size": 8}, "characters": None}
    found = seqloom.train(recipe(talks, model, metric="accuracy", steps=60), tmp_path / "run")
    [(name, corpus)] = found.corpora().items()
    report = found.evaluate(corpus, name=name, baselines=True)
    assert report.figures["accuracy"] > 95, "an answer is known by the turn before it"
    assert report.to_dict()["baselines"]["most frequent tag"]["accuracy"] < 80
    answer = found(["do you sing ?", "I do", "well well", "I do"])
    assert answer.tokens == ["do you sing ?", "I do", "well well", "I do"]
    assert answer.tags == ["question", "answer", "remark", "remark"]
    assert answer.text == "do you sing ?/question\tI do/answer\twell well/remark\tI do/remark"
    assert typed(["predict", str(tmp_path / "run"), "do you sing ?\tI do"]) == 0
    assert capsys.readouterr().out == "do you sing ?/question\tI do/answer\n"
    assert "do you sing ?" in found.look("tags", "do you sing ?\tI do").to_text(60, colour=False)
    config = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    (tmp_path / "run" / "model" / "config.json").write_text(json.dumps({**config, "turns": False}))
    with pytest.raises(UserError, match=r"config\.json: turns and model\.turns do not agree"):
        seqloom.load(tmp_path / "run")
