"""Co-occurrences against a dictionary, with tables so small that they are written to disk and merged many times."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.errors import UserError
from seqloom.kernels.compiling import can_compile
from seqloom.kernels.cooccurrence import DIGIT_BITS, sort_pairs
from seqloom.vectors import cooccurrence
from seqloom.vectors.cooccurrence import RUN, Cooccurrences, count_cooccurrences, merge_runs

WORDS = 7


class Text:
    """Sentences in memory, a block each."""

    def __init__(self, sentences: list[list[int]]) -> None:
        self.sentences = sentences
        self.num_tokens = sum(len(sentence) + 1 for sentence in sentences)

    def blocks(self, size: int, start: int = 0) -> Iterator[tuple[int, np.ndarray]]:
        for first in range(0, len(self.sentences), 3):
            some = [number for sentence in self.sentences[first : first + 3] for number in [*sentence, -1]]
            yield start, np.array(some, np.int32)
            start += len(some)


def dictionary(sentences: list[list[int]], window: int, by_distance: bool) -> dict[tuple[int, int], float]:
    found: dict[tuple[int, int], float] = defaultdict(float)
    for sentence in sentences:
        for here, word in enumerate(sentence):
            for there, other in enumerate(sentence):
                if here != there and abs(here - there) <= window:
                    found[word, other] += 1 / abs(here - there) if by_distance else 1
    return dict(found)


def read(pairs: Cooccurrences, size: int = 5) -> dict[tuple[int, int], float]:
    parts = [np.concatenate(part) for part in zip(*pairs.blocks(size), strict=True)] or [np.empty(0)] * 3
    places = list(zip(parts[0].tolist(), parts[1].tolist(), strict=True))
    assert places == sorted(set(places))
    assert len(places) == len(pairs)
    return dict(zip(places, parts[2].tolist(), strict=True))


@pytest.mark.parametrize(
    "compiled", [pytest.param(True, marks=pytest.mark.skipif(not can_compile(), reason="no Numba")), False]
)
@settings(max_examples=60, deadline=None)
@given(
    sentences=st.lists(st.lists(st.integers(0, WORDS - 1), min_size=1, max_size=20), max_size=9),
    window=st.integers(1, 6),
    by_distance=st.booleans(),
    slot_bits=st.integers(0, 7),
    at_once=st.integers(1, 30),
    most_alike=st.integers(2, 4),
)
def test_against_a_dictionary(
    compiled: bool,
    sentences: list[list[int]],
    window: int,
    by_distance: bool,
    slot_bits: int,
    at_once: int,
    most_alike: int,
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(cooccurrence, "can_compile", lambda: compiled)
        patch.setattr(cooccurrence, "MERGED_AT_ONCE", at_once)
        patch.setattr(cooccurrence, "MOST_ALIKE", most_alike)
        shares: list[float] = []
        final = Path(folder, "pairs")
        found = count_cooccurrences(
            Text(sentences), WORDS, window, final, by_distance=by_distance, slot_bits=slot_bits, progress=shares.append
        )
        expected = dictionary(sentences, window, by_distance)
        assert read(found) == {pair: pytest.approx(value, rel=1e-6) for pair, value in expected.items()}
        assert not sentences or shares[-1] == 1.0
        assert {path.name for path in final.iterdir()} == {
            "rows.bin",
            "columns.bin",
            "values.bin",
            "cooccurrences.json",
        }


@pytest.mark.skipif(not can_compile(), reason="no Numba")
@settings(max_examples=60, deadline=None)
@given(keys=st.lists(st.integers(0, 2**62 - 1) | st.integers(0, 5000), max_size=40))
def test_sorting_keeps_equal_keys_in_their_order(keys: list[int]) -> None:
    values = np.arange(len(keys), dtype=np.float64)
    array = np.array(keys, np.int64)
    digits = -(-int(array.max(initial=0)).bit_length() // DIGIT_BITS)
    found = sort_pairs(array.copy(), values.copy(), np.empty_like(array), np.empty_like(values), digits)
    order = np.argsort(array, kind="stable")
    assert found[0].tolist() == array[order].tolist()
    assert found[1].tolist() == values[order].tolist()


def test_by_hand(tmp_path: Path) -> None:
    found = count_cooccurrences(Text([[0, 1, 0], [2]]), 3, 2, tmp_path / "pairs", slot_bits=4)
    # 0 and 1 meet twice at distance 1; 0 meets itself at distance 2, from both sides
    assert read(found) == {(0, 0): 1.0, (0, 1): 2.0, (1, 0): 2.0}


def test_large_numbers_of_words_do_not_overflow(tmp_path: Path) -> None:
    words = 3_000_000
    found = count_cooccurrences(Text([[words - 1, words - 2, words - 1]]), words, 1, tmp_path / "pairs", slot_bits=4)
    assert read(found) == {(words - 2, words - 1): 2.0, (words - 1, words - 2): 2.0}


def test_frequent_pairs_are_summed_in_double_precision(tmp_path: Path) -> None:
    # In single precision, adding 1/3 to more than 4 million (2^22) would add 0.5 or 0.25.
    table = np.zeros(1, RUN)
    table["key"], table["sum"] = 1, 2.0**25
    more = np.repeat(table, 1)
    more["sum"] = 1.0
    paths = [tmp_path / str(number) for number in range(9)]
    for number, path in enumerate(paths):
        (table if number == 0 else more).tofile(path)
    (_, sums), *rest = merge_runs(paths, 100)
    assert not rest
    assert sums.tolist() == [2.0**25 + 8]


@settings(max_examples=100, deadline=None)
@given(runs=st.lists(st.dictionaries(st.integers(0, 30), st.integers(1, 9)), max_size=5), at_once=st.integers(1, 40))
def test_merging(runs: list[dict[int, int]], at_once: int) -> None:
    expected: dict[int, int] = defaultdict(int)
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for number, run in enumerate(runs):
            array = np.array(sorted(run.items()), RUN) if run else np.empty(0, RUN)
            paths.append(Path(folder, str(number)))
            array.tofile(paths[-1])
            for key, value in run.items():
                expected[key] += value
        merged = [(key, value) for part in merge_runs(paths, at_once) for key, value in zip(*part, strict=True)]
    assert merged == sorted(expected.items())


def test_damaged_folders_are_refused(tmp_path: Path) -> None:
    found = count_cooccurrences(Text([[0, 1]]), 3, 2, tmp_path / "pairs", slot_bits=4)
    (found.folder / "values.bin").write_bytes(b"\0")
    with pytest.raises(UserError, match="damaged"):
        Cooccurrences(found.folder)
    (found.folder / "rows.bin").unlink()
    with pytest.raises(UserError, match="no co-occurrences"):
        Cooccurrences(found.folder)


def test_few_runs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cooccurrence, "MOST_ALIKE", 3)
    runs = cooccurrence.Runs(tmp_path)
    for number in range(3**3 + 5):
        runs.add(np.array([number % 4, 9]), np.array([1.0, 2.0]))
        assert len(runs.paths) <= 2 * 4
        assert sorted(runs.paths) == sorted(tmp_path.iterdir())
    merged = [pair for part in merge_runs(runs.paths, 5) for pair in zip(*map(np.ndarray.tolist, part), strict=True)]
    assert merged == [(0, 8.0), (1, 8.0), (2, 8.0), (3, 8.0), (9, 64.0)]
