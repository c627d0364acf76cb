"""Words and punctuation marks, as a reader would count them.

A French clitic keeps its apostrophe ("il m'a" -> il, m', a), an English ending is its own word ("cat's" -> cat, 's),
and every other mark stands alone. The subword tokenizers cut at the same places, so a piece always lies in one word.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from itertools import chain


def split_words(text: str) -> list[str]:
    """The words and punctuation marks of a text, in order."""
    return _pattern().findall(text)


def word_spans(text: str) -> list[tuple[int, int]]:
    """The `(start, end)` characters of every word of `split_words(text)`."""
    return [match.span() for match in _pattern().finditer(text)]


@cache
def _pattern() -> re.Pattern[str]:
    # Python's \w has letters and numbers but no combining marks, without which Hindi, Thai, Yoruba or IPA fall apart.
    word = rf"[\w{_combining_marks()}]"
    clitic = rf"(?<!{word})(?:[cdjlmnstCDJLMNST]|[qQ][uU])['’](?={word})"
    ending = rf"(?<={word})['’]{word}+"
    return re.compile(rf"{clitic}|{ending}|{word}+|[^\s]")


def _combining_marks() -> str:
    """All characters of Unicode category M, as the ranges of a regular expression's class."""
    ranges: list[list[int]] = []
    # The blocks that hold marks: nothing below U+0300, nothing in the upper planes but variation selectors.
    for code in chain(range(0x300, 0x20000), range(0xE0100, 0xE01F0)):
        if unicodedata.category(chr(code))[0] == "M":
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)
