"""The confusion matrix of many labels, and bars of a terminal, by hand."""

from __future__ import annotations

from seqloom.evaluation.calibration import Bin
from seqloom.inspection.reliability import calibration_gap, confusion_matrix, draw_reliability

GOLD = ["a", "a", "b", "c", "c", "d"]
PREDICTED = ["a", "b", "b", "d", "c", "c"]


def test_the_matrix_by_hand() -> None:
    labels, counts = confusion_matrix(GOLD, PREDICTED, 10)
    assert labels == ["a", "b", "c", "d"]
    assert counts.tolist() == [[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 0]]


def test_of_many_labels_those_with_most_mistakes_are_shown() -> None:
    labels, counts = confusion_matrix(GOLD, PREDICTED, 2)
    assert labels == ["c", "d"]
    assert counts.tolist() == [[1, 1], [1, 0]]


def test_bars_end_at_the_line_where_probabilities_are_right() -> None:
    bins = [Bin(0.4, 0.5, 0.45, 0.3, 10), Bin(0.9, 1.0, 0.95, 1.0, 30)]
    assert calibration_gap(bins) == 100 * (10 * (0.45 - 0.3) + 30 * (1.0 - 0.95)) / 40
    lines = draw_reliability(bins).splitlines()
    assert lines[2].split()[:5] == ["40%", "to", "50%", "45.0%", "30.0%"]
    assert "│" in lines[2]
    assert lines[2].index("│") > lines[2].rindex("█"), "surer than right: the bar ends before the line"
    assert lines[-1].startswith("calibration error 7.50")
