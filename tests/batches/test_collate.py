"""Where BOS, EOS and PAD go, for any lists of ids."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.batches.collate import collate_pairs, collate_sources, padded
from seqloom.text.special import BOS_ID, EOS_ID, PAD_ID

rows_of_ids = st.lists(st.lists(st.integers(4, 70_000), max_size=11), max_size=7)


def test_a_pair_by_hand() -> None:
    batch = collate_pairs([[7, 8], [9]], [[11], [12, 13, 14]])
    assert batch.source.tolist() == [[7, 8, EOS_ID], [9, EOS_ID, PAD_ID]]
    assert batch.source_lengths.tolist() == [3, 2]
    assert batch.target_in.tolist() == [[BOS_ID, 11, PAD_ID, PAD_ID], [BOS_ID, 12, 13, 14]]
    assert batch.target_out.tolist() == [[11, EOS_ID, PAD_ID, PAD_ID], [12, 13, 14, EOS_ID]]
    assert batch.target_lengths.tolist() == [2, 4]
    assert len(batch) == 2
    assert batch.num_tokens == 6


@settings(deadline=None, max_examples=60)
@given(rows_of_ids)
def test_padding_comes_only_after_the_end(rows: list[list[int]]) -> None:
    matrix = padded(rows)
    assert matrix.dtype == torch.int64
    assert matrix.shape == (len(rows), max(map(len, rows), default=0))
    for row, given_row in zip(matrix.tolist(), rows, strict=True):
        assert row == given_row + [PAD_ID] * (len(row) - len(given_row))


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(*[st.lists(st.integers(4, 70_000), max_size=11)] * 2), max_size=7))
def test_any_pairs(pairs: list[tuple[list[int], list[int]]]) -> None:
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    batch = collate_pairs(sources, targets)
    for name in ("source", "source_lengths", "target_in", "target_out", "target_lengths"):
        assert getattr(batch, name).dtype == torch.int64, name
        assert len(getattr(batch, name)) == len(batch) == len(pairs), name
    assert batch.target_in.shape == batch.target_out.shape
    for index, (source, target) in enumerate(pairs):
        assert batch.source_lengths[index] == len(source) + 1
        assert batch.target_lengths[index] == len(target) + 1
        assert batch.source[index, : len(source) + 1].tolist() == [*source, EOS_ID]
        assert batch.target_in[index, : len(target) + 1].tolist() == [BOS_ID, *target]
        assert batch.target_out[index, : len(target) + 1].tolist() == [*target, EOS_ID]
        assert not batch.source[index, len(source) + 1 :].any()  # PAD is 0
        assert not batch.target_in[index, len(target) + 1 :].any()
        assert not batch.target_out[index, len(target) + 1 :].any()
    assert batch.num_tokens == sum(len(target) + 1 for target in targets)


def test_ids_from_disk_are_as_good_as_lists() -> None:
    lists = [[65_535, 4], [5]]
    for dtype in (np.uint16, np.uint32):
        arrays = [np.array(row, dtype) for row in lists]
        assert torch.equal(collate_sources(arrays).source, collate_sources(lists).source)
        assert torch.equal(collate_pairs(arrays, arrays).target_out, collate_pairs(lists, lists).target_out)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(*[st.lists(st.integers(4, 99), min_size=1, max_size=9)] * 2), max_size=7), st.integers(1, 4))
def test_parts_are_the_batch_dealt_out(pairs: list[tuple[list[int], list[int]]], of: int) -> None:
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    whole = collate_pairs(sources, targets)
    parts = [whole.part(number, of) for number in range(of)]
    assert sum(part.num_tokens for part in parts) == whole.num_tokens
    for number, part in enumerate(parts):
        expected = collate_pairs(sources[number::of], targets[number::of])
        if len(expected):
            for name in ("source", "source_lengths", "target_in", "target_out", "target_lengths"):
                assert torch.equal(getattr(part, name), getattr(expected, name))
        assert len(part) == len(expected)
