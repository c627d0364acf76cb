"""Examples -> tensors: the batch preparation that every sequence-to-sequence model needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from seqloom.text.special import BOS_ID, EOS_ID, PAD_ID

Ids = Sequence[int] | np.ndarray


def padded(rows: Sequence[Ids], *, before: int | None = None, after: int | None = None) -> Tensor:
    """Rows of ids of any length -> one (rows, longest) tensor, filled up with PAD on the right.

    Each row may be given a symbol `before` it and one `after` it.
    """
    lengths = _lengths(rows)
    start = 0 if before is None else 1
    width = int(lengths.max(initial=0)) + start + (0 if after is None else 1)
    matrix = np.full((len(rows), width), PAD_ID, dtype=np.int64)
    if before is not None:
        matrix[:, 0] = before
    columns = np.arange(width) - start
    flat = np.concatenate([np.asarray(row, np.int64) for row in rows]) if len(rows) else np.empty(0, np.int64)
    matrix[(columns >= 0) & (columns < lengths[:, None])] = flat
    if after is not None:
        matrix[np.arange(len(rows)), lengths + start] = after
    return torch.from_numpy(matrix)


def _lengths(rows: Sequence[Ids]) -> np.ndarray:
    return np.fromiter(map(len, rows), np.int64, len(rows))


class Side(Protocol):
    """One side of a batch: what a kind of source or of target is collated to."""

    def __len__(self) -> int:
        """Rows."""
        ...

    @property
    def count(self) -> int:
        """What a loss over it is averaged over: real symbols of a sequence, end included; or rows."""
        ...

    def part(self, rows: slice) -> Self:
        """Some rows, without the padding that only the others needed; may be none."""
        ...

    def doubled(self) -> Self:
        """Every row a second time, after all others."""
        ...


def twice(*tensors: Tensor) -> list[Tensor]:
    return [torch.cat([tensor, tensor]) for tensor in tensors]


def _longest(lengths: Tensor) -> int:
    return int(lengths.max()) if len(lengths) else 0


@dataclass(frozen=True)
class Context:
    """What a language model reads beside an encoder, and where each source symbol finds its word there.

    `symbols` (batch, time), `lengths` (batch,); `first` and `last` (batch, source time): a range of `symbols`, the last
    exclusive, empty where there is nothing.
    """

    symbols: Tensor
    lengths: Tensor
    first: Tensor
    last: Tensor

    def doubled(self) -> Context:
        return Context(*twice(self.symbols, self.lengths, self.first, self.last))

    def part(self, rows: slice, source: int) -> Context:
        """`source` is the width of these rows' source."""
        lengths = self.lengths[rows]
        symbols = self.symbols[rows, : _longest(lengths)]
        return Context(symbols, lengths, self.first[rows, :source], self.last[rows, :source])


@dataclass(frozen=True)
class Subwords:
    """The pieces of words beside the symbols of texts: `rows` of a table, one text after the other.

    `counts` (batch, time) says how many of them are of each symbol; a text has none behind its last symbol.
    """

    rows: Tensor
    counts: Tensor

    def places(self, width: int) -> Tensor:
        """(rows,): which symbol each piece is of, all symbols counted row by row in a batch that is so wide."""
        batch, time = self.counts.shape
        symbols = torch.arange(batch)[:, None] * width + torch.arange(time)
        return symbols.flatten().repeat_interleave(self.counts.flatten())

    def doubled(self) -> Subwords:
        return Subwords(*twice(self.rows, self.counts))

    def part(self, rows: slice, width: int) -> Subwords:
        """`width` is that of these rows' symbols."""
        texts = self.counts.sum(1).tolist()
        pieces = self.rows.split(texts)[rows]
        return Subwords(torch.cat(pieces) if pieces else self.rows[:0], self.counts[rows, :width])


