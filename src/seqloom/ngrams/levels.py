"""The n-grams of one order as sorted arrays, looked up many at a time."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqloom.errors import UserError
from seqloom.text.special import BOS_ID, EOS_ID, PAD_ID

AT_ONCE = 1 << 20
LARGEST_KEY = 2**63 - 1


@dataclass(frozen=True, eq=False)
class Level:
    """The n-grams of one order, in back-off form: natural logarithms."""

    keys: np.ndarray
    """(n-grams,) int64, rising: id of the context * symbols + last word; the words themselves in order 1"""
    log_probabilities: np.ndarray
    """(n-grams,) float64: of the last word in this context"""
    backoffs: np.ndarray
    """(n-grams,) float64: added where a word does not follow this n-gram; empty in the highest order"""

    def find(self, keys: np.ndarray) -> np.ndarray:
        """The id of each key, -1 where there is no such n-gram."""
        if not len(self.keys):
            return np.full(keys.shape, -1, np.int64)
        places = np.searchsorted(self.keys, keys)
        places[places == len(self.keys)] = 0
        return np.where(self.keys[places] == keys, places, -1)


def taken(arrays: MutableMapping[str, np.ndarray], name: str, kind: Any, origin: str) -> np.ndarray:
    """Take one row of numbers out of a mapping; a UserError when it is not there or of another kind."""
    found = arrays.pop(name, None)
    if found is None:
        raise UserError(f"{origin}: holds no '{name}'; it was not written by seqloom, or for another order")
    if found.dtype != kind or found.ndim != 1:
        raise UserError(f"{origin}: '{name}' is not as seqloom writes it ({found.dtype}, shape {found.shape})")
    return found


def checked_level(
    level: Level, order: int, num_contexts: int, num_symbols: int, has_backoffs: bool, origin: str
) -> Level:
    """The level itself when nothing in it can lead a search astray; a UserError otherwise."""

    def complain(what: str) -> UserError:
        return UserError(f"{origin}: damaged: {what} (order {order})")

    count = len(level.keys)
    if num_symbols <= EOS_ID or num_contexts * num_symbols > LARGEST_KEY:
        raise complain(f"no vocabulary has {num_symbols:,} symbols")
    if len(level.log_probabilities) != count or len(level.backoffs) != (count if has_backoffs else 0):
        raise complain(f"{count:,} n-grams do not have as many numbers each")
    if order > 1 and count:
        if level.keys[0] < 0 or level.keys[-1] >= num_contexts * num_symbols:
            raise complain("an n-gram has a context that is not there")
        for part in _parts(level.keys, overlap=1):
            if (part[1:] <= part[:-1]).any():
                raise complain("n-grams are not in order")
            if np.isin(part % num_symbols, (PAD_ID, BOS_ID)).any():
                raise complain("an n-gram ends with a symbol that cannot be predicted")
    for part in _parts(level.log_probabilities):
        if not (part <= 0.0).all():  # also what is no number at all
            raise complain("a probability is not between 0 and 1")
    if order == 1 and not np.isneginf(level.log_probabilities[[PAD_ID, BOS_ID]]).all():
        raise complain("the padding or the begin symbol has a probability")
    for part in _parts(level.backoffs):
        if not np.isfinite(part).all():
            raise complain("a back-off factor is not finite")
    return level


def _parts(array: np.ndarray, overlap: int = 0) -> Iterator[np.ndarray]:
    """Piece by piece, so that looking at all of it needs little memory."""
    for start in range(0, len(array), AT_ONCE):
        yield array[start : start + AT_ONCE + overlap]
