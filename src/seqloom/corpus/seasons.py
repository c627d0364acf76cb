"""A series that is made: eleven months of hours with a trend, a day's and a week's season, and noise.

Two channels follow each other: `load` has all four parts, `temperature` a day's season and slow weather. The same
name gives the same numbers everywhere.
"""

from __future__ import annotations

import numpy as np

PREFIX = "made:"
NAMES = ("seasons",)
CHANNELS = ("load", "temperature")
HOURS = 8000
DAY, WEEK = 24, 168


def check_made(name: str) -> None:
    """ValueError where there is no such series."""
    if name.removeprefix(PREFIX) not in NAMES:
        raise ValueError(f"a made series is one of {', '.join(PREFIX + known for known in NAMES)}; got {name!r}")


def made(name: str) -> np.ndarray:
    """(steps, channels)"""
    check_made(name)
    random = np.random.Generator(np.random.Philox(key=[7, 20]))
    hours = np.arange(HOURS)
    day, week = 2 * np.pi * hours / DAY, 2 * np.pi * hours / WEEK
    weather = 4 * slow_noise(random, 0.98)
    temperature = 12 + 5 * np.sin(day - 2.2) + weather
    load = 50 + 0.002 * hours + 8 * np.sin(day - 1.4) + 3 * np.sin(2 * day) + 5 * np.cos(week)
    load = load - 0.6 * (temperature - 12) + 2 * slow_noise(random, 0.6)
    return np.stack([load, temperature], 1).astype(np.float32)


def slow_noise(random: np.random.Generator, memory: float) -> np.ndarray:
    """Noise of deviation 1 that keeps a share of itself from hour to hour (autoregressive, of order 1)."""
    fresh = random.standard_normal(HOURS) * np.sqrt(1 - memory**2)
    values = np.empty(HOURS)
    before = 0.0
    for hour in range(HOURS):
        before = memory * before + fresh[hour]
        values[hour] = before
    return values
