"""Running text: a file or a folder of files, as lines. It streams, whatever its size."""

from __future__ import annotations

import codecs
import hashlib
import itertools
import json
import os
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from seqloom.corpus import recall
from seqloom.corpus.lines import COMPRESSIONS, MAX_LINE_BYTES, blocks_in, content_digest, expand_path, lines_in
from seqloom.corpus.readers import CorpusSettings, read_pairs
from seqloom.corpus.readers import fingerprint as fingerprint_of_pairs
from seqloom.errors import DataError
from seqloom.settings import Settings

CHUNK_WORDS = 1000
GRAMMAR = "grammar:"
LANGUAGES = {"en": ("en-es", 0), "es": ("en-es", 1), "fr": ("en-fr", 1)}  # direction and side of a pair
# Raised when the meaning of a file changes with the code of this module, so that caches made from it are rebuilt.
_VERSION = 2


class PlainTextSettings(Settings):
    """Where running text comes from."""

    text: str = Field(
        description="a file, or a folder read recursively in sorted order; .gz and .xz are unpacked; or a text that is "
        "made: grammar:en/train, sentences of the embedded grammar (en, es, fr), or recall:30/train, where each line "
        "ends as it began, with 30 symbols between (1-30: 1 to 30)"
    )
    sentences: Literal["lines", "running"] = Field(
        "lines",
        description=f"lines: a line is a sentence; running: line breaks mean nothing, cut every {CHUNK_WORDS:,} words",
    )
    limit: int | None = Field(None, ge=1, description="only the first so many lines (running: so many cuts)")
    share: tuple[float, float] | None = Field(
        None, description="only a part of the text: where it begins and ends, such as [0, 0.9], by characters"
    )

    @field_validator("text", mode="before")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if value == "":
            raise ValueError("must not be empty")
        if isinstance(value, str) and value.startswith(recall.PREFIX):
            recall.parse_recall(value)  # a wrong spelling is told at once
        if isinstance(value, str) and value.startswith(GRAMMAR):
            _parse_grammar(value)
        return value

    @model_validator(mode="after")
    def _part(self) -> PlainTextSettings:
        if self.share is not None:
            if not 0 <= self.share[0] < self.share[1] <= 1:
                raise ValueError(f"share goes from a beginning to a later end within 0 and 1; got {list(self.share)}")
            if self.limit is not None or self.sentences == "running":
                raise ValueError("share does not go together with limit or sentences: running")
        if is_made(self.text) and self.sentences == "running":
            raise ValueError("sentences: running drops line breaks; in a made text every line stands by itself")
        return self


def is_made(text: str) -> bool:
    """Whether a text is made on the fly and not read from files."""
    return text.startswith((GRAMMAR, recall.PREFIX))


def _parse_grammar(text: str) -> tuple[CorpusSettings, int]:
    """`grammar:en/train` -> the pairs of which one side is meant, and which side."""
    language, _, split = text.removeprefix(GRAMMAR).partition("/")
    if language not in LANGUAGES:
        raise ValueError(
            f"a text of the grammar is spelt grammar:LANGUAGE/SPLIT, such as grammar:en/train, with one of "
            f"{', '.join(LANGUAGES)}; got {text!r}"
        )
    direction, side = LANGUAGES[language]
    return CorpusSettings.model_validate({"grammar": direction, "split": split}), side


