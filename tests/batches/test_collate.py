"""Where BOS, EOS and PAD go, for any lists of ids."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from seqloom.batches.collate import Batch, collate_context, collate_pairs, collate_sources, padded
from seqloom.targets.label import Labels
from seqloom.text.special import BOS_ID, EOS_ID, PAD_ID


def tensors(batch: Batch) -> dict[str, Tensor]:
    """Every tensor of both sides."""
    sides = {"source": batch.source, "target": batch.target}
    found = {f"{side}.{name}": value for side, held in sides.items() for name, value in vars(held).items()}
    for part in ("context", "subwords"):
        held = found.pop(f"source.{part}", None)
        found |= {} if held is None else {f"{part}.{name}": value for name, value in vars(held).items()}
    return found


def assert_equal(found: Batch, expected: Batch) -> None:
    assert tensors(found).keys() == tensors(expected).keys()
    for name, tensor in tensors(expected).items():
        assert torch.equal(tensors(found)[name], tensor), name


rows_of_ids = st.lists(st.lists(st.integers(4, 70_000), max_size=11), max_size=7)


def test_a_pair_by_hand() -> None:
    batch = collate_pairs([[7, 8], [9]], [[11], [12, 13, 14]])
    assert batch.source.ids.tolist() == [[7, 8, EOS_ID], [9, EOS_ID, PAD_ID]]
    assert batch.source.lengths.tolist() == [3, 2]
    assert batch.target.inputs.tolist() == [[BOS_ID, 11, PAD_ID, PAD_ID], [BOS_ID, 12, 13, 14]]
    assert batch.target.outputs.tolist() == [[11, EOS_ID, PAD_ID, PAD_ID], [12, 13, 14, EOS_ID]]
    assert batch.target.lengths.tolist() == [2, 4]
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
    for name, tensor in tensors(batch).items():
        assert tensor.dtype == torch.int64, name
        assert len(tensor) == len(batch) == len(pairs), name
    assert batch.target.inputs.shape == batch.target.outputs.shape
    for index, (source, target) in enumerate(pairs):
        assert batch.source.lengths[index] == len(source) + 1
        assert batch.target.lengths[index] == len(target) + 1
        assert batch.source.ids[index, : len(source) + 1].tolist() == [*source, EOS_ID]
        assert batch.target.inputs[index, : len(target) + 1].tolist() == [BOS_ID, *target]
        assert batch.target.outputs[index, : len(target) + 1].tolist() == [*target, EOS_ID]
        assert not batch.source.ids[index, len(source) + 1 :].any()  # PAD is 0
        assert not batch.target.inputs[index, len(target) + 1 :].any()
        assert not batch.target.outputs[index, len(target) + 1 :].any()
    assert batch.num_tokens == sum(len(target) + 1 for target in targets)


def test_ids_from_disk_are_as_good_as_lists() -> None:
    lists = [[65_535, 4], [5]]
    for dtype in (np.uint16, np.uint32):
        arrays = [np.array(row, dtype) for row in lists]
        assert torch.equal(collate_sources(arrays).ids, collate_sources(lists).ids)
        assert torch.equal(collate_pairs(arrays, arrays).target.outputs, collate_pairs(lists, lists).target.outputs)


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
            assert_equal(part, expected)
        assert len(part) == len(expected)


def contexts(count: int) -> tuple[list[list[int]], list[list[int]]]:
    """What a language model reads beside each of so many sources, and from where to where each symbol is there."""
    symbols = [[50 + row] * (2 + row % 3) for row in range(count)]
    places = [[0, 1, 1, len(read)] for read in symbols]
    return symbols, places


def test_a_context_by_hand() -> None:
    context = collate_context([[7, 8, 9], [7]], [[0, 2, 2, 3], [0, 1]])
    assert context.symbols.tolist() == [[7, 8, 9], [7, PAD_ID, PAD_ID]]
    assert context.lengths.tolist() == [3, 1]
    assert context.first.tolist() == [[0, 2], [0, 0]]
    assert context.last.tolist() == [[2, 3], [1, 0]]  # an empty range where there is no symbol


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.integers(4, 99), min_size=2, max_size=2), min_size=1, max_size=7), st.integers(1, 4))
def test_parts_keep_what_is_read_beside_them(sources: list[list[int]], of: int) -> None:
    symbols, places = contexts(len(sources))
    whole = collate_pairs(sources, sources, collate_context(symbols, places))
    for number in range(min(of, len(sources))):
        some = collate_context(symbols[number::of], places[number::of])
        width = max(len(source) for source in sources[number::of]) + 1
        expected, part = collate_pairs(sources[number::of], sources[number::of], some), whole.part(number, of)
        assert torch.equal(part.source.context.symbols, expected.source.context.symbols)
        assert torch.equal(part.source.context.lengths, expected.source.context.lengths)
        assert torch.equal(part.source.context.first, expected.source.context.first[:, :width])
        assert torch.equal(part.source.context.last, expected.source.context.last[:, :width])


def test_doubled_rows_follow_all_others() -> None:
    rows = ([[4, 5], [6]], [[7], [8, 9, 10]])
    context = collate_context(*contexts(2))
    assert_equal(
        collate_pairs(*rows, context).doubled(),
        collate_pairs(*(side * 2 for side in rows), collate_context(*(side * 2 for side in contexts(2)))),
    )


def test_labels_count_rows() -> None:
    batch = Batch(collate_sources([[4, 5], [6], [7, 8, 9]]), Labels(torch.tensor([2, 0, 1])))
    assert len(batch) == batch.num_tokens == 3
    part = batch.part(0, 2)
    assert part.target.ids.tolist() == [2, 1]
    assert part.source.ids.tolist() == [[4, 5, EOS_ID, PAD_ID], [7, 8, 9, EOS_ID]]
    assert batch.doubled().target.ids.tolist() == [2, 0, 1, 2, 0, 1]
    assert len(batch.part(3, 4)) == batch.part(3, 4).num_tokens == 0
