"""Files of vectors that others write and read: word2vec, GloVe and fastText."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Literal

from seqloom.errors import DataError, UserError, one_of
from seqloom.files import write_aside
from seqloom.vectors.binary_format import read_binary, write_binary
from seqloom.vectors.fasttext_format import MAGIC, read_fasttext
from seqloom.vectors.sources import Told, opened, text_of
from seqloom.vectors.table import WordVectors
from seqloom.vectors.text_format import parse_header, parse_line, read_text, write_text

Written = Literal["word2vec", "word2vec-binary", "glove", "fasttext"]

FORMATS = {
    "word2vec": "text with a header line, as word2vec and gensim write it",
    "word2vec-binary": "float32 numbers after a header line, as word2vec and gensim write it",
    "glove": "text without a header line",
    "fasttext": "fastText's .vec: the same text as word2vec's",
    "fasttext-binary": "fastText's .bin, with word pieces; read only",
}
WRITTEN = ("word2vec", "word2vec-binary", "glove", "fasttext")
PEEKED = 1 << 20


def read_vectors(
    path: str | Path, format: str | None = None, limit: int | None = None, told: Told = lambda text: None
) -> WordVectors:
    """Read vectors from a file of any known format; .gz and .xz are unpacked.

    Args:
        path: The file.
        format: One of `FORMATS`; told from the content when absent.
        limit: Only the first so many words (these files begin with the most frequent).
        told: Hears of faults that do not hinder, such as words that come twice.

    Raises:
        UserError: The file is damaged or of no known format; the message names line or byte.
    """
    path = Path(path).expanduser()
    if format is not None and format not in FORMATS:
        raise UserError(one_of("format", format, FORMATS))
    if limit is not None and limit < 1:
        raise UserError(f"limit must be at least 1; got {limit}")
    format = format or detect(path)
    if format == "fasttext-binary":
        return read_fasttext(path, limit, told)
    if format == "word2vec-binary":
        return read_binary(path, limit).finished(told)
    return read_text(path, header=format != "glove", limit=limit).finished(told)


def write_vectors(vectors: WordVectors, path: str | Path, format: str) -> None:
    """Write vectors for others; the file appears under its name when it is complete.

    Raises:
        UserError: The format is unknown, or a word cannot be written in it.
    """
    if format not in WRITTEN:
        raise UserError(one_of("format", format, WRITTEN))
    path = Path(path).expanduser()
    if path.is_dir():
        raise UserError(f"{path}: this is a folder; name a file")
    _check_words(vectors.words, format)

    def write(file: BinaryIO) -> None:
        if format == "word2vec-binary":
            write_binary(file, vectors.words, vectors.matrix)
        else:
            write_text(file, vectors.words, vectors.matrix, header=format != "glove")

    write_aside(path, write)


def detect(path: Path) -> str:
    """Which format a file has, by its first bytes."""
    with opened(path) as file:
        start = file.read(PEEKED)
    if not start:
        raise DataError("the file is empty", path)
    if start.startswith(MAGIC):
        return "fasttext-binary"
    line, _, rest = start.partition(b"\n")
    try:
        count, size = parse_header(line, path)
    except DataError:
        if b"\0" in start[:10_000]:
            raise DataError(f"not vectors of a known format ({', '.join(FORMATS)})", path, None) from None
        return "glove"
    if not count:
        return "word2vec"
    # A row of text is a word and numbers to the end of the line; binary numbers do not look like that.
    row, ended, _ = rest.partition(b"\n")
    try:
        parse_line(row, size, path, 2)
        return "word2vec"
    except DataError:
        if not ended and len(start) < PEEKED and _looks_like_text(row):
            return "word2vec"  # one line, and damaged: the reader of text says how
        if row.endswith(b" "):  # a binary number may begin with the byte that ends lines
            row = rest
        return "word2vec" if _looks_like_text(row[:2000]) else "word2vec-binary"


def _looks_like_text(row: bytes) -> bool:
    """Whether all but the word is made of characters that numbers are written with."""
    numbers = row.rstrip().partition(b" ")[2]
    strange = numbers.translate(None, b"0123456789+-.eEnaifNAIF \t\r")
    return len(strange) * 20 <= len(numbers)


def _check_words(words: Sequence[str], format: str) -> None:
    for row, word in enumerate(words):
        if not word or " " in word or "\n" in word:
            what = "is empty" if not word else "holds a space or a line break"
            raise UserError(
                f"word {row + 1:,} ({text_of(word.encode())!r}) {what}, which {format} files cannot hold; "
                "take it out, or join its parts with _"
            )
