"""Words to vectors, from a recipe to answers: every kind must find out which words belong together."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqloom
from seqloom.cli.main import run
from seqloom.errors import RecipeError, Stopped, UserError
from seqloom.model import Model
from seqloom.recipe import load_recipe
from seqloom.vectors.formats import write_vectors
from seqloom.vectors.table import WordVectors

GROUPS = (
    ("cat", "dog", "horse", "cow", "goat", "sheep"),
    ("red", "green", "blue", "yellow", "black", "white"),
    ("monday", "tuesday", "friday", "sunday", "noon", "night"),
)
KINDS: dict[str, dict[str, Any]] = {
    "skipgram": {"kind": "skipgram", "window": 3},
    "skipgram, hierarchical softmax": {"kind": "skipgram", "window": 3, "objective": "hierarchical_softmax"},
    "skipgram, softmax": {"kind": "skipgram", "window": 3, "objective": "softmax"},
    "cbow": {"kind": "cbow", "window": 3},
    "cbow, hierarchical softmax": {"kind": "cbow", "window": 3, "objective": "hierarchical_softmax"},
    "cbow, softmax": {"kind": "cbow", "window": 3, "objective": "softmax"},
    "fasttext": {"kind": "skipgram", "window": 3, "subwords": {"buckets": 500}},
    "glove": {"kind": "glove", "window": 3, "x_max": 1000},
    "ppmi": {"kind": "ppmi", "window": 3},
}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences about one thing each, in random order."""
    draw = random.Random(3)
    lines = [" ".join(draw.choices(draw.choice(GROUPS), k=8)) + " ." for _ in range(3000)]
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pairs") / "pairs.tsv"
    path.write_text("cat\tdog\t9\nred\tblue\t8\ncat\tred\t1\nsunday\tgoat\t0.5\ncat\tunicorn\t3\n", encoding="utf-8")
    return path


def recipe(text: Path, model: dict[str, Any], **training: Any) -> dict[str, Any]:
    return {
        "task": "embed",
        "data": {"train": {"text": str(text)}},
        "model": {"size": 10, **model},
        "training": {"epochs": 5, "deterministic": True, "subsample": 0, **training},
    }


