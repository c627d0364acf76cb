"""Which examples make a batch, and in which order: a function of seed and epoch alone, so a run resumes exactly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

POOL_BATCHES = 1024  # batches are cut from pools this large: the larger, the less padding on both sides


class Position(NamedTuple):
    """How far training has read: the epoch, and how many of its batches are done."""

    epoch: int = 0
    batch: int = 0


class BucketSampler:
    """Batches of examples of similar length, each within a budget of padded tokens.

    An epoch is a random order of all examples, cut into pools; a pool is sorted by length (ties stay random), cut into
    batches, and the batches are shuffled again. `lengths` are (examples, sides), end symbols included.
    """

    def __init__(self, lengths: np.ndarray, *, batch_tokens: int, seed: int, max_length: int | None = None) -> None:
        longest = lengths.max(1)
        limit = batch_tokens if max_length is None else min(max_length, batch_tokens)
        keep = (longest <= limit) & (lengths.min(1) > 1)  # a side with only its end symbol is an empty line
        self.lengths, self.batch_tokens, self.seed = lengths, batch_tokens, seed
        self.examples = np.flatnonzero(keep)
        self.num_dropped = len(lengths) - len(self.examples)

    def epoch(self, epoch: int) -> list[np.ndarray]:
        """All batches of an epoch, each an array of example numbers."""
        random = np.random.Generator(np.random.Philox(key=[self.seed, epoch]))
        order = random.permutation(self.examples)
        if not len(order):
            return []
        mean = max(1.0, float(self.lengths[order].max(1).mean()))
        pool_size = max(1, int(POOL_BATCHES * self.batch_tokens / mean))
        batches: list[np.ndarray] = []
        for start in range(0, len(order), pool_size):
            pool = order[start : start + pool_size]
            lengths = self.lengths[pool]
            pool = pool[np.lexsort((*lengths.T[:-1], lengths[:, -1]))]  # by target, then source length
            batches.extend(self._cut(pool))
        return [batches[index] for index in random.permutation(len(batches))]

    def _cut(self, pool: np.ndarray) -> Iterator[np.ndarray]:
        longest = self.lengths[pool].max(1).tolist()
        start = width = 0
        for end, length in enumerate(longest):
            new_width = max(width, length)
            if end > start and new_width * (end - start + 1) > self.batch_tokens:
                yield pool[start:end]
                start, new_width = end, length
            width = new_width
        yield pool[start:]

    def batches_from(self, position: Position) -> Iterator[tuple[Position, np.ndarray]]:
        """Batches without end from a position on, each with the position that follows it."""
        epoch, done = position
        while True:
            batches = self.epoch(epoch)
            assert batches, "a sampler without examples is refused before training"
            for index in range(done, len(batches)):
                after = Position(epoch, index + 1) if index + 1 < len(batches) else Position(epoch + 1, 0)
                yield after, batches[index]
            epoch, done = epoch + 1, 0


def sorted_batches(lengths: np.ndarray, batch_tokens: int) -> list[np.ndarray]:
    """Every example once, longest first, for evaluation and decoding: no shuffle, no example left out."""
    order = np.argsort(-lengths, kind="stable")
    batches, start = [], 0
    while start < len(order):
        size = max(1, batch_tokens // max(1, int(lengths[order[start]])))
        batches.append(order[start : start + size])
        start += size
    return batches


def padding_share(batches: list[np.ndarray], lengths: np.ndarray) -> float:
    """Share of a side's padded positions that hold no token."""
    padded = sum(int(lengths[batch].max()) * len(batch) for batch in batches)
    return 1 - sum(int(lengths[batch].sum()) for batch in batches) / max(1, padded)
