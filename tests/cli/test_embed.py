"""`seqloom embed`, through its App."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqloom.cli.embed import app
from seqloom.cli.main import run
from seqloom.errors import UserError
from seqloom.folders import FORMAT
from seqloom.vectors.formats import read_vectors, write_vectors
from seqloom.vectors.settings import SubwordSettings
from seqloom.vectors.table import WordVectors

WORDS = ["man", "woman", "king", "queen", "dragon"]
MATRIX = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 1], [-1, -1, -1]], np.float32)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_vectors(WordVectors(WORDS, MATRIX), tmp_path / "vectors.txt", "glove")
    return tmp_path / "vectors.txt"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    s = SubwordSettings(shortest=3, longest=4, buckets=20)
    buckets = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    WordVectors(WORDS, MATRIX, subwords=s, buckets=buckets, own=MATRIX).save(folder)
    (folder / "config.json").write_text(json.dumps({"format": FORMAT, "task": "embed", "model": {"kind": "skipgram"}}))
    return folder


def called(capsys: pytest.CaptureFixture[str], *arguments: Any) -> tuple[str, str]:
    capsys.readouterr()
    app([str(a) for a in arguments], exit_on_error=False, print_error=False, result_action="return_none")
    found = capsys.readouterr()
    return found.out, found.err


def objects(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_neighbours(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = called(capsys, "neighbours", file, "queen", "--count", "2")
    assert out == " 0.7071  king\n 0.5000  woman\n"
    out, _ = called(capsys, "neighbours", file, "queen", "man", "--count", "1")
    assert out == "queen\n 0.7071  king\n\nman\n 0.7071  woman\n"
    out, _ = called(capsys, "neighbours", file, "queen", "man", "--count", "1", "--format", "json")
    first, second = objects(out)
    assert first == {
        "word": "queen",
        "known": True,
        "neighbours": [{"word": "king", "similarity": pytest.approx(0.5**0.5)}],
    }
    assert second["neighbours"][0]["word"] == "woman"
    assert called(capsys, "neighbours", file, "Queen", "--count", "1")[0] == " 0.7071  king\n"
    assert called(capsys, "neighbours", file, "man", "--limit", "2")[0] == " 0.7071  woman\n"


def test_unknown_words(file: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match=r"'quen' is not among the 5 words .*did you mean 'queen'"):
        called(capsys, "neighbours", file, "quen")
    (found,) = objects(called(capsys, "neighbours", model, "quen", "--format", "json")[0])
    assert found["known"] is False
    assert len(found["neighbours"]) == 5
    with pytest.raises(UserError, match="name at least one word"):
        called(capsys, "neighbours", file)


@pytest.mark.parametrize("method", ["add", "multiply"])
def test_analogy(file: Path, capsys: pytest.CaptureFixture[str], method: str) -> None:
    arguments = ["analogy", file, "man", "woman", "king", "--method", method, "--count", "1"]
    assert called(capsys, *arguments)[0].split()[1] == "queen"
    (found,) = objects(called(capsys, *arguments, "--format", "json")[0])
    assert [answer["word"] for answer in found.pop("answers")] == ["queen"]
    assert found == {"a": "man", "b": "woman", "c": "king", "method": method}


def test_similarity(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert called(capsys, "similarity", model, "man", "woman")[0] == "0.7071\n"
    (found,) = objects(called(capsys, "similarity", model, "man", "woman", "--format", "json")[0])
    assert found == {"a": "man", "b": "woman", "similarity": pytest.approx(0.5**0.5)}


@pytest.mark.parametrize("to", ["word2vec", "word2vec-binary", "glove", "fasttext"])
def test_convert(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], to: str) -> None:
    target = tmp_path / "converted"
    out, err = called(capsys, "convert", model, target, "--to", to)
    assert out == f"{target}: 5 words, 3 numbers each ({to})\n"
    assert "the vectors of word pieces are left out" in err
    found = read_vectors(target)
    assert found.words == WORDS
    np.testing.assert_array_equal(found.matrix, MATRIX)
    (found_too,) = objects(called(capsys, "convert", model, target, "--to", to, "--limit", "2", "--format", "json")[0])
    assert found_too == {"file": str(target), "to": to, "words": 2, "size": 3}
    assert read_vectors(target).words == WORDS[:2]


def test_evaluate(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions, pairs = tmp_path / "questions.txt", tmp_path / "pairs.csv"
    questions.write_text(": family\nMan Woman King Queen\nman woman king princess\n")
    pairs.write_text("word1,word2,score\nman,woman,9\nman,king,5\nman,dragon,1\nman,nobody,1\n")
    out, _ = called(capsys, "evaluate", file, questions, pairs)
    assert "questions: 1 of 2 questions asked (50.0 %)" in out
    assert "Spearman  1.0000" in out
    first, second = objects(called(capsys, "evaluate", file, questions, pairs, "--format", "json")[0])
    assert (first["file"], first["add"], first["multiply"], first["coverage"]) == (str(questions), 100.0, 100.0, 50.0)
    assert (second["file"], second["spearman"], second["compared"]) == (str(pairs), 1.0, 3)
    arguments = ["evaluate", file, questions, "--method", "add", "--most-frequent", "3", "--format", "json"]
    (found,) = objects(called(capsys, *arguments)[0])
    assert found["asked"] == 0
    assert found["add"] is None
    assert "multiply" not in found
    with pytest.raises(UserError, match="name at least one file"):
        called(capsys, "evaluate", file)


def test_the_verbs_for_all_models(file: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`evaluate` and `list parameters` take a folder and a file of another program alike."""
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("word1,word2,score\nman,woman,9\nman,king,5\nman,dragon,1\n")

    def called_verb(*arguments: Any, code: int = 0) -> tuple[str, str]:
        capsys.readouterr()
        assert run([str(argument) for argument in arguments]) == code
        found = capsys.readouterr()
        return found.out, found.err

    for place in (file, model):
        (found,) = objects(called_verb("evaluate", place, "--data", pairs, "--format", "json")[0])
        assert (found["data"], found["spearman"], found["compared"]) == ("pairs.csv", 1.0, 3)
        assert "5 words, 3 numbers each" in called_verb("list", "parameters", place)[0]
    counted = json.loads(called_verb("list", "parameters", model, "--format", "json")[0])
    assert (counted["model"], counted["parameters"]) == ("skipgram", (5 + 20) * 3)  # the pieces have vectors too
    for verb in (("generate",), ("score", pairs)):
        assert "ask 'seqloom embed neighbours" in called_verb(verb[0], model, *verb[1:], code=2)[1]
    assert "evaluate takes no --set for word vectors" in called_verb("evaluate", model, "--set", "a=1", code=2)[1]


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("neighbours", "analogy", "similarity", "convert", "evaluate", "train"):
        out, _ = called(capsys, command, "--help")
        assert "Usage" in out
