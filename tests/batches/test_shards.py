"""Numbers on disk come back as they went in, are written once, and a half-written shard is never believed."""

from __future__ import annotations

import json
import os
import tempfile
import tracemalloc
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.batches import shards
from seqloom.batches.samplers import BucketSampler
from seqloom.batches.shards import Encode, Field, Sequences, SymbolCounts, write_shard
from seqloom.errors import UserError
from seqloom.folders import cache_folder


def parse(texts: Sequence[str]) -> list[list[int]]:
    return [[int(number) for number in text.split()] for text in texts]


def counted(encode: Encode, calls: list[int]) -> Encode:
    return lambda texts: calls.append(len(texts)) or encode(texts)  # type: ignore[func-returns-value]


def unread() -> Iterator[tuple[str]]:
    raise AssertionError("the corpus was read again")
    yield


def one_field(rows: Sequence[Any], field: Field, folder: Path, key: str = "key") -> Sequences:
    return write_shard([(row,) for row in rows], {"a": field}, key, folder=folder)["a"]


def plain(value: Any) -> Any:
    """Arrays, and lists of arrays, as lists."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=32)


@st.composite
def fields_and_rows(draw: st.DrawFn) -> tuple[Field, list[Any]]:
    """A field of any kind, and rows that fit it."""
    size = draw(st.sampled_from([None, 65_536, 70_001]))
    depth, width = draw(st.integers(0, 2)), draw(st.sampled_from([None, 1, 3]))
    row: st.SearchStrategy[Any] = FLOATS if size is None else st.integers(0, size - 1)
    if width is not None:
        row = st.lists(row, min_size=width, max_size=width)
    for _ in range(depth):
        row = st.lists(row, max_size=4)
    return Field(list, size=size, depth=depth, width=width), draw(st.lists(row, max_size=9))


@settings(deadline=None, max_examples=150)
@given(
    kinds=st.lists(fields_and_rows(), min_size=1, max_size=3),
    at_a_time=st.integers(1, 7),
    held_bytes=st.sampled_from([0, 40, 2**22]),
    read_at_once=st.sampled_from([3, 2**31]),
    as_arrays=st.booleans(),
)
def test_any_rows_of_any_kind_come_back(
    kinds: list[tuple[Field, list[Any]]], at_a_time: int, held_bytes: int, read_at_once: int, as_arrays: bool
) -> None:
    read, count = os.pread, min(len(rows) for _, rows in kinds)
    names = [f"field_{number}" for number in range(len(kinds))]
    expected = {name: rows[:count] for name, (_, rows) in zip(names, kinds, strict=True)}
    given_rows = {
        name: [np.array(row) if as_arrays and field.depth < 2 else row for row in expected[name]]
        for name, (field, _) in zip(names, kinds, strict=True)
    }
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for name in ("EXAMPLES_AT_A_TIME", "HEAVY_AT_A_TIME"):
            patch.setattr(shards, name, at_a_time)
        patch.setattr(shards, "HELD_BYTES", held_bytes)
        patch.setattr(shards.os, "pread", lambda file, size, place: read(file, min(size, read_at_once), place))
        fields, seen = {name: field for name, (field, _) in zip(names, kinds, strict=True)}, []
        found = write_shard(
            zip(*given_rows.values(), strict=True), fields, "key", progress=seen.append, folder=Path(folder)
        )
        assert list(found) == names
        assert seen == [min(end, count) for end in range(at_a_time, count + at_a_time, at_a_time)]
        for name, field in fields.items():
            sequences, rows = found[name], expected[name]
            assert len(sequences) == count
            assert [plain(sequences[i]) for i in range(count)] == rows
            assert list(map(plain, sequences)) == rows
            flat = rows if field.depth == 0 else [step for row in rows for step in row]
            flat = flat if field.depth < 2 else [step for inner in flat for step in inner]
            assert plain(sequences.values[:]) == flat
            assert sequences.values[:].shape == (len(flat), *([] if field.width is None else [field.width]))
            assert sequences.values[:].dtype == field.dtype
            lengths = [1 if field.depth == 0 else len(row) for row in rows]
            if field.depth == 2:
                assert [sequences.inner[i].tolist() for i in range(count)] == [list(map(len, row)) for row in rows]
                lengths = [sum(map(len, row)) for row in rows]
            assert np.diff(sequences.offsets[:]).tolist() == lengths
            assert SymbolCounts(sequences, ends=0)[:].tolist() == [[length] for length in lengths]


@pytest.mark.parametrize(("size", "dtype"), [(65_536, np.uint16), (65_537, np.uint32), (2**32, np.uint32)])
def test_the_largest_id_fits_and_each_field_has_its_own_width(tmp_path: Path, size: int, dtype: type) -> None:
    fields = {"large": Field(parse, size=size), "small": Field(parse, size=7)}
    found = write_shard([(f"{size - 1} 0", "6")], fields, "key", folder=tmp_path)
    assert found["large"][0].tolist() == [size - 1, 0]
    assert found["large"].tokens[:].tolist() == [size - 1, 0]
    assert found["large"].values.dtype == dtype
    assert found["small"].values.dtype == np.uint16


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize("width", [None, 3])
@pytest.mark.parametrize("size", [None, 5])
def test_a_corpus_without_examples(tmp_path: Path, depth: int, width: int | None, size: int | None) -> None:
    sequences = one_field([], Field(list, size=size, depth=depth, width=width), tmp_path)
    assert len(sequences) == len(sequences.values) == 0
    assert list(sequences) == []
    assert SymbolCounts(sequences)[:].shape == (0, 1)
    with pytest.raises(IndexError, match="there is no example 0; there are 0"):
        sequences[0]


def test_single_numbers_are_numbers(tmp_path: Path) -> None:
    fields = {"label": Field(list, size=3, depth=0), "grade": Field(list, depth=0)}
    found = write_shard([(2, 0.5), (0, -1.25)], fields, "key", folder=tmp_path)
    assert [type(found["label"][0]), type(found["grade"][0])] == [int, float]
    assert found["label"].values[:].tolist() == [2, 0]
    assert found["grade"].values[:].tolist() == [0.5, -1.25]


def test_examples_outside_are_refused(tmp_path: Path) -> None:
    sequences = one_field(["5", "6"], Field(parse, size=11), tmp_path)
    for index in (-1, 2):
        with pytest.raises(IndexError):
            sequences[index]


def test_what_is_given_out_cannot_be_changed(tmp_path: Path) -> None:
    sequences = one_field([[1.0, 2.0]], Field(list), tmp_path)
    with pytest.raises(ValueError, match="read-only"):
        sequences[0][:] = 0
    assert sequences[0].tolist() == [1, 2]


def test_written_once(tmp_path: Path) -> None:
    calls: list[int] = []
    fields = {"source": Field(counted(parse, calls), size=11)}
    first = write_shard([("5 6",), ("7",)], fields, "key", folder=tmp_path)
    again = write_shard(unread(), fields, "key", folder=tmp_path)
    assert calls == [2]
    assert [again["source"][i].tolist() for i in range(2)] == [first["source"][i].tolist() for i in range(2)]


def test_whatever_differs_has_a_shard_of_its_own(tmp_path: Path) -> None:
    def zeros(raw: Sequence[Any]) -> np.ndarray:
        return np.zeros((len(raw), 1, 1), np.int64)

    kinds = [(depth, width, size) for depth in (1, 2) for width in (None, 1) for size in (None, 3, 4, 70_000)]
    kinds = [(depth, width, size) for depth, width, size in kinds if depth + (width or 0) == 2]
    fields = [{"a": Field(zeros, depth=depth, width=width, size=size)} for depth, width, size in kinds]
    fields += [
        {"b": fields[0]["a"]},
        {"a": fields[0]["a"], "b": fields[0]["a"]},
        {"b": fields[0]["a"], "a": fields[0]["a"]},
    ]
    for some in fields:
        for key in ("key", "another key"):
            write_shard([(1, 1)], some, key, folder=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2 * len(fields)


def test_a_half_written_folder_is_written_again(tmp_path: Path) -> None:
    field = Field(lambda rows: [[[int(one)] for one in row.split()] for row in rows], size=9, depth=2)
    one_field(["5 6"], field, tmp_path)
    (folder,) = tmp_path.iterdir()
    assert json.loads((folder / "shard.json").read_text()) == {
        "format": 2,
        "examples": 1,
        "steps": {"a": 2, "a.inner": 2},
    }
    (folder / "shard.json").unlink()
    (folder / "a.values.bin").write_bytes(b"\1")
    assert plain(one_field(["5 6"], field, tmp_path)[0]) == [[5], [6]]
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_a_failure_while_encoding_leaves_nothing(tmp_path: Path) -> None:
    def examples() -> Iterator[tuple[str]]:
        yield ("1",)
        raise KeyboardInterrupt

    fields = {"a": Field(parse, size=9)}
    with pytest.raises(KeyboardInterrupt):
        write_shard(examples(), fields, "key", folder=tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert write_shard([("1",)], fields, "key", folder=tmp_path)["a"][0].tolist() == [1]


NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("field", "wrong", "problem", "message"),
    [
        (Field(list, size=7), [1, 7], ValueError, ", step 2: the id 7 is outside [0, 7)"),
        (Field(list, size=7), [-1], ValueError, ", step 1: the id -1 is outside [0, 7)"),
        (Field(list, size=65_536), [65_536], ValueError, ", step 1: the id 65536 is outside [0, 65536)"),
        (Field(list, size=7), np.array([2**64 - 1], np.uint64), ValueError, " is outside [0, 7)"),
        (Field(list, size=7), [2**70], ValueError, ": expected one id a step; got object values of shape (1,)"),
        (Field(list, size=7), [1.5], ValueError, ": expected one id a step; got float64 values of shape (1,)"),
        (Field(list, size=7), 3, ValueError, ": expected one id a step; got int64 values of shape ()"),
        (Field(list, size=7, width=2), [[1, 2, 3]], ValueError, ": expected 2 ids a step; got int64 values of shape"),
        (Field(list, size=7, depth=0), 7, ValueError, ", step 1: the id 7 is outside [0, 7)"),
        (Field(list, size=7, depth=0), [3], ValueError, ": expected one id; got int64 values of shape (1,)"),
        (Field(list, size=7, depth=0), [], ValueError, ": expected one id; got float64 values of shape (0,)"),
        (Field(list, size=7, depth=2), [[], [1], [2, 9]], ValueError, ", step 3: the id 9 is outside [0, 7)"),
        (Field(list, size=7, depth=2), [[1], [[2]]], ValueError, ": expected one id a step; got int64 values of shape"),
        (Field(list), [0.0, NAN], UserError, ", step 2: nan is not a finite number; correct it or leave"),
        (Field(list), [INFINITE], UserError, ", step 1: inf is not a finite number; correct it or leave"),
        (Field(list), [-1e39], UserError, ", step 1: -inf is not a finite number; correct it or leave"),
        (Field(list), [[1.0]], UserError, ": expected one number a step; got float64 values of shape (1, 1)"),
        (Field(list), [1.0, None], UserError, ": expected one number a step; got object values of shape (2,)"),
        (Field(list), "abc", UserError, ": expected one number a step; got <U3 values of shape ()"),
        (Field(list, width=2), [[0, 1], [2, NAN]], UserError, ", step 2: nan is not a finite number"),
        (
            Field(list, width=2),
            np.zeros((5, 3)),
            UserError,
            ": expected 2 numbers a step; got float64 values of shape (5, 3)",
        ),
        (
            Field(list, width=2),
            np.zeros((0, 3)),
            UserError,
            ": expected 2 numbers a step; got float64 values of shape (0, 3)",
        ),
        (Field(list, width=2), [1.0, 2.0], UserError, ": expected 2 numbers a step; got float64 values of shape (2,)"),
        (Field(list, width=2), [[1, 2], [3]], UserError, ": expected 2 numbers a step; got steps of different widths"),
        (Field(list, width=2, depth=2), [[[1, 2]], [[3]]], UserError, ": expected 2 numbers a step; got int64 values"),
        (Field(list, depth=0), INFINITE, UserError, ", step 1: inf is not a finite number"),
        (Field(list, depth=0, width=2), [1.0], UserError, ": expected 2 numbers; got float64 values of shape (1,)"),
    ],
)
@pytest.mark.parametrize("at_a_time", [1, 2, 100])
def test_a_wrong_row_is_named(
    field: Field,
    wrong: Any,
    problem: type[Exception],
    message: str,
    at_a_time: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("EXAMPLES_AT_A_TIME", "HEAVY_AT_A_TIME"):
        monkeypatch.setattr(shards, name, at_a_time)
    right: Any = 1 if field.width is None else [1] * field.width
    rows = [right, right, right, right] if field.depth == 0 else [[], [], [right][: 2 - field.depth], []]
    rows.insert(3, wrong)
    with pytest.raises(problem) as caught:
        one_field(rows, field, tmp_path)
    assert str(caught.value).startswith("field 'a', example 4")
    assert message in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_row_too_few(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="field 'a': encode gave 1 rows for 2 examples"):
        one_field(["1", "2"], Field(lambda texts: parse(texts)[1:], size=9), tmp_path)


@pytest.mark.parametrize("wrong", [{"depth": 3}, {"depth": -1}, {"width": 0}, {"size": 0}, {"size": 2**32 + 1}])
def test_fields_that_cannot_be(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} .*; got .*{next(iter(wrong.values()))}"):
        Field(list, **wrong)  # type: ignore[arg-type]


def test_where_shards_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.delenv("SEQLOOM_CACHE", raising=False)
    assert cache_folder() == tmp_path / "xdg" / "seqloom"
    monkeypatch.setenv("SEQLOOM_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
    write_shard([("5",)], {"source": Field(parse, size=11)}, "key")
    assert len(list((tmp_path / "own" / "shards").iterdir())) == 1
    monkeypatch.delenv("SEQLOOM_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "seqloom"


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.integers(0, 200), max_size=5), min_size=1, max_size=20), st.data())
def test_counts_of_some(rows: list[list[int]], data: st.DataObject) -> None:
    halves = [[row[:2], row[2:]] for row in rows]
    with tempfile.TemporaryDirectory() as folder:
        fields = {"text": Field(list, size=256), "log": Field(list), "parts": Field(list, size=256, depth=2)}
        shard = write_shard(zip(rows, [row[:1] for row in rows], halves, strict=True), fields, "k", folder=Path(folder))
        for ends in (0, 1, (1, 0, 2)):
            counts = SymbolCounts(*shard.values(), ends=ends)
            expected = np.array([[len(row), len(row[:1]), len(row)] for row in rows]) + ends
            assert len(counts) == len(rows)
            start, end = sorted(data.draw(st.lists(st.integers(0, len(rows) + 2), min_size=2, max_size=2)))
            assert np.array_equal(counts[start:end], expected[start:end])
            numbers = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=9)), np.int64)
            assert np.array_equal(counts[numbers], expected[numbers])
        assert np.array_equal(SymbolCounts(shard["text"])[:][:, 0], [len(row) + 1 for row in rows])


def test_the_sampler_reads_the_counts(tmp_path: Path) -> None:
    sequences = one_field([np.zeros((length, 2)) for length in (3, 9, 4, 2)], Field(list, width=2), tmp_path)
    sampler = BucketSampler(SymbolCounts(sequences, ends=0), batch_tokens=8, seed=1)
    assert sorted(np.concatenate(sampler.pool(0, 0)).tolist()) == [0, 2, 3]


def test_a_large_file_is_read_where_it_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shards, "HELD_BYTES", 1000)
    rows = [[number % 250] * (number % 7) for number in range(500)]
    sequences = one_field(rows, Field(list, size=256), tmp_path)
    assert sequences.tokens.held is None
    assert len(sequences) == 500
    for number in [*range(0, 500, 7), *range(499, 0, -11)]:
        assert sequences[number].tolist() == rows[number]
    assert (SymbolCounts(sequences)[100:200] - 1).flatten().tolist() == [len(row) for row in rows[100:200]]


@pytest.mark.parametrize("depth", [1, 2])
def test_neither_writing_nor_reading_holds_the_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, depth: int
) -> None:
    monkeypatch.setattr(shards, "HELD_BYTES", 1000)
    random = np.random.default_rng(1)
    count, each = 1000, (1 if depth == 1 else 4, 250, 8)

    def encode(raw: Sequence[int]) -> list[Any]:
        rows = [random.random(each, np.float32) for _ in raw]
        return [row[0] for row in rows] if depth == 1 else list(map(list, rows))

    tracemalloc.start()
    try:
        fields = {"a": Field(encode, depth=depth, width=8), "b": Field(list, depth=0, size=2)}
        shard = write_shard(((i, i % 2) for i in range(count)), fields, "key", folder=tmp_path)
        total = sum(np.sum(row) for row in shard["a"])
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    size = count * int(np.prod(each)) * 4
    assert len(shard["a"].values) * 32 == size
    assert total == pytest.approx(count * np.prod(each) / 2, rel=0.01)
    assert held < size / 3
    assert all(b - a == 250 * each[0] for a, b in pairwise(shard["a"].offsets[:].tolist()))
