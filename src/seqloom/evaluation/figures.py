"""What figures are called, which way is better, and what every report offers: numbers, text, JSON, an HTML table."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import numpy as np

Direction = Literal["higher", "lower"]
LEVEL = 0.05  # a difference whose p-value is not below this may be chance


@dataclass(frozen=True)
class Metric:
    """One way to compare models: its name in JSON, its title in a table."""

    name: str
    title: str
    better: Direction
    decimals: int

    def show(self, figure: float) -> str:
        return f"{figure:.{self.decimals}f}"

    def improves(self, new: float, old: float | None) -> bool:
        """Whether a figure is better than an older one."""
        return old is None or (new > old if self.better == "higher" else new < old)


METRICS = {
    metric.name: metric
    for metric in (
        Metric("bleu", "BLEU", "higher", 2),
        Metric("chrf", "chrF", "higher", 2),
        Metric("ter", "TER", "lower", 2),
        Metric("exact_match", "exact match", "higher", 2),
        Metric("sequence_error_rate", "sequence error rate", "lower", 2),
        Metric("word_error_rate", "word error rate", "lower", 2),
        Metric("character_error_rate", "character error rate", "lower", 2),
        Metric("phone_error_rate", "phone error rate", "lower", 2),
        Metric("aer", "AER", "lower", 3),
        Metric("loss", "loss", "lower", 3),
        Metric("perplexity", "perplexity", "lower", 2),
        Metric("bits_per_character", "bits per character", "lower", 3),
        Metric("pseudo_perplexity", "pseudo-perplexity", "lower", 2),
        Metric("accuracy", "accuracy", "higher", 2),
        Metric("label_accuracy", "accuracy of labels", "higher", 2),
        Metric("f1", "F1 of spans", "higher", 2),
        Metric("precision", "precision", "higher", 2),
        Metric("recall", "recall", "higher", 2),
        Metric("micro_f1", "micro F1", "higher", 2),
        Metric("macro_f1", "macro F1", "higher", 2),
        Metric("weighted_f1", "weighted F1", "higher", 2),
        Metric("mcc", "MCC", "higher", 3),
        Metric("calibration_error", "calibration error", "lower", 2),
        Metric("mse", "MSE", "lower", 4),
        Metric("mae", "MAE", "lower", 4),
        Metric("add", "3CosAdd", "higher", 2),
        Metric("multiply", "3CosMul", "higher", 2),
        Metric("spearman", "ρ", "higher", 4),
    )
}
"""Every figure we report. AER and ρ are fractions, losses are nats, other shares and scores are percentages."""


def metrics(*names: str) -> tuple[Metric, ...]:
    return tuple(METRICS[name] for name in names)


class Report:
    """What one evaluation found. Each kind of report adds fields, and how it is shown.

    `figures` are its scores by the name of the metric; `coverage` is what must be equal for figures of two models to be
    comparable; `answers` are the model's, where it gave any.
    """

    name: str

    @property
    def figures(self) -> dict[str, float]:
        raise NotImplementedError

    @property
    def coverage(self) -> Mapping[str, Any]:
        return {}

    @property
    def answers(self) -> list[str]:
        return []

    def rescore(self, metric: str) -> Callable[[np.ndarray], float] | None:
        """From how often each example is drawn, (examples,), to a figure; None of one that examples do not add up to.

        By it a comparison tells a difference from chance (`significance.py`).
        """
        return None

    def beside(self, baselines: Mapping[str, Mapping[str, Any]]) -> Report:
        """The same report with figures of what the model has to beat, where it has room for them."""
        return self

    def to_dict(self) -> dict[str, Any]:
        """One flat JSON object: the name, every figure under its own name, then the details."""
        raise NotImplementedError

    def render(self) -> str:
        """The report as plain text."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(METRICS[name].title)}</td><td>{METRICS[name].show(figure)}</td>"
            f"<td>{METRICS[name].better} is better</td></tr>"
            for name, figure in self.figures.items()
        )
        details = html.escape(self.render())
        return (
            f"<table><caption>{html.escape(self.name)}</caption>{rows}</table>"
            f"<details><summary>all of it</summary><pre>{details}</pre></details>"
        )
