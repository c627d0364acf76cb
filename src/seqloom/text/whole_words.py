"""Words as symbols: each word is one, whatever it is made of; beside its number stand the letters it is spelled with.

What is looked up is a word's *form*: composed (NFC), in lower case and with every digit as 0 where that is asked for.
Letters are those of the word as it was written, so that a model sees its capitals.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import Field

from seqloom.errors import UserError
from seqloom.settings import Settings, check
from seqloom.text.special import SPECIAL, UNK_ID
from seqloom.text.words import word_spans

FILE = "words.json"
LONGEST = 40
"""Letters of a word that are kept, from its beginning."""
UNKNOWN_LETTER, FIRST_LETTER = 1, 2
RARE_LETTER = 2  # letters of fewer different words are unknown, so that the unknown letter learns something
MAX_FILE_BYTES = 64_000_000
_DIGIT = re.compile(r"\d")
_SPACES = re.compile(r"\S+")


class WholeWordsSettings(Settings):
    """Which words are known, and where raw text is cut into words."""

    split: Literal["words", "spaces"] = Field(
        "words",
        description="raw text is cut into words and punctuation marks, or at its spaces; lists of words stay",
    )
    lowercase: bool = Field(True, description="words that differ in case share a vector; their letters keep their case")
    digits: bool = Field(True, description="every digit is read as 0: 1999 and 2024 share a vector")
    min_frequency: int = Field(1, ge=1, description="words rarer than this in the training data are unknown")
    vocabulary_size: int | None = Field(None, ge=8, description="all words, the 4 reserved symbols included")

    def spans(self, text: str) -> list[tuple[int, int]]:
        """From where to where each word of a raw text stands."""
        return [match.span() for match in _SPACES.finditer(text)] if self.split == "spaces" else word_spans(text)

    def cut(self, text: str) -> tuple[str, ...]:
        """The words of a raw text."""
        return tuple(text[start:end] for start, end in self.spans(text))


class Cut(NamedTuple):
    """Words, and from where to where in the text each stands."""

    words: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class WholeWords:
    """Words <-> numbers, and letters -> numbers, of which there are none where nobody reads them."""

    settings: WholeWordsSettings
    words: tuple[str, ...]
    letters: tuple[str, ...]

    @classmethod
    def learn(
        cls, sentences: Iterable[Sequence[str]], settings: WholeWordsSettings, *, spelled: bool = True
    ) -> WholeWords:
        """Words in the order of their frequency; and letters, where a model will read them."""
        counts: Counter[str] = Counter()
        different: set[str] = set()
        for sentence in sentences:
            for word in sentence:
                counts[_form(word, settings)] += 1
                different.add(unicodedata.normalize("NFC", word))
        kept = [word for word, count in counts.items() if count >= settings.min_frequency]
        kept.sort(key=lambda word: (-counts[word], word))
        if settings.vocabulary_size is not None:
            kept = kept[: settings.vocabulary_size - len(SPECIAL)]
        if not kept:
            lower = " or lower text.min_frequency" if settings.min_frequency > 1 else ""
            raise UserError(f"there is no word to learn: give training data that is not empty{lower}")
        if not spelled:
            return cls(settings, tuple(kept), ())
        letters = Counter(letter for word in different for letter in set(word[:LONGEST]))
        frequent = sorted(letter for letter, count in letters.items() if count >= RARE_LETTER)
        return cls(settings, tuple(kept), tuple(frequent or sorted(letters)))

    def save(self, folder: Path) -> None:
        values = {"settings": self.settings.model_dump(), "letters": "".join(self.letters), "words": self.words}
        (folder / FILE).write_text(json.dumps(values, ensure_ascii=False, indent=0), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> WholeWords:
        """What `save` wrote."""
        path = folder / FILE
        damaged = f"{path}: not a list of words that seqloom wrote; copy the whole model folder again"
        try:
            if path.stat().st_size > MAX_FILE_BYTES:
                raise UserError(f"{path}: over {MAX_FILE_BYTES:,} bytes, which no list of words of ours is")
            values = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            raise UserError(damaged) from None
        if not isinstance(values, dict) or set(values) != {"settings", "letters", "words"}:
            raise UserError(damaged)
        settings, problems = check(WholeWordsSettings, values["settings"])
        words, letters = values["words"], values["letters"]
        sound = isinstance(words, list) and all(isinstance(word, str) and word for word in words)
        if problems or not sound or not isinstance(letters, str):
            raise UserError(damaged)
        if not words or len(set(words)) < len(words) or len(set(letters)) < len(letters):
            raise UserError(damaged)
        return cls(settings, tuple(words), tuple(letters))

    def key(self) -> str:
        return json.dumps([self.settings.model_dump(), self.words, self.letters])

    # -- words -------------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Symbols, the reserved ones included."""
        return len(SPECIAL) + len(self.words)

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {word: number for number, word in enumerate(self.words, len(SPECIAL))}

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The words of numbers, as vectors are looked up for them."""
        both: Sequence[str] = (*SPECIAL, *self.words)
        return [both[number] for number in ids]

    def encode(self, words: Sequence[str]) -> list[int]:
        """The number of each word."""
        return [self._numbers.get(_form(word, self.settings), UNK_ID) for word in words]

    def cut(self, given: Any) -> Cut:
        """A text by the rule it was trained with; a list of words as it is, standing in a text with spaces between."""
        if isinstance(given, str):
            spans = self.settings.spans(given)
            return Cut(tuple(given[start:end] for start, end in spans), tuple(spans))
        if not isinstance(given, Sequence) or not all(isinstance(word, str) and word.strip() for word in given):
            raise UserError(f"give a text or a tuple of words, none of them empty; got {str(given)[:60]!r}")
        ends, total = [], 0
        for word in given:
            total += len(word)
            ends.append(total)
            total += 1
        spans = [(end - len(word), end) for word, end in zip(given, ends, strict=True)]
        return Cut(tuple(given), tuple(spans))

    # -- letters -----------------------------------------------------------------------------------------------------

    @property
    def num_letters(self) -> int:
        return FIRST_LETTER + len(self.letters)

    @cached_property
    def _letters(self) -> dict[str, int]:
        return {letter: number for number, letter in enumerate(self.letters, FIRST_LETTER)}

    def spell(self, words: Sequence[str]) -> list[list[int]]:
        """The numbers of each word's letters; 0 is no letter."""
        numbers = self._letters
        return [
            [numbers.get(letter, UNKNOWN_LETTER) for letter in unicodedata.normalize("NFC", word)[:LONGEST]]
            for word in words
        ]


def _form(word: str, settings: WholeWordsSettings) -> str:
    """How a word is looked up."""
    form = unicodedata.normalize("NFC", word)
    form = form.lower() if settings.lowercase else form
    return _DIGIT.sub("0", form) if settings.digits else form