def text_files(settings: PlainTextSettings) -> list[str]:
    """The files of a corpus in the order they are read; those whose names start with a dot are left out.

    A text that is made on the fly has none.
    """
    if is_made(settings.text):
        return []
    path = expand_path(settings.text)
    if not os.path.isdir(path):
        return [path]
    found = []
    for folder, folders, names in os.walk(path, onerror=_unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [os.path.join(folder, name) for name in names if not name.startswith(".")]
    found = sorted((p for p in found if os.path.isfile(p)), key=lambda p: os.path.relpath(p, path).split(os.sep))
    if not found:
        raise DataError("there is no file in this folder", path)
    return found


def read_lines(settings: PlainTextSettings) -> Iterator[str]:
    """The lines of a text, or its chunks where line breaks mean nothing; the end of a file is the end of a line."""
    if settings.share is not None:
        return (part.removesuffix("\n") for part in read_parts(settings))
    lines = _all_lines(settings)
    return lines if settings.limit is None else itertools.islice(lines, settings.limit)


def read_parts(settings: PlainTextSettings) -> Iterator[str]:
    """The text as it is, a line at a time with the break at its end; a share may begin and end within a line."""
    if settings.share is None:
        return (line + "\n" for line in read_lines(settings))
    total = sum(len(line) + 1 for line in _all_lines(settings))
    return _cut_out(_all_lines(settings), *(int(share * total) for share in settings.share))


def _cut_out(lines: Iterator[str], first: int, last: int) -> Iterator[str]:
    """Characters `first` to `last` of the text, line by line."""
    position = 0
    for line in lines:
        whole = line + "\n"
        part = whole[max(0, first - position) : max(0, last - position)]
        position += len(whole)
        if part:
            yield part
        if position >= last:
            return


def describe(settings: PlainTextSettings) -> str:
    """A short name for people: "articles.txt.xz", "books (12 files)", "recall:30/train"."""
    if is_made(settings.text):
        return settings.text
    path = expand_path(settings.text)
    name = os.path.basename(os.path.normpath(path))
    if not os.path.isdir(path):
        return name
    count = len(text_files(settings))
    return f"{name} ({'1 file' if count == 1 else f'{count:,} files'})"


def fingerprint(settings: PlainTextSettings) -> str:
    """A hash of what is read, so that a cache is keyed by content and not by the name or age of a file."""
    exclude = set() if is_made(settings.text) else {"text"}
    values = settings.model_dump(mode="json", exclude=exclude, exclude_none=True)
    digest = hashlib.blake2b(json.dumps([_VERSION, values], sort_keys=True).encode(), digest_size=16)
    if settings.text.startswith(GRAMMAR):
        digest.update(fingerprint_of_pairs(_parse_grammar(settings.text)[0]).encode())
    for path in text_files(settings):
        suffix = os.path.splitext(path.lower())[1]
        digest.update((suffix if suffix in COMPRESSIONS else "").encode() + b"\0" + content_digest(path))
    return digest.hexdigest()


def _all_lines(settings: PlainTextSettings) -> Iterator[str]:
    if settings.text.startswith(recall.PREFIX):
        yield from recall.recall_lines(recall.parse_recall(settings.text), settings.limit)
        return
    if settings.text.startswith(GRAMMAR):
        corpus, side = _parse_grammar(settings.text)
        pairs = read_pairs(corpus.model_copy(update={"size": settings.limit}))
        yield from (pair.target if side else pair.source for pair in pairs)
        return
    paths = text_files(settings)
    empty = True
    for path in paths:
        for line in _running(path) if settings.sentences == "running" else _checked_lines(path):
            empty = False
            yield line
    if empty:
        whole = expand_path(settings.text)
        raise DataError("the file is empty" if paths == [whole] else "every file in this folder is empty", whole)


def _checked_lines(path: str) -> Iterator[str]:
    for number, line in lines_in(path):
        if "\0" in line:
            raise _binary(path, number)
        yield line


def _running(path: str) -> Iterator[str]:
    """Chunks of words; a file that is one line of any length can be read too."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    number, rest, words = 1, "", list[str]()
    for block in itertools.chain(blocks_in(path), [b""]):
        kept = decoder.getstate()[0]  # bytes of a character that the last block cut in two
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            raw = kept + block
            line = number + raw[: error.start].count(b"\n")
            encoding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "latin1"
            message = f"not UTF-8: byte 0x{raw[error.start]:02x}; convert the file, e.g. iconv -f {encoding} -t utf-8"
            raise DataError(message, path, line) from None
        if "\0" in text:
            raise _binary(path, number + text[: text.index("\0")].count("\n"))
        number += text.count("\n")
        text = rest + text
        words += text.split()
        # The last word may go on in the next block.
        rest = words.pop() if block and text and not text[-1].isspace() else ""
        if len(rest) > MAX_LINE_BYTES:
            message = f"there is no space in {MAX_LINE_BYTES:,} characters; is this text with spaces between words?"
            raise DataError(message, path, number)
        whole = len(words) - len(words) % CHUNK_WORDS if block else len(words)
        for start in range(0, whole, CHUNK_WORDS):
            yield " ".join(words[start : start + CHUNK_WORDS])
        del words[:whole]


def _binary(path: str, line: int) -> DataError:
    return DataError("this is no text: there is a zero byte; give a text file (.gz and .xz are unpacked)", path, line)


def _unreadable(error: OSError) -> None:
    raise DataError(f"cannot be read: {error.strerror or error}", error.filename or "folder") from None
