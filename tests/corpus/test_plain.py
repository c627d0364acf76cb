"""Running text comes as it is in the files, whatever their size and packing, and every fault names file and line."""

from __future__ import annotations

import gzip
import lzma
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.corpus import lines, plain, readers
from seqloom.corpus.plain import PlainTextSettings, describe, fingerprint, read_lines, text_files
from seqloom.errors import DataError, RecipeError
from seqloom.settings import validated


def text(path: Path, **more: object) -> PlainTextSettings:
    return validated(PlainTextSettings, {"text": path, **more})


def test_lines_of_a_file_plain_and_packed(tmp_path: Path) -> None:
    content = "one two\r\n\nthree\u2028four\nfive".encode()
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + content)
    (tmp_path / "a.gz").write_bytes(gzip.compress(content))
    (tmp_path / "a.xz").write_bytes(lzma.compress(content))
    for name in ("a.txt", "a.gz", "a.xz"):
        assert list(read_lines(text(tmp_path / name))) == ["one two", "", "three\u2028four", "five"]
        assert list(read_lines(text(tmp_path / name, limit=3))) == ["one two", "", "three\u2028four"]
        assert list(read_lines(text(tmp_path / name, sentences="running"))) == ["one two three four five"]


def test_a_folder_is_read_in_sorted_order(tmp_path: Path) -> None:
    for name, content in {"b/2": "x\n", "b/10": "y\n", "a": "z", "b-c": "w", ".hidden": "no", ".git/x": "no"}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    (tmp_path / "empty").write_text("")
    (tmp_path / "$HOME~").write_text("v")
    assert list(read_lines(text(tmp_path))) == ["v", "z", "y", "x", "w"]
    assert list(read_lines(text(tmp_path, sentences="running"))) == ["v", "z", "y", "x", "w"]
    assert describe(text(tmp_path)) == f"{tmp_path.name} (6 files)"
    assert describe(text(tmp_path / "a")) == "a"


def test_variables_and_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("x")
    monkeypatch.setenv("HERE", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in ("${HERE}/a", "~/a", "${NOWHERE:-~}/a"):
        assert list(read_lines(PlainTextSettings(text=path))) == ["x"]


words = st.text("ab é€😀\n\r\t\u2028\u0085", max_size=60)


@settings(max_examples=150, deadline=None)
@given(content=words, size=st.integers(1, 9), chunk=st.integers(1, 5), limit=st.none() | st.integers(1, 4))
def test_running_text_keeps_every_word(content: str, size: int, chunk: int, limit: int | None) -> None:
    expected = content.split()
    chunks = [" ".join(expected[start : start + chunk]) for start in range(0, len(expected), chunk)]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder, "a")
        path.write_bytes(content.encode())
        patch.setattr(plain, "CHUNK_WORDS", chunk)
        patch.setattr(plain, "blocks_in", lambda path: lines.blocks_in(path, size))
        found = text(path, sentences="running", limit=limit)
        if chunks:
            assert list(read_lines(found)) == chunks[:limit]
        else:
            with pytest.raises(DataError, match="the file is empty"):
                list(read_lines(found))


@settings(max_examples=100, deadline=None)
@given(before=words, size=st.integers(1, 9), wrong=st.sampled_from([b"\xff", b"\xe2\x82 ", b"\xe2\x82", b"\0"]))
def test_bad_bytes_are_found_in_their_line(before: str, size: int, wrong: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder, "a")
        path.write_bytes(before.encode() + wrong)
        patch.setattr(plain, "blocks_in", lambda path: lines.blocks_in(path, size))
        for sentences in ("lines", "running"):
            with pytest.raises(DataError, match="zero byte" if wrong == b"\0" else "not UTF-8") as caught:
                list(read_lines(text(path, sentences=sentences)))
            assert caught.value.line == before.count("\n") + 1


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "here.txt").write_text("")
    (tmp_path / "none").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "a").write_text("")
    (tmp_path / "a.gz").write_bytes(b"no gzip")
    for name, message in {
        "here.txt": "the file is empty",
        "there.txt": "there is no such file .did you mean 'here.txt'",
        "none": "there is no file in this folder",
        "empty": "every file in this folder is empty",
        "a.gz": "not a gzip file",
    }.items():
        for sentences in ("lines", "running"):
            with pytest.raises(DataError, match=message):
                list(read_lines(text(tmp_path / name, sentences=sentences)))
    with pytest.raises(RecipeError, match="must not be empty"):
        validated(PlainTextSettings, {"text": ""})


