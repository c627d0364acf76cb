"""Vectors as text, a word and its numbers a line: word2vec and fastText (.vec) with a header, GloVe without."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from seqloom.errors import DataError
from seqloom.kernels.compiling import can_compile
from seqloom.kernels.numbers import POWERS, parse_lines
from seqloom.vectors.sources import MAX_SIZE, Collected, most_bytes, opened, text_of

BLOCK = 1 << 22
MAX_LINE_BYTES = 1 << 24
LINES_AT_ONCE = 4096


def read_text(path: Path, *, header: bool, limit: int | None = None) -> Collected:
    """Read a file block by block into a matrix of its final size (GloVe: one that grows)."""
    with opened(path) as file:
        blocks = _blocks(file, path)
        first = next(blocks, b"")
        if header:
            line, _, first = first.partition(b"\n")
            count, size = parse_header(line, path)
            _check_promise(count, size, path)
        else:
            count, size = None, _size_without_header(first, path)
        rows = Collected(path, size, count if limit is None or count is None else min(count, limit), limit)
        number = 1 + header
        for block in itertools.chain([first], blocks):
            number, position = _take(block, rows, number)
            if rows.full:
                if count == len(rows) and any(more.strip() for more in itertools.chain([block[position:]], blocks)):
                    raise DataError(f"the first line promises {count:,} words, but there are more", path, number)
                break
    if count is not None and not rows.full:
        raise DataError(
            f"the first line promises {count:,} words, but the file ends after {len(rows):,}; it was cut, or "
            "written without its end",
            path,
            number,
        )
    return rows


def write_text(file: BinaryIO, words: Sequence[str], matrix: np.ndarray, *, header: bool) -> None:
    """Nine digits, which give every float32 back exactly."""
    if header:
        file.write(b"%d %d\n" % matrix.shape)
    line = "%s" + " %.9g" * matrix.shape[1] + "\n"
    for start in range(0, len(words), LINES_AT_ONCE):
        rows = matrix[start : start + LINES_AT_ONCE].tolist()
        chunk = words[start : start + LINES_AT_ONCE]
        file.write("".join([line % (word, *row) for word, row in zip(chunk, rows, strict=True)]).encode())


def parse_header(line: bytes, path: Path) -> tuple[int, int]:
    """`400000 300` -> how many words, and the size of their vectors."""
    fields = line.split()
    if len(fields) != 2 or not all(field.isdigit() and len(field) < 16 for field in fields):
        shown = text_of(line[:60])
        raise DataError(f"expected a first line with the numbers of words and dimensions, found {shown!r}", path, 1)
    count, size = int(fields[0]), int(fields[1])
    if not 1 <= size <= MAX_SIZE:
        raise DataError(f"vectors must have 1 to {MAX_SIZE:,} numbers; the first line says {size:,}", path, 1)
    return count, size


def _check_promise(count: int, size: int, path: Path) -> None:
    """A header must not make us reserve memory for what the file cannot hold."""
    least = 2 * size + 2  # a word of one letter, numbers of one digit, and what is between them
    if count * least > most_bytes(path) + 1:
        raise DataError(
            f"the first line promises {count:,} vectors of {size:,} numbers, but the file is too short", path, 1
        )


def _blocks(file: BinaryIO, path: Path) -> Iterator[bytes]:
    """Whole lines, some megabytes at a time; the last one is ended where the file does not."""
    rest = b""
    while data := file.read(BLOCK):
        cut = data.rfind(b"\n") + 1
        if cut:
            yield rest + data[:cut]
            rest = data[cut:]
        else:
            rest += data
        if len(rest) > MAX_LINE_BYTES:
            raise DataError(f"a line longer than {MAX_LINE_BYTES:,} bytes; these are no vectors as text", path)
    if rest.strip():
        yield rest + b"\n"


def _size_without_header(block: bytes, path: Path) -> int:
    """Most lines have a word without spaces, so the commonest number of fields tells."""
    lines = block.split(b"\n", 1000)[:1000]
    found = Counter(line.rstrip().count(b" ") for line in lines if line.strip())
    size = found.most_common(1)[0][0] if found else 0
    if not 1 <= size <= MAX_SIZE:
        shown = text_of(block[:60].partition(b"\n")[0])
        raise DataError(f"expected a word and its numbers, separated by spaces, found {shown!r}", path, 1)
    return size


def _take(block: bytes, rows: Collected, number: int) -> tuple[int, int]:
    """Read a block's lines until its end or until all that are wanted; returns the next line's number and place."""
    data, position = np.frombuffer(block, np.uint8), 0
    starts, ends = np.empty(LINES_AT_ONCE, np.int64), np.empty(LINES_AT_ONCE, np.int64)
    compiled = can_compile()
    while position < len(block) and not rows.full:
        out = rows.space(LINES_AT_ONCE)
        done = 0
        if compiled:
            done, position = parse_lines(data, position, POWERS, out, starts, ends)
            if done:
                rows.add([block[i:j] for i, j in zip(starts[:done].tolist(), ends[:done].tolist(), strict=True)])
                number += done
        if done < len(out) and position < len(block):  # a line that is not so plain
            end = block.index(b"\n", position)
            line = block[position:end]
            if line.strip() or block[end:].strip():  # empty lines at the end are no matter
                rows.space(1)[0], word = parse_line(line, rows.size, rows.path, number)
                rows.add([word])
            number, position = number + 1, end + 1
    return number, position


def parse_line(line: bytes, size: int, path: Path, number: int) -> tuple[np.ndarray, bytes]:
    """One line of any kind: (size,) numbers and the word, which may hold spaces."""
    line = line.rstrip()
    word, _, rest = line.partition(b" ")
    if rest.count(b" ") != size - 1:
        word, *fields = line.rsplit(b" ", size)
        rest = b" ".join(fields)
        if len(fields) != size:
            found = len(fields)
            raise DataError(f"expected a word and {size} numbers, found {found}{_no_numbers(fields)}", path, number)
    if not word.strip(b" "):
        raise DataError(f"expected a word and {size} numbers, but the word is empty", path, number)
    try:
        vector = np.fromstring(rest, np.float32, sep=" ")
    except ValueError:
        vector = np.empty(0, np.float32)
    if len(vector) != size or not np.isfinite(vector).all():
        _blame(word, rest, path, number)
    return vector, word


def _no_numbers(fields: list[bytes]) -> str:
    bad = next((field for field in fields if not _is_number(field)), None)
    return "" if bad is None else f", of which {text_of(bad[:40])!r} is none"


def _blame(word: bytes, rest: bytes, path: Path, number: int) -> None:
    """Say which of the numbers is none."""
    for place, field in enumerate(rest.split(b" "), 1):
        if not _is_number(field):
            shown = text_of(field[:40])
            raise DataError(f"number {place} of the word {text_of(word)!r} is {shown!r}, not a number", path, number)
        with np.errstate(over="ignore"):
            finite = bool(np.isfinite(np.float32(float(field))))
        if not finite:
            shown = text_of(field[:40])
            raise DataError(f"number {place} of the word {text_of(word)!r} is {shown}, not finite", path, number)
    raise DataError(f"the numbers of the word {text_of(word)!r} cannot be read", path, number)


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return b"_" not in field
