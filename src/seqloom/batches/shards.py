"""Tokenised corpora on disk: written once, read where they are needed, a large one never whole.

A shard is a folder: for each side `SIDE.tokens.bin` (all ids one after the other) and `SIDE.offsets.bin` (where each
sentence starts), and `shard.json`, which is written last. Its name is a hash of everything that went in (file contents,
tokenizers), so a changed corpus is never mistaken for the cached one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import numpy as np

from seqloom.files import folder_written_aside
from seqloom.folders import cache_folder

PAIRS_AT_A_TIME = 20_000
HELD_BYTES = 2**22
Encode = Callable[[Sequence[str]], list[list[int]]]
FORMAT = 1


class TokenSequences:
    """All sentences of one side: `sequences[i]` is an array of ids, read from disk when asked for."""

    def __init__(self, folder: Path, side: str, dtype: str) -> None:
        self.offsets = _Numbers(folder / f"{side}.offsets.bin", np.int64)
        self.tokens = _Numbers(folder / f"{side}.tokens.bin", dtype)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        start, end = self.offsets[index : index + 2].tolist()
        return self.tokens[start:end]


class _Numbers:
    """Numbers in a file: a small one is read once, of a large one only what is asked for, whenever it is.

    Read, not mapped: a process counts the mapped pages it has seen as its own, and would look as large as its data.
    """

    def __init__(self, path: Path, dtype: str | type) -> None:
        self.dtype = np.dtype(dtype)
        self.size = path.stat().st_size // self.dtype.itemsize
        self.values: np.ndarray | None = None
        if path.stat().st_size <= HELD_BYTES:
            self.values = np.fromfile(path, self.dtype)
        elif not hasattr(os, "pread"):  # Windows
            self.values = np.memmap(path, self.dtype, mode="r")
        else:
            self.file = path.open("rb", buffering=0)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, rows: slice) -> np.ndarray:
        if self.values is not None:
            return self.values[rows]
        start, end, _ = rows.indices(self.size)
        width = self.dtype.itemsize
        return np.frombuffer(os.pread(self.file.fileno(), max(0, end - start) * width, start * width), self.dtype)


class SymbolCounts:
    """How many symbols each example has on each side, its end symbol included: (examples, sides), some at a time."""

    def __init__(self, *sides: TokenSequences) -> None:
        self.sides = sides

    def __len__(self) -> int:
        return len(self.sides[0])

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        if isinstance(rows, slice):
            start, end, _ = rows.indices(len(self))
            found = [np.diff(side.offsets[start : max(start, end) + 1]) for side in self.sides]
        else:
            found = [np.array([len(side[row]) for row in rows.tolist()], np.int64) for side in self.sides]
        return np.stack(found, 1) + 1


def write_shard(
    examples: Iterable[Sequence[str]],
    sides: dict[str, Encode],
    vocabulary_sizes: Iterable[int],
    key: str,
    progress: Callable[[int], None] | None = None,
    folder: Path | None = None,
) -> dict[str, TokenSequences]:
    """Encode every example's sides (a field each, in the order of `sides`) unless the cache has them already.

    Encoding goes through the tokenizer's own parallel batch call, `PAIRS_AT_A_TIME` examples in memory at once.
    """
    folder = cache_folder() / "shards" if folder is None else folder
    dtype = "uint16" if max(vocabulary_sizes) <= 2**16 else "uint32"
    name = hashlib.blake2b(f"{FORMAT}:{dtype}:{','.join(sides)}:{key}".encode(), digest_size=16).hexdigest()
    final = folder / name
    if not (final / "shard.json").is_file():
        _write(final, examples, sides, dtype, progress)
    return {side: TokenSequences(final, side, dtype) for side in sides}


def _write(
    final: Path,
    examples: Iterable[Sequence[str]],
    sides: dict[str, Encode],
    dtype: str,
    progress: Callable[[int], None] | None,
) -> None:
    with folder_written_aside(final) as aside, ExitStack() as opened:
        counts = dict.fromkeys(sides, 0)
        tokens = {side: opened.enter_context((aside / f"{side}.tokens.bin").open("wb")) for side in sides}
        offsets = {side: opened.enter_context((aside / f"{side}.offsets.bin").open("wb")) for side in sides}
        for side in sides:
            offsets[side].write(np.zeros(1, np.int64).tobytes())
        total = 0
        for chunk in _chunks(examples):
            for field, (side, encode) in enumerate(sides.items()):
                encoded = encode([example[field] for example in chunk])
                lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
                flat = np.fromiter((i for row in encoded for i in row), np.dtype(dtype), int(lengths.sum()))
                tokens[side].write(flat.tobytes())
                offsets[side].write((counts[side] + np.cumsum(lengths)).astype(np.int64).tobytes())
                counts[side] += int(lengths.sum())
            total += len(chunk)
            if progress is not None:
                progress(total)
        summary = {"format": FORMAT, "examples": total, "tokens": counts}
        (aside / "shard.json").write_text(json.dumps(summary), encoding="utf-8")


def _chunks(examples: Iterable[Sequence[str]]) -> Iterator[list[Sequence[str]]]:
    iterator = iter(examples)
    while chunk := list(islice(iterator, PAIRS_AT_A_TIME)):
        yield chunk
