from __future__ import annotations

from pathlib import Path

import pytest
from bench.report import number, percent, put_section, ratios, section, table, write_section

NAME = "bench.train transformer"


def test_a_section_is_added_at_the_end_and_then_replaced() -> None:
    text = "# Results\n\nwords\n"
    once = put_section(text, NAME, "| a |\n")
    assert once == f"{text}\n<!-- {NAME} -->\n| a |\n<!-- /{NAME} -->\n"
    assert put_section(once, NAME, "| a |") == once
    assert put_section(once, NAME, "| b |") == once.replace("| a |", "| b |")


def test_nothing_outside_the_markers_is_touched() -> None:
    before, after = "  # Results \n\n\n", "\n\ttail without an end of line"
    text = f"{before}<!-- {NAME} -->\nold\n\nold\n<!-- /{NAME} -->{after}"
    changed = put_section(text, NAME, "new")
    assert changed == f"{before}<!-- {NAME} -->\nnew\n<!-- /{NAME} -->{after}"


def test_sections_live_side_by_side() -> None:
    text = put_section(put_section("", "bench.train transformer", "one"), "bench.train rnn", "two")
    changed = put_section(text, "bench.train transformer", "three")
    assert "three" in changed
    assert "two" in changed
    assert "one" not in changed


def test_a_marker_without_its_end_is_not_guessed_at() -> None:
    with pytest.raises(ValueError, match="has no"):
        put_section(f"<!-- {NAME} -->\nold\n", NAME, "new")


def test_written_twice_the_file_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "results.md"
    path.write_text("# Results\n", encoding="utf-8")
    content = section("Pace", "a machine", table(["a"], [["1"]]), ["-m", "bench.train", "--peers", "torch,hf"])
    write_section(NAME, content, path)
    first = path.read_text(encoding="utf-8")
    write_section(NAME, content, path)
    assert path.read_text(encoding="utf-8") == first
    assert "python -m bench.train --peers torch,hf" in first
    assert "a machine" in first


def test_ratios_are_of_medians() -> None:
    rounds = {"seqloom": [10.0, 30.0, 20.0], "slow": [5.0, 4.0, 100.0], "even": [8.0, 12.0], "none": []}
    assert ratios(rounds, "seqloom") == {"slow": 4.0, "even": 2.0}


def test_cells() -> None:
    assert table(["a", "b"], [["x|y", "1"]]) == "| a | b |\n| --- | --- |\n| x\\|y | 1 |"
    assert (number(None), number(1234.56, 1, "×")) == ("–", "1,234.6×")
    assert (percent(None), percent(0.345)) == ("–", "34 %")
