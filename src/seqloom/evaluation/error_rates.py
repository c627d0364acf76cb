"""How many edits turn answers into their references: the error rates of speech recognition and of pronunciation.

An edit inserts, deletes or substitutes one symbol. The edits of all answers are added up and divided by the symbols of
all references, so a long text weighs more than a short one, and a rate exceeds 100 where answers are much too long.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

Pair = tuple[Sequence[str], Sequence[str]]
"""The symbols of an answer and of its reference."""


def edit_distance(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> int:
    """The smallest number of insertions, deletions and substitutions that turn one sequence into the other.

    Levenshtein (1966), by the dynamic program of Wagner and Fischer (1974): `row[j]` is the distance between the
    symbols of the one read so far and the first j of the other.
    """
    shorter, longer = sorted(_without_common_ends(ours, theirs), key=len)
    numbers: dict[Hashable, int] = {}
    symbols = np.array([numbers.setdefault(symbol, len(numbers)) for symbol in longer], np.int64)
    columns = np.arange(len(longer) + 1)
    row = columns
    for count, symbol in enumerate(shorter, start=1):
        best = np.concatenate([[count], np.minimum(row[1:] + 1, row[:-1] + (symbols != numbers.get(symbol, -1)))])
        # Insertions run along the row, and k of them cost k: row[j] is the least best[j - k] + k, found for all j at
        # once by a running minimum of what remains when every column's own number is taken off.
        row = np.minimum.accumulate(best - columns) + columns
    return int(row[-1])


def word_error_rate(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> float:
    """Percent: edits of tokens between spaces, by tokens of the references.

    Equal to jiwer's `wer` where the references hold a token. Where they hold none, there is nothing to divide by: 0 if
    nothing was answered either, else 100 (jiwer then returns the number of edits).

    Args:
        hypotheses: What the model answered.
        references: What it should have answered, in the same order.
        lowercase: Ignore case.
    """
    return rate(*edit_counts(hypotheses, references, lowercase=lowercase).sum(0))


def character_error_rate(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> float:
    """Percent: edits of characters, by characters of the references.

    A space between words is a character, a run of white space is one space, and none counts at either end. Otherwise
    as `word_error_rate` (and jiwer's `cer`, which takes every space of a run for a character of its own).
    """
    return rate(*edit_counts(hypotheses, references, lowercase=lowercase, characters=True).sum(0))


def phone_error_rate(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> float:
    """Percent: edits of phones. The word error rate of symbols between spaces, under the name that phonetics gives it.

    Ignoring case is rarely right here: in many alphabets of phones (SAMPA, say) a capital letter is another sound.
    """
    return word_error_rate(hypotheses, references, lowercase=lowercase)


def sequence_error_rate(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> float:
    """Percent of the answers that have any error: 100 - exact match.

    The shared tasks on grapheme-to-phoneme conversion call this the word error rate, since each of their sequences
    spells one word. It is not our `word_error_rate`, which of such an answer would count the phones.
    """
    pairs = _pairs(hypotheses, references, lowercase=lowercase)
    return 100.0 * sum(ours != theirs for ours, theirs in pairs) / len(pairs)


def _pairs(
    hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool, characters: bool = False
) -> list[Pair]:
    assert len(hypotheses) == len(references), f"{len(hypotheses)} hypotheses, {len(references)} references"
    assert len(hypotheses) > 0, "nothing to score: the list of hypotheses is empty"

    def symbols(text: str) -> Sequence[str]:
        words = (text.lower() if lowercase else text).split()
        return " ".join(words) if characters else words

    return [(symbols(ours), symbols(theirs)) for ours, theirs in zip(hypotheses, references, strict=True)]


def edit_counts(
    hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False, characters: bool = False
) -> np.ndarray:
    """(examples, 2) the edits of each answer, and the symbols of its reference."""
    pairs = _pairs(hypotheses, references, lowercase=lowercase, characters=characters)
    return np.array([(edit_distance(ours, theirs), len(theirs)) for ours, theirs in pairs])


def rate(edits: float, symbols: float) -> float:
    """Percent: edits of all answers, by symbols of all references."""
    if symbols == 0:
        return 100.0 if edits else 0.0
    return float(100.0 * edits / symbols)


def _without_common_ends(
    ours: Sequence[Hashable], theirs: Sequence[Hashable]
) -> tuple[Sequence[Hashable], Sequence[Hashable]]:
    """What lies between the equal beginnings and the equal ends: most of an answer is right, and costs no row."""
    start, end = 0, min(len(ours), len(theirs))
    while start < end and ours[start] == theirs[start]:
        start += 1
    tail = 0
    while tail < end - start and ours[-1 - tail] == theirs[-1 - tail]:
        tail += 1
    return ours[start : len(ours) - tail], theirs[start : len(theirs) - tail]
