"""A class as a target: one of a fixed set of labels for every example."""

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
from seqloom.errors import UserError, did_you_mean
from seqloom.files import read_json

FILE = "labels.json"
MOST = 100_000


@dataclass(frozen=True)
class Labels:
    """One class for each row: `ids` (batch,)."""

    ids: torch.Tensor

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def count(self) -> int:
        return len(self.ids)

    def doubled(self) -> Labels:
        return Labels(*twice(self.ids))

    def part(self, rows: slice) -> Labels:
        return Labels(self.ids[rows])


@dataclass(frozen=True)
class LabelTarget:
    """Labels <-> numbers, in alphabetical order."""

    names: tuple[str, ...]
    ends = 0
    is_text = False  # its length says nothing beside that of a source

    @classmethod
    def learn(cls, labels: Iterable[str]) -> LabelTarget:
        """All labels of the training data."""
        counts = Counter(labels)
        if "" in counts:
            raise UserError(f"{counts['']:,} training examples have an empty label; give each one, or leave them out")
        if len(counts) < 2:
            found = ", ".join(map(repr, counts)) or "none"
            raise UserError(f"a classifier needs two labels or more; the training data has {found}")
        if len(counts) > MOST:
            raise UserError(f"{len(counts):,} different labels: is the label column the right one?")
        return cls(tuple(sorted(counts)))

    def save(self, folder: Path) -> None:
        (folder / FILE).write_text(json.dumps(self.names, ensure_ascii=False, indent=0), encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> LabelTarget:
        names = read_json(folder / FILE)
        sound = isinstance(names, list) and all(isinstance(name, str) for name in names)
        if not sound or not 2 <= len(set(names)) == len(names) <= MOST:
            raise UserError(f"{folder / FILE}: not a list of different labels; copy the whole model folder again")
        return cls(tuple(names))

    def __len__(self) -> int:
        return len(self.names)

    def key(self) -> str:
        return json.dumps(self.names)

    def fields(self) -> dict[str, Field]:
        return {"label": Field(self.numbers, size=len(self), depth=0)}

    def numbers(self, labels: Sequence[str]) -> list[int]:
        """The numbers of labels; one that training never met is the data's fault."""
        known = {name: number for number, name in enumerate(self.names)}
        for label in labels:
            if label not in known:
                listed = ", ".join(self.names[:20]) + (" …" if len(self) > 20 else "")
                raise UserError(
                    f"the label {label!r} is not in the training data{did_you_mean(label, known)}; it has: {listed}"
                )
        return [known[label] for label in labels]

    def unknown_rate(self, labels: Sequence[str]) -> tuple[int, int]:
        """How many labels training never met, and how many there are."""
        return len(labels) - sum(label in self.names for label in labels), len(labels)

    def collate(self, rows: Mapping[str, Sequence[Any]]) -> Labels:
        return Labels(torch.tensor([int(label) for label in rows["label"]], dtype=torch.long))

    @staticmethod
    def loss(logits: torch.Tensor, target: Labels, smoothing: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
        """(rows, labels) -> the summed cross-entropy to minimise, and the one without smoothing to report."""
        loss = F.cross_entropy(logits, target.ids, reduction="sum", label_smoothing=smoothing)
        return loss, F.cross_entropy(logits.detach(), target.ids, reduction="sum")
