"""Files that ask about words: analogy questions, and pairs that people judged for their similarity."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from seqloom.corpus.lines import open_lines
from seqloom.errors import DataError

MOST_LINES = 10_000_000
SCORE_NAMES = ("similarity", "score", "simlex999", "humanmean", "mean", "rating", "relatedness")
SUFFIX = re.compile(r".+-[a-z]")  # MEN marks the word class: sun-n


class Question(NamedTuple):
    """`a` is to `b` as `c` is to `answer`."""

    a: str
    b: str
    c: str
    answer: str


class Judged(NamedTuple):
    """Two words, and how similar people found them."""

    first: str
    second: str
    score: float


class Row(NamedTuple):
    line: int
    cells: list[str]


def read_questions(path: str | Path) -> dict[str, list[Question]]:
    """Section -> its questions: Google's format (`: section` lines, four words a line), or a table with a header
    that names the columns word1, word2, word3 and target, and perhaps type."""
    rows = _rows(path)
    if rows and _columns(rows[0].cells, ("word1", "word2", "word3", "target")):
        return _questions_of_table(rows, path)
    sections: dict[str, list[Question]] = {}
    name = Path(path).stem
    for line, cells in rows:
        if cells[0].startswith(":"):
            name = " ".join(cells)[1:].strip() or f"line {line}"
        elif len(cells) == 4:
            sections.setdefault(name, []).append(Question(*cells))
        else:
            raise DataError(f"expected four words, found {len(cells)}", path, line)
    if not sections:
        raise DataError("there is no question in it", path)
    return sections


def read_judgements(path: str | Path) -> list[Judged]:
    """Pairs with scores, from tables with or without header and comments, separated by tabs, commas or spaces.

    Where every word ends in a mark of its class, as in MEN (`sun-n`), the marks are taken off.
    """
    rows = _rows(path)
    if not rows:
        raise DataError("there is no pair in it", path)
    first, second, score, header = _judgement_columns(rows, path)
    found = []
    for line, cells in rows[header:]:
        if len(cells) <= max(first, second, score):
            raise DataError(f"expected {max(first, second, score) + 1} columns, found {len(cells)}", path, line)
        one, two = cells[first].strip(), cells[second].strip()
        if not one and not two:  # a last row without content
            continue
        value = _number(cells[score])
        if value is None:
            raise DataError(f"the score {cells[score]!r} is not a number", path, line)
        found.append(Judged(one, two, value))
    if found and all(SUFFIX.fullmatch(word) for pair in found for word in pair[:2]):
        found = [Judged(first[:-2], second[:-2], score) for first, second, score in found]
    if not found:
        raise DataError("there is no pair in it", path)
    return found


def asks_analogies(path: str | Path) -> bool:
    """Whether a file holds analogy questions; else it should hold pairs with scores."""
    rows = _rows(path, most=20)
    if not rows:
        raise DataError("the file is empty", path)
    cells = rows[0].cells
    if cells[0].startswith(":") or _columns(cells, ("word1", "word2", "word3", "target")):
        return True
    return all(len(row.cells) == 4 and all(_number(cell) is None for cell in row.cells) for row in rows)


def _rows(path: str | Path, most: int = MOST_LINES) -> list[Row]:
    """The lines that are neither empty nor comments, cut into cells at tabs, else commas, else spaces."""
    found: list[Row] = []
    separator: str | None = None
    for line, text in open_lines(str(path)):
        if not text.strip() or text.startswith("#"):
            continue
        if text.startswith(":"):  # a section of Google's format
            found.append(Row(line, text.split()))
        else:
            if separator is None:
                separator = next((mark for mark in "\t,;" if mark in text), " ")
            found.append(Row(line, text.split() if separator == " " else next(csv.reader([text], delimiter=separator))))
        if len(found) == most:
            break
    return found


def _columns(header: Sequence[str], wanted: Sequence[str]) -> list[int] | None:
    """Where the wanted columns are, or None where one is missing."""
    names = [_plain(cell) for cell in header]
    return [names.index(name) for name in wanted] if all(name in names for name in wanted) else None


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _number(cell: str) -> float | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return value if abs(value) < 1e300 else None  # `nan` and `inf` are words, not scores


def _questions_of_table(rows: Sequence[Row], path: str | Path) -> dict[str, list[Question]]:
    header = rows[0].cells
    words = _columns(header, ("word1", "word2", "word3", "target")) or []
    kind = _columns(header, ("type",)) or _columns(header, ("category",))
    sections: dict[str, list[Question]] = {}
    for line, cells in rows[1:]:
        if len(cells) != len(header):
            raise DataError(f"expected {len(header)} columns, found {len(cells)}", path, line)
        four = [cells[column].strip() for column in words]
        if not any(four):
            continue
        name = cells[kind[0]].strip() if kind else Path(path).stem
        sections.setdefault(name, []).append(Question(*four))
    if not sections:
        raise DataError("there is no question in it", path)
    return sections


def _judgement_columns(rows: Sequence[Row], path: str | Path) -> tuple[int, int, int, int]:
    """-> columns of the two words and of the score, and how many rows the header takes."""
    cells = rows[0].cells
    named = _columns(cells, ("word1", "word2"))
    scores = [_plain(cell) for cell in cells]
    score = next((scores.index(name) for name in SCORE_NAMES if name in scores), None)
    if named and score is not None:
        return named[0], named[1], score, 1
    header = int(all(_number(cell) is None for cell in cells))
    if header == len(rows):
        raise DataError("expected two words and a score", path, rows[0].line)
    line, cells = rows[header]
    words = [column for column, cell in enumerate(cells) if _number(cell) is None][:2]
    numbers = [column for column, cell in enumerate(cells) if _number(cell) is not None and column > (words or [0])[-1]]
    if len(words) < 2 or not numbers:
        raise DataError(f"expected two words and a score, found {', '.join(cells[:6])!r}", path, line)
    return words[0], words[1], numbers[0], header
