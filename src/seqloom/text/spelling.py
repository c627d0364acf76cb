"""Symbols spelled out: the letters of each one as numbers, for models that read words letter by letter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seqloom.text.special import PAD_ID, SPECIAL

NONE, BEGINNING, END = 0, 1, 2  # no letter; the marks around every symbol


class Spelled(NamedTuple):
    """`letters` (symbols, longest) with 0 after a symbol's end, and how many different numbers there are."""

    letters: np.ndarray
    num_letters: int


def spell(pieces: Sequence[str], most: int) -> Spelled:
    """The letters of every symbol of a vocabulary, between a mark for the beginning and one for the end.

    A reserved symbol has one letter of its own, padding has none. The "▁" of a word's beginning is a letter like
    others: it tells a word from the rest of one.

    Args:
        pieces: all symbols in the order of their ids, the reserved ones first.
        most: letters of a symbol that are kept, from its beginning.
    """
    assert tuple(pieces[: len(SPECIAL)]) == SPECIAL, "a vocabulary begins with the reserved symbols"
    alphabet = sorted({letter for piece in pieces[len(SPECIAL) :] for letter in piece[:most]})
    numbers = {letter: END + len(SPECIAL) + place for place, letter in enumerate(alphabet)}
    rows = [[END + index] for index in range(len(SPECIAL))]
    rows += [[numbers[letter] for letter in piece[:most]] for piece in pieces[len(SPECIAL) :]]
    found = np.zeros((len(rows), max(map(len, rows)) + 2), np.int64)
    for row, letters in zip(found, rows, strict=True):
        row[: len(letters) + 2] = [BEGINNING, *letters, END]
    found[PAD_ID] = NONE
    return Spelled(found, END + len(SPECIAL) + len(alphabet))
