"""The baseline of series: the label of the nearest training series by Euclidean distance (Dau et al. 2019, 1NN-ED)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

AT_ONCE = 256
MOST_NUMBERS = 50_000_000


class NearestSeries:
    """Training series, all brought to one length by straight lines between their steps."""

    def __init__(self, series: Sequence[np.ndarray], labels: Sequence[str]) -> None:
        lengths = sorted(len(values) for values in series)
        width = series[0].shape[1]
        self.steps = max(1, min(lengths[len(lengths) // 2], MOST_NUMBERS // (len(series) * width)))
        self.known, self.labels = self._vectors(series), list(labels)
        self.squares = (self.known**2).sum(1)

    def _vectors(self, series: Sequence[np.ndarray]) -> np.ndarray:
        return np.stack([resampled(values, self.steps).reshape(-1) for values in series])

    def predict(self, series: Sequence[np.ndarray]) -> list[str]:
        """A label for each; of equally near ones, that of the series that stands first."""
        found: list[str] = []
        for start in range(0, len(series), AT_ONCE):
            asked = self._vectors(series[start : start + AT_ONCE])
            nearest = (self.squares - 2 * asked @ self.known.T).argmin(1)
            found += [self.labels[place] for place in nearest]
        return found


def resampled(values: np.ndarray, steps: int) -> np.ndarray:
    """(time, channels) -> (steps, channels), the ends kept."""
    if len(values) == steps:
        return values
    places = np.linspace(0, len(values) - 1, steps)
    return np.stack([np.interp(places, np.arange(len(values)), channel) for channel in values.T], 1)
