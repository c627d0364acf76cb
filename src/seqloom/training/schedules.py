"""Learning rates over time: pure functions of the step, and the one that listens to the validation metric."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from seqloom.training.settings import FittingSettings


def scheduled_rate(step: int, s: FittingSettings, done: float = 0.0) -> float:
    """The rate of update number `step`, counted from 1, before any plateau has lowered it.

    done: share of the run before this update, by the limit that is nearest. A run that is not bounded by steps alone
    ends, as far as one can tell by it, at update (step - 1) / done.
    """
    peak, warmup = s.learning_rate, s.warmup_steps
    if step <= warmup:
        return peak * step / warmup
    if s.schedule == "inverse_square_root":  # Vaswani et al. 2017, eq. 3, with the peak given directly
        return max(s.min_learning_rate, peak * math.sqrt(warmup / step))
    if s.schedule == "cosine":
        end = s.decay_steps or s.steps or math.inf
        if done and s.decay_steps is None and not (s.epochs is None and s.minutes is None):
            end = min(end, (step - 1) / done)
        share = min(1.0, (step - warmup) / max(1, end - warmup))
        return s.min_learning_rate + (peak - s.min_learning_rate) * (1 + math.cos(math.pi * share)) / 2
    return peak


@dataclass
class Plateau:
    """Lowers the rate when the metric has not improved for `plateau_patience` validations."""

    factor: float = 1.0
    waited: int = 0

    def hear(self, improved: bool, s: FittingSettings) -> None:
        if s.schedule != "plateau":
            return
        self.waited = 0 if improved else self.waited + 1
        if self.waited > s.plateau_patience:
            self.factor, self.waited = self.factor * s.plateau_factor, 0

    def rate(self, step: int, s: FittingSettings, done: float = 0.0) -> float:
        return max(s.min_learning_rate, scheduled_rate(step, s, done) * self.factor)

    def to_dict(self) -> dict[str, Any]:
        return {"factor": self.factor, "waited": self.waited}
