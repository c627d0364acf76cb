"""A reader sees the old content or the new one, whatever fails in between."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from seqloom.errors import RunError, UserError
from seqloom.files import folder_written_aside, read_json, write_atomically

FULL = OSError(28, "No space left on device")


def failing_at(monkeypatch: pytest.MonkeyPatch, function: str, call: int, error: BaseException = FULL) -> None:
    real, calls = getattr(os, function), []

    def fail(*arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == call:
            raise error
        return real(*arguments)

    monkeypatch.setattr(f"seqloom.files.os.{function}", fail)


def tree(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


# -- files -----------------------------------------------------------------------------------------------------------


def test_write_and_replace(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / "a.txt"
    write_atomically(path, "one")
    write_atomically(str(path), b"two \xc3\xa9")
    assert path.read_text(encoding="utf-8") == "two é"
    assert [p.name for p in path.parent.iterdir()] == ["a.txt"]
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("function", ["fsync", "chmod", "replace"])
@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt()])
def test_a_failure_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, error: BaseException
) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, "old")
    failing_at(monkeypatch, function, 1, error)
    with pytest.raises(RunError if error is FULL else KeyboardInterrupt) as caught:
        write_atomically(path, "new")
    if error is FULL:
        assert str(caught.value) == f"cannot write {path}: No space left on device"
    assert tree(tmp_path) == {"a.txt": "old"}


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match=r"cannot write .*file/a.txt: "):
        write_atomically(tmp_path / "file" / "a.txt", "y")
    (tmp_path / "folder").mkdir()
    with pytest.raises(RunError, match=r"cannot write .*folder: Is a directory"):
        write_atomically(tmp_path / "folder", "y")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder"]


# -- folders ---------------------------------------------------------------------------------------------------------


def fill(final: Path, content: str) -> None:
    with folder_written_aside(final) as aside:
        assert aside.parent == final.parent  # one disk, so that moving is one step
        (aside / "a.txt").write_text(content)


def test_a_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    final = tmp_path / "deep" / "model"
    with folder_written_aside(final) as aside:
        (aside / "a.txt").write_text("one")
        assert not final.exists()
    assert tree(tmp_path) == {"deep/model/a.txt": "one"}
    assert final.stat().st_mode & 0o777 == 0o755


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    final = tmp_path / "model"
    fill(final, "one")
    (final / "stale.txt").write_text("x")
    fill(final, "two")
    assert tree(tmp_path) == {"model/a.txt": "two"}
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize(
    ("function", "call"), [("fsync", 1), ("chmod", 1), ("replace", 1), ("replace", 2)], ids=lambda value: str(value)
)
@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt()])
def test_a_failure_keeps_the_old_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str, call: int, error: BaseException
) -> None:
    final = tmp_path / "model"
    fill(final, "old")
    failing_at(monkeypatch, function, call, error)
    with pytest.raises(RunError if error is FULL else KeyboardInterrupt) as caught:
        fill(final, "new")
    if error is FULL:
        assert str(caught.value) == f"cannot write {final}: No space left on device"
    assert tree(tmp_path) == {"model/a.txt": "old"}
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), UserError("bad line")])
def test_a_failure_inside_the_block_passes_through(tmp_path: Path, error: BaseException) -> None:
    final = tmp_path / "model"
    fill(final, "old")

    def fail() -> None:
        with folder_written_aside(final) as aside:
            (aside / "a.txt").write_text("half")
            raise error

    with pytest.raises(type(error)):
        fail()
    assert tree(tmp_path) == {"model/a.txt": "old"}
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_an_error_without_a_number_is_still_explained(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"cannot write .*: something odd"), folder_written_aside(tmp_path / "model"):
        raise OSError("something odd")


def test_what_a_kill_between_two_moves_leaves_is_cleared(tmp_path: Path) -> None:
    """The old folder was set aside and the new one never came: the next writing ends with one folder."""
    fill(tmp_path / "model", "old")
    os.replace(tmp_path / "model", tmp_path / ".model.old")
    fill(tmp_path / "model", "new")
    assert tree(tmp_path) == {"model/a.txt": "new"}
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunError, match=r"cannot write .*file/model: "):
        fill(tmp_path / "file" / "model", "y")


# -- reading ---------------------------------------------------------------------------------------------------------


def test_reading_json(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_atomically(path, '{"a": "é"}')
    assert read_json(path) == {"a": "é"}


@pytest.mark.parametrize("content", [b"", b'{"a": ', b"\xff\xfe", b"[" * 100_000])
def test_json_that_is_damaged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_json(path)
    assert str(caught.value) == f"{path}: not valid JSON; the file is damaged or was not written by seqloom"


def test_json_that_is_not_there_or_too_large(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a\.json: there is no such file$"):
        read_json(tmp_path / "a.json")
    (tmp_path / "a.json").write_text("[1, 2, 3]")
    with pytest.raises(UserError, match=r"a\.json: larger than 5 bytes; not a file seqloom wrote$"):
        read_json(tmp_path / "a.json", max_bytes=5)
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        read_json(tmp_path)
