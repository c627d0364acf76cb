"""Sequences with a tag for each of their words: CoNLL columns, JSON lists, lines of words beside lines of tags.

A source is a tuple of words, its target a tuple of as many tags. Nothing is cut any further: what a file calls a word
is one, also with a space in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from seqloom.corpus.examples import Pair
from seqloom.corpus.lines import Complain, located_lines
from seqloom.corpus.readers import FORMATS, CorpusSettings, Located, files, json_object, json_texts
from seqloom.errors import DataError

DOCUMENT = "-DOCSTART-"
COMMENT = "#"
_KEYED = re.compile(r"#\s*[\w.]+\s*=")  # `# sent_id = 7`
_SKIPPED = re.compile(r"\d+[-.]\d+")  # CoNLL-U: a word that is several (1-2), one that is not there (1.1)


class TaggedCorpusSettings(CorpusSettings):
    """Where words and their tags come from."""

    formats: ClassVar[Mapping[str, str]] = {**FORMATS, ".conll": "conll", ".bio": "conll", ".conllu": "conllu"}

    format: Literal["conll", "conllu", "jsonl", "tsv", "csv"] | None = Field(  # type: ignore[assignment]
        default=None,
        description="of `file`; by its name when absent. conll: a word a line with its columns, and an empty line "
        "between two sentences; conllu: the same of Universal Dependencies; jsonl: lists of words and of tags",
    )

    @model_validator(mode="after")
    def _no_grammar(self) -> TaggedCorpusSettings:
        if self.grammar is not None:
            raise ValueError("the embedded grammar has no tags; name a file")
        return self

    def located(self, complain: Complain) -> Iterator[Located]:
        """A tuple of words and one of tags each."""
        kind = None if self.file is None else self.format or self.format_of(self.file)
        if kind in ("conll", "conllu"):
            first, second = (0, None) if kind == "conll" else (1, 3)
            word = first if self.source is None else self.source
            tag = second if self.target is None else self.target
            return _read_columns(files(self)[0], word, tag, kind == "conllu", complain)
        if kind == "jsonl":
            return _read_lists(files(self)[0], str(self.source or "tokens"), str(self.target or "tags"), complain)
        return _cut(super().located(complain), complain)


def _checked(one: Located, complain: Complain) -> Iterator[Located]:
    """The example, if it has words and a tag for each."""
    words, tags = len(one.pair.source), len(one.pair.target)
    if not words:
        complain("empty", DataError("there is no word in it", one.path, one.line))
    elif words != tags:
        message = f"expected a tag for each of {words} word{'s' * (words > 1)}, found {tags}"
        complain("tags", DataError(message, one.path, one.line))
    else:
        yield one


def _cut(examples: Iterator[Located], complain: Complain) -> Iterator[Located]:
    """Texts cut at their spaces."""
    for one in examples:
        pair = Pair(tuple(one.pair.source.split()), tuple(one.pair.target.split()))
        yield from _checked(one._replace(pair=pair), complain)


def _read_lists(path: str, words: str, tags: str, complain: Complain) -> Iterator[Located]:
    empty = True
    for number, text, sound in located_lines(path, complain):
        empty = False
        if not sound:
            continue
        try:
            values = json_object(text)
            pair = Pair(json_texts(values, words), json_texts(values, tags))
        except ValueError as error:
            complain("json", DataError(str(error), path, number))
            continue
        yield from _checked(Located(path, number, pair), complain)
    if empty:
        raise DataError("the file is empty", path)


Line = tuple[int, str]


def _sentences(path: str, complain: Complain) -> Iterator[list[Line]]:
    """The lines between two empty ones; a sentence with a line that is not sound is left out."""
    lines: list[Line] = []
    whole = True
    for number, text, sound in located_lines(path, complain):
        whole = whole and sound
        if text.strip():
            if text.split(None, 1)[0] != DOCUMENT:
                lines.append((number, text))
            continue
        if lines and whole:
            yield lines
        lines, whole = [], True
    if lines and whole:
        yield lines


def _cells(line: str) -> list[str]:
    """Between tabs, or where there is none between spaces; other white space may be part of a word."""
    return line.rstrip(" ").split("\t") if "\t" in line else re.split(" +", line.strip(" "))


def _read_columns(
    path: str, word: str | int, tag: str | int | None, universal: bool, complain: Complain
) -> Iterator[Located]:
    """Sentences of a file in columns; the first row says how many columns there are."""
    expected, any_line, places = 0, False, list[int]()
    for lines in _sentences(path, complain):
        any_line = True
        first = next((line for _, line in lines if not line.startswith(COMMENT)), None)
        if not expected and first is not None:
            expected = len(_cells(first))
            places = [_place(path, name, expected) for name in (word, expected - 1 if tag is None else tag)]
        while lines and _is_comment(lines[0][1], expected, universal):
            lines = lines[1:]
        if not lines:
            continue  # a block of comments
        rows = [(number, _cells(line)) for number, line in lines]
        faults = [_fault(cells, expected, places) for _, cells in rows]
        wrong = next((place for place, fault in enumerate(faults) if fault), None)
        if wrong is not None:
            complain("columns", DataError(faults[wrong], path, rows[wrong][0]))
            continue
        kept = [cells for _, cells in rows if not (universal and _SKIPPED.fullmatch(cells[0]))]
        found = [tuple(cells[place] for cells in kept) for place in places]
        pair = Pair(found[0], found[1])
        yield from _checked(Located(path, rows[0][0], pair), complain)
    if not any_line:
        raise DataError("there is no sentence in the file", path)


def _is_comment(line: str, columns: int, universal: bool) -> bool:
    """A word may begin with # too ("#monday O"): then its line has as many columns as others."""
    if not line.startswith(COMMENT):
        return False
    return universal or bool(_KEYED.match(line)) or len(_cells(line)) != columns


def _place(path: str, column: Any, columns: int) -> int:
    number = int(column) if isinstance(column, int) or str(column).isdecimal() else None
    if number is None:
        raise DataError(f"columns of this format have numbers, from 0; got {column!r}", path)
    if number >= columns:
        raise DataError(f"there is no column {number}; the first row has {columns}, counted from 0", path)
    return number


def _fault(cells: list[str], expected: int, places: list[int]) -> str:
    if len(cells) != expected:
        return f"expected {expected} column{'s' * (expected > 1)}, found {len(cells)}"
    if not all(cells[place].strip() for place in places):
        return "a word or a tag is empty"
    return ""
