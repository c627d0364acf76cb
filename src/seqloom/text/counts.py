"""How often each word of a text occurs: the vocabulary of word vectors, counted in one pass and bounded memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np

from seqloom.errors import DataError, UserError
from seqloom.files import write_atomically
from seqloom.text.words import split_words

Split = Literal["words", "spaces"]
MOST_KEPT = 10_000_000
WORDS_AT_A_TIME = 200_000
LONGEST_REMEMBERED = 40  # characters; what is cut is remembered, and a word may be as long as a line
LONGEST_LINE = 8_000_000  # bytes of one line in a file of counts: a word of the longest line that is read, and more
HEADER = "seqloom word counts 1"


class NoWords(UserError):
    """A text in which no word is frequent enough."""


@dataclass(frozen=True, eq=False)
class WordCounts:
    """Words and how often they occur, the most frequent first, equally frequent ones in the order of their letters."""

    words: tuple[str, ...]
    counts: np.ndarray
    """(words,) int64"""
    exact: bool = True
    """False when rare words had to be forgotten on the way, see `count`."""

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def total(self) -> int:
        """All running words that have a place here."""
        return int(self.counts.sum())

    @cached_property
    def index(self) -> dict[str, int]:
        """The place of each word."""
        return {word: place for place, word in enumerate(self.words)}


def words_of(line: str, split: Split = "words", lowercase: bool = True) -> list[str]:
    """The words of a line, as they are counted.

    Args:
        line: any text.
        split: "words": as a reader would cut it (`seqloom.text.words`), without what has neither letter nor digit;
            "spaces": what stands between spaces.
        lowercase: whether capitals count as small letters.
    """
    parts = (line.lower() if lowercase else line).split()
    if split == "spaces":
        return parts
    found: list[str] = []
    for part in parts:
        # What is between spaces is cut without regard to its neighbours, and most of it need not be cut.
        if part.isalnum():
            found.append(part)
        else:
            found += _remembered(part) if len(part) <= LONGEST_REMEMBERED else _cut(part)
    return found


def _cut(part: str) -> tuple[str, ...]:
    return tuple(word for word in split_words(part) if any(map(str.isalnum, word)))


_remembered = lru_cache(maxsize=2**16)(_cut)


def count_words(
    lines: Iterable[str],
    *,
    split: Split = "words",
    lowercase: bool = True,
    min_count: int = 1,
    max_words: int | None = None,
    most_kept: int = MOST_KEPT,
    progress: Callable[[int], None] | None = None,
) -> WordCounts:
    """The words of all lines, counted: `count` of `words_of` each line."""
    sentences = (words_of(line, split, lowercase) for line in lines)
    return count(sentences, min_count=min_count, max_words=max_words, most_kept=most_kept, progress=progress)


def count(
    sentences: Iterable[Sequence[str]],
    *,
    min_count: int = 1,
    max_words: int | None = None,
    most_kept: int = MOST_KEPT,
    progress: Callable[[int], None] | None = None,
) -> WordCounts:
    """Count words in one pass.

    While at most `most_kept` different words are seen, the counts are exact. When there are more, those seen once are
    forgotten, at the next time those seen up to twice, and so on, as word2vec does it. A word that was forgotten and
    comes again starts at 0. So no count is too high, and one is too low by at most 1 + 2 + … + r after r such times:
    frequent words are hardly touched, rare ones may be missing.

    Args:
        sentences: the words of each line.
        min_count: rarer words are left out.
        max_words: only so many, the most frequent.
        most_kept: different words held in memory.
        progress: told how many words have been read.
    """
    table: Counter[str] = Counter()
    read, forget = 0, 0
    for words in _batches(sentences):
        table.update(words)
        read += len(words)
        while len(table) > most_kept:
            forget += 1
            table = Counter({word: number for word, number in table.items() if number > forget})
        if progress is not None:
            progress(read)
    return ordered_counts(table, min_count, max_words, exact=forget == 0, read=read)


def ordered_counts(
    table: dict[str, int], min_count: int = 1, max_words: int | None = None, *, exact: bool = True, read: int = 0
) -> WordCounts:
    """A table of words as WordCounts, without the rare ones; an error when none is left."""
    kept = [(-number, word) for word, number in table.items() if number >= min_count]
    kept.sort()
    del kept[max_words if max_words is not None else len(kept) :]
    if not kept:
        most = max(table.values(), default=0)
        raise NoWords(
            f"no word of the text occurs {min_count:,} times: it has {read:,} words, the most frequent one "
            f"{most:,} times; lower min_count, or give more text"
            if table
            else "there is no word in the text"
        )
    counts = np.fromiter((-number for number, _ in kept), np.int64, len(kept))
    return WordCounts(tuple(word for _, word in kept), counts, exact)


def _batches(sentences: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    """Many sentences as one list: a table takes a long list faster than many short ones."""
    held: list[Sequence[str]] = []
    size = 0
    for words in sentences:
        held.append(words)
        size += len(words)
        if size >= WORDS_AT_A_TIME:
            yield list(chain.from_iterable(held))
            held, size = [], 0
    if held:
        yield list(chain.from_iterable(held))


def save_counts(path: str | Path, counts: WordCounts) -> None:
    """A header, then a line for each word: the word, a tab, its count."""
    for word in counts.words:
        if word.split() != [word]:
            raise ValueError(f"{word!r} is no word: it is empty or has a space in it")
    lines = [f"{HEADER}\t{'exact' if counts.exact else 'pruned'}"]
    lines += [f"{word}\t{number}" for word, number in zip(counts.words, counts.counts.tolist(), strict=True)]
    write_atomically(path, "\n".join(lines) + "\n")


def load_counts(path: str | Path, most_words: int = 50_000_000) -> WordCounts:
    """What `save_counts` wrote; anything else is an error with its line."""
    words: list[str] = []
    numbers: list[int] = []
    exact, last = True, (0, "")
    try:
        with Path(path).open("rb") as file:
            line_number = 0
            while raw := file.readline(LONGEST_LINE):
                line_number += 1
                word, tab, value = _decoded(raw, path, line_number).partition("\t")
                if line_number == 1:
                    if word != HEADER or value not in ("exact", "pruned"):
                        raise DataError("this is no file of word counts written by seqloom", path)
                    exact = value == "exact"
                    continue
                if not (tab and value.isascii() and value.isdecimal() and len(value) < 19 and word.split() == [word]):
                    raise DataError("expected a word, a tab and its count", path, line_number)
                this = (-int(value), word)
                if this[0] == 0 or (words and this <= last):
                    raise DataError("the words are not in the order of their counts", path, line_number)
                if len(words) == most_words:
                    raise DataError(f"there are more than {most_words:,} words", path, line_number)
                last = this
                words.append(word)
                numbers.append(int(value))
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path) from None
    if len(set(words)) < len(words):
        raise DataError("a word is there twice", path)
    if not words:
        raise DataError("there is no word in this file", path)
    return WordCounts(tuple(words), np.array(numbers, np.int64), exact)


def _decoded(raw: bytes, path: str | Path, line_number: int) -> str:
    if not raw.endswith(b"\n"):
        raise DataError("the line is cut short; the file is damaged", path, line_number)
    try:
        return raw[:-1].decode()
    except UnicodeDecodeError:
        raise DataError("not UTF-8; the file is damaged", path, line_number) from None
