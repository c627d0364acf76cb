"""Turns as a source: a conversation is a list of texts, each of them a list of words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor

from seqloom.batches.collate import padded, twice
from seqloom.batches.shards import Field
from seqloom.errors import UserError
from seqloom.text.special import EOS, EOS_ID, UNK_ID
from seqloom.text.whole_words import Cut, WholeWords


@dataclass(frozen=True)
class Turns:
    """Conversations that are read: `ids` (batch, turns, words), each turn ending in EOS; the end is a turn of only EOS.

    `sizes` (batch, turns) are the words of each turn, its end included; 0 at padding. `lengths` (batch,) are turns.
    """

    ids: Tensor
    sizes: Tensor
    lengths: Tensor

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def count(self) -> int:
        return int(self.lengths.sum())

    def doubled(self) -> Turns:
        return Turns(*twice(self.ids, self.sizes, self.lengths))

    def part(self, rows: slice) -> Turns:
        lengths = self.lengths[rows]
        width = int(lengths.max()) if len(lengths) else 0
        sizes = self.sizes[rows, :width]
        longest = int(sizes.max()) if sizes.numel() else 0
        return Turns(self.ids[rows, :width, :longest], sizes, lengths)


@dataclass(frozen=True)
class TurnSource:
    """Lists of texts as lists of words, and an end. A text is a list of its lines; tabs part turns as line ends do."""

    words: WholeWords
    ends = 1
    one_input = "a list of turns"

    def key(self) -> str:
        return self.words.key()

    def fields(self) -> dict[str, Field]:
        return {"ids": Field(self._ids, size=len(self.words), depth=2)}

    def _ids(self, raw: Sequence[Any]) -> list[list[list[int]]]:
        return [[self.words.encode(self.words.cut(turn).words) for turn in self.cut(one).words] for one in raw]

    def encode(self, raw: Sequence[Any]) -> dict[str, list[Any]]:
        return {name: list(field.encode(raw)) for name, field in self.fields().items()}

    def is_input(self, value: Any) -> bool:
        """Whether a value is one conversation: its turns, or a text whose lines they are."""
        turns = isinstance(value, list | tuple) and all(isinstance(turn, str) for turn in value)
        return turns or isinstance(value, str)

    def inputs(self, lines: Sequence[str]) -> list[Any]:
        """Lines of a file: a conversation each, its turns between tabs."""
        return [self.cut(line).words if line.strip() else line for line in lines]

    def cut(self, given: Any) -> Cut:
        """The turns, and where they stand."""
        if isinstance(given, str):
            given = [turn for turn in given.replace("\t", "\n").split("\n") if turn.strip()]
        elif not isinstance(given, Sequence) or not all(isinstance(turn, str) and turn.strip() for turn in given):
            raise UserError(f"give a list of turns, none of them empty; got {str(given)[:60]!r}")
        return self.words.cut(given)

    def unknown_rate(self, raw: Sequence[Any]) -> tuple[int, int]:
        """How many words training never met, and how many there are."""
        numbers = [number for turns in self._ids(raw) for turn in turns for number in turn]
        return numbers.count(UNK_ID), len(numbers)

    def collate(self, rows: Mapping[str, Sequence[Any]]) -> Turns:
        given = [[*turns, []] for turns in rows["ids"]]
        lengths = torch.tensor([len(turns) for turns in given], dtype=torch.long)
        width = int(lengths.max()) if len(given) else 0
        ids = padded(list(chain.from_iterable(given)), after=EOS_ID)
        real = torch.arange(width) < lengths[:, None]
        placed = ids.new_zeros(len(given), width, ids.shape[1])
        placed[real] = ids
        return Turns(placed, (placed != 0).sum(-1), lengths)

    def batch(self, raw: Sequence[Any]) -> Turns:
        """Raw values -> what an encoder reads."""
        return self.collate(self.encode(raw))

    def labels(self, raw: Any) -> list[str]:
        return [*self.cut(raw).words, EOS]

    def is_empty(self, raw: Any) -> bool:
        return not self.cut(raw).words
