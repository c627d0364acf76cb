"""A label for every step as a target: one of a fixed set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from seqloom.batches.shards import Field
from seqloom.batches.steps import NO_LABEL, StepLabels, padded_steps
from seqloom.targets.label import LabelTarget


@dataclass(frozen=True)
class StepLabelTarget:
    """Labels of steps <-> numbers."""

    labels: LabelTarget
    ends = 0
    is_text = False

    @classmethod
    def learn(cls, rows: Iterable[Sequence[str]]) -> StepLabelTarget:
        """All labels of the training data."""
        return cls(LabelTarget.learn(label for row in rows for label in row))

    def save(self, folder: Path) -> None:
        self.labels.save(folder)

    @classmethod
    def load(cls, folder: Path) -> StepLabelTarget:
        return cls(LabelTarget.load(folder))

    @property
    def names(self) -> tuple[str, ...]:
        return self.labels.names

    def __len__(self) -> int:
        return len(self.labels)

    def key(self) -> str:
        return self.labels.key()

    def fields(self) -> dict[str, Field]:
        return {"labels": Field(lambda rows: [self.labels.numbers(row) for row in rows], size=len(self))}

    def collate(self, rows: Mapping[str, Sequence[Any]]) -> StepLabels:
        return StepLabels(*padded_steps([np.asarray(row, np.int64) for row in rows["labels"]], NO_LABEL))

    @staticmethod
    def loss(logits: torch.Tensor, target: StepLabels, smoothing: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
        """(rows, time, labels) -> the cross-entropy summed over real steps, and the one without smoothing."""
        flat, ids = logits.flatten(0, 1), target.ids.flatten()
        loss = F.cross_entropy(flat, ids, reduction="sum", label_smoothing=smoothing, ignore_index=NO_LABEL)
        return loss, F.cross_entropy(flat.detach(), ids, reduction="sum", ignore_index=NO_LABEL)
