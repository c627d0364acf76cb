"""Files to pairs: line-parallel files, TSV, CSV and JSONL (plain, .gz, .xz), and the embedded grammar.

Everything streams: no file is ever held in memory, and a line is bounded. A fault stops the reader with the file and
the line; whoever wants to see every fault (the data doctor) passes `complain` and reads on.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import itertools
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, cast, get_args

from pydantic import Field, field_validator, model_validator

from seqloom.corpus.examples import Pair
from seqloom.corpus.lines import COMPRESSIONS, Complain, content_digest, expand_path, located_lines, refuse
from seqloom.errors import DataError, UserError, did_you_mean
from seqloom.settings import Settings, validated

_PLACE = re.compile(r"\{([^{}]+)\}")  # of a column in a template
_LABEL = "__label__"
MOST_KEPT_PAIRS = 50_000
FORMATS = {".tsv": "tsv", ".tab": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
# All that decides what the embedded grammar says: its fingerprint follows them.
GRAMMAR_FILES = ("grammar.py", "rules.py", "phrases.py", "lexicon.py")

# Raised when the meaning of a file changes with the code of this module, so that caches of its pairs are rebuilt.
_VERSION = 1


class CorpusSettings(Settings):
    """Where pairs come from: two line-parallel files, one file with columns or keys, or the embedded grammar.

    A corpus of something else than texts is a class made from this one, with its own `formats` and `located`.
    """

    formats: ClassVar[Mapping[str, str]] = FORMATS
    """The format of a file by the end of its name."""

    source: str | int | None = None
    """A path (line-parallel files), or with `file` a column: its name in the header, its number from 0, or a key.

    Several columns are joined by a template, such as "{lemma} ;{features}" or "{0} ;{2}".
    """
    target: str | int | None = None
    """As `source`."""
    file: str | None = None
    """A TSV, CSV or JSONL file, or one of lines that begin with a label; may be compressed with .gz or .xz."""
    format: Literal["tsv", "csv", "jsonl", "labelled"] | None = None
    """Of `file`; by its name when absent. labelled: a label (fastText's `__label__` is taken off), a space and a text
    in each line; the text is the source."""
    grammar: Literal["en-es", "en-fr"] | None = None
    """A direction of the embedded corpus."""
    split: Literal["train", "valid", "test", "long", "phenomena"] | None = None
    """Of `grammar`; train when absent."""
    size: int | None = Field(default=None, ge=1)
    """Number of pairs the grammar makes; its own choice when absent."""
    take_every: int | None = Field(default=None, ge=2)
    """Only every so-manieth pair: validation data where there is none of its own."""
    skip_every: int | None = Field(default=None, ge=2)
    """All pairs but every so-manieth: what `take_every` leaves for training."""
    limit: int | None = Field(default=None, ge=1)
    """Only the first so many pairs."""

    @model_validator(mode="before")
    @classmethod
    def _default_split(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("grammar") is not None and values.get("split") is None:
            return {**values, "split": "train"}
        return values

    @field_validator("source", "target", "file", mode="before")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        if isinstance(value, os.PathLike):
            return os.fspath(value)
        if value is not None and (isinstance(value, bool) or not isinstance(value, str | int)):
            raise ValueError(f"must be text; got {value!r}")
        if value == "":
            raise ValueError("must not be empty")
        return value

    @model_validator(mode="after")
    def _one_way(self) -> CorpusSettings:
        if self.take_every is not None and self.skip_every is not None:
            raise ValueError("take_every and skip_every exclude each other; one is for validation, one for training")
        if self.file is not None and self.grammar is not None:
            raise ValueError("file and grammar exclude each other; keep the one the pairs come from")
        if self.file is not None:
            self._refuse("file", "split", "size")
            self._check_columns(self.file)
        elif self.grammar is not None:
            self._refuse("grammar", "source", "target", "format")
        else:
            if self.source is None and self.target is None:
                raise ValueError(
                    "say where the pairs come from: source and target (two line-parallel files), "
                    "file (one TSV, CSV or JSONL file) or grammar (en-es or en-fr)"
                )
            self._refuse("two line-parallel files", "format", "split", "size")
            for given, lacking in (("source", "target"), ("target", "source")):
                if getattr(self, lacking) is None:
                    raise ValueError(f"{given} is given without {lacking}; line-parallel files need both")
                if isinstance(getattr(self, given), int):
                    raise ValueError(f"{given} is a column number, but there is no file; add file, or give a path")
        return self

    def _refuse(self, way: str, *names: str) -> None:
        wrong = [name for name in names if getattr(self, name) is not None]
        if wrong:
            does = "does" if len(wrong) == 1 else "do"
            raise ValueError(
                f"{' and '.join(wrong)} {does} not go with {way}; remove {'it' if does == 'does' else 'them'}"
            )

    def _check_columns(self, file: str) -> None:
        kind: str | None
        try:
            kind = self.format or self.format_of(expand_path(file))
        except UserError:  # a variable that is not set here; told when the file is opened
            return
        if kind is None:
            raise ValueError(f"the name {file!r} does not tell the format; add format: {self.choices()}")
        for name in ("source", "target"):
            column = getattr(self, name)
            if column is not None and kind == "labelled":
                raise ValueError(
                    f"{name} does not go with format: labelled, whose lines are a label and a text; remove it"
                )
            if isinstance(column, str) and "{" in column and not _PLACE.search(column):
                raise ValueError(f"{name} joins columns by their names or numbers in braces; got {column!r}")
            if isinstance(column, int) and kind == "jsonl":
                raise ValueError(f"{name} is the number {column}, but a JSONL file has keys; give the key's name")
            if isinstance(column, int) and column < 0:
                raise ValueError(f"{name} is {column}, but columns are counted from 0")

    @classmethod
    def format_of(cls, path: str) -> str | None:
        """The format of a file by its name, if that tells it."""
        stem, suffix = os.path.splitext(path.lower())
        return cls.formats.get(os.path.splitext(stem)[1] if suffix in COMPRESSIONS else suffix)

    @classmethod
    def choices(cls) -> str:
        """What `format` may be, for people."""
        *others, last = (name for one in get_args(cls.model_fields["format"].annotation) for name in get_args(one))
        return f"{', '.join(others)} or {last}"

    def paths(self) -> list[str]:
        """The files it is read from; none for the grammar."""
        if self.file is not None:
            return [expand_path(self.file)]
        if self.grammar is not None:
            return []
        return [expand_path(str(self.source)), expand_path(str(self.target))]

    def columns(self) -> dict[str, Any]:
        """What it names within its file."""
        return {"source": self.source, "target": self.target}

    def located(self, complain: Complain) -> Iterator[Located]:
        """Its examples with file and line, before any is left out; as `read_located`."""
        if self.grammar is not None:
            return _read_grammar(self)
        if self.file is None:
            source_path, target_path = files(self)[:2]
            return _read_parallel(source_path, target_path, complain)
        path, kind = files(self)[0], _format(self)
        if kind == "labelled":
            return _read_labelled(path, complain)
        if kind == "jsonl":
            keys = [_Joined.of(self.source or "source"), _Joined.of(self.target or "target")]
            return _read_jsonl(path, keys, complain)
        source = 0 if self.source is None else self.source
        target = 1 if self.target is None else self.target
        rows = _tsv_rows(path, complain) if kind == "tsv" else _csv_rows(path, complain)
        return _read_table(path, rows, [_Joined.of(source), _Joined.of(target)], complain)


Corpus = TypeVar("Corpus", bound=CorpusSettings)
Made = TypeVar("Made")


def corpus_of(
    data: Sequence[str],
    like: Corpus | None = None,
    kind: type[Corpus] = CorpusSettings,  # type: ignore[assignment]
) -> Corpus:
    """`grammar:en-es/test`, one file, or two parallel files -> a corpus; of one file `like` says the columns."""
    values: dict[str, Any]
    if len(data) == 1 and data[0].startswith("grammar:"):
        direction, _, split = data[0].removeprefix("grammar:").partition("/")
        values = {"grammar": direction, "split": split or "test"}
    elif len(data) == 1 and like is not None and like.file is not None:
        known = kind.format_of(data[0]) or like.format or kind.format_of(like.file)
        same = known == (like.format or kind.format_of(like.file))
        columns = like.columns() if same or known in ("tsv", "csv") else {}
        values = {"file": data[0], "format": known, **columns}
    elif len(data) == 1:
        values = {"file": data[0]}
    elif len(data) == 2:
        values = {"source": data[0], "target": data[1]}
    else:
        raise UserError(f"--data takes one file with columns or two parallel files; got {len(data)}")
    found: Corpus = validated(kind, values, "--data")
    return found


class Located(NamedTuple):
    """A pair and the place it was read from."""

    path: str
    line: int
    pair: Pair


def files(settings: CorpusSettings) -> list[str]:
    """The paths a corpus is read from; none for the grammar."""
    return settings.paths()


def describe(settings: CorpusSettings) -> str:
    """A short name for people: "train.en + train.de", "pairs.tsv", "grammar en-es/train"."""
    if settings.grammar is not None:
        return f"grammar {settings.grammar}/{settings.split}"
    return " + ".join(os.path.basename(path) for path in files(settings))


def fingerprint(settings: CorpusSettings) -> str:
    """A hash of what the corpus holds, so that a cache is keyed by content and not by the name or age of a file."""
    values = settings.model_dump(mode="json", exclude={"file"})
    if settings.file is not None:
        values["format"] = _format(settings)
    elif settings.grammar is None:
        for name in settings.columns():
            del values[name]
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps([_VERSION, values], sort_keys=True).encode())
    paths = files(settings)
    if settings.grammar is not None:
        beside = [Path(__file__).with_name(name) for name in GRAMMAR_FILES]
        paths = [str(path) for path in beside if path.exists()]
    for path in paths:
        digest.update(content_digest(path))
    return digest.hexdigest()


def read_pairs(settings: CorpusSettings) -> Iterator[Pair]:
    """The pairs of a corpus, one after the other. An empty line is an empty string; skipping it is the caller's."""
    return (located.pair for located in read_located(settings))


def read_located(settings: CorpusSettings, complain: Complain = refuse) -> Iterator[Located]:
    """The pairs of a corpus with file and line (of a parallel corpus: of its source).

    Args:
        settings: where the pairs come from.
        complain: what to do about a faulty line; what makes a file unreadable as a whole is raised in any case.
    """
    examples = settings.located(complain)
    if settings.take_every is not None:
        examples = itertools.islice(examples, settings.take_every - 1, None, settings.take_every)
    elif settings.skip_every is not None:
        every = settings.skip_every
        examples = (example for number, example in enumerate(examples, 1) if number % every)
    return itertools.islice(examples, settings.limit)


# --- one reader per kind -------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=8)
def _kept_pairs(direction: str, split: str, size: int | None) -> tuple[Pair, ...]:
    """A small corpus of the grammar is made once and kept: it is read again for every tokenizer and shard."""
    from seqloom.corpus.grammar import generate

    return tuple(generate(direction, split, size))


def _read_grammar(settings: CorpusSettings) -> Iterator[Located]:
    from seqloom.corpus.grammar import generate

    direction, split = str(settings.grammar), str(settings.split)
    if (settings.size or 0) <= MOST_KEPT_PAIRS:
        pairs: Iterable[Pair] = _kept_pairs(direction, split, settings.size)
    else:
        pairs = generate(direction, split, settings.size)
    for number, pair in enumerate(pairs, start=1):
        yield Located(f"grammar:{direction}/{split}", number, pair)


def _read_parallel(source_path: str, target_path: str, complain: Complain) -> Iterator[Located]:
    sources, targets = located_lines(source_path, complain), located_lines(target_path, complain)
    number = 0
    while True:
        source, target = next(sources, None), next(targets, None)
        if source is None or target is None:
            break
        number = source[0]
        if source[2] and target[2]:
            yield Located(source_path, number, Pair(source[1], target[1]))
    if source is None and target is None:
        if number == 0:
            raise DataError("the file is empty", source_path)
        return
    # One file goes on: its first extra line is already taken, the rest is counted without being kept.
    longer, rest = (source_path, sources) if source is not None else (target_path, targets)
    shorter = target_path if source is not None else source_path
    total = number + 1 + sum(1 for _ in rest)
    lines = "1 line" if number == 1 else f"{number:,} lines"
    message = f"{lines}, but {longer} has {total:,}; parallel files need the same number"
    complain("line counts", DataError(message, shorter))


class _Joined(NamedTuple):
    """A side of a table: one column, or several with text between them (`between` has one more)."""

    columns: list[str | int]
    between: list[str]

    @classmethod
    def of(cls, column: str | int) -> _Joined:
        """A column, or a template such as "{lemma} ;{features}"."""
        parts = _PLACE.split(column) if isinstance(column, str) else []
        if len(parts) < 2:
            return cls([_column(column)], ["", ""])
        return cls([_column(name) for name in parts[1::2]], parts[0::2])

    def join(self, cells: Iterable[str]) -> str:
        return self.between[0] + "".join(cell + after for cell, after in zip(cells, self.between[1:], strict=True))


def _read_labelled(path: str, complain: Complain) -> Iterator[Located]:
    empty = True
    for number, line, sound in located_lines(path, complain):
        empty = False
        if not sound:
            continue
        label, text = [*line.split(None, 1), "", ""][:2]
        if not label:
            complain("columns", DataError("expected a label, a space and a text; found an empty line", path, number))
        elif text.startswith(_LABEL):
            second = text.split(None, 1)[0]
            complain("columns", DataError(f"expected one label; found another, {second!r}", path, number))
        else:
            yield Located(path, number, Pair(text.strip(), label.removeprefix(_LABEL)))
    if empty:
        raise DataError("the file is empty", path)


def _read_jsonl(path: str, keys: Sequence[_Joined], complain: Complain) -> Iterator[Located]:
    def sides(values: dict[str, Any]) -> list[str]:
        return [
            side.join(_json_side(values, str(key), lists=side is keys[-1]) for key in side.columns) for side in keys
        ]

    for number, (source, target) in json_rows(path, sides, complain):
        yield Located(path, number, Pair(source, target))


def json_rows(path: str, convert: Callable[[dict[str, Any]], Made], complain: Complain) -> Iterator[tuple[int, Made]]:
    """The lines of a JSONL file with what was made of their objects; `convert` raises ValueError where one is wrong."""
    empty = True
    for number, text, sound in located_lines(path, complain):
        empty = False
        if not sound:
            continue
        try:
            found = convert(_json_object(text))
        except ValueError as error:
            complain("json", DataError(str(error), path, number))
            continue
        yield number, found
    if empty:
        raise DataError("the file is empty", path)


LIST = "\x1f"
"""Before each item where a value was a list in JSON."""
_JSON_KINDS = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}


