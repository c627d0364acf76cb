"""Several classes as a target: any number of a fixed set of labels for every example."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from seqloom.batches.collate import twice
from seqloom.batches.shards import Field
from seqloom.corpus.readers import LIST
from seqloom.errors import UserError
from seqloom.targets.label import LabelTarget

MOST = 10_000


@dataclass(frozen=True)
class LabelSets:
    """Which labels each row has: `present` (batch, labels) zeros and ones."""

    present: torch.Tensor

    def __len__(self) -> int:
        return len(self.present)

    @property
    def count(self) -> int:
        return len(self.present)

    def doubled(self) -> LabelSets:
        return LabelSets(*twice(self.present))

    def part(self, rows: slice) -> LabelSets:
        return LabelSets(self.present[rows])


@dataclass(frozen=True)
class LabelSetTarget:
    """Sets of labels <-> rows of zeros and ones; the labels are in alphabetical order."""

    names: tuple[str, ...]
    separator: str
    ends = 0
    is_text = False

    @classmethod
    def learn(cls, texts: Iterable[str], separator: str) -> LabelSetTarget:
        """All labels of the training data; an example may have none."""
        counts = Counter(label for text in texts for label in split_labels(text, separator))
        if not counts:
            raise UserError("no training example has a label: is the label column the right one?")
        if len(counts) > MOST:
            raise UserError(
                f"{len(counts):,} different labels, at most {MOST:,}: are the label column and labels_separator "
                f"{separator!r} right?"
            )
        return cls(tuple(sorted(counts)), separator)

    def save(self, folder: Path) -> None:
        self._single.save(folder)

    @classmethod
    def load(cls, folder: Path, separator: str) -> LabelSetTarget:
        return cls(LabelTarget.load(folder, least=1).names, separator)

    @property
    def _single(self) -> LabelTarget:
        return LabelTarget(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def key(self) -> str:
        return json.dumps([self.names, self.separator])

    def split(self, text: str) -> list[str]:
        """The labels in one value of the data."""
        return split_labels(text, self.separator)

    def fields(self) -> dict[str, Field]:
        return {"labels": Field(self.rows, size=2, depth=0, width=len(self))}

    def rows(self, texts: Sequence[str]) -> list[list[int]]:
        """For each value of the data a row of zeros and ones; a label that training never met is the data's fault."""
        rows = []
        for text in texts:
            row = [0] * len(self)
            for number in self._single.numbers(self.split(text)):
                row[number] = 1
            rows.append(row)
        return rows

    def unknown_rate(self, texts: Sequence[str]) -> tuple[int, int]:
        """How many labels training never met, and how many there are."""
        return self._single.unknown_rate([label for text in texts for label in self.split(text)])

    def collate(self, rows: Mapping[str, Sequence[Any]]) -> LabelSets:
        return LabelSets(torch.tensor([list(map(float, row)) for row in rows["labels"]]).view(-1, len(self)))

    @staticmethod
    def loss(logits: torch.Tensor, target: LabelSets, smoothing: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
        """(rows, labels) -> the binary cross-entropy summed over labels and rows, and the one without smoothing."""
        plain = F.binary_cross_entropy_with_logits(logits.detach(), target.present, reduction="sum")
        wanted = target.present * (1 - smoothing) + smoothing / 2
        return F.binary_cross_entropy_with_logits(logits, wanted, reduction="sum"), plain


def split_labels(text: str, separator: str) -> list[str]:
    """The labels in one value: between separators, or the items of a list in JSON; each once, without spaces around."""
    parts = text.split(LIST)[1:] if text.startswith(LIST) else text.split(separator)
    return list(dict.fromkeys(part.strip() for part in parts if part.strip()))
