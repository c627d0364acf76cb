"""Running text in batches: every symbol is asked for once, after the one that stands before it."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqloom.batches.running import Sentences, Stream, TextBatch, Windows, collate_lines
from seqloom.batches.samplers import Position
from seqloom.batches.shards import Field, Sequences, write_shard
from seqloom.text.special import EOS_ID, PAD_ID

FIRST = 3
sizes = st.tuples(st.integers(1, 5), st.integers(1, 9), st.integers(20, 120), st.integers(0, 2))


def text_of(count: int) -> np.ndarray:
    """Numbers that tell where they stand."""
    return np.arange(10, 10 + count)


@pytest.mark.parametrize("kind", [Stream, Windows])
@given(sizes)
def test_what_is_read_is_one_symbol_behind_what_is_said(kind: type, size: tuple[int, int, int, int]) -> None:
    rows, length, count, epoch = size
    cut = kind(text_of(count), rows=rows, length=length, seed=5, first=FIRST)
    said = []
    for batch in cut.epoch(epoch, 0):
        before = torch.where(batch.targets == 10, FIRST, batch.targets - 1)
        assert torch.equal(batch.inputs, before)
        assert batch.num_tokens == batch.targets.numel()
        said += batch.targets.flatten().tolist()
    assert len(said) == len(set(said))
    left_out = count - len(said)
    assert left_out <= cut.offset(epoch) + (rows - 1 if kind is Stream else length - 1)


@given(sizes)
def test_rows_of_a_stream_go_on_from_batch_to_batch(size: tuple[int, int, int, int]) -> None:
    rows, length, count, epoch = size
    batches = list(Stream(text_of(count), rows=rows, length=length, seed=5, first=FIRST).epoch(epoch, 0))
    joined = torch.cat([batch.targets for batch in batches], 1)
    assert torch.equal(joined[:, 1:], joined[:, :-1] + 1)
    assert [batch.fresh for batch in batches] == [True] + [False] * (len(batches) - 1)


@pytest.mark.parametrize("kind", [Stream, Windows])
@given(sizes, st.integers(0, 40))
def test_a_run_resumes_exactly(kind: type, size: tuple[int, int, int, int], taken: int) -> None:
    rows, length, count, _ = size
    cut = kind(text_of(count), rows=rows, length=length, seed=2, first=FIRST)
    straight = list(islice(cut.batches_from(Position()), taken + 5))
    position = straight[taken - 1][0] if taken else Position()
    resumed = list(
        islice(kind(text_of(count), rows=rows, length=length, seed=2, first=FIRST).batches_from(position), 5)
    )
    for (place, batch), (other_place, other) in zip(straight[taken:], resumed, strict=True):
        assert place == other_place
        assert torch.equal(batch.targets, other.targets)
        assert batch.fresh == other.fresh
    assert cut.epochs_done(Position(3)) == 3.0


def test_windows_come_in_another_order_and_are_cut_elsewhere_in_another_epoch() -> None:
    cut = Windows(text_of(400), rows=4, length=10, seed=1, first=FIRST)
    first, second = ([batch.targets[:, 0].tolist() for batch in cut.epoch(epoch, 0)] for epoch in (0, 1))
    assert first != second
    assert {(start - 10) % 10 for row in first for start in row} == {0}
    assert len({(start - 10) % 10 for row in second for start in row}) == 1


@given(st.integers(1, 7), st.integers(1, 4))
def test_parts_of_a_batch_make_the_batch(rows: int, of: int) -> None:
    batch = TextBatch(torch.arange(rows * 3).view(rows, 3), torch.arange(rows * 3).view(rows, 3) + 1, None, False)
    parts = [batch.part(number, of) for number in range(of)]
    assert sum(map(len, parts)) == rows
    assert not any(part.fresh for part in parts)
    whole = torch.zeros_like(batch.inputs)
    for number, part in enumerate(parts):
        whole[number::of] = part.inputs
    assert torch.equal(whole, batch.inputs)


def lines_on_disk(folder: Path, lines: list[list[int]]) -> Sequences:
    texts = [[" ".join(map(str, line))] for line in lines]

    def encode(some: object) -> list[list[int]]:
        return [[int(word) for word in text.split()] for text in some]  # type: ignore[attr-defined]

    return write_shard(texts, {"text": Field(encode, size=100)}, "key", folder=folder)["text"]


def test_sentences_are_padded_and_what_is_too_long_or_empty_is_left_out(tmp_path: Path) -> None:
    lines = [[5, EOS_ID], [6, 7, EOS_ID], [EOS_ID], [8] * 30 + [EOS_ID], [9, 9, EOS_ID]]
    kept = Sentences(lines_on_disk(tmp_path, lines), batch_tokens=100, max_length=10, seed=1, first=FIRST)
    assert kept.sampler.num_examples == 3
    ((_, batch),) = islice(kept.batches_from(Position()), 1)
    found = {tuple(row[row != PAD_ID].tolist()) for row in batch.targets}
    assert found == {(5, EOS_ID), (6, 7, EOS_ID), (9, 9, EOS_ID)}
    assert batch.num_tokens == 8
    assert batch.lengths is not None
    for inputs, targets, length in zip(batch.inputs, batch.targets, batch.lengths.tolist(), strict=True):
        assert inputs[0] == FIRST
        assert torch.equal(inputs[1:length], targets[: length - 1])
    short = batch.part(int(batch.lengths.argmin()), 3)
    assert short.inputs.shape == (1, 2)


def test_collated_lines_by_hand() -> None:
    batch = collate_lines([[5, 6, EOS_ID], [EOS_ID]], FIRST)
    assert batch.inputs.tolist() == [[FIRST, 5, 6], [FIRST, PAD_ID, PAD_ID]]
    assert batch.targets.tolist() == [[5, 6, EOS_ID], [EOS_ID, PAD_ID, PAD_ID]]
    assert batch.lengths is not None
    assert batch.lengths.tolist() == [3, 1]
