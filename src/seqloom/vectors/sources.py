"""What the readers of vector files share: opening, collecting rows, and what is said of files that are damaged."""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from seqloom.errors import DataError, UserError, did_you_mean
from seqloom.vectors.keeping import first_not_finite
from seqloom.vectors.settings import SubwordSettings
from seqloom.vectors.table import WordVectors

MAX_SIZE = 100_000
MAX_WORD_BYTES = 10_000
# At the most so many bytes come out of one: deflate's limit, and a generous one for xz.
EXPANSION = {".gz": 1032, ".xz": 10_000}
FIRST_ROWS = 10_000

Told = Callable[[str], None]
"""Hears what is worth knowing about a file that could be read nevertheless."""


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A file's bytes, unpacked where its name ends in .gz or .xz; faults become one sentence."""
    try:
        openers: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}
        with openers.get(path.suffix, open)(path, "rb") as file:
            yield file
    except FileNotFoundError:
        near = did_you_mean(path.name, [p.name for p in path.parent.iterdir()]) if path.parent.is_dir() else ""
        raise UserError(f"{path}: there is no such file{near}") from None
    except IsADirectoryError:
        raise UserError(f"{path}: this is a folder; vectors are in a file") from None
    except (gzip.BadGzipFile, lzma.LZMAError, zlib.error, EOFError) as error:
        raise DataError(f"damaged or cut, cannot be unpacked ({error})", path) from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None


def most_bytes(path: Path) -> int:
    """No more than so many bytes can be in a file, once unpacked."""
    return path.stat().st_size * EXPANSION.get(path.suffix, 1)


def text_of(word: bytes) -> str:
    """Bytes that are not UTF-8 are shown as they are: word2vec cuts long words within a letter."""
    return word.decode("utf-8", "backslashreplace")


class Collected:
    """Words and rows while a file is read: as many as promised, or as many as come."""

    def __init__(self, path: Path, size: int, count: int | None, limit: int | None = None) -> None:
        self.path, self.size, self.count = path, size, count
        self.most = limit if count is None else count
        self.words: list[bytes] = []
        try:
            self.matrix = np.empty((FIRST_ROWS if self.most is None else self.most, size), np.float32)
        except MemoryError:
            raise UserError(
                f"{path}: no memory for {self.most:,} vectors of {size:,}; read fewer with a limit"
            ) from None

    def __len__(self) -> int:
        return len(self.words)

    @property
    def full(self) -> bool:
        return self.most is not None and len(self.words) >= self.most

    def space(self, rows: int) -> np.ndarray:
        """The next rows to be filled, as many as are free and wanted."""
        start = len(self.words)
        if self.most is None and start + rows > len(self.matrix):
            # In place: the system moves pages, not numbers. Nothing else may look at the matrix meanwhile.
            self.matrix.resize((max(start + rows, len(self.matrix) * 3 // 2), self.size), refcheck=False)
        return self.matrix[start : start + rows]

    def add(self, words: list[bytes]) -> None:
        """The words whose rows were filled."""
        self.words += words

    def finished(
        self,
        told: Told,
        subwords: SubwordSettings | None = None,
        buckets: np.ndarray | None = None,
        own: np.ndarray | None = None,
        counts: np.ndarray | None = None,
    ) -> WordVectors:
        """The table; of a word that comes twice the first vector is kept."""
        matrix = self.matrix[: len(self.words)]
        if self.most is None and len(self.words) < len(self.matrix):
            del matrix
            self.matrix.resize((len(self.words), self.size), refcheck=False)
            matrix = self.matrix
        words = [text_of(word) for word in self.words]
        row = first_not_finite(matrix)
        if row is not None:
            raise DataError(
                f"the vector of {words[row]!r} (word {row + 1:,}) holds a number that is not finite", self.path
            )
        broken = sum("\\x" in word and word.encode() != raw for word, raw in zip(words, self.words, strict=True))
        if broken:
            told(f"{self.path}: {broken:,} words are not UTF-8; their bytes are shown as \\x…")
        seen: set[str] = set()
        kept = np.array([word not in seen and not seen.add(word) for word in words], bool)  # type: ignore[func-returns-value]
        if not kept.all():
            told(f"{self.path}: {int((~kept).sum()):,} words come more than once; the first vector of each is kept")
            words = [word for word, keep in zip(words, kept.tolist(), strict=True) if keep]
            matrix = matrix[kept]
            own = None if own is None else own[kept]
            counts = None if counts is None else counts[kept]
        return WordVectors(words, matrix, counts, subwords, buckets, own)