@dataclass(frozen=True)
class Tokens:
    """Text that is read: `ids` (batch, time) ending in EOS, `lengths` (batch,).

    `context` is what a language model reads beside it, where there is one; `subwords` the pieces of its words, where an
    encoder has vectors for them.
    """

    ids: Tensor
    lengths: Tensor
    context: Context | None = None
    subwords: Subwords | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def count(self) -> int:
        return int(self.lengths.sum())

    def doubled(self) -> Tokens:
        ids, lengths = twice(self.ids, self.lengths)
        context = None if self.context is None else self.context.doubled()
        return Tokens(ids, lengths, context, None if self.subwords is None else self.subwords.doubled())

    def part(self, rows: slice) -> Tokens:
        lengths = self.lengths[rows]
        width = _longest(lengths)
        context = None if self.context is None else self.context.part(rows, width)
        subwords = None if self.subwords is None else self.subwords.part(rows, width)
        return Tokens(self.ids[rows, :width], lengths, context, subwords)


@dataclass(frozen=True)
class Target:
    """Text that is made: `inputs` are read (BOS first), `outputs` predicted (EOS last); `lengths` (batch,)."""

    inputs: Tensor
    outputs: Tensor
    lengths: Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def count(self) -> int:
        return int(self.lengths.sum())

    def doubled(self) -> Target:
        return Target(*twice(self.inputs, self.outputs, self.lengths))

    def part(self, rows: slice) -> Target:
        lengths = self.lengths[rows]
        width = _longest(lengths)
        return Target(self.inputs[rows, :width], self.outputs[rows, :width], lengths)


@dataclass(frozen=True)
class Batch:
    """What is read and what must be made of it, row by row."""

    source: Any
    target: Any

    def __len__(self) -> int:
        return len(self.target)

    @property
    def num_tokens(self) -> int:
        """What the loss is averaged over."""
        count: int = self.target.count
        return count

    def doubled(self) -> Batch:
        """Every row a second time, after all others."""
        return Batch(self.source.doubled(), self.target.doubled())

    def part(self, number: int, of: int) -> Batch:
        """Every `of`-th row from `number` on, without the padding that only the others needed; may have no row."""
        rows = slice(number, None, of)
        return Batch(self.source.part(rows), self.target.part(rows))


def collate_context(symbols: Sequence[Ids], places: Sequence[Ids]) -> Context:
    """Texts as a language model reads them, and for each source symbol from where to where: from, to, from, to, …"""
    ranges = [np.asarray(row, np.int64) for row in places]
    return Context(
        padded(symbols),
        torch.from_numpy(_lengths(symbols)),
        padded([row[0::2] for row in ranges]),
        padded([row[1::2] for row in ranges]),
    )


def collate_subwords(rows: Sequence[Ids], counts: Sequence[Ids]) -> Subwords:
    """The pieces of each text's words, and how many each word has; the end of a text has none."""
    flat = np.concatenate([np.asarray(row, np.int64) for row in rows]) if len(rows) else np.empty(0, np.int64)
    return Subwords(torch.from_numpy(flat), padded(counts, after=0))


def collate_sources(sources: Sequence[Ids], context: Context | None = None, subwords: Subwords | None = None) -> Tokens:
    """Encoded texts -> what an encoder reads: EOS appended, padded, lengths kept."""
    return Tokens(padded(sources, after=EOS_ID), torch.from_numpy(_lengths(sources) + 1), context, subwords)


def collate_targets(targets: Sequence[Ids]) -> Target:
    """Encoded texts -> what a decoder makes, shifted by one: it reads BOS y1 y2 … and predicts y1 y2 … EOS."""
    return Target(
        padded(targets, before=BOS_ID), padded(targets, after=EOS_ID), torch.from_numpy(_lengths(targets) + 1)
    )


def collate_pairs(sources: Sequence[Ids], targets: Sequence[Ids], context: Context | None = None) -> Batch:
    """Encoded pairs of texts (unknown words are UNK already) -> one training batch."""
    return Batch(collate_sources(sources, context), collate_targets(targets))
