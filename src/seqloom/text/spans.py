"""Two tokenizers on one text: which pieces of the one stand where a piece of the other stands."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from seqloom.text.tokenizers import Detailed
from seqloom.text.words import word_spans


def pieces_of_words(text: str, pieces: Detailed, others: Detailed) -> list[tuple[int, int]]:
    """For each of `pieces`, which of `others` touch the word that it belongs to: from, to (exclusive).

    A piece of a word is given all of the word, whatever the others cut it into; where one of the others spans several
    words, each of these is given it. What touches nothing has an empty range, (0, 0).
    """
    words = word_spans(text)
    starts, ends = [start for start, _ in others.spans], [end for _, end in others.spans]
    found = []
    for word in pieces.words:
        first = last = 0
        if word >= 0:
            begin, end = words[word]
            first, last = bisect_right(ends, begin), bisect_left(starts, end)
        found.append((first, last) if first < last else (0, 0))
    return found
