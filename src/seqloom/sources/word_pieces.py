"""The pieces of every word of a text, hashed to rows of a table, as fastText has them; of unknown words too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seqloom.text.tokenizers import SPACE, Tokenizer
from seqloom.vectors.settings import SubwordSettings
from seqloom.vectors.subwords import buckets_of

MOST_KNOWN = 200_000  # what stood between two spaces before and is remembered
LONGEST_WORD = 100  # characters; of a longer one only these have pieces

CUT_INTO_WORDS = ("word", "spaces")
"""Tokenizers whose symbols are words."""


class _Pieces(NamedTuple):
    rows: np.ndarray
    counts: list[int]


class WordPieces:
    """Texts -> the rows of all pieces, and how many each symbol has. Row 0 is nobody's."""

    def __init__(self, tokenizer: Tokenizer, settings: SubwordSettings) -> None:
        assert tokenizer.kind in CUT_INTO_WORDS, "a recipe that asks for the pieces of other symbols is refused"
        self.tokenizer, self.settings = tokenizer, settings
        self.known: dict[str, _Pieces] = {}

    def rows(self, texts: Sequence[str]) -> list[np.ndarray]:
        """For each text, the rows of all its pieces in order."""
        none = np.empty(0, np.int64)
        return [np.concatenate([none, *(self._of(field).rows for field in text.split(" "))]) for text in texts]

    def counts(self, texts: Sequence[str]) -> list[list[int]]:
        """For each text, how many pieces each of its symbols has."""
        return [[count for field in text.split(" ") for count in self._of(field).counts] for text in texts]

    def _of(self, field: str) -> _Pieces:
        """Of what stands between two spaces; no symbol reaches across one."""
        found = self.known.get(field)
        if found is None:
            words = [word.removeprefix(SPACE) for word in self.tokenizer.chunks(field)]
            each = [buckets_of(word[:LONGEST_WORD], self.settings) + 1 for word in words]
            found = _Pieces(np.concatenate([np.empty(0, np.int64), *each]), [len(rows) for rows in each])
            if len(self.known) < MOST_KNOWN:
                self.known[field] = found
        return found
