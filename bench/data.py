"""The batches all trainers read, in one file. Reading needs numpy only, because a peer's environment has no seqloom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench.spec import BOS_ID, EOS_ID, PAD_ID


class Batch(NamedTuple):
    """Padded ids as a translation model reads them: EOS ends the source, BOS starts what the decoder reads."""

    source: np.ndarray
    source_lengths: np.ndarray
    target_in: np.ndarray
    target_out: np.ndarray
    target_lengths: np.ndarray

    @property
    def num_tokens(self) -> int:
        return int(self.target_lengths.sum())


class BatchFile:
    """`file[i]` is batch i: ids without special symbols are stored flat, with where sentences and batches begin."""

    def __init__(self, path: str | Path, part: str = "train") -> None:
        with np.load(path) as arrays:
            self.sides = {side: (arrays[f"{part}_{side}_ids"], arrays[f"{part}_{side}_offsets"]) for side in SIDES}
            self.offsets = arrays[f"{part}_batches"]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lengths(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Source and target lengths of a batch, each with its end symbol."""
        first, last = self.offsets[index : index + 2]
        return tuple(np.diff(self.sides[side][1][first : last + 1]) + 1 for side in SIDES)  # type: ignore[return-value]

    def __getitem__(self, index: int) -> Batch:
        if not 0 <= index < len(self):
            raise IndexError(index)
        first, last = self.offsets[index : index + 2]
        source, target = (self._rows(side, int(first), int(last)) for side in SIDES)
        lengths = self.lengths(index)
        return Batch(
            padded([[*row, EOS_ID] for row in source]),
            lengths[0].astype(np.int64),
            padded([[BOS_ID, *row] for row in target]),
            padded([[*row, EOS_ID] for row in target]),
            lengths[1].astype(np.int64),
        )

    def __iter__(self) -> Iterator[Batch]:
        return (self[index] for index in range(len(self)))

    def _rows(self, side: str, first: int, last: int) -> list[np.ndarray]:
        ids, offsets = self.sides[side]
        return [ids[offsets[row] : offsets[row + 1]] for row in range(first, last)]


SIDES = ("source", "target")


def padded(rows: Sequence[Sequence[int]]) -> np.ndarray:
    matrix = np.full((len(rows), max(map(len, rows))), PAD_ID, np.int64)
    for index, row in enumerate(rows):
        matrix[index, : len(row)] = row
    return matrix


def padding_share(file: BatchFile, indices: Sequence[int]) -> float:
    """Share of padded target positions without a token."""
    lengths = [file.lengths(index)[1] for index in indices]
    return 1 - sum(int(one.sum()) for one in lengths) / max(1, sum(int(one.max()) * len(one) for one in lengths))


def write_batches(path: Path, work: Any, num_batches: int) -> None:
    """The first batches that seqloom itself would train on, and those it validates on.

    `work` is a `seqloom.tasks.supervised.ExampleWork`: its sampler says which sentences make a batch.
    """
    from seqloom.batches.samplers import Position

    chosen = [indices for _, indices in islice(work.sampler.batches_from(Position()), num_batches)]
    arrays = {**_arrays("train", work.train, chosen), **_arrays("valid", work.valid, work.valid_batches)}
    np.savez(path, **arrays)


def _arrays(part: str, examples: Any, batches: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
    order = [int(index) for batch in batches for index in batch]
    arrays = {f"{part}_batches": np.cumsum([0, *map(len, batches)])}
    for side in SIDES:
        rows = [np.asarray(examples.rows[side]["ids"][index], np.int32) for index in order]
        arrays[f"{part}_{side}_ids"] = np.concatenate(rows)
        arrays[f"{part}_{side}_offsets"] = np.cumsum([0, *map(len, rows)])
    return arrays
