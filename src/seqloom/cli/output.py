"""How the command line talks: answers on standard output, everything else on standard error."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TextIO

Format = Literal["text", "json"]


def note(text: str = "") -> None:
    """A line for the person, never part of the answer."""
    print(text, file=sys.stderr, flush=True)


def emit(value: Any) -> None:
    """One JSON object on one line of standard output."""
    print(json.dumps(value, ensure_ascii=False), flush=True)


def leads() -> bool:
    """Whether this process talks: the only one, or the first of those that a launcher such as torchrun started."""
    return os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("RANK", "0") == "0"


def use_colour() -> bool:
    """Colour only where a person looks at a terminal and has not asked for none (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def strong(text: str) -> str:
    return f"\033[1m{text}\033[0m" if use_colour() else text


def read_texts(texts: Iterable[str], input_file: Path | None) -> list[str]:
    """The texts to work on: the arguments, a file's lines, or standard input (`-`, or nothing and a pipe)."""
    from seqloom.errors import UserError

    given = list(texts)
    if input_file is not None:
        if given:
            raise UserError("give texts as arguments or --input FILE, not both")
        if str(input_file) == "-":
            return list(_stdin_lines())
        from seqloom.corpus.lines import open_lines

        return [line for _, line in open_lines(str(input_file))]
    if not given and not sys.stdin.isatty():
        return list(_stdin_lines())
    if not given:
        raise UserError("nothing to read: give a text in quotes, --input FILE, or pipe lines in")
    return given


def _stdin_lines() -> Iterator[str]:
    from seqloom.errors import DataError

    for number, line in enumerate(sys.stdin.buffer, 1):
        try:
            yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise DataError(f"not UTF-8: byte 0x{line[error.start]:02x}", "standard input", number) from None


@contextmanager
def output_to(path: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that appears only when it is complete."""
    if path is None:
        yield sys.stdout
        return
    import io

    from seqloom.files import write_atomically

    buffer = io.StringIO()
    yield buffer
    write_atomically(path, buffer.getvalue())