@pytest.fixture(scope="module")
def skipgram(text: Path, pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "skipgram"
    values = recipe(text, KINDS["skipgram"])
    values["data"]["test"] = {"judged": str(pairs)}
    seqloom.train(values, folder)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_finds_out_which_words_belong_together(kind: str, text: Path, tmp_path: Path) -> None:
    vectors = seqloom.train(recipe(text, KINDS[kind]), tmp_path).network
    assert isinstance(vectors, WordVectors)
    for group in GROUPS:
        for word in group:
            nearest = {found.word for found in vectors.neighbours(word, 5)}
            assert nearest == set(group) - {word}


def test_a_run_is_read_back_as_it_was(skipgram: Path) -> None:
    loaded = seqloom.load(skipgram).network
    assert isinstance(loaded, WordVectors)
    assert set(loaded.words) == {word for group in GROUPS for word in group}
    assert loaded.counts is not None
    assert loaded.counts.sum() == 24_000  # the dot is no word
    card = (skipgram / "model" / "README.md").read_text(encoding="utf-8")
    assert "| model | skipgram, 18 words, 10 numbers each |" in card
    events = [json.loads(line)["event"] for line in (skipgram / "journal.jsonl").read_text().splitlines()]
    assert events[0] == "start"
    assert events[-1] == "end"


def test_the_same_seed_gives_the_same_vectors(skipgram: Path, text: Path, tmp_path: Path) -> None:
    again = seqloom.train(recipe(text, KINDS["skipgram"]), tmp_path).network
    assert np.array_equal(WordVectors.load(skipgram / "model").matrix, again.matrix)


def test_an_interrupted_run_goes_on_to_the_same_vectors(
    skipgram: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from seqloom.vectors.word2vec import Training

    original, count = Training._report, 0

    def interrupt(self: Training) -> None:
        nonlocal count
        count += 1
        if count == 1:
            raise KeyboardInterrupt
        original(self)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "_report", interrupt)
        patch.setattr("seqloom.vectors.word2vec.TELL_EVERY", 0.0)
        with pytest.raises(Stopped, match="of training"):
            seqloom.train(recipe(text, KINDS["skipgram"]), tmp_path / "run")
    with pytest.raises(UserError, match="holds an unfinished run; --resume goes on with it"):
        seqloom.train(recipe(text, KINDS["skipgram"]), tmp_path / "run")
    again = seqloom.train(tmp_path / "run", resume=True).network
    assert np.array_equal(WordVectors.load(skipgram / "model").matrix, again.matrix)


def test_phrases_travel_with_the_model(tmp_path: Path) -> None:
    draw = random.Random(1)
    lines = [" ".join(draw.choices(["new york", "old", "town", "is", "far"], k=6)) for _ in range(500)]
    (tmp_path / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    values = recipe(tmp_path / "text.txt", {"kind": "ppmi", "size": 3}) | {
        "text": {"phrases": 1, "phrase_threshold": 2}
    }
    vectors = seqloom.train(values, tmp_path / "run").network
    assert "new_york" in vectors
    assert "york" not in vectors
    assert (tmp_path / "run" / "model" / "phrases.json").is_file()


def test_evaluate_prints_a_score_for_each_file(skipgram: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", str(skipgram), "--format", "json"]) == 0
    [line] = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert (found["data"], found["name"], found["count"], found["compared"]) == ("pairs.tsv", "pairs", 5, 4)
    assert found["spearman"] > 0.5
    assert run(["evaluate", str(skipgram), "--test", "judge"]) == 2
    assert "did you mean 'judged'?" in capsys.readouterr().err
    assert run(["evaluate", str(skipgram), "--lowercase"]) == 2


def test_words_are_answered_with_their_neighbours(skipgram: Path) -> None:
    model = seqloom.load(skipgram)
    answer = model("Cat", count=3)
    assert answer.known
    assert answer.text.split() == [word for word, _ in answer.neighbours]
    assert [word for word, _ in answer.neighbours] == [one.word for one in model.network.neighbours("cat", 3)]
    assert answer.score == max(cosine for _, cosine in answer.neighbours)
    assert [one.source for one in model.predict(["red", "cow"])] == ["red", "cow"]
    with pytest.raises(UserError, match="'unicorn' is not among the 18 words that have a vector"):
        model("unicorn")
    with pytest.raises(RecipeError, match=r"count: must be greater than or equal to 1; got 0"):
        model("cat", count=0)


def test_what_vectors_cannot_do_says_what_to_do(skipgram: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["generate", str(skipgram)], ["look", str(skipgram), "attention", "hello"]):
        assert run(command) == 2
        assert "word vectors" in capsys.readouterr().err
    with pytest.raises(UserError, match=f"ask 'seqloom embed neighbours {skipgram}/model WORD'"):
        Model.load(skipgram).generate("hello")


OWN_PROCESS = """
import json, sys
import seqloom
model = seqloom.train(json.loads(sys.argv[1]), sys.argv[2])
again = seqloom.load(sys.argv[2])
[found] = [again.evaluate(corpus) for corpus in again.corpora().values()]
print(again("cat").text, found.spearman is not None, "torch" in sys.modules, sep="|")
"""


@pytest.mark.parametrize("kind", ["skipgram", "glove", "ppmi"])
def test_nothing_here_needs_torch(kind: str, text: Path, pairs: Path, tmp_path: Path) -> None:
    """Vectors are learned, kept, loaded, asked and measured by a process that never imports it."""
    values = recipe(text, KINDS[kind], epochs=1)
    values["data"]["test"] = {"judged": str(pairs)}
    command = [sys.executable, "-c", OWN_PROCESS, json.dumps(values), str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer, measured, torch = done.stdout.strip().split("|")
    assert len(answer.split()) == 10
    assert (measured, torch) == ("True", "False")


def test_a_file_of_vectors_is_a_model_too(skipgram: Path, pairs: Path, tmp_path: Path) -> None:
    vectors = seqloom.load(skipgram).network
    write_vectors(vectors, tmp_path / "words.vec", "fasttext")
    model = seqloom.load(tmp_path / "words.vec")
    assert [word for word, _ in model("cat").neighbours] == [one.word for one in vectors.neighbours("cat", 10)]
    [report] = [model.evaluate(corpus, name=name) for name, corpus in model.corpora([str(pairs)]).items()]
    assert report.figures["spearman"] == pytest.approx(seqloom.load(skipgram).evaluate(pairs).figures["spearman"])
    with pytest.raises(UserError, match="give --data FILE"):
        model.corpora()


def test_data_check_counts_running_text(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(json.dumps(recipe(text, KINDS["cbow"])), encoding="utf-8")
    assert run(["data", "check", str(path), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["lines"], found["words"], found["different_words"]) == (3000, 24_000, 18)
    text.with_name("bad.txt").write_bytes(b"good line\nbad \xff line\n")
    assert run(["data", "check", str(path), "--set", f"data.train.text={text.with_name('bad.txt')}"]) == 2
    assert "bad.txt:2" in capsys.readouterr().err


def test_a_typo_in_a_recipe_is_named(text: Path) -> None:
    with pytest.raises(RecipeError, match=r"model.kind must be one of cbow, glove, ppmi, skipgram; got 'skipgrams'"):
        load_recipe(recipe(text, {"kind": "skipgrams"}))
    with pytest.raises(RecipeError, match="did you mean 'embed'"):
        load_recipe(recipe(text, KINDS["cbow"]) | {"task": "embedd"})
    with pytest.raises(RecipeError, match="negative"):
        load_recipe(recipe(text, {"kind": "cbow", "negative": 5}))


def test_a_loaded_model_has_the_habits_of_its_vectors(skipgram: Path) -> None:
    model = seqloom.load(skipgram)
    vectors, word = model.network, model.network.words[0]
    np.testing.assert_array_equal(model[word], vectors.vector(word))
    assert model.most_similar(word, topn=3) == vectors.neighbours(word, 3)
    assert model.index_to_key is vectors.words
    assert model.key_to_index[word] == 0
    assert word in model
    assert "xyzzy" not in model
    assert len(model) == len(vectors)
    assert {"most_similar", "doesnt_match", "similarity"} <= set(dir(model))
    assert model.doesnt_match(vectors.words[:3]) in vectors.words[:3]
    with pytest.raises(UserError, match="top_n is called count here"):
        model(word, top_n=3)
    with pytest.raises(AttributeError, match="word vectors: a model of this kind has no 'most_simular'"):
        _ = model.most_simular
