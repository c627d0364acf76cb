"""Every command line of README.md and docs/ is one that the program takes; the quick ones are run for real."""

from __future__ import annotations

import gzip
import io
import shlex
from pathlib import Path
from typing import Any

import pytest
from bench.documented import Line, commands, documented, parse

from seqloom.cli.main import run

LINES = list(documented())
CUT = ["training.steps=2", "training.validate_every=2", "training.workers=1", "training.samples=0"]
SMALL = ["data.train.size=200", "data.valid.size=4", "decoding.max_length=8", "training.validation_sentences=2"]
OPENED = ("predict", "evaluate", "look", "compare", "list", "runs", "--version", "--help", "completion")


def named(line: Line) -> str:
    return f"{line.page}:{line.number} {shlex.join(line.words)[:60]}"


@pytest.mark.parametrize("line", [line for line in LINES if not line.fails], ids=named)
def test_it_is_parsed_completely(line: Line) -> None:
    parse(line.words)


def test_lines_are_found_and_wrong_ones_are_refused() -> None:
    assert len(LINES) > 80
    assert list(commands("$ seqloom train demo && seqloom evaluate runs/demo   # and look")) == [
        (False, ("train", "demo")),
        (False, ("evaluate", "runs/demo")),
    ]
    assert list(commands('cat a | seqloom predict runs/demo - --set x="a b"')) == [
        (True, ("predict", "runs/demo", "-", "--set", "x=a b"))
    ]
    assert list(commands("seqloom train RECIPE [--run DIR]")) == []
    for wrong in (["train", "demo", "--sett", "a=b"], ["look", "runs/demo", "attention", "a", "--side", "encoder"]):
        with pytest.raises(Exception, match=r"--sett|--side"):
            parse(tuple(wrong))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with short runs of the recipes that need no data of others, and a text to read."""
    from seqloom.experiment import train

    place = tmp_path_factory.mktemp("documented")
    small = ["model.hidden_size=40", "model.embedding_size=8"]
    tests = [f"data.test.{name}={{grammar: en-es, split: test, size: 4}}" for name in ("test", "phenomena")]
    train("demo", place / "runs/demo", overrides=[*CUT, *SMALL, *tests, *small])
    train("demo-transformer", place / "runs/demo-transformer", overrides=[*CUT, *SMALL, *tests])
    with gzip.open(place / "sentences.txt.gz", "wt") as file:
        file.write("the cat slept\n")
    return place


def is_quick(line: Line) -> bool:
    runs = {word.split("/")[1] for word in line.words if word.startswith("runs/")}
    if line.words[0] == "compare" and not runs:
        return False
    return line.words[0] in OPENED and runs <= {"demo", "demo-transformer"} and not line.fails


@pytest.mark.parametrize("line", [line for line in LINES if is_quick(line)], ids=named)
def test_it_does_what_is_documented(line: Line, folder: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the cat slept\n")))
    assert run(list(line.words)) == 0, capsys.readouterr().err
    assert capsys.readouterr().out or "--save" in line.words or "--output" in line.words
    saved = [word for before, word in zip(line.words, line.words[1:], strict=False) if before == "--save"]
    assert all((folder / name).stat().st_size > 500 for name in saved)


@pytest.mark.parametrize("line", [line for line in LINES if line.fails and "demo" in "".join(line.words)], ids=named)
def test_a_documented_mistake_is_answered_as_documented(
    line: Line, folder: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"caf\xe9\n")))
    words = ["runs/demo" if word == "runs/try" else word for word in line.words]
    assert run(words) == 2
    page = (Path(__file__).parents[2] / line.page).read_text().splitlines()
    shown = page[line.number].replace("runs/try", "runs/demo")
    assert capsys.readouterr().err.splitlines()[0] == shown
