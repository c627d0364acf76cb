"""How good forecasts are, on scaled values as the literature measures them, beside methods that have to be beaten."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from seqloom.evaluation.figures import METRICS, Report

RIDGE = 1e-4  # of the mean square of an input


def last_value(history: np.ndarray, horizon: int) -> np.ndarray:
    """(windows, history, channels) -> (windows, horizon, channels): nothing changes any more."""
    return np.repeat(history[:, -1:], horizon, 1)


def seasonal(history: np.ndarray, horizon: int, period: int) -> np.ndarray:
    """What was a period before, as often as needed."""
    places = history.shape[1] - period + np.arange(horizon) % period
    return history[:, places]


def drift(history: np.ndarray, horizon: int) -> np.ndarray:
    """The line from the first to the last value goes on (Hyndman & Athanasopoulos 2021, section 5.2)."""
    slope = (history[:, -1:] - history[:, :1]) / max(1, history.shape[1] - 1)
    return history[:, -1:] + slope * np.arange(1, horizon + 1)[None, :, None]


@dataclass(frozen=True)
class WindowRegression:
    """Ridge regression of what follows on the window, one for all channels; the bias is not drawn to 0."""

    weights: np.ndarray  # (history + 1, horizon)

    @classmethod
    def fit(cls, batches: Iterable[tuple[np.ndarray, np.ndarray]]) -> WindowRegression:
        """(X'X + aI)^-1 X'Y, summed up over batches of (windows, history, channels) and what follows them."""
        squares, products = np.zeros((1, 1)), np.zeros((1, 1))
        for history, target in batches:
            rows = _rows(history)
            wanted = np.moveaxis(target, 1, 2).reshape(-1, target.shape[1]).astype(np.float64)
            squares, products = squares + rows.T @ rows, products + rows.T @ wanted
        penalty = np.full(len(squares), RIDGE * np.trace(squares[:-1, :-1]) / (len(squares) - 1) + 1e-12)
        penalty[-1] = 0.0
        return cls(np.linalg.solve(squares + np.diag(penalty), products))

    def __call__(self, history: np.ndarray, horizon: int) -> np.ndarray:
        made = _rows(history) @ self.weights[:, :horizon]
        return np.moveaxis(made.reshape(len(history), history.shape[2], -1), 1, 2)


def _rows(history: np.ndarray) -> np.ndarray:
    """A row for each channel of each window, and a 1."""
    rows = np.moveaxis(history, 1, 2).reshape(-1, history.shape[1]).astype(np.float64)
    return np.concatenate([rows, np.ones((len(rows), 1))], 1)


def find_period(values: np.ndarray, longest: int) -> int | None:
    """The lag at which (steps, channels) are most like themselves, of those that are more so than their neighbours.

    A straight line is taken out first, since a trend is like itself at every short lag.
    """
    steps = len(values)
    longest = min(longest, steps // 2)
    if longest < 3:
        return None
    line = np.stack([np.ones(steps), np.linspace(-1, 1, steps)], 1)
    rest = values - line @ np.linalg.lstsq(line, values.astype(np.float64), rcond=None)[0]
    spectrum = np.abs(np.fft.rfft(rest, 2 * steps, axis=0)) ** 2
    alike = np.fft.irfft(spectrum, axis=0)[: longest + 2]
    alike = (alike / np.maximum(alike[:1], 1e-12)).mean(1) * steps / np.maximum(1, steps - np.arange(longest + 2))
    peaks = [lag for lag in range(2, longest + 1) if alike[lag] > alike[lag - 1] and alike[lag] >= alike[lag + 1]]
    strong = [lag for lag in peaks if alike[lag] > 0.1]
    if not strong:
        return None
    best = max(alike[lag] for lag in strong)
    return next(lag for lag in strong if alike[lag] > 0.95 * best)  # not twice a period


@dataclass
class Errors:
    """Sums of squared and absolute errors, by channel."""

    squares: np.ndarray = field(default_factory=lambda: np.zeros(1))
    absolute: np.ndarray = field(default_factory=lambda: np.zeros(1))
    count: int = 0  # numbers of each channel

    def add(self, made: np.ndarray, target: np.ndarray) -> None:
        """(windows, horizon, channels) each."""
        wrong = made.astype(np.float64) - target
        self.squares = self.squares + (wrong**2).sum((0, 1))
        self.absolute = self.absolute + np.abs(wrong).sum((0, 1))
        self.count += target.shape[0] * target.shape[1]

    @property
    def figures(self) -> dict[str, float]:
        return {
            "mse": float(np.mean(self.squares) / self.count),
            "mae": float(np.mean(self.absolute) / self.count),
        }


def total(parts: Sequence[Errors]) -> Errors:
    """The sums of several parts, in their order."""
    found = Errors()
    for part in parts:
        found.squares = found.squares + part.squares
        found.absolute = found.absolute + part.absolute
        found.count += part.count
    return found


def measured(
    methods: Mapping[str, Callable[[np.ndarray, int], np.ndarray]],
    batches: Iterable[tuple[np.ndarray, np.ndarray]],
) -> dict[str, dict[str, float]]:
    """The figures of several methods on the same windows."""
    errors = {name: Errors() for name in methods}
    for history, target in batches:
        for name, method in methods.items():
            errors[name].add(method(history, target.shape[1]), target)
    return {name: found.figures for name, found in errors.items()}


@dataclass(frozen=True)
class ForecastReport(Report):
    """Errors of a model over all windows; `units` are mean absolute errors by channel in the data's own units.

    `covered`: the share of values between the lowest and the highest quantile, where there are some.
    """

    name: str
    count: int
    horizon: int
    scores: dict[str, float]
    units: dict[str, float]
    covered: float | None = None
    quantiles: tuple[float, ...] = ()
    baselines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def figures(self) -> dict[str, float]:
        return self.scores

    @property
    def coverage(self) -> Mapping[str, Any]:
        return {"windows": self.count, "horizon": self.horizon}

    def beside(self, baselines: Mapping[str, Mapping[str, float]]) -> ForecastReport:
        return replace(self, baselines={**self.baselines, **baselines})

    def to_dict(self) -> dict[str, Any]:
        found: dict[str, Any] = {"name": self.name, "count": self.count, **self.scores, "horizon": self.horizon}
        if self.covered is not None:
            found |= {"quantiles": list(self.quantiles), "covered": self.covered}
        return {**found, "channels": dict(self.units), "baselines": {n: dict(one) for n, one in self.baselines.items()}}

    def render(self) -> str:
        rows: list[tuple[str, ...]] = [("method", "MSE", "MAE")]
        for name, figures in {"model": self.scores, **self.baselines}.items():
            rows.append((name, *(METRICS[key].show(figures[key]) for key in ("mse", "mae"))))
        parts = [f"{self.name}: {self.count:,} windows, {self.horizon:,} steps ahead, on scaled values", _table(rows)]
        if self.covered is not None:
            low, high = min(self.quantiles), max(self.quantiles)
            parts.append(
                f"{self.covered:.1f} % of all values lie between the quantiles {low:g} and {high:g}; "
                f"{100 * (high - low):.1f} % should"
            )
        listed = list(self.units.items())
        shown = [("channel", "mean error, own units"), *((name, f"{error:.4g}") for name, error in listed[:20])]
        parts.append(_table(shown) + ("\n…" if len(listed) > 20 else ""))
        return "\n\n".join(parts)


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
