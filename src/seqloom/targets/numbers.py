"""Numbers as a target: one for each example, or always as many, scaled by what the training data are like."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from seqloom.batches.collate import twice
from seqloom.batches.shards import Field
from seqloom.errors import UserError
from seqloom.files import read_json, write_json

FILE = "numbers.json"


@dataclass(frozen=True)
class Numbers:
    """`values` (batch, numbers)."""

    values: torch.Tensor

    def __len__(self) -> int:
        return len(self.values)

    @property
    def count(self) -> int:
        return self.values.numel()

    def doubled(self) -> Numbers:
        return Numbers(*twice(self.values))

    def part(self, rows: slice) -> Numbers:
        return Numbers(self.values[rows])


@dataclass(frozen=True)
class NumbersTarget:
    """Texts of numbers <-> numbers less the mean of training, by its deviation."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    ends = 0
    is_text = False

    @classmethod
    def learn(cls, targets: Iterable[str]) -> NumbersTarget:
        """From all targets of the training data."""
        rows = [numbers_of(target) for target in targets]
        if not rows:
            raise UserError("there is no training example")
        odd = next((row for row in rows if len(row) != len(rows[0])), None)
        if odd is not None:
            raise UserError(f"every target must have {len(rows[0])} numbers as the first one has; one has {len(odd)}")
        values = np.array(rows, np.float64)
        deviation = values.std(0)
        return cls(tuple(values.mean(0).tolist()), tuple(np.where(deviation > 0, deviation, 1.0).tolist()))

    def save(self, folder: Path) -> None:
        write_json(folder / FILE, {"mean": self.mean, "deviation": self.deviation})

    @classmethod
    def load(cls, folder: Path) -> NumbersTarget:
        found = read_json(folder / FILE)
        rows: list[Any] = [found.get(name) for name in ("mean", "deviation")] if isinstance(found, dict) else []
        sound = len(rows) == 2 and all(isinstance(row, list) and row and all(map(_is_number, row)) for row in rows)
        if not sound or len(rows[0]) != len(rows[1]) or min(rows[1]) <= 0:
            raise UserError(f"{folder / FILE}: no means and deviations; copy the whole model folder again")
        return cls(tuple(rows[0]), tuple(rows[1]))

    def __len__(self) -> int:
        return len(self.mean)

    def key(self) -> str:
        return json.dumps([self.mean, self.deviation])

    def fields(self) -> dict[str, Field]:
        return {"numbers": Field(lambda targets: list(self.scaled(targets)), depth=0, width=len(self))}

    def scaled(self, targets: Sequence[str]) -> np.ndarray:
        """(targets, numbers)"""
        rows = [numbers_of(target) for target in targets]
        odd = next((row for row in rows if len(row) != len(self)), None)
        if odd is not None:
            raise UserError(f"every target must have {len(self)} numbers; one has {len(odd)}")
        return ((np.array(rows, np.float64) - self.mean) / self.deviation).astype(np.float32)

    def invert(self, values: np.ndarray) -> np.ndarray:
        """(…, numbers) in the data's own units."""
        return np.asarray(values * np.array(self.deviation) + np.array(self.mean))

    def unknown_rate(self, targets: Sequence[str]) -> tuple[int, int]:
        return 0, len(targets)

    def collate(self, rows: Mapping[str, Sequence[Any]]) -> Numbers:
        return Numbers(torch.from_numpy(np.stack([np.asarray(row, np.float32) for row in rows["numbers"]])))

    @staticmethod
    def loss(made: torch.Tensor, target: Numbers, how: str = "mse") -> torch.Tensor:
        """(rows, numbers) -> the summed squared or absolute error of scaled numbers."""
        measure = F.mse_loss if how == "mse" else F.l1_loss
        return measure(made, target.values, reduction="sum")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def numbers_of(target: Any) -> list[float]:
    """`1.5 -2` -> numbers; what is none is the data's fault."""
    parts = target.replace(",", " ").split() if isinstance(target, str) else []
    try:
        found = [float(part) for part in parts]
    except ValueError:
        found = []
    if not found or not all(map(math.isfinite, found)):
        raise UserError(f"the target must be a number, or several with spaces between; found {str(target)[:60]!r}")
    return found
