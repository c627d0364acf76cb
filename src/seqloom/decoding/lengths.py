"""The numbers that follow from the lengths of questions and answers. No torch."""

from __future__ import annotations


def length_normaliser(length: int, penalty: float) -> float:
    """Wu et al. 2016, eq. 14: ((5 + length) / 6) ** penalty; 1 when the penalty is 0."""
    return float(((5 + length) / 6) ** penalty)


def length_limit(max_length: int, max_ratio: float, source_length: int) -> int:
    """The most symbols an answer to a source of this length may have, end symbol included."""
    return min(max_length, int(max_ratio * source_length) + 10)
