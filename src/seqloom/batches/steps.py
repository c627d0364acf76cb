"""Batches of real-valued series: padded steps, and labels of each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from seqloom.batches.collate import twice

NO_LABEL = -100  # where a row is padded; what torch's cross-entropy leaves out


@dataclass(frozen=True)
class Steps:
    """Series that are read: `values` (batch, time, channels), 0 where padded; `lengths` (batch,)."""

    values: Tensor
    lengths: Tensor

    def __len__(self) -> int:
        return len(self.values)

    @property
    def count(self) -> int:
        return int(self.lengths.sum())

    def doubled(self) -> Steps:
        return Steps(*twice(self.values, self.lengths))

    def part(self, rows: slice) -> Steps:
        lengths = self.lengths[rows]
        return Steps(self.values[rows, : _longest(lengths)], lengths)

    def hidden(self, start: int, end: int) -> Steps:
        """The same without what some steps say: the mean of training stands there."""
        values = self.values.clone()
        values[:, start:end] = 0.0
        return replace(self, values=values)


@dataclass(frozen=True)
class StepLabels:
    """A class for each step: `ids` (batch, time), `NO_LABEL` where padded; `lengths` (batch,)."""

    ids: Tensor
    lengths: Tensor

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def count(self) -> int:
        return int(self.lengths.sum())

    def doubled(self) -> StepLabels:
        return StepLabels(*twice(self.ids, self.lengths))

    def part(self, rows: slice) -> StepLabels:
        lengths = self.lengths[rows]
        return StepLabels(self.ids[rows, : _longest(lengths)], lengths)


def _longest(lengths: Tensor) -> int:
    return int(lengths.max()) if len(lengths) else 0


def padded_steps(rows: Sequence[np.ndarray], fill: float = 0.0) -> tuple[Tensor, Tensor]:
    """(time, …) arrays of one type -> (rows, longest, …), and their lengths."""
    lengths = torch.tensor([len(row) for row in rows], dtype=torch.long)
    like = rows[0]
    values = np.full((len(rows), _longest(lengths), *like.shape[1:]), fill, like.dtype)
    for place, row in enumerate(rows):
        values[place, : len(row)] = row
    return torch.from_numpy(values), lengths
