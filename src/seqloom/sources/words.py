"""Words as a source: every word one symbol, with its letters where a model reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqloom.batches.collate import Tokens, collate_sources, twice
from seqloom.batches.shards import Field
from seqloom.text.special import EOS, UNK_ID
from seqloom.text.unknown import all_unknown
from seqloom.text.whole_words import Cut, WholeWords


@dataclass(frozen=True)
class SpelledWords:
    """Words that are read: as `Tokens`, and `letters` (batch, time, longest), 0 after a word's end.

    The end symbol has no letters; without `letters` nobody reads them.
    """

    ids: Tensor
    lengths: Tensor
    letters: Tensor | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def count(self) -> int:
        return int(self.lengths.sum())

    def doubled(self) -> SpelledWords:
        ids, lengths = twice(self.ids, self.lengths)
        return SpelledWords(ids, lengths, None if self.letters is None else twice(self.letters)[0])

    def part(self, rows: slice) -> SpelledWords:
        words = Tokens(self.ids, self.lengths).part(rows)
        letters = None
        if self.letters is not None:
            letters = self.letters[rows, : words.ids.shape[1]]
            longest = int((letters != 0).sum(-1).max()) if letters.numel() else 0
            letters = letters[:, :, : max(1, longest)]
        return SpelledWords(words.ids, words.lengths, letters)


@dataclass(frozen=True)
class WordSource:
    """Texts, or lists of words, as words and an end."""

    words: WholeWords
    ends = 1
    one_input = "a text, or a tuple of its words"

    @property
    def spelled(self) -> bool:
        """Whether letters are read."""
        return bool(self.words.letters)

    def key(self) -> str:
        return self.words.key()

    def fields(self) -> dict[str, Field]:
        found = {"ids": Field(self._ids, size=len(self.words))}
        if self.spelled:
            found["letters"] = Field(self._letters, size=self.words.num_letters, depth=2)
        return found

    def _ids(self, raw: Sequence[Any]) -> list[list[int]]:
        return [self.words.encode(self.words.cut(one).words) for one in raw]

    def _letters(self, raw: Sequence[Any]) -> list[list[list[int]]]:
        return [self.words.spell(self.words.cut(one).words) for one in raw]

    def encode(self, raw: Sequence[Any]) -> dict[str, list[Any]]:
        return {name: list(field.encode(raw)) for name, field in self.fields().items()}

    def is_input(self, value: Any) -> bool:
        """Whether a value is one input; a list is several."""
        words = isinstance(value, tuple) and all(isinstance(word, str) for word in value)
        return words or isinstance(value, str)

    def inputs(self, lines: Sequence[str]) -> list[Any]:
        """Lines of a file: a text each."""
        return list(lines)

    def cut(self, given: Any) -> Cut:
        """The words, and where they stand."""
        return self.words.cut(given)

    def unknown_rate(self, raw: Sequence[Any]) -> tuple[int, int]:
        """How many words training never met, and how many there are."""
        numbers = [number for row in self._ids(raw) for number in row]
        return numbers.count(UNK_ID), len(numbers)

    def warnings(self, raw: Any) -> list[str]:
        """What somebody should know before believing an answer: that no word is known, where letters are not read."""
        words = self.words.cut(raw).words

        def unknown(some: Sequence[str]) -> list[str]:
            return [word for word, number in zip(some, self.words.encode(some), strict=True) if number == UNK_ID]

        if self.spelled or len(unknown(words)) < len(words):
            return []
        return all_unknown(words, unknown([word.lower() for word in words]))

    def collate(self, rows: Mapping[str, Sequence[Any]]) -> SpelledWords:
        words = collate_sources(rows["ids"])
        letters = _collate_letters(rows["letters"], words.ids.shape[1]) if self.spelled else None
        return SpelledWords(words.ids, words.lengths, letters)

    def batch(self, raw: Sequence[Any]) -> SpelledWords:
        """Raw values -> what an encoder reads."""
        return self.collate(self.encode(raw))

    def labels(self, raw: Any) -> list[str]:
        return [*self.words.cut(raw).words, EOS]

    def is_empty(self, raw: Any) -> bool:
        return not self.words.cut(raw).words


def _collate_letters(rows: Sequence[Sequence[Any]], width: int) -> Tensor:
    """Lists of words of letters -> (batch, width, longest)."""
    longest = max((len(word) for words in rows for word in words), default=0)
    found = np.zeros((len(rows), width, max(1, longest)), np.int64)
    for place, words in zip(found, rows, strict=True):
        for row, word in zip(place, words, strict=False):
            row[: len(word)] = word
    return torch.from_numpy(found)
