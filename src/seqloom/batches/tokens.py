"""Running text as numbers on disk: written once, read in blocks, never whole in memory.

A folder with `tokens.bin` (int32: the place of each word among the counted ones, -1 after every sentence) and
`tokens.json`, which is written last. Its name is a hash of what went in.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import RawIOBase
from itertools import repeat
from pathlib import Path

import numpy as np

from seqloom.errors import UserError
from seqloom.files import folder_written_aside, read_json
from seqloom.folders import cache_folder
from seqloom.text.counts import WordCounts

FORMAT = 1
WORDS_AT_A_TIME = 500_000
END = -1
_UNKNOWN = -2


class TokenCorpus:
    """The running text as numbers; words without a place are not in it, nor sentences without words."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        summary = read_json(self.folder / "tokens.json")
        try:
            format, self.num_tokens, self.num_sentences = (
                int(summary[name]) for name in ("format", "tokens", "sentences")
            )
            size = self.path.stat().st_size
        except (KeyError, TypeError, ValueError, OSError):
            raise UserError(f"{self.folder}: no tokens written by seqloom; remove this folder") from None
        if format != FORMAT or size != 4 * self.num_tokens:
            raise UserError(f"{self.path}: {size:,} bytes, expected {4 * self.num_tokens:,}; remove its folder")

    @property
    def path(self) -> Path:
        return self.folder / "tokens.bin"

    @property
    def num_words(self) -> int:
        """Without the ends of sentences."""
        return self.num_tokens - self.num_sentences

    def blocks(self, size: int, start: int = 0) -> Iterator[tuple[int, np.ndarray]]:
        """Where a block starts and its tokens: at most `size`, more only where one sentence is longer.

        A block ends with -1, so the next one starts a sentence.

        Args:
            size: tokens wanted.
            start: where the first block starts: 0, or the end of a block of before.
        """
        if size < 1 or not 0 <= start <= self.num_tokens:
            raise ValueError(f"no block of {size} tokens from {start} on: there are {self.num_tokens}")
        with self.path.open("rb", buffering=0) as file:
            while start < self.num_tokens:
                block = _read(file, start, size)
                ends = np.flatnonzero(block == END)
                while not len(ends):
                    more = _read(file, start + len(block), size)
                    if not len(more):
                        raise UserError(f"{self.path}: the last sentence has no end; remove its folder")
                    ends = np.flatnonzero(more == END)[:1] + len(block)
                    block = np.concatenate([block, more])
                block = block[: ends[-1] + 1]
                yield start, block
                start += len(block)


def write_tokens(
    lines: Iterable[str],
    counts: WordCounts,
    encode: Callable[[str], Sequence[str]],
    key: str,
    progress: Callable[[int], None] | None = None,
    folder: Path | None = None,
) -> TokenCorpus:
    """Turn every line into numbers, unless the cache has them already.

    Args:
        lines: the text, a sentence each.
        counts: the words that get a number.
        encode: a line -> its words, as they were counted.
        key: what distinguishes this text, cut in this way, from every other (the words of `counts` are added to it).
        progress: called with how many words have been written.
        folder: instead of the cache.
    """
    folder = cache_folder() / "tokens" if folder is None else folder
    digest = hashlib.blake2b(f"{FORMAT}:{key}\0".encode(), digest_size=16)
    digest.update("\0".join(counts.words).encode())
    final = folder / digest.hexdigest()
    if not (final / "tokens.json").is_file():
        with folder_written_aside(final) as aside:
            _write(aside, lines, counts, encode, progress)
    return TokenCorpus(final)


def _write(
    folder: Path,
    lines: Iterable[str],
    counts: WordCounts,
    encode: Callable[[str], Sequence[str]],
    progress: Callable[[int], None] | None,
) -> None:
    number_of = counts.index.get
    tokens = sentences = 0
    held: list[int] = []

    with (folder / "tokens.bin").open("wb") as file:

        def flush() -> None:
            nonlocal tokens, sentences
            found = np.array(held, np.int32)
            found = found[found != _UNKNOWN]
            # The end of a sentence without words follows another end, or the block's start: blocks hold whole ones.
            ends = found == END
            found = found[~(ends & np.concatenate([[True], ends[:-1]]))] if len(found) else found
            file.write(found.tobytes())
            tokens += len(found)
            sentences += int((found == END).sum())
            held.clear()
            if progress is not None:
                progress(tokens - sentences)

        for line in lines:
            held.extend(map(number_of, encode(line), repeat(_UNKNOWN)))
            held.append(END)
            if len(held) >= WORDS_AT_A_TIME:
                flush()
        flush()
    if not tokens:
        raise UserError("no word of the text is among the counted ones; count the words of the same text")
    summary = {"format": FORMAT, "tokens": tokens, "sentences": sentences}
    (folder / "tokens.json").write_text(json.dumps(summary), encoding="utf-8")


def _read(file: RawIOBase, start: int, size: int) -> np.ndarray:
    file.seek(4 * start)
    return np.fromfile(file, np.int32, size)
