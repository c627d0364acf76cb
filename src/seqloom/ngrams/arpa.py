r"""ARPA files, the common form of n-gram models (SRILM, kenlm and others read and write them).

Logarithms to base 10, a section for each order, a line for each n-gram: probability, words, back-off factor. `<s>`,
`</s>` and `<unk>` are our begin, end and unknown symbols. -99 stands for a probability of 0. Both smoothings are kept
in back-off form, so a written model is the same model: Kneser–Ney and add-k alike.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from seqloom.errors import DataError, UserError, did_you_mean
from seqloom.files import write_aside
from seqloom.ngrams.levels import Level
from seqloom.ngrams.model import NGramModel
from seqloom.ngrams.settings import MAX_ORDER, NGramSettings
from seqloom.text.special import BOS_ID, EOS_ID, PAD_ID, SPECIAL, UNK_ID

NAMES = {b"<unk>": UNK_ID, b"<s>": BOS_ID, b"</s>": EOS_ID, b"<UNK>": UNK_ID}
ZERO = -99.0
LN_10 = float(np.log(10.0))
BLOCK = 1 << 22
MAX_LINE_BYTES = 1 << 20
LINES_AT_ONCE = 1 << 16
LARGEST_FACTOR = 1e6
OTHER_SPACES = (b"\r", b"\v", b"\f")
SPACES = re.compile(rb"[\s\0]")  # of ASCII: what readers of these files cut at


def write_arpa(model: NGramModel, words: Sequence[str], path: str | Path) -> None:
    """Write a model; a name that ends in .gz is compressed.

    Args:
        model: any n-gram model.
        words: the name of every symbol, by id; those of the four reserved ones do not matter.
        path: the new file.
    """
    path = Path(path)
    names = _names(words, model.num_symbols)

    def write(file: BinaryIO) -> None:
        if path.suffix == ".gz":
            with gzip.GzipFile("", "wb", 6, file, 0) as packed:
                _write(packed, model, names)
        else:
            _write(file, model, names)

    write_aside(path, write)


def read_arpa(path: str | Path) -> tuple[NGramModel, list[str]]:
    """A model of orders 1 to 6, and the name of every symbol: the reserved ones, then the words as the file has them.

    The model's settings tell its order alone: how it was smoothed is not in the file. A file without `<unk>` gives
    unknown words the probability 0.
    """
    path = Path(path)
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            return _Reader(file, path).read()  # type: ignore[arg-type]  # GzipFile is binary
    except FileNotFoundError:
        near = did_you_mean(path.name, [p.name for p in path.parent.iterdir()]) if path.parent.is_dir() else ""
        raise UserError(f"{path}: there is no such file{near}") from None
    except IsADirectoryError:
        raise UserError(f"{path}: this is a folder; an ARPA model is a file") from None
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise DataError(f"damaged or cut, cannot be unpacked ({error})", path) from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None


def _names(words: Sequence[str], num_symbols: int) -> list[bytes]:
    if len(words) != num_symbols:
        raise ValueError(f"{len(words)} words for {num_symbols} symbols")
    names = [b"", b"<unk>", b"<s>", b"</s>"]
    for word in words[len(SPECIAL) :]:
        try:
            name = word.encode()
        except UnicodeEncodeError:
            raise UserError(f"the word {word!r} cannot be written as UTF-8, so not into an ARPA file") from None
        if not name or SPACES.search(name):
            what = "has a space in it" if name else "is empty"
            raise UserError(f"the word {word!r} {what}; an ARPA file has spaces between words and cannot hold it")
        if name in NAMES or word in SPECIAL:
            raise UserError(f"the word {word!r} is a reserved symbol of ARPA files or of ours; give it another name")
        names.append(name)
    if len(set(names)) < len(names):
        twice = next(word for place, word in enumerate(words) if word in words[:place])
        raise UserError(f"the word {twice!r} has two ids; an ARPA file cannot tell them apart")
    return names


def _write(file: BinaryIO | gzip.GzipFile, model: NGramModel, names: list[bytes]) -> None:
    counts = "".join(f"ngram {length}={count}\n" for length, count in enumerate(model.num_ngrams(), 1))
    file.write(f"\\data\\\n{counts}".encode())
    table = np.array(names, object)
    for length in range(1, model.order + 1):
        file.write(f"\n\\{length}-grams:\n".encode())
        level = model.levels[length - 1]
        for start in range(PAD_ID + 1 if length == 1 else 0, len(level.keys), LINES_AT_ONCE):
            chunk = slice(start, min(start + LINES_AT_ONCE, len(level.keys)))
            columns = [table[ids].tolist() for ids in _words_of(model, length, chunk)]
            chances = np.maximum(level.log_probabilities[chunk] / LN_10, ZERO).tolist()
            if length < model.order:
                # What nothing follows has no factor, as in SRILM's files.
                ends = [b"\t%.9g\n" % x if x else b"\n" for x in (level.backoffs[chunk] / LN_10).tolist()]
            else:
                ends = [b"\n"] * len(chances)
            lines = zip(chances, zip(*columns, strict=True), ends, strict=True)
            file.write(b"".join([b"%.9g\t%b%b" % (chance, b" ".join(ngram), end) for chance, ngram, end in lines]))
    file.write(b"\n\\end\\\n")


def _words_of(model: NGramModel, length: int, chunk: slice) -> list[np.ndarray]:
    """The ids of the first words of some n-grams, of the second ones, and so on."""
    ids, columns = np.arange(chunk.start, chunk.stop), list[np.ndarray]()
    for level in model.levels[length - 1 : 0 : -1]:
        ids, last = np.divmod(level.keys[ids], model.num_symbols)
        columns.append(last)
    return [ids, *reversed(columns)]


class _Reader:
    """One pass over a file; knows the line it is at."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.path, self.number = path, 0
        self.lines = self._lines(file)
        self.index: dict[bytes, int] = {}
        self.words = list(SPECIAL)

    def read(self) -> tuple[NGramModel, list[str]]:
        counts = self._header()
        levels: list[Level] = []
        for length, count in enumerate(counts, 1):
            if length > 1:
                self._title(f"\\{length}-grams:")
            is_last = length == len(counts)
            levels.append(
                self._longer(length, count, levels, is_last) if length > 1 else self._unigrams(count, is_last)
            )
        self._title("\\end\\")
        return NGramModel(levels, NGramSettings(kind="ngram_lm", order=len(levels)), len(self.words)), self.words

    def _lines(self, file: BinaryIO) -> Iterator[bytes]:
        rest = b""
        while data := file.read(BLOCK):
            parts = (rest + data).split(b"\n")
            rest = parts.pop()
            for line in parts:
                self.number += 1
                yield line
            if len(rest) > MAX_LINE_BYTES:
                self.number += 1
                raise self._wrong("no line of an ARPA file is so long; is this one?")
        if rest:
            self.number += 1
            yield rest

    def _wrong(self, message: str, line: int | None = None) -> DataError:
        return DataError(message, self.path, self.number if line is None else line)

    def _header(self) -> list[int]:
        """How many n-grams of each order are promised; stands at the title of the first section then."""
        if not any(line.strip() == b"\\data\\" for line in self.lines):
            raise DataError("not an ARPA file: there is no line \\data\\", self.path)
        counts: list[int] = []
        for line in self.lines:
            text = line.strip()
            if not text:
                continue
            if text == b"\\1-grams:":
                break
            found = re.fullmatch(rb"ngram\s+(\d{1,4})\s*=\s*(\d{1,15})", text)
            if found is None:
                raise self._wrong(f"expected 'ngram 1=' and a count, or \\1-grams:; found {_shown(text)}")
            if int(found[1]) != len(counts) + 1:
                raise self._wrong(f"expected the count of order {len(counts) + 1}; found {_shown(text)}")
            counts.append(int(found[2]))
            if len(counts) > MAX_ORDER:
                raise self._wrong(f"this model has n-grams longer than {MAX_ORDER} words, more than seqloom reads")
        else:
            raise self._wrong("the file ends before \\1-grams:; it was cut")
        if not counts:
            raise self._wrong("there is no line 'ngram 1=' with a count before \\1-grams:")
        return counts

    def _title(self, expected: str) -> None:
        for line in self.lines:
            if text := line.strip():
                if text != expected.encode():
                    raise self._wrong(
                        f"expected {expected}, found {_shown(text)}; are there more n-grams than promised?"
                    )
                return
        raise self._wrong(f"the file ends before {expected}; it was cut")

    def _sections(self, length: int, count: int, is_last: bool) -> Iterator[tuple[int, _Lines]]:
        """The promised lines of an order, many at a time, and the number of the first of them."""
        while count:
            first = self.number + 1
            lines = list(islice(self.lines, min(count, LINES_AT_ONCE)))
            if not lines:
                raise self._wrong(f"the file ends within the {length}-grams; it was cut")
            found = _split_quickly(lines, length, is_last) or self._split(lines, first, length, is_last)
            if not (found.chances <= 0.0).all():
                line = int((~(found.chances <= 0.0)).argmax())
                raise self._wrong(
                    f"the logarithm of a probability is at most 0; found {_shown(lines[line])}", first + line
                )
            if not (np.abs(found.factors) < LARGEST_FACTOR).all():
                line = int((~(np.abs(found.factors) < LARGEST_FACTOR)).argmax())
                raise self._wrong(f"such a back-off factor cannot be; found {_shown(lines[line])}", first + line)
            yield first, found
            count -= len(lines)

    def _split(self, lines: list[bytes], first: int, length: int, is_last: bool) -> _Lines:
        """Line by line: any spaces between fields, and a complaint at the right place."""
        words, chances, factors = list[bytes](), list[float](), list[float]()
        for number, line in enumerate(lines, first):
            fields = line.split()
            if len(fields) - length not in ((1,) if is_last else (1, 2)):
                if not fields or fields[0].startswith(b"\\"):
                    raise self._wrong(f"the header promises more {length}-grams than there are", number)
                more = "" if is_last else ", and a back-off factor or none"
                raise self._wrong(f"expected a number and {length} words{more}; found {_shown(line)}", number)
            try:
                chances.append(float(fields[0]))
                factors.append(float(fields[-1]) if len(fields) == length + 2 else 0.0)
            except ValueError:
                raise self._wrong(f"expected a number; found {_shown(line)}", number) from None
            words += fields[1 : length + 1]
        return _Lines(words, np.array(chances), np.array(factors))

    def _unigrams(self, count: int, is_last: bool) -> Level:
        chances, factors = [np.full(len(SPECIAL), ZERO)], [np.zeros(len(SPECIAL))]
        seen: set[int] = set()
        for first, found in self._sections(1, count, is_last):
            ordinary = np.ones(len(found.words), bool)
            for place, name in enumerate(found.words):
                symbol = NAMES.get(name)
                if symbol is None:
                    self._add_word(name, first + place)
                    continue
                if symbol in seen:
                    raise self._wrong(f"the word {_shown(name)} comes twice", first + place)
                seen.add(symbol)
                self.index[name] = symbol
                ordinary[place] = False
                chances[0][symbol], factors[0][symbol] = found.chances[place], found.factors[place]
            chances.append(found.chances[ordinary])
            factors.append(found.factors[ordinary])
        chances[0][[PAD_ID, BOS_ID]] = ZERO
        backoffs = np.empty(0) if is_last else np.concatenate(factors) * LN_10
        return Level(np.arange(len(self.words)), _natural(np.concatenate(chances)), backoffs)

    def _add_word(self, name: bytes, line: int) -> None:
        place = len(self.words)
        if self.index.setdefault(name, place) != place:
            raise self._wrong(f"the word {_shown(name)} comes twice", line)
        try:
            word = name.decode()
        except UnicodeDecodeError:
            raise self._wrong(f"the word {_shown(name)} is not UTF-8", line) from None
        if word in SPECIAL:
            raise self._wrong(f"{word} is a reserved symbol here and cannot be a word; rename it in the file", line)
        self.words.append(word)

    def _longer(self, length: int, count: int, levels: list[Level], is_last: bool) -> Level:
        """The n-grams of one section, sorted; each must have a context that is there, and come once."""
        keys, chances, factors = [np.empty(0, np.int64)], [np.empty(0)], [np.empty(0)]
        start = self.number + 1
        for first, found in self._sections(length, count, is_last):
            keys.append(self._keys(found.words, first, length, levels))
            chances.append(found.chances)
            factors.append(found.factors)
        all_keys = np.concatenate(keys)
        order = np.argsort(all_keys, kind="stable")
        all_keys = all_keys[order]
        twice = all_keys[1:] == all_keys[:-1]
        if twice.any():
            raise self._wrong("this n-gram comes twice", start + int(order[1:][twice].min()))
        backoffs = np.empty(0) if is_last else np.concatenate(factors)[order] * LN_10
        return Level(all_keys, _natural(np.concatenate(chances)[order]), backoffs)

    def _keys(self, names: list[bytes], first: int, length: int, levels: list[Level]) -> np.ndarray:
        try:
            ids = np.fromiter(map(self.index.__getitem__, names), np.int64, len(names)).reshape(-1, length)
        except KeyError as error:
            line = first + names.index(error.args[0]) // length
            raise self._wrong(f"the word {_shown(error.args[0])} is not among the 1-grams", line) from None
        contexts = ids[:, 0]
        for place, level in enumerate(levels[1:], 1):
            contexts = level.find(np.where(contexts >= 0, contexts * len(self.words) + ids[:, place], -1))
        if (contexts < 0).any():
            line = first + int((contexts < 0).argmax())
            raise self._wrong(f"the first {length - 1} words of this n-gram are no n-gram themselves", line)
        if (ids[:, -1] == BOS_ID).any():
            line = first + int((ids[:, -1] == BOS_ID).argmax())
            raise self._wrong("<s> can only be the first word of an n-gram", line)
        keys: np.ndarray = contexts * len(self.words) + ids[:, -1]
        return keys


