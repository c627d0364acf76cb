"""What a corpus is made of, before any text is turned into numbers."""

from __future__ import annotations

from typing import NamedTuple


class Pair(NamedTuple):
    """A source sentence and its target.

    `alignment` holds gold links (source word, target word), counted from 0 over `split_words`; `tags` names the
    phenomena the pair shows. Both are known only for corpora that carry them (the embedded grammar does).
    """

    source: str
    target: str
    alignment: tuple[tuple[int, int], ...] | None = None
    tags: tuple[str, ...] = ()