def test_a_word_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "MAX_LINE_BYTES", 20)
    monkeypatch.setattr(plain, "blocks_in", lambda path: lines.blocks_in(path, 8))
    (tmp_path / "a").write_text("a b\nc " + "x" * 50)
    with pytest.raises(DataError, match="there is no space in 20 characters") as caught:
        list(read_lines(text(tmp_path / "a", sentences="running")))
    assert caught.value.line == 2


def test_the_fingerprint_follows_what_is_read(tmp_path: Path) -> None:
    for folder in ("x", "y"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a").write_text("one\n")
        (tmp_path / folder / "b").write_text("two\n")
    first = text(tmp_path / "x")
    assert fingerprint(first) == fingerprint(text(tmp_path / "y"))
    assert (
        len(
            {
                fingerprint(first),
                *(fingerprint(text(tmp_path / "x", **o)) for o in ({"limit": 1}, {"sentences": "running"})),
            }
        )
        == 3
    )
    (tmp_path / "y" / "a").write_text("one\ntwo\n")
    (tmp_path / "y" / "b").write_text("")
    assert fingerprint(first) != fingerprint(text(tmp_path / "y"))
    assert len(text_files(first)) == 2


# -- parts of a text, and texts that are made ------------------------------------------------------------------------


@given(
    st.lists(st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=("Cs",)), max_size=8), min_size=1),
    st.integers(0, 9),
    st.integers(1, 10),
)
def test_shares_put_together_are_the_text(lines: list[str], first: int, more: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.txt")
        path.write_bytes("".join(line + "\n" for line in lines).encode())
        whole = "".join(plain.read_parts(text(path)))
        cut = min(1.0, (first + more) / 10)
        parts = [(0.0, cut)] + ([(cut, 1.0)] if cut < 1 else [])
        assert "".join("".join(plain.read_parts(text(path, share=part))) for part in parts) == whole
        assert len("".join(plain.read_parts(text(path, share=(0.0, cut))))) == int(cut * len(whole))


def test_a_share_by_hand(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("abcd\nefgh\n")
    assert list(read_lines(text(tmp_path / "a.txt", share=(0, 0.7)))) == ["abcd", "ef"]
    assert list(plain.read_parts(text(tmp_path / "a.txt", share=(0.7, 1)))) == ["gh\n"]
    assert fingerprint(text(tmp_path / "a.txt", share=(0, 0.7))) != fingerprint(text(tmp_path / "a.txt"))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"share": (0.5, 0.5)}, "share goes from a beginning to a later end within 0 and 1"),
        ({"share": (0, 1.5)}, "share goes from a beginning"),
        ({"share": (0, 1), "limit": 3}, "share does not go together with limit"),
    ],
)
def test_shares_that_make_no_sense(tmp_path: Path, more: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        text(tmp_path / "a.txt", **more)


def test_sentences_of_the_grammar_are_a_text() -> None:
    english = list(read_lines(validated(PlainTextSettings, {"text": "grammar:en/valid", "limit": 5})))
    pairs = list(readers.read_pairs(readers.CorpusSettings(grammar="en-es", split="valid", size=5)))
    assert english == [pair.source for pair in pairs]
    spanish = validated(PlainTextSettings, {"text": "grammar:es/valid", "limit": 5})
    assert list(read_lines(spanish)) == [pair.target for pair in pairs]
    assert describe(spanish) == "grammar:es/valid"
    assert text_files(spanish) == []
    for wrong, message in {"grammar:de/train": "one of en, es, fr", "grammar:en/tain": "split"}.items():
        with pytest.raises(RecipeError, match=message):
            validated(PlainTextSettings, {"text": wrong})
