"""fastText's own models (.bin): words, their rows and the rows of their pieces."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from seqloom.errors import DataError, UserError
from seqloom.vectors.finishing import finished_vectors
from seqloom.vectors.keeping import first_not_finite
from seqloom.vectors.settings import SubwordSettings
from seqloom.vectors.sources import MAX_SIZE, MAX_WORD_BYTES, Collected, Told, most_bytes, opened
from seqloom.vectors.table import WordVectors

MAGIC = struct.pack("<i", 793712314)
VERSIONS = (11, 12)
SUPERVISED = 3
BLOCK = 1 << 22


class Arguments(NamedTuple):
    """What a model was trained with, in the file's order."""

    size: int
    window: int
    epochs: int
    min_count: int
    negatives: int
    word_ngrams: int
    loss: int
    model: int
    buckets: int
    shortest: int
    longest: int
    update_rate: int
    subsample: float


class Words(NamedTuple):
    words: list[bytes]
    counts: np.ndarray


def read_fasttext(path: Path, limit: int | None, told: Told) -> WordVectors:
    """Read an unsupervised model that is not quantised; unknown words get vectors from their pieces."""
    with opened(path) as file:
        if file.read(4) != MAGIC:
            raise DataError("not a fastText model (.bin)", path)
        (version,) = _unpack(file, "<i", path, "the version")
        if version not in VERSIONS:
            raise DataError(
                f"a fastText model of version {version}; seqloom reads {' and '.join(map(str, VERSIONS))}", path
            )
        arguments = Arguments(*_unpack(file, "<12id", path, "the settings"))
        if arguments.model == SUPERVISED:
            raise DataError(
                "a supervised fastText model: its vectors belong to a classifier; seqloom reads unsupervised ones "
                "(skipgram, cbow)",
                path,
            )
        subwords = _subwords(arguments, path)
        found = _read_words(file, path)
        (quantised,) = _unpack(file, "<?", path, "the kind of its matrix")
        if quantised:
            raise DataError("a quantised fastText model (.ftz): its vectors are compressed; take the .bin file", path)
        rows = _read_matrix(file, path, len(found.words) + (arguments.buckets if subwords else 0), arguments.size)
    row = first_not_finite(rows)
    if row is not None:
        raise DataError(f"row {row + 1:,} of its matrix holds a number that is not finite", path)
    kept = len(found.words) if limit is None else min(limit, len(found.words))
    own, pieces = rows[:kept], rows[len(found.words) :]
    collected = Collected(path, arguments.size, kept)
    collected.add(found.words[:kept])
    if subwords is None:
        collected.matrix = own
        return collected.finished(told, counts=found.counts[:kept])
    collected.matrix = finished_vectors(found.words[:kept], own, pieces, subwords)
    return collected.finished(told, subwords, pieces, own, found.counts[:kept])


def _unpack(file: BinaryIO, shape: str, path: Path, what: str) -> tuple:  # type: ignore[type-arg]
    data = file.read(struct.calcsize(shape))
    if len(data) < struct.calcsize(shape):
        raise DataError(f"the file ends within {what}; it was cut", path)
    return struct.unpack(shape, data)


def _subwords(arguments: Arguments, path: Path) -> SubwordSettings | None:
    if not 1 <= arguments.size <= MAX_SIZE:
        raise DataError(f"vectors must have 1 to {MAX_SIZE:,} numbers; the file says {arguments.size:,}", path)
    if arguments.longest <= 0 or arguments.buckets <= 0:
        return None
    try:
        return SubwordSettings(
            shortest=max(1, arguments.shortest), longest=arguments.longest, buckets=arguments.buckets
        )
    except ValueError:
        raise DataError(
            f"word pieces of {arguments.shortest} to {arguments.longest} characters in {arguments.buckets:,} buckets "
            "are more than seqloom reads, or the file is damaged",
            path,
        ) from None


def _read_words(file: BinaryIO, path: Path) -> Words:
    """The dictionary: each word, a zero byte, how often it occurred, and what kind it is."""
    size, num_words, num_labels, _, pruned = _unpack(file, "<3i2q", path, "the dictionary")
    if num_labels or size != num_words or num_words < 0:
        raise DataError(f"{num_labels:,} labels among {size:,} entries: a supervised or a damaged model", path)
    if pruned >= 0:
        raise DataError("a pruned, quantised fastText model; take the .bin file it was made from", path)
    if num_words * 11 > most_bytes(path):
        raise DataError(f"the dictionary promises {num_words:,} words, but the file is too short", path)
    words, counts = [], np.empty(num_words, np.int64)
    data, place = b"", 0
    for row in range(num_words):
        end = data.find(b"\0", place)
        while end < 0 or end + 10 > len(data):
            if len(data) - place > MAX_WORD_BYTES + 10 and end < 0:
                raise DataError(f"entry {row + 1:,} of the dictionary has no end; the file is damaged", path)
            more = file.read(BLOCK)
            if not more:
                raise DataError(f"the file ends within word {row + 1:,} of {num_words:,}; it was cut", path)
            data, place = data[place:] + more, 0
            end = data.find(b"\0")
        words.append(data[place:end])
        counts[row] = int.from_bytes(data[end + 1 : end + 9], "little", signed=True)
        place = end + 10
    file.seek(place - len(data), 1)  # back to the first byte that is not a word's
    return Words(words, counts)


def _read_matrix(file: BinaryIO, path: Path, rows: int, size: int) -> np.ndarray:
    found = _unpack(file, "<2q", path, "the sizes of its matrix")
    if found != (rows, size):
        expected = f"{rows:,} rows of {size:,}"
        raise DataError(f"the matrix has {found[0]:,} rows of {found[1]:,} numbers; its settings say {expected}", path)
    if rows * size * 4 > most_bytes(path):
        raise DataError(f"the file is too short for its {rows:,} vectors of {size:,} numbers; it was cut", path)
    try:
        matrix = np.empty((rows, size), "<f4")
    except MemoryError:
        raise UserError(f"{path}: no memory for {rows:,} vectors of {size:,} numbers") from None
    target, done = matrix.data.cast("B") if rows else memoryview(b""), 0
    while done < matrix.nbytes:
        read = file.readinto(target[done : done + (BLOCK << 4)])  # type: ignore[attr-defined]
        if not read:
            raise DataError(f"the file ends within vector {done // (4 * size) + 1:,} of {rows:,}; it was cut", path)
        done += read
    return matrix
