"""Spans in tags: what B, I, E, S and O mark, from one way of writing them to the other, and which moves make sense.

A tag of a span is a mark, a hyphen and a label (`B-person`); where there is one label only it may be left out (`B`).
Spans are read as `conlleval` reads them (Tjong Kim Sang & Buchholz 2000): also one that begins with I, or without its
mark of an end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

Scheme = Literal["bio", "bioes", "inside", "none"]
OUTSIDE = "O"
UNNAMED = "span"
"""The label of a span whose tags have none."""
_TAG = re.compile(r"([BIES])(-.+)?")


class Span(NamedTuple):
    """A label and the words it covers, `end` not among them."""

    label: str
    start: int
    end: int


def _parts(tag: str) -> tuple[str, str]:
    """Mark and label."""
    mark, _, label = tag.partition("-")
    return mark, label or UNNAMED


def are_spans(tags: Iterable[str]) -> bool:
    """Whether different tags mark spans: all are O or B, I, E, S with or without a label, and some begin or are one."""
    found = set(tags)
    marks = [match for tag in found if (match := _TAG.fullmatch(tag))]
    others = [tag for tag in found if tag != OUTSIDE and not _TAG.fullmatch(tag)]
    return not others and len(marks) > 0 and (OUTSIDE in found or any(match[2] for match in marks))


def spans_of(tags: Sequence[str]) -> list[Span]:
    """The spans of a sequence of tags, in their order."""
    found: list[Span] = []
    start, label = -1, ""
    previous = OUTSIDE
    for place, tag in enumerate([*tags, OUTSIDE]):
        mark, kind = (OUTSIDE, "") if tag == OUTSIDE else _parts(tag)
        goes_on = start >= 0 and mark in "IE" and kind == label and previous not in "ES"
        if start >= 0 and not goes_on:
            found.append(Span(label, start, place))
            start = -1
        if mark != OUTSIDE and not goes_on:
            start, label = place, kind
        previous = mark
    return found


def to_bioes(tags: Sequence[str]) -> list[str]:
    """The same spans with a mark for the last word of each (E) and for those of one word (S)."""
    found = [OUTSIDE] * len(tags)
    for span in spans_of(tags):
        suffix = tags[span.start][1:]
        inside = ["I" + suffix] * (span.end - span.start)
        inside[0], inside[-1] = "B" + suffix, "E" + suffix
        found[span.start : span.end] = inside if len(inside) > 1 else ["S" + suffix]
    return found


def from_bioes(tags: Sequence[str]) -> list[str]:
    """The same spans with B at each beginning and I within."""
    return [{"S": "B", "E": "I"}.get(tag[0], tag[0]) + tag[1:] if tag != OUTSIDE else tag for tag in tags]


def to_bio(tags: Sequence[str]) -> list[str]:
    """The same spans, each beginning with B, whichever way they are marked."""
    return from_bioes(to_bioes(tags))


def scheme_of(sequences: Iterable[Sequence[str]]) -> Scheme:
    """How spans are marked in some data: `bioes` where E or S occur, `inside` where most spans begin with I."""
    kept = list(sequences)
    found = {tag for tags in kept for tag in tags}
    if not are_spans(found):
        return "none"
    if any(tag[0] in "ES" for tag in found if tag != OUTSIDE):
        return "bioes"
    begun = [tags[span.start][0] for tags in kept for span in spans_of(tags)]
    return "inside" if begun.count("I") > len(begun) / 2 else "bio"


def follows(before: str | None, after: str | None, scheme: Scheme) -> bool:
    """Whether a tag may stand after another; None is the beginning or the end of a text."""
    if scheme in ("none", "inside"):
        return True
    first, label = (OUTSIDE, "") if before in (None, OUTSIDE) else _parts(str(before))
    second, kind = (OUTSIDE, "") if after in (None, OUTSIDE) else _parts(str(after))
    if scheme == "bio":
        return second != "I" or (first in "BI" and label == kind)
    within = first in "BI"  # of bioes: a span that has not ended
    return (second in "IE" and label == kind) if within else second not in "IE"
