"""Examples -> tensors: the batch preparation that every sequence-to-sequence model needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from seqloom.text.special import BOS_ID, EOS_ID, PAD_ID

Ids = Sequence[int] | np.ndarray


def padded(rows: Sequence[Ids]) -> Tensor:
    """Rows of ids of any length -> one (rows, longest) tensor, filled up with PAD on the right."""
    matrix = np.full((len(rows), max(map(len, rows), default=0)), PAD_ID, dtype=np.int64)
    for index, row in enumerate(rows):
        matrix[index, : len(row)] = row
    return torch.from_numpy(matrix)


@dataclass(frozen=True)
class SourceBatch:
    """What an encoder reads: `source` (batch, source time) ending in EOS, `source_lengths` (batch,)."""

    source: Tensor
    source_lengths: Tensor

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


def collate_sources(sources: Sequence[Ids]) -> SourceBatch:
    """Encoded sentences -> what an encoder reads: EOS appended, padded, lengths kept."""
    with_end = [[*row, EOS_ID] for row in sources]
    return SourceBatch(padded(with_end), torch.tensor([len(row) for row in with_end], dtype=torch.long))


def collate_pairs(sources: Sequence[Ids], targets: Sequence[Ids]) -> PairBatch:
    """Encoded pairs (unknown words are UNK already) -> one training batch.

    The source ends in EOS, so the encoder sees where it stops. The target is shifted against itself: the decoder reads
    BOS y1 y2 … and must say y1 y2 … EOS.
    """
    source = collate_sources(sources)
    return PairBatch(
        source=source.source,
        source_lengths=source.source_lengths,
        target_in=padded([[BOS_ID, *row] for row in targets]),
        target_out=padded([[*row, EOS_ID] for row in targets]),
        target_lengths=torch.tensor([len(row) + 1 for row in targets], dtype=torch.long),
    )