class _Lines(NamedTuple):
    words: list[bytes]
    """of all lines, one after the other"""
    chances: np.ndarray
    """(lines,) logarithms to base 10"""
    factors: np.ndarray
    """(lines,) the same; 0 where there is none"""


def _split_quickly(lines: list[bytes], length: int, is_last: bool) -> _Lines | None:
    """Lines as tools write them: a tab around the words and one space between them. None when any line is not so."""
    fields = [line.split(b"\t") for line in lines]
    most = 2 if is_last else 3
    try:
        ngrams = [line[1] for line in fields]
        chances = np.array([float(line[0]) for line in fields])
        factors = np.array([float(line[2]) if len(line) > 2 else 0.0 for line in fields])
    except (IndexError, ValueError):
        return None
    joined = b" ".join(ngrams)
    words = joined.split()
    regular = (
        max(map(len, fields)) <= most
        and len(words) == length * len(lines)
        and all(ngram.count(b" ") == length - 1 for ngram in ngrams)
        and not any(space in joined for space in OTHER_SPACES)
    )
    return _Lines(words, chances, factors) if regular else None


def _natural(chances: np.ndarray) -> np.ndarray:
    """Base 10 -> e; -99 and less is a probability of 0."""
    return np.where(chances <= ZERO, -np.inf, chances * LN_10)


def _shown(data: bytes) -> str:
    return repr(data[:60].decode("utf-8", "backslashreplace"))
