"""Sequences with a tag for each of their words: CoNLL columns, JSON lists, lines of words beside lines of tags.

A source is a tuple of words, its target a tuple of as many tags. Nothing is cut any further: what a file calls a word
is one, also with a space in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from seqloom.corpus.examples import Pair, TagsAndLabel
from seqloom.corpus.lines import Complain, expand_path, located_lines
from seqloom.corpus.readers import FORMATS, CorpusSettings, Located, files, json_rows, json_text, json_texts
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

    label: str | None = Field(
        default=None,
        min_length=1,
        description="of each text, beside the tags of its words: a third line-parallel file; of jsonl a key, of conll "
        "the name in a comment such as `# intent = GetWeather`",
    )

    @model_validator(mode="after")
    def _fits(self) -> TaggedCorpusSettings:
        if self.grammar is not None:
            raise ValueError("the embedded grammar has no tags; name a file")
        if self.label is not None and self._kind() in ("tsv", "csv"):
            raise ValueError("label goes with line-parallel files, jsonl and conll, not with columns of a table")
        return self

    def _kind(self) -> str | None:
        return None if self.file is None else self.format or self.format_of(self.file)

    def paths(self) -> list[str]:
        beside = [self.label] if self.file is None and self.label is not None else []
        return [*super().paths(), *map(expand_path, beside)]

    def columns(self) -> dict[str, Any]:
        return {**super().columns(), "label": self.label}

    def located(self, complain: Complain) -> Iterator[Located]:
        """A tuple of words and one of tags each; with a label, `TagsAndLabel`."""
        kind = self._kind()
        if kind in ("conll", "conllu"):
            first, second = (0, None) if kind == "conll" else (1, 3)
            word = first if self.source is None else self.source
            tag = second if self.target is None else self.target
            return _read_columns(files(self)[0], word, tag, self.label, kind == "conllu", complain)
        if kind == "jsonl":
            keys = (str(self.source or "tokens"), str(self.target or "tags"))
            return _read_lists(files(self)[0], *keys, self.label, complain)
        examples = _cut(super().located(complain), complain)
        return examples if self.label is None else _with_labels(examples, files(self)[2], complain)


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


def _with_labels(examples: Iterator[Located], path: str, complain: Complain) -> Iterator[Located]:
    """Line n of a file is the label of line n."""
    lines, number, label = located_lines(path, complain), 0, ""
    for one in examples:
        while number < one.line:
            found = next(lines, None)
            if found is None:
                message = f"there is no line {one.line}, but {one.path} has one; parallel files need the same number"
                complain("line counts", DataError(message, path))
                return
            number, label = found[0], found[1].strip()
        yield from _labelled(one, label, path, number, complain)
    if next(lines, None) is not None:
        complain("line counts", DataError(f"there are more than {number:,} lines; the words have no more", path))


def _labelled(one: Located, label: str, path: str, line: int, complain: Complain) -> Iterator[Located]:
    if label:
        yield one._replace(pair=one.pair._replace(target=TagsAndLabel(one.pair.target, label)))
    else:
        complain("empty", DataError("there is no label", path, line))


def _read_lists(path: str, words: str, tags: str, label: str | None, complain: Complain) -> Iterator[Located]:
    def parts(values: dict[str, Any]) -> tuple[Pair, str | None]:
        name = None if label is None else json_text(values, label).strip()
        return Pair(json_texts(values, words), json_texts(values, tags)), name

    for number, (pair, name) in json_rows(path, parts, complain):
        for one in _checked(Located(path, number, pair), complain):
            yield from [one] if name is None else _labelled(one, name, path, number, complain)


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
    path: str, word: str | int, tag: str | int | None, label: str | None, universal: bool, complain: Complain
) -> Iterator[Located]:
    """Sentences of a file in columns; the first row says how many columns there are."""
    expected, any_line, places = 0, False, list[int]()
    for lines in _sentences(path, complain):
        any_line = True
        first = next((line for _, line in lines if not line.startswith(COMMENT)), None)
        if not expected and first is not None:
            expected = len(_cells(first))
            places = [_place(path, name, expected) for name in (word, expected - 1 if tag is None else tag)]
        keyed: dict[str, str] = {}
        while lines and _is_comment(lines[0][1], expected, universal):
            key, _, value = lines[0][1].removeprefix(COMMENT).partition("=")
            keyed[key.strip()] = value.strip()
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
        for one in _checked(Located(path, rows[0][0], pair), complain):
            name = "" if label is None else keyed.get(label, "")
            yield from [one] if label is None else _labelled(one, name, path, one.line, complain)
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
