"""Windows of recordings for forecasting: which ones make a batch is a function of seed and epoch alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from seqloom.batches.collate import twice
from seqloom.batches.samplers import Position
from seqloom.batches.shards import Sequences


@dataclass(frozen=True)
class WindowBatch:
    """`values` (batch, history, channels) are read, `targets` (batch, horizon, channels) follow."""

    values: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.values)

    @property
    def num_tokens(self) -> int:
        """Numbers to forecast."""
        return self.targets.numel()

    def part(self, number: int, of: int) -> WindowBatch:
        return WindowBatch(self.values[number::of], self.targets[number::of])

    def doubled(self) -> WindowBatch:
        return WindowBatch(*twice(self.values, self.targets))


class Windows:
    """All windows of some recordings, one step after the other; none goes from one recording into the next."""

    def __init__(self, rows: Sequences, history: int, horizon: int) -> None:
        self.rows, self.history, self.horizon = rows, history, horizon
        offsets = rows.offsets[0 : len(rows) + 1]
        whole = history + horizon
        starts = [np.arange(a, b - whole + 1) for a, b in pairwise(offsets.tolist())]
        self.starts = np.concatenate(starts) if starts else np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self.starts)

    def arrays(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(windows, history, channels) and (windows, horizon, channels)"""
        whole = self.history + self.horizon
        found = np.stack([self.rows.values[int(start) : int(start) + whole] for start in self.starts[numbers]])
        return found[:, : self.history], found[:, self.history :]

    def batch(self, numbers: np.ndarray) -> WindowBatch:
        values, targets = self.arrays(numbers)
        return WindowBatch(torch.from_numpy(np.ascontiguousarray(values)), torch.from_numpy(targets.copy()))

    def in_order(self, size: int) -> Iterator[np.ndarray]:
        """The numbers of all windows, some at a time; the last ones too."""
        for start in range(0, len(self), size):
            yield np.arange(start, min(len(self), start + size))


class WindowSampler:
    """An epoch is every window once, in an order that seed and epoch give."""

    def __init__(self, count: int, *, size: int, seed: int) -> None:
        self.count, self.size, self.seed = count, size, seed
        self.batches = -(-count // size)

    def order(self, epoch: int) -> np.ndarray:
        return np.random.Generator(np.random.Philox(key=[self.seed, epoch])).permutation(self.count)

    def batches_from(self, position: Position) -> Iterator[tuple[Position, np.ndarray]]:
        """Batches without end from a position on, each with the position that follows it."""
        epoch, done = position.epoch, position.batch
        while True:
            order = self.order(epoch)
            for number in range(done, self.batches):
                after = Position(epoch, number + 1) if number + 1 < self.batches else Position(epoch + 1)
                yield after, order[number * self.size : (number + 1) * self.size]
            epoch, done = epoch + 1, 0
