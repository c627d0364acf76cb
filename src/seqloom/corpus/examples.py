"""What a corpus is made of, before any text is turned into numbers."""

from __future__ import annotations

from typing import Any, NamedTuple


class TagsAndLabel(NamedTuple):
    """What one text is tagged with: a tag for each word, and a label of all of it."""

    tags: tuple[str, ...]
    label: str


class Pair(NamedTuple):
    """A source and its target: texts, or tuples of texts where an example is a sequence of words or of turns.

    `alignment` holds gold links (source word, target word), counted from 0 over `split_words`; `tags` names the
    phenomena the pair shows. Both are known only for corpora that carry them (the embedded grammar does).
    """

    source: Any
    target: Any
    alignment: tuple[tuple[int, int], ...] | None = None
    tags: tuple[str, ...] = ()
