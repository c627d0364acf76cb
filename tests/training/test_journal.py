"""The journal is appended to, cut back on resumption, and read past a crash."""

from __future__ import annotations

import json
from pathlib import Path

from seqloom.training.journal import Journal, read_journal


def test_one_line_an_event(tmp_path: Path) -> None:
    path = tmp_path / "run" / "journal.jsonl"
    journal = Journal(path)
    journal.write("start", weights=13)
    journal.write("validation", sample="¿qué?\n")
    assert journal.size() == path.stat().st_size  # flushed as things happen
    journal.close()
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2
    assert "¿qué?" in lines[1]
    first, second = read_journal(path)
    assert (first["event"], first["weights"]) == ("start", 13)
    assert second["sample"] == "¿qué?\n"
    assert first["time"] <= second["time"]


def test_resuming_cuts_off_what_will_be_done_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.write("train", step=1)
    kept = journal.size()
    journal.write("train", step=2)
    journal.file.write(b'{"event": "tr')
    journal.close()
    journal = Journal(path, kept)
    assert journal.size() == kept
    journal.write("train", step=2, again=True)
    assert journal.size() == path.stat().st_size
    journal.close()
    assert [(e["step"], e.get("again", False)) for e in read_journal(path)] == [(1, False), (2, True)]


def test_resuming_at_the_very_end_keeps_all(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    journal.write("train", step=1)
    size = journal.size()
    journal.close()
    journal = Journal(path, size)
    journal.write("resume", step=1)
    journal.close()
    assert [event["event"] for event in read_journal(path)] == ["train", "resume"]


def test_a_new_run_starts_a_new_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    for number in range(2):
        journal = Journal(path)
        journal.write("start", number=number)
        journal.close()
    assert [event["number"] for event in read_journal(path)] == [1]


def test_a_last_line_cut_short_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    whole = json.dumps({"event": "train", "step": 1, "text": "é"}, ensure_ascii=False).encode()
    for cut in range(1, len(whole)):
        path.write_bytes(whole + b"\n" + whole[:cut])  # also in the middle of a character
        assert [event["step"] for event in read_journal(path)] == [1]
    path.write_bytes(b"")
    assert list(read_journal(path)) == []
