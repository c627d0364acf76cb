"""Documents -> sentences, by one simple rule that is the same wherever the model goes."""

from __future__ import annotations

import re
from typing import Literal

from pydantic import Field

from seqloom.settings import Settings

_ENDS = re.compile(
    r"""(?<=[.!?…。！？])["'”’»)\]]*\s+   # a full stop and the quotes and brackets that it closes, then a space
    |\n\s*\n|<br\s*/?>\s*(?:<br\s*/?>\s*)*   # an empty line, a break of a line of HTML""",
    re.VERBOSE,
)
_IDEOGRAPHIC = re.compile(r"(?<=[。！？])(?=\S)")
_LINES = re.compile(r"\n|<br\s*/?>")


class SentenceSettings(Settings):
    """How a document is cut into sentences, and how long these may be."""

    split: Literal["punctuation", "lines"] = Field(
        "punctuation",
        description="punctuation: after . ! ? … and a space, and at empty lines; lines: at every line's end",
    )
    longest: int = Field(60, ge=2, le=10_000, description="symbols; what is longer is cut into several sentences")
    most: int = Field(200, ge=1, le=10_000, description="sentences of a document that are read; the rest is left out")


def split_sentences(text: str, split: str = "punctuation") -> list[str]:
    """The sentences of a text in order, without spaces around; none is empty.

    "He left. She didn't! (Why?) We ask." has four. An abbreviation such as "Dr. Who" is cut, too: the rule knows no
    words, so it needs no language, and a model learns from the same cuts that it will see.
    """
    if split == "lines":
        parts = _LINES.split(text)
    else:
        parts = [part for whole in _cut_after(text) for part in _IDEOGRAPHIC.split(whole)]
    return [part.strip() for part in parts if part.strip()]


def _cut_after(text: str) -> list[str]:
    """Closing quotes and brackets stay with the sentence that they close."""
    parts, start = [], 0
    for found in _ENDS.finditer(text):
        closing = len(found[0]) - len(found[0].lstrip("\"'”’»)]"))
        parts.append(text[start : found.start() + closing])
        start = found.end()
    return [*parts, text[start:]]
