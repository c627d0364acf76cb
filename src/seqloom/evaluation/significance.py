"""Whether one model is better than another, or only luckier with these examples: paired bootstrap resampling.

The test set is drawn anew many times, example by example with replacement, always the same examples for both models
(Efron and Tibshirani 1993, section 16.4; for translation Koehn 2004, "Statistical Significance Tests for Machine
Translation Evaluation"). If the difference of two models varies so much that one as large as the observed would not be
surprising among equal models, it is put down to chance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from seqloom.evaluation.figures import Metric

Rescore = Callable[[np.ndarray], float]
"""(examples,) how often each example is drawn -> the figure of such a test set."""

DRAWS = 1000
SEED = 0


def of_sums(counts: np.ndarray, score: Callable[[np.ndarray], float]) -> Rescore:
    """Of a figure that depends on sums over the examples: (examples, sums), and from the sums to the figure."""
    return lambda times: score(times @ counts)


def of_mean(values: np.ndarray) -> Rescore:
    """Of a figure that is the mean of a value of each example."""
    return lambda times: float(times @ values / times.sum())


def interval(rescore: Rescore, count: int, draws: int = 200) -> tuple[float, float]:
    """Where a figure lies in 95 % of test sets that are drawn anew (Efron and Tibshirani 1993, section 13.3)."""
    generator = np.random.default_rng(SEED)
    found = [
        rescore(np.bincount(generator.integers(count, size=count), minlength=count).astype(np.float64))
        for _ in range(draws)
    ]
    low, high = np.percentile(found, [2.5, 97.5])
    return float(low), float(high)


def p_value(first: Rescore, second: Rescore, count: int) -> float:
    """How probable so large a difference is between models that are equally good: two-sided, the same draws always.

    The differences of the draws, shifted to a mean of 0, stand for those of equal models. One is added to numerator and
    denominator, as the observed set is one of the draws (Davison and Hinkley 1997, section 4.2).
    """
    generator = np.random.default_rng(SEED)
    whole = np.ones(count)
    observed = abs(first(whole) - second(whole))
    if observed == 0.0:
        return 1.0
    differences = np.empty(DRAWS)
    for draw in range(DRAWS):
        times = np.bincount(generator.integers(count, size=count), minlength=count).astype(np.float64)
        differences[draw] = first(times) - second(times)
    more = int((np.abs(differences - differences.mean()) >= observed).sum())
    return (more + 1) / (DRAWS + 1)


def against_the_best(
    metric: Metric, figures: Mapping[str, float], rescore: Mapping[str, Rescore], count: int
) -> dict[str, float]:
    """The p-value of each other model's distance from the best one, where both can be drawn anew."""
    if len(figures) < 2:
        return {}
    best = (max if metric.better == "higher" else min)(figures, key=lambda name: figures[name])
    others = [name for name in figures if name != best and name in rescore and best in rescore]
    return {name: p_value(rescore[best], rescore[name], count) for name in others}
