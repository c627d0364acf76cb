"""Tokens on disk come back as they went in, are written once, and a half-written shard is never believed."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.batches import shards
from seqloom.batches.shards import SymbolCounts, TokenSequences, write_shard
from seqloom.folders import cache_folder

Encode = Callable[[Sequence[str]], list[list[int]]]


def parse(texts: Sequence[str]) -> list[list[int]]:
    return [[int(number) for number in text.split()] for text in texts]


def counted(encode: Encode, calls: list[int]) -> Encode:
    return lambda texts: calls.append(len(texts)) or encode(texts)  # type: ignore[func-returns-value]


def written(
    rows: Sequence[Sequence[str]], folder: Path, key: str = "k", size: int = 70_001, **more: object
) -> dict[str, TokenSequences]:
    return write_shard(rows, {"source": parse, "target": parse}, [7, size], key, folder=folder, **more)  # type: ignore[arg-type]


ids = st.lists(st.integers(0, 70_000), max_size=5)


@settings(deadline=None, max_examples=40)
@given(rows=st.lists(st.tuples(ids, ids), max_size=11), at_a_time=st.integers(1, 7))
def test_any_rows_come_back(rows: list[tuple[list[int], list[int]]], at_a_time: int) -> None:
    texts = [tuple(" ".join(map(str, side)) for side in row) for row in rows]
    largest = max((i for row in rows for side in row for i in side), default=0)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "PAIRS_AT_A_TIME", at_a_time)
        seen: list[int] = []
        found = written(texts, Path(folder), size=largest + 1, progress=seen.append)
        for side, name in enumerate(("source", "target")):
            sequences = found[name]
            assert len(sequences) == len(rows)
            assert [sequences[i].tolist() for i in range(len(rows))] == [row[side] for row in rows]
            assert (SymbolCounts(sequences)[:] - 1).flatten().tolist() == [len(row[side]) for row in rows]
            assert sequences.tokens.dtype == (np.uint16 if largest < 2**16 else np.uint32)
        assert seen == [min(end, len(rows)) for end in range(at_a_time, len(rows) + at_a_time, at_a_time)]


@pytest.mark.parametrize(("size", "dtype"), [(65_536, np.uint16), (65_537, np.uint32)])
def test_the_widest_id_fits(tmp_path: Path, size: int, dtype: type) -> None:
    found = written([(f"{size - 1} 0", "1")], tmp_path, size=size)
    assert found["source"][0].tolist() == [size - 1, 0]
    assert found["source"].tokens.dtype == dtype


def test_written_once(tmp_path: Path) -> None:
    calls: list[int] = []
    sides = {"source": counted(parse, calls)}

    def unread() -> Iterator[tuple[str]]:
        raise AssertionError("the corpus was read again")
        yield

    first = write_shard([("5 6",), ("7",)], sides, [11], "key", folder=tmp_path)
    again = write_shard(unread(), sides, [11], "key", folder=tmp_path)
    assert calls == [2]
    assert [again["source"][i].tolist() for i in range(2)] == [first["source"][i].tolist() for i in range(2)]
    write_shard([("8",)], sides, [11], "another key", folder=tmp_path)
    write_shard([("8",)], sides, [70_000], "key", folder=tmp_path)
    write_shard([("8",)], {"other": counted(parse, calls)}, [11], "key", folder=tmp_path)
    assert calls == [2, 1, 1, 1]
    assert len(list(tmp_path.iterdir())) == 4


def test_a_half_written_folder_is_written_again(tmp_path: Path) -> None:
    written([("5 6", "7")], tmp_path)
    (folder,) = tmp_path.iterdir()
    summary = json.loads((folder / "shard.json").read_text())
    assert summary == {"format": 1, "examples": 1, "tokens": {"source": 2, "target": 1}}
    (folder / "shard.json").unlink()
    (folder / "source.tokens.bin").write_bytes(b"\1")
    found = written([("5 6", "7")], tmp_path)
    assert found["source"][0].tolist() == [5, 6]
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_a_failure_while_encoding_leaves_nothing(tmp_path: Path) -> None:
    def examples() -> Iterator[tuple[str, str]]:
        yield ("1", "2")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        written(examples(), tmp_path)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
    assert written([("1", "2")], tmp_path)["target"][0].tolist() == [2]


def test_an_id_outside_the_vocabulary_is_never_wrapped_around(tmp_path: Path) -> None:
    with pytest.raises(OverflowError):
        written([("65536", "1")], tmp_path, size=65_536)


def test_where_shards_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("SEQLOOM_CACHE", raising=False)
    assert cache_folder() == tmp_path / "xdg" / "seqloom"
    monkeypatch.setenv("SEQLOOM_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    write_shard([("5",)], {"source": parse}, [11], "key")
    assert len(list((tmp_path / "own" / "shards").iterdir())) == 1
    monkeypatch.delenv("SEQLOOM_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "seqloom"


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.integers(0, 200), max_size=5), min_size=1, max_size=20), st.data())
def test_counts_of_some(rows: list[list[int]], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sides = write_shard([(row, row[:1]) for row in rows], {"a": list, "b": list}, [256], "k", folder=Path(folder))
        counts = SymbolCounts(sides["a"], sides["b"])
        expected = np.array([[len(row) + 1, len(row[:1]) + 1] for row in rows])
        assert len(counts) == len(rows)
        start, end = sorted(data.draw(st.lists(st.integers(0, len(rows) + 2), min_size=2, max_size=2)))
        assert np.array_equal(counts[start:end], expected[start:end])
        numbers = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=9)), np.int64)
        assert np.array_equal(counts[numbers], expected[numbers])


def test_a_large_file_is_read_where_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "HELD_BYTES", 1000)
    rows = [[number % 250] * (number % 7) for number in range(500)]
    (side,) = write_shard([(row,) for row in rows], {"a": list}, [256], "k", folder=tmp_path).values()
    assert side.tokens.values is None
    assert len(side) == 500
    for number in [*range(0, 500, 7), *range(499, 0, -11)]:
        assert side[number].tolist() == rows[number]
    assert (SymbolCounts(side)[100:200] - 1).flatten().tolist() == [len(row) for row in rows[100:200]]