def _json_object(text: str) -> dict[str, Any]:
    if not text.strip():
        raise ValueError("expected a JSON object, found an empty line")
    try:
        values = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not valid JSON: {error.msg} at column {error.colno}") from None
    except RecursionError:
        raise ValueError("not valid JSON: nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits
        raise ValueError(f"not valid JSON: {error}") from None
    if not isinstance(values, dict):
        raise ValueError(f"expected a JSON object, found {_JSON_KINDS.get(type(values), 'a number')}")
    return values


def _json_value(values: dict[str, Any], key: str) -> Any:
    if key not in values:
        hint = did_you_mean(key, values) or f"; the keys here are {', '.join(values) or 'none'}"
        raise ValueError(f"the key {key!r} is missing{hint}")
    return values[key]


def json_text(values: dict[str, Any], key: str) -> str:
    """The text below a key of a JSON object; a whole number, as labels often are, is its digits."""
    text = _json_value(values, key)
    if isinstance(text, int) and not isinstance(text, bool):
        return str(text)
    if not isinstance(text, str):
        kind = _JSON_KINDS.get(type(text), "a fraction")
        raise ValueError(f"the key {key!r} must hold text or a whole number; found {kind}")
    return _sound(text, key)


def _json_side(values: dict[str, Any], key: str, *, lists: bool) -> str:
    """A source, or a target, which may be a list of labels; whoever has no use for several refuses them."""
    found = values.get(key)
    if lists and isinstance(found, list) and all(isinstance(item, str) and LIST not in item for item in found):
        return "".join(LIST + _sound(item, key) for item in found)
    return json_text(values, key)


def json_texts(values: dict[str, Any], key: str) -> tuple[str, ...]:
    """A list of texts below a key of a JSON object, none of them empty."""
    found = _json_value(values, key)
    if not isinstance(found, list):
        kind = _JSON_KINDS.get(type(found), "a number")
        raise ValueError(f"the key {key!r} must hold a list of texts; found {kind}")
    for place, text in enumerate(found):
        if not isinstance(text, str) or not text.strip():
            kind = _JSON_KINDS.get(type(text), "a number") if not isinstance(text, str) else "an empty text"
            raise ValueError(f"the list {key!r} must hold texts; its entry {place}, counted from 0, is {kind}")
    return tuple(_sound(text, key) for text in found)


def _sound(text: str, key: str) -> str:
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError(f"the key {key!r} holds half of a surrogate pair, which is no character")
    return text


_Row = tuple[int, list[str] | None]  # None: a row that was complained about


def _tsv_rows(path: str, complain: Complain) -> Iterator[_Row]:
    for number, text, sound in located_lines(path, complain):
        cells = text.split("\t") if text else []
        yield number, cells if sound else None


def _csv_rows(path: str, complain: Complain) -> Iterator[_Row]:
    """Records with the line they start at; a quoted field may go over several lines."""
    last = 0
    unsound = False

    def feed() -> Iterator[str]:
        nonlocal last, unsound
        for number, text, sound in located_lines(path, complain):
            last = number
            unsound = unsound or not sound
            yield text + "\n"

    reader = csv.reader(feed(), strict=True)
    while True:
        start, unsound = last + 1, False
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            complain("csv", DataError(f"not valid CSV: {_csv_problem(error)}", path, start))
            unsound, row = True, []
        yield start, None if unsound else row


def _csv_problem(error: csv.Error) -> str:
    message = str(error)
    if "field limit" in message:
        return f"a field is over {csv.field_size_limit():,} characters; is a closing quote missing?"
    if "unexpected end of data" in message:
        return "the file ends inside quotes; a closing quote is missing"
    if "new-line character" in message:
        return "a carriage return stands outside quotes"
    return message


def _read_table(path: str, rows: Iterator[_Row], sides: list[_Joined], complain: Complain) -> Iterator[Located]:
    expected = 0
    empty = True
    if any(isinstance(column, str) for side in sides for column in side.columns):
        number, header = next(rows, (0, []))
        if header is None:
            return
        if not header:
            raise DataError("the header line is empty" if number else "the file is empty", path)
        sides = [
            _Joined([_find_column(column, header, path, number) for column in side.columns], side.between)
            for side in sides
        ]
        expected = len(header)
    numbers = [cast(list[int], side.columns) for side in sides]
    for number, row in rows:
        empty = False
        if row is None:
            continue
        if expected == 0:
            expected = max(len(row), *(column + 1 for columns in numbers for column in columns))
        if len(row) == expected:
            both = zip(sides, numbers, strict=True)
            source, target = (side.join(row[column] for column in columns) for side, columns in both)
            yield Located(path, number, Pair(source, target))
        else:
            found = str(len(row)) if row else "an empty line"
            message = f"expected {expected} column{'s' if expected > 1 else ''}, found {found}"
            complain("columns", DataError(message, path, number))
    if empty:
        raise DataError("the file is empty" + (": there is a header, but no row" if expected else ""), path)


def _column(column: str | int) -> str | int:
    return int(column) if isinstance(column, str) and column.isascii() and column.isdecimal() else column


def _find_column(column: str | int, header: Sequence[str], path: str, line: int) -> int:
    if isinstance(column, int):
        if column >= len(header):
            raise DataError(f"there is no column {column}; the header has {len(header)}, counted from 0", path, line)
        return column
    if column not in header:
        hint = did_you_mean(column, header) or f"; the columns are {', '.join(header)}"
        raise DataError(f"the header has no column {column!r}{hint}", path, line)
    if header.count(column) > 1:
        raise DataError(f"the header names the column {column!r} twice; give its number", path, line)
    return header.index(column)


# --- formats -----------------------------------------------------------------------------------------------------


def _format(settings: CorpusSettings) -> str:
    path = files(settings)[0]
    kind = settings.format or settings.format_of(path)
    if kind is None:
        raise DataError(f"the name does not tell the format; add format: {settings.choices()}", path)
    return kind
