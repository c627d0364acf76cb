"""What a kind of input must offer, whichever task reads it and whatever is made of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from seqloom.batches.collate import Side
from seqloom.batches.shards import Field


class Source(Protocol):
    """One kind of input: how raw values become what an encoder reads.

    A raw value is whatever the corpus gives: a text, a series. An encoded one is a mapping from the
    names of `fields` to arrays.
    """

    ends: int
    """Symbols that collating adds to each row: lengths are counted with them."""

    is_text: bool
    """Whether its steps are symbols of a text."""

    def sizes(self) -> dict[str, int]:
        """What a model must know of it to read it."""
        ...

    def vocabulary(self) -> str:
        """The same for people."""
        ...

    def key(self) -> str:
        """All that its encoded values depend on, besides the corpus."""
        ...

    def fields(self) -> dict[str, Field]:
        """What is kept of every example on disk; the first one tells its length."""
        ...

    def encode(self, raw: Sequence[Any]) -> dict[str, list[Any]]:
        """Raw values as numbers, by field."""
        ...

    def collate(self, rows: Mapping[str, Sequence[Any]]) -> Side:
        """Encoded values of some examples -> what an encoder reads."""
        ...

    def unknown_rate(self, raw: Sequence[Any]) -> tuple[int, int]:
        """How many of their symbols it does not know, and how many there are."""
        ...

    def shown(self, raw: Any) -> str:
        """A raw value for people: a text itself, else what it is."""
        ...

    def inputs(self, given: Sequence[str]) -> list[Any]:
        """What a command line names as raw values."""
        ...

    def baseline(self, sources: Sequence[Any], labels: Sequence[str], asked: Sequence[Any]) -> tuple[str, list[str]]:
        """What a simple method answers that has learned labels from the same sources, and what it is called."""
        ...

    def labels(self, raw: Any) -> list[str]:
        """What stands along the source's axis in pictures; the end included."""
        ...

    def is_empty(self, raw: Any) -> bool:
        """Whether there is nothing to read."""
        ...
