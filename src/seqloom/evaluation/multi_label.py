"""How good sets of labels are: F1 over all decisions and over labels, and how many sets are right as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from seqloom.evaluation.classification import CLASSES_SHOWN, ClassFigures, aligned, score_cells
from seqloom.evaluation.figures import Report


def f1_of(right: float, answered: float, expected: float) -> float:
    """In percent; 0 where nothing was answered and nothing expected."""
    return float(200.0 * right / (answered + expected)) if answered + expected else 0.0


def label_figures(gold: np.ndarray, predicted: np.ndarray, names: Sequence[str]) -> dict[str, ClassFigures]:
    """(examples, labels) zeros and ones -> precision, recall, F1 and support of each label."""
    right, answered, expected = ((gold * predicted).sum(0), predicted.sum(0), gold.sum(0))

    def percent(part: float, whole: float) -> float:
        return float(100.0 * part / whole) if whole else 0.0

    return {
        name: ClassFigures(percent(r, a), percent(r, e), f1_of(r, a, e), int(e))
        for name, r, a, e in zip(names, right.tolist(), answered.tolist(), expected.tolist(), strict=True)
    }


def set_scores(gold: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    """Accuracy (all labels of an example right), micro and macro F1; as scikit-learn counts, 0 divided by 0 is 0."""
    each = [f1_of(r, a, e) for r, a, e in zip((gold * predicted).sum(0), predicted.sum(0), gold.sum(0), strict=True)]
    return {
        "accuracy": float(100.0 * (gold == predicted).all(1).mean()),
        "micro_f1": f1_of((gold * predicted).sum(), predicted.sum(), gold.sum()),
        "macro_f1": float(np.mean(each)),
    }


def binary_loss(gold: np.ndarray, probabilities: np.ndarray) -> float:
    """The binary cross-entropy, summed over the labels of an example, mean over examples, in nats."""
    smallest = np.finfo(np.float64).eps
    chances = np.clip(np.where(gold > 0, probabilities, 1 - probabilities), smallest, 1.0)
    return float(-np.log(chances).sum(1).mean())


@dataclass(frozen=True)
class MultiLabelReport(Report):
    """How good sets of labels are; baselines as in a `ClassificationReport`."""

    name: str
    count: int
    scores: dict[str, float]
    labels: dict[str, ClassFigures]
    baselines: Mapping[str, Mapping[str, float | str]] = field(default_factory=dict)
    predicted: list[str] = field(default_factory=list, repr=False)

    @property
    def figures(self) -> dict[str, float]:
        return self.scores

    @property
    def answers(self) -> list[str]:
        return self.predicted

    def beside(self, baselines: Mapping[str, Mapping[str, float | str]]) -> MultiLabelReport:
        return replace(self, baselines={**self.baselines, **baselines})

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "count": self.count,
            **self.scores,
            "labels": {label: asdict(figures) for label, figures in self.labels.items()},
            "baselines": {name: dict(figures) for name, figures in self.baselines.items()},
        }

    def render(self) -> str:
        parts = [
            f"{self.name}: {self.count:,} {'example' if self.count == 1 else 'examples'}",
            aligned(score_cells(self.scores, self.baselines)),
        ]
        parts += [f"{name}: always {one['label']}" for name, one in self.baselines.items() if "label" in one]
        if len(self.labels) <= CLASSES_SHOWN:
            rows = [
                (label, f"{one.precision:.2f}", f"{one.recall:.2f}", f"{one.f1:.2f}", f"{one.support:,}")
                for label, one in self.labels.items()
            ]
            parts.append(aligned([("label", "precision", "recall", "F1", "examples"), *rows]))
        return "\n\n".join(parts)
