"""Text that fits a terminal: lines wrapped under their column, tables that leave their least telling columns out."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence

NARROWEST = 24
SHORTEST_NAME = 8


def described(about: Mapping[str, str], width: int | None, indent: str = "") -> str:
    """A line for each name and what it is; what does not fit goes on under its column."""
    longest = max(map(len, about), default=0)
    return hanging("\n".join(f"{indent}{name:<{longest}}  {text}".rstrip() for name, text in about.items()), width)


def hanging(text: str, width: int | None) -> str:
    """Lines that are too long are wrapped between words, under the last column of the line (after two spaces)."""
    if width is None:
        return text
    return "\n".join(piece for line in text.split("\n") for piece in _wrapped(line, max(width, NARROWEST)))


def _wrapped(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    if set(line) == {"-"}:
        return [line[:width]]
    columns = [found.end() for found in re.finditer(r"^ +|(?<=\S) {2,}", line) if found.end() <= width * 2 // 3]
    indent = columns[-1] if columns else 0
    if indent and width - indent < max(map(len, line[indent:].split()), default=0):  # its words need more room
        indent = min(indent, 4)
    pieces = textwrap.wrap(line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    return [piece.rstrip() for piece in pieces]


def table(
    rows: Sequence[Sequence[str]], *, left: int, width: int | None = None, spare: Sequence[str] = ()
) -> list[str]:
    """Rows of text in columns, the head first and a rule below it; the first `left` columns begin at their left.

    Where that is too wide, the columns that `spare` names are left out one after the other, then the names in the
    first column are shortened in the middle.
    """
    rows, kept = [list(row) for row in rows], list(range(len(rows[0])))
    for name in spare:
        if width is None or _width(rows, kept) <= width:
            break
        kept = [at for at in kept if rows[0][at].strip() != name]
    if width is not None and (excess := _width(rows, kept) - width) > 0:
        longest = max(SHORTEST_NAME, max(len(row[0]) for row in rows) - excess)
        rows = [[shortened(row[0], longest), *row[1:]] for row in rows]
    widths = [max(len(row[at]) for row in rows) for at in kept]
    lines = [
        "  ".join(
            row[at].ljust(size) if at < left else row[at].rjust(size) for at, size in zip(kept, widths, strict=True)
        )
        for row in rows
    ]
    return [line.rstrip() for line in (lines[0], "-" * len(lines[0]), *lines[1:])]


def _width(rows: Sequence[Sequence[str]], kept: Sequence[int]) -> int:
    return sum(max(len(row[at]) for row in rows) + 2 for at in kept) - 2


def shortened(text: str, most: int) -> str:
    """A text without its middle: names of runs differ at their ends."""
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end]}…{text[len(text) - end :]}"
