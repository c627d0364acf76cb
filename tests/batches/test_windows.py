"""Windows of recordings: all of them, never across two recordings, in an order that seed and epoch give."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.batches.samplers import Position
from seqloom.batches.shards import Field, write_shard
from seqloom.batches.windows import Windows, WindowSampler


def windows_of(lengths: list[int], history: int, horizon: int, folder: Path) -> Windows:
    rows = [[1000.0 * number + np.arange(length)[:, None]] for number, length in enumerate(lengths)]
    found = write_shard(rows, {"values": Field(list, width=1)}, repr(lengths), folder=folder)
    return Windows(found["values"], history, horizon)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.integers(1, 5), st.integers(1, 4))
def test_every_window_and_no_other(tmp_path_factory: object, lengths: list[int], history: int, horizon: int) -> None:
    folder = tmp_path_factory.getbasetemp() / "windows"  # type: ignore[attr-defined]
    found = windows_of(lengths, history, horizon, folder)
    whole = history + horizon
    expected = [1000.0 * n + start for n, length in enumerate(lengths) for start in range(length - whole + 1)]
    assert len(found) == len(expected)
    for number, first in enumerate(expected):
        batch = found.batch(np.array([number]))
        assert batch.values[0, :, 0].tolist() == [first + step for step in range(history)]
        assert batch.targets[0, :, 0].tolist() == [first + history + step for step in range(horizon)]
    assert sum(len(numbers) for numbers in found.in_order(3)) == len(found), "the last ones too"


@given(st.integers(1, 40), st.integers(1, 9), st.integers(0, 30))
def test_an_epoch_is_every_window_once_and_goes_on_anywhere(count: int, size: int, skipped: int) -> None:
    sampler = WindowSampler(count, size=size, seed=5)
    batches = list(islice(sampler.batches_from(Position()), 2 * sampler.batches))
    for epoch in range(2):
        part = batches[epoch * sampler.batches : (epoch + 1) * sampler.batches]
        assert sorted(np.concatenate([numbers for _, numbers in part]).tolist()) == list(range(count))
    at = skipped % len(batches)
    after = Position() if at == 0 else batches[at - 1][0]
    again = next(sampler.batches_from(after))
    assert again[0] == batches[at][0]
    np.testing.assert_array_equal(again[1], batches[at][1])
