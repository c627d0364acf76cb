"""Running text in batches: every model of language reads a symbol and predicts the next one.

    inputs    <first> a b c d          targets   a b c d <eos>

Three ways to cut it: `Stream` (long rows that go on from batch to batch, so that a recurrent model carries its state),
`Windows` (pieces in random order, each read without what came before it), `Sentences` (a line each). The order is a
function of seed and epoch alone, so a run resumes exactly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from seqloom.batches.collate import Ids, padded
from seqloom.batches.samplers import BucketSampler, Position
from seqloom.batches.shards import Sequences, SymbolCounts
from seqloom.text.special import PAD_ID

COUNTED_AT_A_TIME = 2**20


class Symbols(Protocol):
    """A long array of ids, on disk or in memory."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> np.ndarray: ...


def count_symbols(tokens: Symbols, num_symbols: int) -> np.ndarray:
    """How often each symbol is in a long array of ids, (symbols,); a part of the array is in memory at a time."""
    counts = np.zeros(num_symbols, np.int64)
    for start in range(0, len(tokens), COUNTED_AT_A_TIME):
        counts += np.bincount(tokens[start : start + COUNTED_AT_A_TIME], minlength=num_symbols)
    return counts


@dataclass(frozen=True)
class TextBatch:
    """`inputs` (rows, time) are read, `targets` (rows, time) predicted; PAD where nothing is to be predicted.

    `lengths` (rows,) where rows are padded; `fresh`: nothing came before, else the rows go on where the last batch's
    ended.
    """

    inputs: Tensor
    targets: Tensor
    lengths: Tensor | None = None
    fresh: bool = True

    def __len__(self) -> int:
        return self.inputs.shape[0]

    @property
    def num_tokens(self) -> int:
        """Symbols to be predicted."""
        return int((self.targets != PAD_ID).sum())

    def part(self, number: int, of: int) -> TextBatch:
        """Every `of`-th row from `number` on, without the padding that only the others needed; may have no row."""
        rows = slice(number, None, of)
        if self.lengths is None:
            return TextBatch(self.inputs[rows], self.targets[rows], None, self.fresh)
        lengths = self.lengths[rows]
        width = int(lengths.max()) if len(lengths) else 0
        return TextBatch(self.inputs[rows, :width], self.targets[rows, :width], lengths, self.fresh)


class Batches(Protocol):
    """Batches without end, and how far along an epoch a position is."""

    def batches_from(self, position: Position) -> Iterator[tuple[Position, TextBatch]]: ...

    def batches_per_epoch(self) -> float: ...

    def epochs_done(self, position: Position) -> float: ...


class _Cut(ABC):
    """Running text cut into pieces of one length, another way each epoch: the first few symbols are left out."""

    def __init__(self, tokens: Symbols, *, rows: int, length: int, seed: int, first: int) -> None:
        assert len(tokens) >= rows, "a text shorter than a batch is refused before training"
        self.tokens, self.rows, self.seed, self.first = tokens, rows, seed, first
        self.length = min(length, len(tokens) // rows)

    def random(self, epoch: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=[self.seed, epoch]))

    def offset(self, epoch: int) -> int:
        """Symbols left out: pieces would else begin at the same places in every epoch."""
        spare = len(self.tokens) - self.rows * self.length
        return int(self.random(epoch).integers(0, min(spare, self.length - 1) + 1)) if epoch else 0

    @abstractmethod
    def num_batches(self, epoch: int) -> int:
        """Of one epoch."""

    @abstractmethod
    def epoch(self, epoch: int, done: int) -> Iterator[TextBatch]:
        """The batches of one epoch but the first `done`."""

    def batches_from(self, position: Position) -> Iterator[tuple[Position, TextBatch]]:
        epoch, done = position.epoch, position.batch
        while True:
            count = self.num_batches(epoch)
            for batch in self.epoch(epoch, done):
                done += 1
                yield Position(epoch, done) if done < count else Position(epoch + 1), batch
            epoch, done = epoch + 1, 0

    def batches_per_epoch(self) -> float:
        return self.num_batches(0)

    def epochs_done(self, position: Position) -> float:
        return position.epoch + position.batch / self.num_batches(position.epoch)


class Stream(_Cut):
    """The text as so many long rows, read side by side from left to right."""

    def _row(self, epoch: int) -> int:
        """Symbols a row."""
        return (len(self.tokens) - self.offset(epoch)) // self.rows

    def num_batches(self, epoch: int) -> int:
        return -(-self._row(epoch) // self.length)

    def epoch(self, epoch: int, done: int) -> Iterator[TextBatch]:
        offset, each = self.offset(epoch), self._row(epoch)
        starts = offset + each * np.arange(self.rows)
        for batch in range(done, self.num_batches(epoch)):
            at = batch * self.length
            yield gather(self.tokens, starts + at, min(self.length, each - at), self.first, fresh=batch == 0)


class Windows(_Cut):
    """Pieces of the text in random order; each begins without a past."""

    def _count(self, epoch: int) -> int:
        return (len(self.tokens) - self.offset(epoch)) // self.length

    def num_batches(self, epoch: int) -> int:
        return -(-self._count(epoch) // self.rows)

    def epoch(self, epoch: int, done: int) -> Iterator[TextBatch]:
        order = self.random(epoch).permutation(self._count(epoch)) * self.length + self.offset(epoch)
        for batch in range(done, self.num_batches(epoch)):
            yield gather(self.tokens, order[batch * self.rows :][: self.rows], self.length, self.first)


def gather(tokens: Symbols, starts: np.ndarray, length: int, first: int, *, fresh: bool = True) -> TextBatch:
    """Rows of `length` symbols to predict from each of `starts` on; what is read is one symbol behind."""
    rows = np.empty((len(starts), length + 1), np.int64)
    for row, start in zip(rows, starts.tolist(), strict=True):
        if start:
            row[:] = tokens[start - 1 : start + length]
        else:
            row[0], row[1:] = first, tokens[:length]
    both = torch.from_numpy(rows)
    return TextBatch(both[:, :-1], both[:, 1:], None, fresh)


class Sentences:
    """Lines of similar length together."""

    def __init__(
        self,
        lines: Sequences,
        *,
        batch_tokens: int,
        max_length: int,
        seed: int,
        first: int,
        only_last: bool = False,
    ) -> None:
        self.lines, self.first, self.only_last = lines, first, only_last
        self.sampler = BucketSampler(
            SymbolCounts(lines, ends=0), batch_tokens=batch_tokens, seed=seed, max_length=max_length
        )

    def batches_from(self, position: Position) -> Iterator[tuple[Position, TextBatch]]:
        for after, indices in self.sampler.batches_from(position):
            yield after, collate_lines([self.lines[index] for index in indices], self.first, self.only_last)

    def batches_per_epoch(self) -> float:
        return self.sampler.batches_per_epoch()

    def epochs_done(self, position: Position) -> float:
        return self.sampler.epochs_done(position)


def collate_lines(lines: Sequence[Ids], first: int, only_last: bool = False) -> TextBatch:
    """Lines with their end symbols -> one batch; `only_last`: all that is predicted is the symbol before the end."""
    if only_last:
        assert all(len(line) > 1 for line in lines), "an empty line has no last symbol"
        lines = [line[:-1] for line in lines]
    lengths = torch.tensor([len(line) for line in lines])
    targets = padded(lines)
    if only_last:
        targets = targets.masked_fill(torch.arange(targets.shape[1]) != lengths[:, None] - 1, PAD_ID)
    return TextBatch(padded([line[:-1] for line in lines], before=first), targets, lengths)
