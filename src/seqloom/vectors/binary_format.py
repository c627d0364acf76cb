"""Vectors as word2vec writes them in binary: a header line, then each word, a space and its float32 numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from seqloom.errors import DataError
from seqloom.vectors.sources import MAX_WORD_BYTES, Collected, most_bytes, opened, text_of
from seqloom.vectors.text_format import parse_header

BLOCK = 1 << 24


def read_binary(path: Path, limit: int | None = None) -> Collected:
    """Read a file block by block into a matrix of its final size."""
    with opened(path) as file:
        header = file.readline(200)
        count, size = parse_header(header, path)
        width = 4 * size
        if count * (width + 2) > most_bytes(path):
            raise DataError(
                f"the first line promises {count:,} vectors of {size:,} numbers, but the file is too short", path
            )
        rows = Collected(path, size, count if limit is None else min(count, limit))
        data, place, before = b"", 0, len(header)  # `before`: bytes of the file before `data`
        while not rows.full:
            end = data.find(b" ", place)
            if end < 0 or end + 1 + width > len(data):
                if end - place > MAX_WORD_BYTES or (end < 0 and len(data) - place > MAX_WORD_BYTES + width):
                    raise DataError(_no_word(len(rows), before + place), path)
                more = file.read(BLOCK)
                if not more:
                    raise DataError(_cut(count, len(rows), before + place), path)
                data, place, before = data[place:] + more, 0, before + place
                continue
            word = data[place:end].lstrip(b"\n")  # word2vec ends each vector with a line break, others do not
            if not word:
                raise DataError(_no_word(len(rows), before + place), path)
            if len(word) > MAX_WORD_BYTES:
                raise DataError(_no_word(len(rows), before + place), path)
            rows.space(1)[0] = np.frombuffer(data, "<f4", size, end + 1)
            rows.add([word])
            place = end + 1 + width
        if len(rows) == count and (data[place:] + file.read(BLOCK)).strip(b"\n"):
            last = f" (the last is {text_of(rows.words[-1])!r})" if count else ""
            raise DataError(f"the first line promises {count:,} words, but there is more after them{last}", path)
    return rows


def write_binary(file: BinaryIO, words: Sequence[str], matrix: np.ndarray) -> None:
    """As word2vec's program writes it, a line break after each vector included."""
    file.write(b"%d %d\n" % matrix.shape)
    for word, row in zip(words, np.ascontiguousarray(matrix, "<f4"), strict=True):
        file.write(word.encode() + b" " + row.tobytes() + b"\n")


def _no_word(read: int, place: int) -> str:
    return f"at byte {place:,}, after {read:,} words, there is no word; damaged, or not word2vec's binary format"


def _cut(count: int, read: int, place: int) -> str:
    return (
        f"the first line promises {count:,} words, but the file ends within number {read + 1:,} (byte {place:,}); "
        "it was cut"
    )
