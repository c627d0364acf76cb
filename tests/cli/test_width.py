"""What is printed fits the terminal at any width, and no word is broken or lost."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.cli.listing import TABLES
from seqloom.cli.main import VERBS, run
from seqloom.inspection.terminal import display_width
from seqloom.layout import described, hanging, shortened, table
from seqloom.tasks import TASKS

WIDTHS = [60, 80, 120]
words = st.text(st.characters(whitelist_categories=["L", "N", "P"]), min_size=1, max_size=12)


def printed(capsys: pytest.CaptureFixture[str], *arguments: Any) -> str:
    capsys.readouterr()
    assert run([str(a) for a in arguments]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("columns", WIDTHS)
def test_tables_fit(columns: int, tiny_run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    commands: list[list[Any]] = [["list", what] for what in TABLES if what != "parameters"]
    commands += [["list"], ["--help"], ["look", "--help"], ["look", tiny_run]]
    commands += [[verb, "--help"] for verb in VERBS]
    commands += [["list", "parameters", tiny_run], ["evaluate", tiny_run]]
    for command in commands:
        for line in printed(capsys, *command).splitlines():
            too_long = display_width(line) > columns and max(map(len, line.split())) < columns - 12
            assert not too_long, (command, line)


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_comparison_leaves_its_least_telling_columns_out(
    columns: int, tiny_run: Path, tiny_transformer_run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    everything = printed(capsys, "compare", tiny_run, tiny_transformer_run, "--data", "grammar:en-es/test")
    monkeypatch.setenv("COLUMNS", str(columns))
    out = printed(capsys, "compare", tiny_run, tiny_transformer_run, "--data", "grammar:en-es/test")
    assert max(map(display_width, out.splitlines())) <= columns
    assert "tokens/s" in everything, "not a terminal: nothing is left out"
    assert "BLEU" in out
    assert "tiny-transformer" in out
    assert ("parameters" in out) == (columns > 60)


def test_where_no_terminal_is_a_line_is_a_line(capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert len(printed(capsys, "list", "tasks").splitlines()) == len(TASKS)


def test_a_description_goes_on_under_its_column() -> None:
    assert described({"gru": "two gates and no cell of its own", "lstm": "three"}, 24) == (
        "gru   two gates and no\n      cell of its own\nlstm  three"
    )


def test_a_table_by_hand() -> None:
    rows = [["name", "score", "steps"], ["a-very-long-name", "1.0", "2"]]
    assert table(rows, left=1) == [
        "name              score  steps",
        "-" * 30,
        "a-very-long-name    1.0      2",
    ]
    assert table(rows, left=1, width=23, spare=["steps"])[-1] == "a-very-long-name    1.0"
    assert table(rows, left=1, width=20, spare=["steps"])[-1] == "a-very…g-name    1.0"
    assert shortened("abcdefghij", 5) == "ab…ij"


@given(st.lists(st.lists(words, min_size=1, max_size=12), max_size=4), st.integers(24, 100))
def test_wrapping_loses_no_word_and_breaks_none(lines: list[list[str]], columns: int) -> None:
    text = "\n".join(f"{line[0]}  {' '.join(line[1:])}".rstrip() for line in lines)
    wrapped = hanging(text, columns)
    assert wrapped.split() == text.split()
    assert all(len(line) <= columns for line in wrapped.split("\n"))
    assert hanging(text, None) == text


# -- what is listed without torch --------------------------------------------------------------------------------------


def test_what_is_read_from_the_source_is_what_the_tables_hold() -> None:
    from seqloom.cli.listing import choices
    from seqloom.models.encoder_decoder import DECODERS
    from seqloom.models.encoders import ENCODERS
    from seqloom.nn.attention import SCORES
    from seqloom.nn.cells import CELLS
    from seqloom.nn.connections import CONNECTIONS
    from seqloom.nn.positions import POSITIONS
    from seqloom.tasks import TASKS, find_task

    mechanisms: dict[str, dict[str, Any]] = {
        "attention": SCORES,
        "cells": CELLS,
        "connections": CONNECTIONS,
        "positions": POSITIONS,
    }
    for what, classes in mechanisms.items():
        assert choices(what) == {name: kind.__doc__.strip().splitlines()[0] for name, kind in classes.items()}
    for what, kinds in {"encoders": ENCODERS, "decoders": DECODERS}.items():
        assert choices(what).keys() == kinds.keys()
    tasks = {name: find_task(name) for name in TASKS}
    for name, about in choices("tasks").items():
        assert about == f"{tasks[name].about}; {', '.join(metric.title for metric in tasks[name].metrics)}"
    models = choices("models")
    assert models.keys() == {kind for task in tasks.values() for kind in task.models}
    assert all(re.match(r"[A-Z]", about) for about in models.values())
    assert models["recurrent_translator"] != models["transformer_translator"], "said by their settings"


@pytest.mark.parametrize("what", [*TABLES, ""])
def test_listing_loads_no_torch(what: str) -> None:
    import subprocess

    if what == "parameters":
        return
    code = (
        "import sys; from seqloom.cli.main import run; assert run(['list', *sys.argv[1:]]) == 0;"
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code, *([what] if what else [])], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
