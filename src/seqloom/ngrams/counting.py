"""Running text -> how often each n-gram occurs, with sorting alone.

The n-grams of one order have ids 0, 1, 2 … in the order of their words. An n-gram is one number, its key: the id of all
its words but the last, times the number of symbols, plus the last word. So the keys of one order are sorted, those of
one context stand together, and the next order needs only the ids of this one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from seqloom.errors import UserError
from seqloom.text.special import BOS_ID, EOS_ID, PAD_ID

LONGEST_TEXT = 2**31 - 1  # ids and positions are 32 bits


@dataclass(eq=False)
class Counted:
    """All n-grams of one order."""

    keys: np.ndarray
    """(n-grams,) int64, rising; the words themselves in order 1"""
    counts: np.ndarray
    """(n-grams,) int64: how often each occurs"""
    suffixes: np.ndarray
    """(n-grams,) int32: the id of all words but the first, in the order below; empty in order 1"""


def joined(tokens: np.ndarray | Iterable[np.ndarray], num_symbols: int) -> np.ndarray:
    """All blocks as one array; each must hold whole sentences of ids that text can have."""
    if num_symbols <= EOS_ID:
        raise ValueError(f"a vocabulary has at least the 4 reserved symbols; got {num_symbols}")
    parts = []
    for block in [tokens] if isinstance(tokens, np.ndarray) else tokens:
        if block.ndim != 1 or block.dtype.kind not in "iu":
            raise ValueError(f"tokens are a row of whole numbers; got {block.dtype}, shape {block.shape}")
        if not len(block):
            continue
        if block.min() < 0 or block.max() >= num_symbols or np.isin(block, (PAD_ID, BOS_ID)).any():
            raise ValueError(f"tokens must be 1, 3, or 4 to {num_symbols - 1}")
        if block[-1] != EOS_ID:
            raise ValueError(f"a block must end with a sentence's end ({EOS_ID}); its last token is {block[-1]}")
        parts.append(block.astype(np.int32, copy=False))
    if not parts:
        raise UserError("there is no text to count n-grams in")
    found = np.concatenate(parts)
    if 2 * len(found) > LONGEST_TEXT:  # a sentence may be its end alone, and gets a begin
        raise UserError(f"the text has {len(found):,} tokens; n-grams are counted in at most {LONGEST_TEXT // 2:,}")
    return found


class Counter:
    """Counts one order after the other, since each needs the ids of the one below."""

    def __init__(self, tokens: np.ndarray, num_symbols: int) -> None:
        ends = np.flatnonzero(tokens == EOS_ID)
        begins = np.concatenate([[0], ends[:-1] + 1])
        self.num_symbols = num_symbols
        self.words = np.insert(tokens, begins, BOS_ID)
        self.ids = self.words
        """Which n-gram of the last order ends at each position; -1 where it would begin before the sentence."""

    def first(self) -> Counted:
        """Words: every symbol has its place, seen or not."""
        counts = np.bincount(self.words, minlength=self.num_symbols)
        return Counted(np.arange(self.num_symbols), counts, np.empty(0, np.int32))

    def next(self) -> Counted:
        """The n-grams that are one word longer than the last ones."""
        places = np.flatnonzero((self.ids[:-1] >= 0) & (self.words[1:] != BOS_ID)).astype(np.int32) + np.int32(1)
        keys = self.ids[places - 1].astype(np.int64)
        keys *= self.num_symbols
        keys += self.words[places]
        order = np.argsort(keys)
        keys = keys[order]
        places = places[order]
        del order
        is_new = np.ones(len(keys), bool)
        np.not_equal(keys[1:], keys[:-1], out=is_new[1:])
        starts = np.flatnonzero(is_new)
        suffixes = self.ids[places[starts]]
        ids = np.full(len(self.words), -1, np.int32)
        ids[places] = np.cumsum(is_new, dtype=np.int32) - np.int32(1)
        self.ids = ids
        return Counted(keys[starts], np.diff(starts, append=len(keys)), suffixes)


def continuation_counts(counts: np.ndarray, suffixes_above: np.ndarray) -> np.ndarray:
    """How many different words stand before each n-gram; how often it occurs where that is none: at a sentence's begin.

    Args:
        counts: (n-grams,) how often each occurs.
        suffixes_above: (n-grams of the next order,) which n-gram each of them ends with.
    """
    before = np.bincount(suffixes_above, minlength=len(counts))
    return np.where(before == 0, counts, before)
