"""The terminal shows every label; shades and colours follow the values."""

from __future__ import annotations

import re

import numpy as np
import pytest

from seqloom.inspection import terminal

ROWS = ["llegó", "la", "bruja", "<unk>", "</s>"]
COLUMNS = ["the", "$5", "Donaudampfschifffahrtsgesellschaft", "R&D", "$x_1^2$", "$", "</s>"]
MATRIX = np.random.default_rng(3).dirichlet(np.ones(7), size=5)


def test_wide_terminal_shows_labels_side_by_side() -> None:
    text = terminal.to_terminal(MATRIX, ROWS, COLUMNS, colour=False, width=120)
    header, *body = text.splitlines()
    assert header.split() == COLUMNS
    for label, line in zip(ROWS, body, strict=False):
        assert line.strip().startswith(label)


def test_shades_follow_the_values() -> None:
    text = terminal.to_terminal([[0.0, 0.25, 0.5, 0.75, 1.0]], ["r"], list("abcde"), colour=False, width=80)
    assert text.splitlines()[1] == "r    ░░ ▒▒ ▓▓ ██"


def test_signs_survive_without_colour() -> None:
    text = terminal.to_terminal([[-1.0, 0.0, 1.0]], ["r"], list("abc"), colour=False, width=80)
    assert text.splitlines()[1] == "r -█    +█"


def test_narrow_terminal_writes_labels_downwards() -> None:
    rows, columns = ["la", "bruja"], ["the", "green", "witch", "arrived", "yesterday"]
    text = terminal.to_terminal(np.zeros((2, 5)) + 1, rows, columns, colour=False, width=24)
    lines = text.splitlines()
    head = [line.ljust(24) for line in lines[: lines.index("   la ██████████")]]
    read = ["".join(line[6 + 2 * i] for line in head).strip() for i in range(5)]
    assert read == columns


def test_matrix_wider_than_the_terminal_is_continued_below() -> None:
    columns = [f"{i:02d}" for i in range(30)]
    text = terminal.to_terminal(np.ones((1, 30)), ["row"], columns, colour=False, width=30)
    assert max(len(line) for line in text.splitlines()) <= 30
    assert text.count("row") == 3
    assert sum(line.count("█") for line in text.splitlines() if line.startswith("row")) == 60


@pytest.mark.parametrize(("setting", "code"), [("truecolor", r"\x1b\[48;2;10;47;92m"), ("", r"\x1b\[48;5;\d+m")])
def test_colours(setting: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLORTERM", setting)
    text = terminal.to_terminal([[1.0, 0.0]], ["r"], ["a", "b"], width=80)
    line = text.splitlines()[1]
    assert re.search(code, line)
    assert line.count("\x1b[0m") == 2
    first, second = re.findall(r"\x1b\[48;[\d;]+m", line)
    assert first != second


def test_palette_of_256() -> None:
    assert terminal._nearest_of_256(255, 255, 255) == 231
    assert terminal._nearest_of_256(0, 0, 0) == 16
    assert terminal._nearest_of_256(0, 95, 135) == 16 + 6 + 2
    assert terminal._nearest_of_256(128, 128, 128) == 244


def test_widths_of_letters() -> None:
    assert terminal.display_width("witch") == 5
    assert terminal.display_width("我们") == 4
    assert terminal.display_width("e\u0301") == 1
    assert terminal.shorten("Geschwindigkeit", 6) == "Gesch…"
    assert terminal.shorten("我们喜欢", 6) == "我们…"
    assert terminal.shorten("kurz", 6) == "kurz"
    lines = terminal.to_terminal(np.ones((2, 1)), ["我", "ab"], ["x"], colour=False, width=40).splitlines()
    assert lines[1] == "我 ██"
    assert lines[2] == "ab ██"


def test_value_range() -> None:
    assert terminal.value_range([[0.1, 0.3]]) == (0.0, 1.0)
    assert terminal.value_range([[0.0, 1.0000001]]) == (0.0, 1.0)
    assert terminal.value_range([[0.1, 3.0]]) == (0.0, 3.0)
    assert terminal.value_range([[-2.0, 1.0, np.nan]]) == (-2.0, 2.0)
    assert terminal.value_range([[np.nan]]) == (0.0, 1.0)
