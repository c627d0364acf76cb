"""Examples -> tensors: the batch preparation that every sequence-to-sequence model needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

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


@dataclass(frozen=True)
class ContextBatch:
    """What a language model reads beside an encoder, and where each source symbol finds its word there.

    `symbols` (batch, time), `lengths` (batch,); `first` and `last` (batch, source time): a range of `symbols`, the last
    exclusive, empty where there is nothing.
    """

    symbols: Tensor
    lengths: Tensor
    first: Tensor
    last: Tensor

    def doubled(self) -> ContextBatch:
        """Every row a second time, after all others."""
        return ContextBatch(*(torch.cat([part, part]) for part in (self.symbols, self.lengths, self.first, self.last)))

    def part(self, rows: slice, source: int) -> ContextBatch:
        """Some rows, without the padding that only the others needed; `source` is the width of theirs."""
        lengths = self.lengths[rows]
        width = int(lengths.max()) if len(lengths) else 0
        return ContextBatch(self.symbols[rows, :width], lengths, self.first[rows, :source], self.last[rows, :source])


@dataclass(frozen=True)
class SourceBatch:
    """What an encoder reads: `source` (batch, source time) ending in EOS, `source_lengths` (batch,).

    `context` is what a language model reads beside it, where there is one.
    """

    source: Tensor
    source_lengths: Tensor
    context: ContextBatch | None = field(default=None, kw_only=True)

    def __len__(self) -> int:
        return self.source.shape[0]


@dataclass(frozen=True)
class PairBatch(SourceBatch):
    """Both sides: the decoder reads `target_in` (BOS first) and must say `target_out` (EOS last)."""

    target_in: Tensor
    target_out: Tensor
    target_lengths: Tensor

    @property
    def num_tokens(self) -> int:
        """Real target symbols, EOS included: what the loss is averaged over."""
        return int(self.target_lengths.sum())

    def doubled(self) -> PairBatch:
        """Every row a second time, after all others."""
        twice = (
            tensor.repeat(2, *[1] * (tensor.dim() - 1))
            for tensor in (self.source, self.source_lengths, self.target_in, self.target_out, self.target_lengths)
        )
        return PairBatch(*twice, context=None if self.context is None else self.context.doubled())

    def part(self, number: int, of: int) -> PairBatch:
        """Every `of`-th row from `number` on, without the padding that only the others needed; may have no row."""
        rows = slice(number, None, of)
        source_lengths, target_lengths = self.source_lengths[rows], self.target_lengths[rows]
        source = int(source_lengths.max()) if len(source_lengths) else 0
        target = int(target_lengths.max()) if len(target_lengths) else 0
        return PairBatch(
            source=self.source[rows, :source],
            source_lengths=source_lengths,
            target_in=self.target_in[rows, :target],
            target_out=self.target_out[rows, :target],
            target_lengths=target_lengths,
            context=None if self.context is None else self.context.part(rows, source),
        )


def collate_context(symbols: Sequence[Ids], places: Sequence[Ids]) -> ContextBatch:
    """Texts as a language model reads them, and for each source symbol from where to where: from, to, from, to, …"""
    ranges = [np.asarray(row, np.int64) for row in places]
    return ContextBatch(
        padded(symbols),
        torch.from_numpy(_lengths(symbols)),
        padded([row[0::2] for row in ranges]),
        padded([row[1::2] for row in ranges]),
    )


def collate_sources(sources: Sequence[Ids], context: ContextBatch | None = None) -> SourceBatch:
    """Encoded sentences -> what an encoder reads: EOS appended, padded, lengths kept."""
    return SourceBatch(padded(sources, after=EOS_ID), torch.from_numpy(_lengths(sources) + 1), context=context)


def collate_pairs(sources: Sequence[Ids], targets: Sequence[Ids], context: ContextBatch | None = None) -> PairBatch:
    """Encoded pairs (unknown words are UNK already) -> one training batch.

    The source ends in EOS, so the encoder sees where it stops. The target is shifted against itself: the decoder reads
    BOS y1 y2 … and must say y1 y2 … EOS.
    """
    source = collate_sources(sources)
    return PairBatch(
        source=source.source,
        source_lengths=source.source_lengths,
        target_in=padded(targets, before=BOS_ID),
        target_out=padded(targets, after=EOS_ID),
        target_lengths=torch.from_numpy(_lengths(targets) + 1),
        context=context,
    )
