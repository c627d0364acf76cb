"""Phrases: pairs of words that stand together far more often than by chance become one word, new york -> new_york."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

import numpy as np

from seqloom.errors import DataError, UserError
from seqloom.files import read_json, write_atomically
from seqloom.text.counts import MOST_KEPT, WordCounts, count

GLUE = "_"
PAIRS_AT_A_TIME = 2_000_000
MOST_PAIRS = 50_000_000
FORMAT = 1
MOST_BYTES = 500_000_000

Sentences = Callable[[], Iterable[Sequence[str]]]
"""Gives the text from its beginning, a list of words for each sentence, each time it is called."""
Pairs = Mapping[tuple[str, str], float]


@dataclass(frozen=True)
class Phrases:
    """What was learned: for each pass the pairs that become one word, with their scores."""

    passes: tuple[Pairs, ...] = ()

    def glue(self, words: Sequence[str]) -> list[str]:
        """The words of a sentence with its phrases made one: from left to right, a word goes into one pair a pass."""
        found = list(words)
        for pairs in self.passes:
            found = glue_once(found, pairs)
        return found


def glue_once(words: Sequence[str], pairs: Pairs) -> list[str]:
    """One pass: a b c with the pairs (a, b) and (b, c) becomes a_b c."""
    found: list[str] = []
    free = False  # whether the last word found may still become the first of a pair
    for word in words:
        if free and (found[-1], word) in pairs:
            found[-1] += GLUE + word
            free = False
        else:
            found.append(word)
            free = True
    return found


def score(pair: np.ndarray, first: np.ndarray, second: np.ndarray, discount: float, total: int) -> np.ndarray:
    """Mikolov et al. 2013b, eq. 6, times the number of running words, so that 1 is about what chance gives."""
    return (pair - discount) / first / second * total


def learn_phrases(
    read: Sentences,
    *,
    passes: int = 1,
    threshold: float = 10.0,
    discount: int = 5,
    most_kept: int = MOST_KEPT,
    most_pairs: int = MOST_PAIRS,
    tell: Callable[[str], None] | None = None,
) -> Phrases:
    """Find the phrases of a text; each pass reads it twice and may glue what the pass before has glued.

    Args:
        read: the text.
        passes: two find new_york_times.
        threshold: pairs with a higher score become one word.
        discount: taken from every pair's count, so that rare words do not make phrases by accident.
        most_kept: different words in memory, see `seqloom.text.counts.count`.
        most_pairs: different pairs in memory; when there are more, the rarest are forgotten in the same way.
        tell: told what each pass found.
    """
    learned = Phrases()
    for number in range(passes):
        try:
            # A pair with a positive score is seen more than `discount` times, and so are both its words.
            counts = count(map(learned.glue, read()), min_count=discount + 1, most_kept=most_kept)
        except UserError:  # no word is that frequent
            break
        pairs = _find_pairs(map(learned.glue, read()), counts, threshold, discount, most_pairs)
        if tell is not None:
            tell(f"phrases, pass {number + 1} of {passes}: {len(pairs):,} pairs of words become one")
        if not pairs:
            break
        learned = Phrases((*learned.passes, pairs))
    return learned


def _find_pairs(
    sentences: Iterable[Sequence[str]], counts: WordCounts, threshold: float, discount: int, most_pairs: int
) -> dict[tuple[str, str], float]:
    total = 0

    def counted() -> Iterator[Sequence[str]]:
        nonlocal total
        for words in sentences:
            total += len(words)
            yield words

    keys, numbers = count_pairs(counted(), counts, most_pairs)
    firsts, seconds = np.divmod(keys, len(counts))
    scores = score(numbers, counts.counts[firsts], counts.counts[seconds], discount, total)
    found = np.flatnonzero((scores > threshold) & (numbers > discount))
    words = counts.words
    return {(words[firsts[i]], words[seconds[i]]): float(scores[i]) for i in found[np.argsort(-scores[found])].tolist()}


def count_pairs(
    sentences: Iterable[Sequence[str]], counts: WordCounts, most_pairs: int = MOST_PAIRS
) -> tuple[np.ndarray, np.ndarray]:
    """Neighbours in a sentence that are both among the counted words.

    Returns:
        keys: (pairs,) int64, sorted: place of the first word * number of words + place of the second.
        numbers: (pairs,) int64: how often. Exact while there are at most `most_pairs`; then the rarest are forgotten.
    """
    number_of, forget = counts.index.get, 0
    keys, numbers = np.empty(0, np.int64), np.empty(0, np.int64)
    for held in _in_batches(sentences, number_of):
        places = np.array(held, np.int64)
        both = (places[:-1] >= 0) & (places[1:] >= 0)
        new, new_numbers = np.unique(places[:-1][both] * len(counts) + places[1:][both], return_counts=True)
        keys, numbers = _merged(keys, numbers, new, new_numbers)
        while len(keys) > most_pairs:
            forget += 1
            kept = numbers > forget
            keys, numbers = keys[kept], numbers[kept]
    return keys, numbers


def _in_batches(sentences: Iterable[Sequence[str]], number_of: Callable[..., int | None]) -> Iterator[list[int]]:
    """Places of words, -1 for words that have none and after every sentence."""
    held: list[int] = []
    for words in sentences:
        held.extend(map(number_of, words, repeat(-1)))  # type: ignore[arg-type]
        held.append(-1)
        if len(held) >= PAIRS_AT_A_TIME:
            yield held
            held = []
    if held:
        yield held


def _merged(
    keys: np.ndarray, numbers: np.ndarray, new: np.ndarray, new_numbers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Two sorted lists of keys with their numbers as one."""
    if not len(keys) or not len(new):
        return (keys, numbers) if len(keys) else (new, new_numbers)
    both = np.concatenate([keys, new])
    order = np.argsort(both, kind="stable")  # two sorted runs: merged, not sorted anew
    both = both[order]
    starts = np.flatnonzero(np.concatenate([[True], both[1:] != both[:-1]]))
    return both[starts], np.add.reduceat(np.concatenate([numbers, new_numbers])[order], starts)


def save_phrases(path: str | Path, phrases: Phrases) -> None:
    """JSON: for each pass a list of [first, second, score]."""
    passes = [[[first, second, value] for (first, second), value in pairs.items()] for pairs in phrases.passes]
    write_atomically(path, json.dumps({"format": FORMAT, "passes": passes}, ensure_ascii=False))


def load_phrases(path: str | Path) -> Phrases:
    """What `save_phrases` wrote; anything else is an error."""
    values = read_json(path, MOST_BYTES)
    wrong = DataError("these are no phrases written by seqloom", path)
    if not isinstance(values, dict) or values.get("format") != FORMAT or not isinstance(values.get("passes"), list):
        raise wrong
    passes = []
    for rows in values["passes"]:
        if not isinstance(rows, list):
            raise wrong
        pairs: dict[tuple[str, str], float] = {}
        for row in rows:
            match row:
                case [str(first), str(second), float(value)]:
                    pairs[first, second] = value
                case _:
                    raise wrong
        passes.append(pairs)
    return Phrases(tuple(passes))
