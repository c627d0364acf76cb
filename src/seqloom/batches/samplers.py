"""Which examples make a batch, and in which order: a function of seed and epoch alone, so a run resumes exactly."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np

POOL_BATCHES = 1024  # batches are cut from pools this large: the larger, the less padding on both sides
BLOCK = 256  # examples that are neighbours in the corpus come into the same pool: they are read from disk together
AT_ONCE = 2**16


class Lengths(Protocol):
    """(examples, sides), end symbols included; given a slice or numbers it gives an array. It need not be in memory."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any, /) -> np.ndarray: ...


class Position(NamedTuple):
    """How far training has read: the epoch, and in the epoch's pool number `pool`, how many batches are done."""

    epoch: int = 0
    batch: int = 0
    pool: int = 0


class BucketSampler:
    """Batches of examples of similar length, each within a budget of padded tokens.

    An epoch is a random order of blocks of the corpus, a few hundred blocks a pool. A pool's examples are shuffled,
    sorted by length (ties stay random) and cut into batches, and the batches are shuffled again. Only one pool is in
    memory at a time; a corpus of a few hundred thousand examples is one pool, and then all are shuffled together.
    """

    def __init__(self, lengths: Lengths, *, batch_tokens: int, seed: int, max_length: int | None = None) -> None:
        self.lengths, self.batch_tokens, self.seed = lengths, batch_tokens, seed
        self.limit = batch_tokens if max_length is None else min(max_length, batch_tokens)
        self.num_examples, total = 0, 0
        for start in range(0, len(lengths), AT_ONCE):
            some = lengths[start : start + AT_ONCE]
            longest = some[self._fit(some)].max(1, initial=0)
            self.num_examples, total = self.num_examples + len(longest), total + int(longest.sum())
        self.num_dropped = len(lengths) - self.num_examples
        mean = max(1.0, total / max(1, self.num_examples))
        self.pool_blocks = max(1, int(POOL_BATCHES * batch_tokens / mean) // BLOCK)
        self.num_blocks = -(-len(lengths) // BLOCK)
        self.num_pools = -(-self.num_blocks // self.pool_blocks)
        self._last: tuple[tuple[int, int], list[np.ndarray]] | None = None

    def _fit(self, lengths: np.ndarray) -> np.ndarray:
        """Which are trained on: not too long, and not empty on a side, which would have only its end symbol."""
        return np.asarray((lengths.max(1, initial=0) <= self.limit) & (lengths.min(1, initial=2) > 1))

    def pool(self, epoch: int, number: int) -> list[np.ndarray]:
        """The batches of one pool of an epoch, each an array of example numbers."""
        if self._last is not None and self._last[0] == (epoch, number):
            return self._last[1]
        blocks = self._random(epoch, 0).permutation(self.num_blocks)
        blocks = blocks[number * self.pool_blocks : (number + 1) * self.pool_blocks]
        starts = [(int(block) * BLOCK, min(len(self.lengths), (int(block) + 1) * BLOCK)) for block in blocks]
        examples = np.concatenate([np.arange(start, end) for start, end in starts] or [np.empty(0, np.int64)])
        lengths = np.concatenate([self.lengths[start:end] for start, end in starts] or [np.empty((0, 2), np.int64)])
        fit, random = self._fit(lengths), self._random(epoch, number + 1)
        order = random.permutation(np.flatnonzero(fit))
        lengths, examples = lengths[order], examples[order]
        order = order_by_length(lengths)
        cut = list(self._cut(examples[order], lengths[order].max(1, initial=0).tolist()))
        batches = [cut[index] for index in random.permutation(len(cut))]
        self._last = ((epoch, number), batches)
        return batches

    def _random(self, epoch: int, number: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=[self.seed, epoch], counter=[0, 0, 0, number]))

    def _cut(self, examples: np.ndarray, longest: list[int]) -> Iterator[np.ndarray]:
        start = width = 0
        for end, length in enumerate(longest):
            new_width = max(width, length)
            if end > start and new_width * (end - start + 1) > self.batch_tokens:
                yield examples[start:end]
                start, new_width = end, length
            width = new_width
        if len(longest):
            yield examples[start:]

    def batches_from(self, position: Position) -> Iterator[tuple[Position, np.ndarray]]:
        """Batches without end from a position on, each with the position that follows it."""
        assert self.num_examples, "a sampler without examples is refused before training"
        epoch, done, number = position
        while True:
            batches = self.pool(epoch, number)
            follows = Position(epoch, 0, number + 1) if number + 1 < self.num_pools else Position(epoch + 1)
            for index in range(done, len(batches)):
                yield Position(epoch, index + 1, number) if index + 1 < len(batches) else follows, batches[index]
            epoch, done, number = follows

    def batches_per_epoch(self) -> float:
        """How many there are; of a corpus of several pools, about how many."""
        return len(self.pool(0, 0)) * self.num_blocks / max(1, min(self.pool_blocks, self.num_blocks))

    def epochs_done(self, position: Position) -> float:
        """Epochs, and the share of the one begun."""
        within = position.batch / max(1, len(self.pool(position.epoch, position.pool))) if position.batch else 0.0
        return position.epoch + (position.pool + within) / max(1, self.num_pools)


def order_by_length(lengths: np.ndarray) -> np.ndarray:
    """By the longer side, then by how much one side is longer than the other, up and down in turns.

    Neighbours are alike on both sides, also where the longer side grows by one: little is padded wherever it is cut.
    """
    longest, excess = lengths.max(1, initial=0), lengths[:, 0] - lengths[:, -1]
    return np.lexsort((np.where(longest % 2, excess, -excess), longest))


def sorted_batches(lengths: np.ndarray, batch_tokens: int) -> list[np.ndarray]:
    """Every example once, longest first, for evaluation and decoding: no shuffle, no example left out."""
    order = np.argsort(-lengths, kind="stable")
    batches, start = [], 0
    while start < len(order):
        size = max(1, batch_tokens // max(1, int(lengths[order[start]])))
        batches.append(order[start : start + size])
        start += size
    return batches


def padding_share(batches: list[np.ndarray], lengths: Lengths) -> np.ndarray:
    """Share of each side's padded positions that hold no token."""
    real, padded = np.float64(0.0), np.float64(0.0)
    for batch in batches:
        some = lengths[batch]
        real, padded = real + some.sum(0), padded + some.max(0) * len(batch)
    return np.asarray(1 - real / padded)
