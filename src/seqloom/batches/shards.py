"""Tokenised corpora on disk: written once, mapped into memory, never loaded whole.

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

PAIRS_AT_A_TIME = 20_000
Encode = Callable[[Sequence[str]], list[list[int]]]
FORMAT = 1


class TokenSequences:
    """All sentences of one side: `sequences[i]` is an array of ids, read from disk when asked for."""

    def __init__(self, folder: Path, side: str, dtype: str) -> None:
        self.offsets = _mapped(folder / f"{side}.offsets.bin", np.int64)
        self.tokens = _mapped(folder / f"{side}.tokens.bin", dtype)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)


def _mapped(path: Path, dtype: str | type) -> np.ndarray:
    if path.stat().st_size == 0:  # a file without a byte cannot be mapped
        return np.empty(0, dtype)
    return np.memmap(path, dtype, mode="r")


def cache_folder() -> Path:
    """Where shards are kept: $SEQLOOM_CACHE, else the user's cache folder."""
    chosen = os.environ.get("SEQLOOM_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(chosen) if chosen else (Path(base) if base else Path.home() / ".cache") / "seqloom"


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
