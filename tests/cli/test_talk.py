"""--quiet, --verbose and --log: one mechanism for every verb."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import tiny_recipe
from seqloom.cli.main import run
from seqloom.cli.output import Talk, talk_of


@pytest.fixture
def recipe_file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(tiny_recipe(steps=4, validate_every=2, log_every=1)))
    return path


def test_what_is_taken_from_the_arguments() -> None:
    assert talk_of(["train", "-q", "demo"]) == (["train", "demo"], Talk(quiet=True))
    assert talk_of(["-v", "train", "--log", "a b.log", "x"])[1] == Talk(verbose=True, log=Path("a b.log"))
    assert talk_of(["train", "--log=x.log"])[1].log == Path("x.log")
    rest = ["look", "run", "attention", "--", "-q", "--log"]
    assert talk_of(rest) == (rest, Talk()), "what stands after -- is text"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "demo", "--log"], "--log takes a file to write to"),
        (["train", "demo", "--log", "-q"], "--log takes a file to write to"),
        (["train", "demo", "-q", "-v"], "choose one"),
        (["list", "cells", "--log", "no/such/folder/x.log"], "--log no/such/folder/x.log: cannot be written"),
    ],
)
def test_mistakes(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert message in err
    assert not out


def test_quiet_says_nothing_and_verbose_says_more(
    recipe_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {}
    for how in ("-q", "-v", None):
        assert run(["train", str(recipe_file), "--run", str(tmp_path / f"run{how}"), *([how] if how else [])]) == 0
        said[how] = capsys.readouterr().err
    assert said["-q"] == ""
    assert len(said["-v"].splitlines()) > len(str(said[None]).splitlines())
    assert re.search(r"step +1  loss [\d.]+  gradient norm [\d.]+  learning rate", said["-v"])
    assert re.search(r"step +4  checkpoint written", said["-v"])
    assert "learning rate" not in str(said[None])


def test_quiet_still_tells_of_errors(tiny_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", str(tiny_run), "--quiet", "--test", "none"]) == 2
    assert "--test" in capsys.readouterr().err
    assert run(["evaluate", str(tiny_run), "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert "BLEU" in out, "a report is what was asked for"
    assert err == ""


def test_a_log_has_every_line_with_its_time(
    recipe_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, folder = tmp_path / "all.log", str(tmp_path / "run")
    assert run(["train", str(recipe_file), "--run", folder, "--log", str(log)]) == 0
    said = capsys.readouterr().err
    lines = log.read_text().splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(  |$)", line) for line in lines)
    assert [line[21:] for line in lines] == said.splitlines()
    assert run(["evaluate", folder, "-q", "--log", str(log)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    more = log.read_text().splitlines()
    assert more[: len(lines)] == lines, "a log grows"
    assert [line[21:] for line in more[len(lines) :]] == out.splitlines()
    assert run(["evaluate", "nowhere", "--log", str(log)]) == 2
    assert "nowhere: there is no such" in log.read_text().splitlines()[-1]


def test_nothing_of_it_outlives_a_command(capsys: Any) -> None:
    run(["list", "cells", "-q"])
    from seqloom.training.progress import say

    capsys.readouterr()
    say("still heard")
    assert capsys.readouterr().err == "still heard\n"
