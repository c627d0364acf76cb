"""How often words stand near each other, counted in bounded memory.

Pairs are summed in a table. When it is full, it is written to disk as a sorted run; runs are merged into longer ones.
The result is a folder: `rows.bin` and `columns.bin` (int32), `values.bin` (float32) and `cooccurrences.json`; both
orders of a pair are there, sorted by row, then column.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import numpy as np

from seqloom.errors import UserError
from seqloom.files import folder_written_aside, read_json
from seqloom.kernels.compiling import can_compile
from seqloom.kernels.cooccurrence import DIGIT_BITS, EMPTY, add_pairs, sort_pairs, sum_equal, sum_pairs, sum_sorted

FORMAT = 1
SLOT_BITS = 22  # slots of 16 bytes: 67 MB; several times that while a full table is sorted
BLOCK_TOKENS = 1_000_000
MERGED_AT_ONCE = 4_000_000
MOST_ALIKE = 16
RUN = np.dtype([("key", "<i8"), ("sum", "<f8")])

Tell = Callable[[float, str], None]
"""Takes the share of the work that is done, 0 to 1, and a few figures as text."""


class Corpus(Protocol):
    """Running text as numbers, such as `seqloom.batches.tokens.TokenCorpus`."""

    @property
    def num_tokens(self) -> int: ...

    def blocks(self, size: int, start: int = 0) -> Iterator[tuple[int, np.ndarray]]: ...


class Cooccurrences:
    """The counted pairs: three arrays on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        summary = read_json(folder / "cooccurrences.json")
        try:
            format, self.num_words, self.size = (int(summary[name]) for name in ("format", "num_words", "size"))
            sizes = {(folder / f"{name}.bin").stat().st_size for name in ("rows", "columns", "values")}
        except (KeyError, TypeError, ValueError, OSError):
            raise UserError(f"{folder}: no co-occurrences written by seqloom; remove this folder") from None
        if format != FORMAT or sizes != {4 * self.size}:
            raise UserError(f"{folder}: the co-occurrences are damaged; remove this folder")

    def __len__(self) -> int:
        return self.size

    def blocks(self, size: int = 1_000_000) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Rows, columns and values, `size` at a time, in order."""
        for start in range(0, self.size, size):
            rows, columns = (self._read(name, np.int32, start, size) for name in ("rows", "columns"))
            yield rows, columns, self._read("values", np.float32, start, size)

    def _read(self, name: str, dtype: type, start: int, size: int) -> np.ndarray:
        return np.fromfile(self.folder / f"{name}.bin", dtype, size, offset=4 * start)


def count_cooccurrences(
    corpus: Corpus,
    num_words: int,
    window: int,
    folder: Path,
    *,
    by_distance: bool = True,
    slot_bits: int = SLOT_BITS,
    progress: Callable[[float], None] | None = None,
) -> Cooccurrences:
    """Count every pair of words at most `window` apart in a sentence.

    Args:
        corpus: the text.
        num_words: different words.
        window: words on each side.
        folder: written when all is counted; must not exist yet.
        by_distance: a pair counts 1/distance as in GloVe; else 1.
        slot_bits: the table in memory has 2^slot_bits places for pairs.
        progress: told the share of the text that is counted.
    """
    weights = np.zeros(window + 1)
    weights[1:] = 1.0 / np.arange(1, window + 1) if by_distance else 1.0
    with folder_written_aside(folder) as aside:
        count = _count_compiled if can_compile() else _count_plain
        runs = Runs(aside)
        count(corpus, num_words, weights, slot_bits, runs, progress)
        size = 0
        with ExitStack() as opened:
            names = ("rows.bin", "columns.bin", "values.bin")
            rows, columns, values = (opened.enter_context((aside / name).open("wb")) for name in names)
            for keys, sums in merge_runs(runs.paths, MERGED_AT_ONCE):
                first, second = np.divmod(keys, num_words)
                rows.write(first.astype(np.int32).tobytes())
                columns.write(second.astype(np.int32).tobytes())
                values.write(sums.astype(np.float32).tobytes())
                size += len(keys)
        for path in runs.paths:
            path.unlink()
        summary = {"format": FORMAT, "num_words": num_words, "size": size}
        (aside / "cooccurrences.json").write_text(json.dumps(summary), encoding="utf-8")
    return Cooccurrences(folder)


def _count_compiled(
    corpus: Corpus,
    num_words: int,
    weights: np.ndarray,
    slot_bits: int,
    runs: Runs,
    progress: Callable[[float], None] | None,
) -> None:
    while 2**slot_bits < 8 * len(weights):  # one word's pairs must fit
        slot_bits += 1
    keys, sums = np.full(2**slot_bits, EMPTY, np.int64), np.zeros(2**slot_bits)
    used = 0

    def flush() -> None:
        full = keys != EMPTY
        runs.add(*in_both_orders(keys[full], sums[full], num_words))
        keys.fill(EMPTY)
        sums.fill(0.0)

    for offset, block in corpus.blocks(BLOCK_TOKENS):
        place = begin = 0
        while place < len(block):
            place, begin, used = add_pairs(block, place, begin, weights, num_words, slot_bits, keys, sums, used)
            if place < len(block):
                flush()
                used = 0
        if progress is not None:
            progress((offset + len(block)) / corpus.num_tokens)
    flush()


def _count_plain(
    corpus: Corpus,
    num_words: int,
    weights: np.ndarray,
    slot_bits: int,
    runs: Runs,
    progress: Callable[[float], None] | None,
) -> None:
    keys, sums = np.empty(0, np.int64), np.empty(0)
    for offset, block in corpus.blocks(max(1, min(BLOCK_TOKENS, 2**slot_bits) // len(weights))):
        new, new_sums = sum_pairs(block, weights, num_words)
        keys, sums = sum_sorted(np.concatenate([keys, new]), np.concatenate([sums, new_sums]))
        if len(keys) > 2**slot_bits:
            runs.add(*in_both_orders(keys, sums, num_words))
            keys, sums = np.empty(0, np.int64), np.empty(0)
        if progress is not None:
            progress((offset + len(block)) / corpus.num_tokens)
    runs.add(*in_both_orders(keys, sums, num_words))


def in_both_orders(keys: np.ndarray, sums: np.ndarray, num_words: int) -> tuple[np.ndarray, np.ndarray]:
    """Both orders of each pair, sorted. A word near itself was met from both sides: its sum is doubled."""
    first, second = np.divmod(keys, num_words)
    same = first == second
    mirrored = (second * num_words + first)[~same]
    del first, second
    return _summed(np.concatenate([keys, mirrored]), np.concatenate([np.where(same, 2 * sums, sums), sums[~same]]))


def _summed(keys: np.ndarray, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorted keys, each once, and their sums; what is given may be overwritten."""
    if not can_compile():
        return sum_sorted(keys, sums)
    num_digits = -(-int(keys.max(initial=0)).bit_length() // DIGIT_BITS)
    return sum_equal(*sort_pairs(keys, sums, np.empty_like(keys), np.empty_like(sums), num_digits))


class Runs:
    """Sorted runs on disk: MOST_ALIKE of one generation become one of the next, so few are there, merged few times."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.written = folder, 0
        self.generations: list[list[Path]] = []

    @property
    def paths(self) -> list[Path]:
        return [path for generation in self.generations for path in generation]

    def add(self, keys: np.ndarray, sums: np.ndarray) -> None:
        self._write(0, [(keys, sums)])

    def _write(self, generation: int, parts: Iterable[tuple[np.ndarray, np.ndarray]]) -> None:
        path = self.folder / f"run-{self.written:07d}.bin"
        self.written += 1
        with path.open("wb") as file:
            for keys, sums in parts:
                run = np.empty(len(keys), RUN)
                run["key"], run["sum"] = keys, sums
                file.write(run.tobytes())
        if generation == len(self.generations):
            self.generations.append([])
        alike = self.generations[generation]
        alike.append(path)
        if len(alike) == MOST_ALIKE:
            self.generations[generation] = []
            self._write(generation + 1, merge_runs(alike, MERGED_AT_ONCE))
            for old in alike:
                old.unlink()


def merge_runs(runs: list[Path], at_once: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Sorted runs on disk -> sorted keys and their sums, about `at_once` in memory."""
    size = max(1, at_once // max(1, len(runs)))
    unread = [run.stat().st_size // RUN.itemsize for run in runs]
    taken = [0] * len(runs)
    held = [np.empty(0, RUN) for _ in runs]
    while True:
        for number, run in enumerate(runs):
            if not len(held[number]) and unread[number]:
                held[number] = np.fromfile(run, RUN, size, offset=taken[number] * RUN.itemsize)
                taken[number] += len(held[number])
                unread[number] -= len(held[number])
        # Up to the smallest last key of a run that goes on, no key can still come.
        lasts = [part["key"][-1] for part, more in zip(held, unread, strict=True) if more]
        ends = [np.searchsorted(part["key"], min(lasts), "right") if lasts else len(part) for part in held]
        ready = np.concatenate([np.empty(0, RUN), *(part[:end] for part, end in zip(held, ends, strict=True))])
        if not len(ready):
            return
        held = [part[end:] for part, end in zip(held, ends, strict=True)]
        yield _summed(np.ascontiguousarray(ready["key"]), np.ascontiguousarray(ready["sum"]))
