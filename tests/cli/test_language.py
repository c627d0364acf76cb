"""`seqloom generate`, `score`, `evaluate`, `data check` and `list` on language models, as typed by a user."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from seqloom.cli.main import run

LINES = ["the cat sees a dog", "a dog sleeps", "the old cat sleeps and sees the dog"] * 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from seqloom.experiment import train

    folder = tmp_path_factory.mktemp("language")
    (folder / "text.txt").write_text("\n".join(LINES) + "\n")
    recipe: dict[str, Any] = {
        "task": "model_language",
        "data": {name: {"text": str(folder / "text.txt")} for name in ("train", "valid", "test")},
        "text": {"tokenizer": "spaces", "vocabulary_size": None},
        "model": {"kind": "recurrent_lm", "cell": "gru", "size": 6, "hidden_size": 6, "num_layers": 1},
        "training": {"steps": 4, "rows": 3, "length": 5, "validate_every": 4},
    }
    train(recipe, folder / "network")
    del recipe["training"]
    train({**recipe, "model": {"kind": "ngram_lm", "order": 2}}, folder / "counted")
    return folder


@pytest.fixture(params=["network", "counted"])
def model(request: pytest.FixtureRequest, folder: Path) -> Path:
    return folder / request.param


def called(capsys: pytest.CaptureFixture[str], *arguments: Any, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert run([str(a) for a in arguments]) == code, capsys.readouterr().err
    found = capsys.readouterr()
    assert "Traceback" not in found.err
    return found.out, found.err


def test_generate(model: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asked = ["generate", model, "--prompt", "the cat", "--max-length", 7, "--seed", 4]
    out, _ = called(capsys, *asked)
    assert out.startswith("the cat")
    assert called(capsys, *asked)[0] == out
    out, _ = called(capsys, *asked, "--count", 3, "--format", "json")
    texts = [json.loads(line) for line in out.splitlines()]
    assert len(texts) == 3
    for text in texts:
        assert text["prompt"] == "the cat"
        assert len(text["tokens"]) == len(text["token_log_probabilities"]) <= 7 + text["finished"]
        assert text["log_probability"] == pytest.approx(sum(text["token_log_probabilities"]), abs=1e-4)
    called(capsys, *asked, "--output", tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text().startswith("the cat")
    for options in (["--method", "greedy"], ["--beam-size", 3], ["--top-k", 2], ["--repetition-penalty", 2.0]):
        assert called(capsys, *asked, *options)[0].startswith("the cat")


def test_a_terminal_shows_the_text_while_it_is_made(
    model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    for options in ([], ["--method", "greedy"], ["--beam-size", 2]):
        asked = ["generate", model, "--prompt", "the cat", "--max-length", 7, "--seed", 4, *options]
        whole = called(capsys, *asked)[0]
        parts: list[str] = []
        with monkeypatch.context() as patch:
            patch.setattr(sys.stdout, "isatty", lambda: True)
            patch.setattr(sys.stdout, "write", parts.append)
            assert run([str(one) for one in asked]) == 0
        assert "".join(parts) == whole
        beam = bool(options) and options[0] == "--beam-size"  # changes its mind, so it is shown at the end
        assert beam or parts[0] == "the cat"


def test_score(model: Path, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    out, _ = called(capsys, "score", model, folder / "text.txt")
    rows = [line.split("\t") for line in out.splitlines()]
    assert [row[2] for row in rows] == LINES
    out, _ = called(capsys, "score", model, folder / "text.txt", "--format", "json")
    scored = [json.loads(line) for line in out.splitlines()]
    assert [one["log_probability"] for one in scored] == pytest.approx([float(row[0]) for row in rows], abs=6e-5)
    assert scored[0]["tokens"] == [*LINES[0].split(), "<eos>"]
    if model.name == "counted":  # lines are read by themselves there, so the sum is that of the whole text
        out, _ = called(capsys, "evaluate", model, "--format", "json")
        report = json.loads(out)
        total = sum(one["log_probability"] for one in scored)
        assert report["loss"] * report["symbols"] == pytest.approx(-total, rel=1e-5)


def test_evaluate(model: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(called(capsys, "evaluate", model, "--format", "json")[0])
    words = sum(len(line.split()) + 1 for line in LINES)
    characters = sum(len(line) + 1 for line in LINES)
    assert (report["name"], report["words"], report["characters"]) == ("test", words, characters)
    out, _ = called(capsys, "evaluate", model, "--data", folder / "text.txt")
    assert f"{report['perplexity']:.2f}" in out
    assert f"{report['bits_per_character']:.3f}" in out


def test_data_check_and_lists(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(called(capsys, "data", "check", folder / "network" / "recipe.yaml", "--format", "json")[0])
    train, _, test = found["texts"]
    assert found["vocabulary"] == 12
    assert train["lines"] == 30
    assert test["lines_also_in_train"] == 20  # the others have too few words to tell
    assert "recurrent_lm" in called(capsys, "list", "models")[0]
    assert "model_language" in called(capsys, "list", "tasks")[0]
    counted = called(capsys, "list", "parameters", folder / "counted")[0]
    assert "order 2" in counted
    assert (
        json.loads(called(capsys, "list", "parameters", folder / "counted", "--format", "json")[0])["ngrams"][0] == 11
    )
    assert "396 parameters" in called(capsys, "list", "parameters", folder / "network")[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["generate", "nowhere"], "there is no such model or run folder"),
        (["generate", "NETWORK", "--temperature", "0"], "temperature: must be greater than 0"),
        (["generate", "NETWORK", "--count", "0"], "--count must be at least 1"),
        (["generate", "NETWORK", "--method", "greedy", "--count", "2"], "greedy knows one text only"),
        (["generate", "NETWORK", "--set", "foo=1"], "foo is not a setting"),
        (["score", "NETWORK", "nowhere.txt"], "there is no such file"),
        (["score", "NETWORK", "EMPTY"], "there is no line to score"),
        (["score", "NETWORK", "BAD"], "bad.txt:2: not UTF-8"),
        (["evaluate", "NETWORK", "--lowercase"], "evaluate takes no --lowercase for a language model"),
        (["evaluate", "NETWORK", "--set", "n_best=1", "--engine", "torch"], "takes no --engine and no --set for a"),
        (["evaluate", "NETWORK", "--output", "x.txt"], "takes no --output for"),
        (["evaluate", "NETWORK", "--data", "EMPTY", "--test", "test"], "does not go together with --data"),
        (["evaluate", "NETWORK", "--test", "foo"], "--test must be one of all, test"),
        (["evaluate", "NETWORK", "--data", "EMPTY"], "the file is empty"),
        (["predict", "NETWORK", "hello"], "ask 'seqloom generate"),
    ],
)
def test_mistakes_get_one_line(
    arguments: list[str], message: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "bad.txt").write_bytes(b"ok\n\xff\n")
    places = {"NETWORK": folder / "network", "EMPTY": tmp_path / "empty.txt", "BAD": tmp_path / "bad.txt"}
    _, err = called(capsys, *(places.get(word, word) for word in arguments), code=2)
    assert message in err


def test_n_grams_for_other_programs(folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "model.arpa.gz"
    called(capsys, "export", folder / "counted", "--to", "arpa", "--output", file)
    ours = json.loads(called(capsys, "evaluate", folder / "counted", "--format", "json")[0])
    theirs = json.loads(called(capsys, "evaluate", file, "--data", folder / "text.txt", "--format", "json")[0])
    assert theirs["perplexity"] == pytest.approx(ours["perplexity"], rel=1e-6)
    assert json.loads(called(capsys, "list", "parameters", file, "--format", "json")[0])["ngrams"][0] == 11
    assert (
        called(capsys, "score", file, folder / "text.txt")[0]
        == called(capsys, "score", folder / "counted", folder / "text.txt")[0]
    )
    assert called(capsys, "generate", file, "--prompt", "the cat", "--seed", 1)[0].startswith("the cat")
    for arguments, message in (
        ([folder / "network"], "an ARPA file holds n-grams; this model is a recurrent_lm"),
        ([folder / "counted", "--output", file], "--overwrite replaces it"),
        ([folder / "counted", "--output", tmp_path / "x.txt"], "must end in .arpa or .arpa.gz"),
        ([folder / "counted", "--compute", "int8"], "--to arpa takes --output and --overwrite only"),
    ):
        assert message in called(capsys, "export", *arguments, "--to", "arpa", code=2)[1]
    assert "give --data FILE" in called(capsys, "evaluate", file, code=2)[1]
