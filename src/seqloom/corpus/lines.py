"""Lines of files, plain or compressed: bounded, in UTF-8, and with a sentence about everything that can be wrong.

What only a compressed file or a mistake needs is imported then: one sentence must be answered soon.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

from seqloom.errors import DataError, UserError, did_you_mean

MAX_LINE_BYTES = 1_000_000
COMPRESSIONS = (".gz", ".xz")
_BOM = b"\xef\xbb\xbf"

Complain = Callable[[str, DataError], None]
"""Takes the name of a check ("encoding", "columns" …) and the fault; the reader skips the example and goes on."""


def refuse(check: str, error: DataError) -> None:
    """The `complain` of everyone but the doctor: the first fault ends the reading."""
    raise error


_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def expand_variables(text: str) -> str:
    """`${NAME}` and `${NAME:-default}` from the environment; an unset name without default is an error."""

    def value(match: re.Match[str]) -> str:
        name, default = match.groups()
        found = os.environ.get(name) or default
        if found is None:
            raise UserError(f"{text}: the environment variable {name} is not set (export {name}=…)")
        return found

    return _VARIABLE.sub(value, text)


def expand_path(path: str) -> str:
    """A path as written in a recipe -> a path to open: `${NAME}`, `${NAME:-default}` and `~` are replaced."""
    return os.path.expanduser(expand_variables(path))


def open_lines(path: str) -> Iterator[tuple[int, str]]:
    r"""Line number (from 1) and text without its end, of a plain, .gz or .xz file in UTF-8.

    Only \n and \r\n end a line: characters such as U+2028 or a form feed, at which `str.splitlines` breaks, would let
    parallel files slip against each other. A byte order mark at the start is dropped.
    """
    return lines_in(expand_path(path))


def lines_in(path: str) -> Iterator[tuple[int, str]]:
    """`open_lines` of a path that is already complete: a file of a folder may have `$` or `~` in its name."""
    return ((number, text) for number, text, _ in located_lines(path, refuse))


def blocks_in(path: str, size: int = 1 << 20) -> Iterator[bytes]:
    """The bytes of a plain, .gz or .xz file, `size` at a time, for text whose lines mean nothing."""
    with explained(path), opened(path) as stream:
        block = stream.read(size).removeprefix(_BOM)
        while block:
            yield block
            block = stream.read(size)


def content_digest(path: str) -> bytes:
    """A hash of a file's bytes; one per file, so that bytes which move from one file to the next count."""
    import hashlib

    content = hashlib.blake2b(digest_size=16)
    with explained(path), open(path, "rb") as stream:
        while chunk := stream.read(1 << 20):
            content.update(chunk)
    return content.digest()


def located_lines(path: str, complain: Complain) -> Iterator[tuple[int, str, bool]]:
    """Number, text, and whether the text is sound; the text of an unsound line is only a stand-in."""
    for number, raw in enumerate(_raw_lines(path), start=1):
        if len(raw) > MAX_LINE_BYTES:
            message = f"the line is over {MAX_LINE_BYTES:,} bytes; is this a text file with one example per line?"
            complain("line size", DataError(message, path, number))
            yield number, "", False
            continue
        try:
            text, sound = raw.decode("utf-8"), True
        except UnicodeDecodeError as error:
            column = len(raw[: error.start].decode("utf-8")) + 1
            encoding = "utf-16" if number == 1 and raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "latin1"
            message = (
                f"not UTF-8: byte 0x{raw[error.start]:02x} at column {column}; "
                f"convert the file, e.g. iconv -f {encoding} -t utf-8"
            )
            complain("encoding", DataError(message, path, number))
            text, sound = raw.decode("utf-8", errors="replace"), False
        yield number, text, sound


def _raw_lines(path: str) -> Iterator[bytes]:
    """Lines without their ends; of a line over the limit only the beginning, still over the limit."""
    bound = MAX_LINE_BYTES + 2  # a line of the greatest length and its \r\n
    with explained(path), opened(path) as stream:
        raw = stream.readline(bound + len(_BOM)).removeprefix(_BOM)
        while raw:
            piece = raw
            while len(piece) >= bound and not piece.endswith(b"\n"):
                piece = stream.readline(bound)
            if raw.endswith(b"\r\n"):
                yield raw[:-2]
            elif raw.endswith(b"\n"):
                yield raw[:-1]
            else:
                yield raw
            raw = stream.readline(bound)


def opened(path: str) -> BinaryIO:
    """The bytes of a plain, .gz or .xz file."""
    if path.lower().endswith(".gz"):
        import gzip

        return cast(BinaryIO, io.BufferedReader(gzip.open(path, "rb")))
    if path.lower().endswith(".xz"):
        import lzma

        return cast(BinaryIO, io.BufferedReader(lzma.open(path, "rb")))
    return open(path, "rb")


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Turn what the system says about a file into a sentence for its owner."""
    try:
        yield
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(_missing(path), path) from None
    except IsADirectoryError:
        raise DataError("this is a folder; give a file", path) from None
    except PermissionError:
        raise DataError("there is no permission to read this file", path) from None
    except EOFError:
        raise DataError("the compressed file is cut short; copy or download it again", path) from None
    except _damages() as error:
        kind = "xz" if type(error).__name__ == "LZMAError" else "gzip"
        raise DataError(f"this is not a {kind} file, or it is damaged ({error})", path) from None
    except (OSError, ValueError) as error:  # ValueError: a path with a zero byte
        raise DataError(f"cannot be read: {getattr(error, 'strerror', None) or error}", path) from None


def _damages() -> tuple[type[Exception], ...]:
    """What a damaged compressed file raises; looked up when something was raised."""
    import gzip
    import lzma
    import zlib

    return gzip.BadGzipFile, zlib.error, lzma.LZMAError


def _missing(path: str) -> str:
    folder = os.path.dirname(path) or "."
    where = "" if os.path.isabs(path) else f"; looked for it from {os.getcwd()}"
    if not os.path.isdir(folder):
        return f"there is no such file, nor its folder {folder}{where}"
    try:
        siblings = [entry.name for entry in os.scandir(folder) if entry.is_file()]
    except OSError:
        siblings = []
    return f"there is no such file{did_you_mean(os.path.basename(path), siblings)}{where}"
