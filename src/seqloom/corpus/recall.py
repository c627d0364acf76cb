"""Lines that can only be ended by who remembers how they began: a text made to measure memory.

    C m b k ? C        recall:3/train: a key, three symbols that mean nothing, a question, the key again

It is made on the fly: a line is a function of the spelling and of its number, the same everywhere and forever.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import NamedTuple

PREFIX = "recall:"
KEYS = "ABCDEFGH"
NOISE = "abcdefghijklmnop"
QUESTION = "?"
SPLITS = ("train", "valid", "test")
LINES = 10_000  # unless limit says another number
MOST = 10_000  # symbols between a key and the question

_SPELLING = re.compile(r"recall:([0-9]{1,9})(?:-([0-9]{1,9}))?/([a-z]+)", re.ASCII)


class Recall(NamedTuple):
    """How many meaningless symbols there are at least and at most, and which lines."""

    least: int
    most: int
    split: str


def parse_recall(text: str) -> Recall:
    """`recall:30/train`, or `recall:1-30/train` where each line draws its own number.

    Raises:
        ValueError: It is spelt otherwise, in words for whoever wrote it.
    """
    found = _SPELLING.fullmatch(text)
    if found is None:
        raise ValueError(
            f"a recall text is spelt recall:LAG/SPLIT, such as recall:30/train, or recall:1-30/train for lines of many "
            f"lags; got {text!r}"
        )
    least, most = int(found[1]), int(found[2] or found[1])
    if not 1 <= least <= most <= MOST:
        raise ValueError(f"the lag of a recall text is 1 to {MOST:,}, the smaller one first; got {text!r}")
    if found[3] not in SPLITS:
        raise ValueError(f"a recall text is one of {', '.join(SPLITS)}; got {found[3]!r} in {text!r}")
    return Recall(least, most, found[3])


def recall_line(recall: Recall, number: int) -> str:
    """One line, its symbols between spaces."""
    name = f"{recall.least}-{recall.most}/{recall.split}/{number}"
    # Bytes of a hash: unlike those of a library's generator, they will never change. 8 and 16 divide 256.
    drawn = hashlib.shake_128(name.encode()).digest(9 + recall.most)
    lag = recall.least + int.from_bytes(drawn[:8], "big") % (recall.most - recall.least + 1)
    key = KEYS[drawn[8] % len(KEYS)]
    return " ".join([key, *(NOISE[byte % len(NOISE)] for byte in drawn[9 : 9 + lag]), QUESTION, key])


def recall_lines(recall: Recall, count: int | None = None) -> Iterator[str]:
    """The first so many lines."""
    return (recall_line(recall, number) for number in range(LINES if count is None else count))
