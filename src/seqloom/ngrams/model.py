"""NGramModel: sorted n-grams, and the probability of any text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from seqloom.errors import UserError
from seqloom.ngrams import keeping
from seqloom.ngrams.levels import Level, checked_level, taken
from seqloom.ngrams.settings import NGramSettings
from seqloom.ngrams.smoothing import FALLBACK
from seqloom.text.special import BOS_ID, EOS_ID

TOKENS_AT_ONCE = 1 << 20


class NGramModel:
    """How likely each word is after the few before it."""

    def __init__(
        self, levels: Sequence[Level], settings: NGramSettings, num_symbols: int, discounts: np.ndarray | None = None
    ) -> None:
        """Take finished levels; `build_ngrams`, `from_tensors`, `load` and `read_arpa` make them."""
        self.levels = tuple(levels)
        self.settings = settings
        self.num_symbols = num_symbols
        self.discounts = discounts
        """(order, 3) what Kneser–Ney took from counts of 1, 2, and more; None where that is not known"""

    @property
    def order(self) -> int:
        return len(self.levels)

    @property
    def degenerate_orders(self) -> tuple[int, ...]:
        """The orders whose discounts could not be estimated, since the text was too small or too regular."""
        if self.discounts is None:
            return ()
        return tuple(length for length, found in enumerate(self.discounts, 1) if (found == FALLBACK).all())

    def num_ngrams(self) -> list[int]:
        """How many there are of each order; order 1 has every symbol but the padding."""
        return [len(level.keys) - (length == 1) for length, level in enumerate(self.levels, 1)]

    def score(self, tokens: np.ndarray) -> np.ndarray:
        """Running text -> the natural logarithm of every token's probability, given its sentence so far.

        Args:
            tokens: (tokens,) ids, each sentence ended by the end symbol; after it the context starts anew.
        """
        self._check(tokens, 1, 0)
        result = np.empty(len(tokens))
        reach = self.order - 1
        for start in range(0, len(tokens), TOKENS_AT_ONCE):
            lead = min(start, reach)  # what comes before is read again: it is all that the context can hold
            block = tokens[start - lead : start + TOKENS_AT_ONCE].astype(np.int64)
            result[start : start + TOKENS_AT_ONCE] = self._score(block, start == lead)[lead:]
        return result

    def _score(self, words: np.ndarray, at_begin: bool) -> np.ndarray:
        result = self.levels[0].log_probabilities[words]
        if self.order == 1 or not len(words):
            return result
        contexts = _moved(np.where(words == EOS_ID, BOS_ID, words), BOS_ID if at_begin else -1)
        goes_on = words != EOS_ID
        for level, below in zip(self.levels[1:], self.levels, strict=False):
            known = contexts >= 0
            found = level.find(np.where(known, contexts * self.num_symbols + words, -1))
            result[known] += below.backoffs[contexts[known]]
            seen = found >= 0
            result[seen] = level.log_probabilities[found[seen]]
            contexts = _moved(np.where(goes_on, found, -1), -1)
        return result

    def next(self, contexts: np.ndarray) -> np.ndarray:
        """The distribution of the next token after each context.

        A begin or an end symbol cuts off what is before it: both mean that a sentence begins. Nothing at all is not the
        same: then words count as they do in any place.

        Args:
            contexts: (rows, any length) ids, the last one is the nearest; -1 where there is nothing.

        Returns:
            (rows, symbols) natural logarithms, -inf for the padding and the begin symbol.
        """
        self._check(contexts, 2, -1)
        result = np.tile(self.levels[0].log_probabilities, (len(contexts), 1))
        for level, below, ids in zip(self.levels[1:], self.levels, self._states(contexts), strict=False):
            rows = np.flatnonzero(ids >= 0)
            ids = ids[rows]
            result[rows] += below.backoffs[ids][:, None]
            starts = np.searchsorted(level.keys, ids * self.num_symbols)
            lengths = np.searchsorted(level.keys, (ids + 1) * self.num_symbols) - starts
            # All n-grams of all rows in one go: 0 1 2 0 1 0 1 2 3 … from the start of each row's context
            steps = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
            places = np.repeat(starts, lengths) + steps
            result[np.repeat(rows, lengths), level.keys[places] % self.num_symbols] = level.log_probabilities[places]
        return result

    def _states(self, contexts: np.ndarray) -> list[np.ndarray]:
        """The ids of the last word, the last two …, up to all that the order allows; -1 where they were not seen."""
        reach = self.order - 1
        states = [np.full(len(contexts), -1, np.int64) for _ in range(reach)]
        columns = contexts[:, max(0, contexts.shape[1] - reach) :].astype(np.int64).T if reach else ()
        for column in columns:
            words = np.where(column == EOS_ID, BOS_ID, column)
            longer = [
                level.find(np.where((ids >= 0) & (words >= 0), ids * self.num_symbols + words, -1))
                for level, ids in zip(self.levels[1:-1], states, strict=False)
            ]
            states = [words, *longer]
        return states

    def _check(self, ids: np.ndarray, axes: int, least: int) -> None:
        if ids.ndim != axes or ids.dtype.kind not in "iu":
            raise ValueError(f"expected whole numbers along {axes} axes; got {ids.dtype}, shape {ids.shape}")
        if ids.size and (ids.min() < least or ids.max() >= self.num_symbols):
            raise ValueError(f"ids must be {least} to {self.num_symbols - 1}; got {ids.min()} to {ids.max()}")

    def tensors(self) -> dict[str, np.ndarray]:
        """Everything but settings and the number of symbols, as plain arrays by name."""
        found = {}
        for length, level in enumerate(self.levels, 1):
            found[f"{length}.log_probabilities"] = level.log_probabilities
            if length > 1:
                found[f"{length}.keys"] = level.keys
            if length < self.order:
                found[f"{length}.backoffs"] = level.backoffs
        return found if self.discounts is None else found | {"discounts": self.discounts}

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, np.ndarray], settings: NGramSettings, num_symbols: int, origin: str = "n-grams"
    ) -> NGramModel:
        """The model of `tensors()`; a UserError when they cannot be one.

        Args:
            tensors: arrays by name.
            settings: of the model.
            num_symbols: the size of its vocabulary.
            origin: where the arrays come from, for the message.
        """
        rest = dict(tensors)
        levels: list[Level] = []
        for length in range(1, settings.order + 1):
            log_probabilities = taken(rest, f"{length}.log_probabilities", np.float64, origin)
            if length == 1 and len(log_probabilities) != num_symbols:
                raise UserError(f"{origin}: damaged: {len(log_probabilities):,} words, expected {num_symbols:,}")
            keys = taken(rest, f"{length}.keys", np.int64, origin) if length > 1 else np.arange(num_symbols)
            backoffs = taken(rest, f"{length}.backoffs", np.float64, origin) if length < settings.order else np.empty(0)
            num_contexts = len(levels[-1].keys) if levels else 1
            level = Level(keys, log_probabilities, backoffs)
            levels.append(checked_level(level, length, num_contexts, num_symbols, length < settings.order, origin))
        discounts = rest.pop("discounts", None)
        if discounts is not None and (discounts.dtype != np.float64 or discounts.shape != (settings.order, 3)):
            raise UserError(f"{origin}: 'discounts' is not as seqloom writes it ({discounts.dtype}, {discounts.shape})")
        if rest:
            raise UserError(f"{origin}: '{min(rest)}' is no part of an n-gram model of order {settings.order}")
        return cls(levels, settings, num_symbols, discounts)

    def save(self, folder: str | Path) -> None:
        """Write the model into a folder, as one file that loading runs no code of."""
        keeping.save_arrays(Path(folder), self.tensors(), self.settings, self.num_symbols)

    @classmethod
    def load(cls, folder: str | Path) -> NGramModel:
        """The model of a folder; a UserError when its file is damaged."""
        arrays, settings, num_symbols = keeping.load_arrays(Path(folder))
        return cls.from_tensors(arrays, settings, num_symbols, str(Path(folder) / keeping.FILE))


def _moved(ids: np.ndarray, first: int) -> np.ndarray:
    """One place to the right: what stands before each token."""
    result = np.empty_like(ids)
    result[0], result[1:] = first, ids[:-1]
    return result
