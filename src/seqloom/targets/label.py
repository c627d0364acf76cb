"""A class as a target: one of a fixed set of labels for every example."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from seqloom.batches.collate import twice
from seqloom.batches.shards import Field
from seqloom.corpus.readers import LIST
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
        if any(label.startswith(LIST) for label in counts):
            raise UserError(
                'the labels are lists; add labels_separator: "," to the recipe, and an example may have several'
            )
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
    def load(cls, folder: Path, least: int = 2) -> LabelTarget:
        names = read_json(folder / FILE)
        sound = isinstance(names, list) and all(isinstance(name, str) for name in names)
        if not sound or not least <= len(set(names)) == len(names) <= MOST:
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
    def loss(
        logits: torch.Tensor,
        target: Labels,
        smoothing: float = 0.0,
        *,
        weights: torch.Tensor | None = None,
        focal: float = 0.0,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(rows, labels) -> the summed cross-entropy to minimise, and the plain one to report.

        Args:
            logits: Of every label.
            target: The right ones.
            smoothing: This share of the probability is wanted evenly of all labels.
            weights: (labels,) how much an example of each label counts.
            focal: γ of Lin et al. 2017, equation 4: what is right already, with probability p, counts (1 - p) ** γ.
        """
        plain = F.cross_entropy(logits, target.ids, reduction="none")
        loss = F.cross_entropy(logits, target.ids, reduction="none", label_smoothing=smoothing) if smoothing else plain
        if focal:
            # 1 - p by expm1, and a little more than nothing: the gradient of a root is infinite at 0
            loss = loss * (-torch.expm1(-plain)).clamp(min=1e-12) ** focal
        if weights is not None:
            loss = loss * weights[target.ids]
        return loss.sum(), plain.detach().sum()

    def balanced(self, ids: np.ndarray) -> torch.Tensor:
        """(labels,) weights by which every label counts as much as any other, 1 on average over the examples."""
        counts = np.bincount(ids, minlength=len(self))
        return torch.from_numpy(len(ids) / (len(self) * counts.clip(1))).float()
