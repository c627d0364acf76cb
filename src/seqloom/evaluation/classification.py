"""How good labels are: accuracy, F1 and confusions of a classifier, beside baselines that have to be beaten.

report = classification_report("test", gold, predicted, baselines={"majority class": majority_baseline(train, gold)})
print(report.render())
json.dumps(report.to_dict())
"""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from seqloom.evaluation.figures import METRICS, Report
from seqloom.evaluation.metrics import assert_parallel
from seqloom.evaluation.significance import Rescore, of_mean, of_sums

CALIBRATION_BINS = 15
CLASSES_SHOWN = 60
"""A report with more classes than this prints none of them; they are in its dictionary."""
CONFUSIONS_KEPT = 20
CONFUSIONS_SHOWN = 5
ERRORS_KEPT = 50
ERRORS_SHOWN = 5
ERROR_WIDTH = 60
RESAMPLED = 1000
SEED = 0  # of the bootstrap: the same answers have the same interval
DASH = "–"


@dataclass(frozen=True)
class ClassFigures:
    """One class: precision, recall and F1 in percent (0 where nothing could be divided by), and its gold examples."""

    precision: float
    recall: float
    f1: float
    support: int


class Confusion(NamedTuple):
    """A wrong label, and how often it stood for the right one."""

    gold: str
    predicted: str
    times: int  # every tuple has a method `count`


class Mistake(NamedTuple):
    """A wrong answer: the text, what it should have been and was, and the probability the model gave its own label."""

    text: str
    gold: str
    predicted: str
    probability: float


def accuracy(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """The percentage of labels that are right."""
    assert_parallel(predicted, gold)
    return 100.0 * sum(theirs == ours for theirs, ours in zip(gold, predicted, strict=True)) / len(gold)


def class_figures(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, ClassFigures]:
    """Precision, recall, F1 and support of every class, in alphabetical order.

    A class counts if it occurs among the gold labels or the predicted ones, as in scikit-learn with the union of both.
    """
    assert_parallel(predicted, gold)
    right = Counter(theirs for theirs, ours in zip(gold, predicted, strict=True) if theirs == ours)
    expected, answered = Counter(gold), Counter(predicted)

    def figures(label: str) -> ClassFigures:
        return ClassFigures(
            precision=_percent(right[label], answered[label]),
            recall=_percent(right[label], expected[label]),
            f1=_percent(2 * right[label], answered[label] + expected[label]),
            support=expected[label],
        )

    return {label: figures(label) for label in sorted(expected | answered)}


def macro_f1(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """The mean F1 of the classes, in percent: a rare class weighs as much as a frequent one."""
    return _macro(class_figures(gold, predicted))


def weighted_f1(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """The mean F1 of the classes by their share of the gold labels, in percent."""
    return _weighted(class_figures(gold, predicted))


def matthews_correlation(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """From −1 to 1; 0 for a model that ignores its input. Of several classes R_K (Gorodkin 2004)."""
    assert_parallel(predicted, gold)
    expected, answered, count = Counter(gold), Counter(predicted), len(gold)
    right = sum(theirs == ours for theirs, ours in zip(gold, predicted, strict=True))
    covariance = right * count - sum(expected[label] * answered[label] for label in expected)
    spread = [count**2 - sum(number**2 for number in counts.values()) for counts in (expected, answered)]
    return covariance / math.sqrt(spread[0] * spread[1]) if all(spread) else 0.0


def bootstrap_intervals(
    gold: Sequence[str], predicted: Sequence[str], share: float = 0.95
) -> dict[str, tuple[float, float]]:
    """Where accuracy and macro F1 lie on test sets drawn from this one with replacement (Efron 1979, percentiles).

    A resample is a draw of how often each pair of gold and predicted label occurs, which is all that both figures need.
    """
    pairs = sorted(confusion_counts(gold, predicted).items())
    labels = {label: number for number, label in enumerate(sorted({label for pair, _ in pairs for label in pair}))}
    theirs, ours = (np.array([labels[pair[side]] for pair, _ in pairs]) for side in (0, 1))
    times = np.array([count for _, count in pairs])
    drawn = np.random.default_rng(SEED).multinomial(len(gold), times / times.sum(), RESAMPLED).astype(np.float64)
    of_gold, of_predicted = (np.eye(len(labels))[side] for side in (theirs, ours))  # (pairs, labels)
    right = drawn @ (of_gold * of_predicted)
    both = drawn @ of_gold + drawn @ of_predicted
    f1 = np.divide(2 * right, both, out=np.zeros_like(both), where=both > 0)
    figures = {"accuracy": right.sum(1) / len(gold), "macro_f1": f1.sum(1) / (both > 0).sum(1)}
    tails = [50 * (1 - share), 50 * (1 + share)]
    return {name: tuple((100 * np.percentile(values, tails)).tolist()) for name, values in figures.items()}


def surest_mistakes(
    texts: Sequence[str], gold: Sequence[str], predicted: Sequence[str], confidence: Sequence[float]
) -> list[Mistake]:
    """The wrong answers, those that the model was surest of first; often it is the data that is wrong."""
    wrong = [
        Mistake(*one) for one in zip(texts, gold, predicted, map(float, confidence), strict=True) if one[1] != one[2]
    ]
    return sorted(wrong, key=lambda one: -one.probability)[:ERRORS_KEPT]


def confusion_counts(gold: Sequence[str], predicted: Sequence[str]) -> dict[tuple[str, str], int]:
    """(gold, predicted) -> how often; right answers, which lie on the diagonal, are counted too."""
    assert_parallel(predicted, gold)
    return dict(Counter(zip(gold, predicted, strict=True)))


def most_frequent_confusions(
    gold: Sequence[str], predicted: Sequence[str], limit: int = CONFUSIONS_KEPT
) -> list[Confusion]:
    """The wrong answers that occur most often; equally frequent ones in alphabetical order."""
    wrong = [Confusion(*pair, count) for pair, count in confusion_counts(gold, predicted).items() if pair[0] != pair[1]]
    return sorted(wrong, key=lambda one: (-one.times, one.gold, one.predicted))[:limit]


def log_loss(gold: Sequence[str], probabilities: np.ndarray, labels: Sequence[str]) -> float:
    """The mean negative log-likelihood of the gold labels, in nats.

    A probability below the precision of float64 (2e-16) counts as that much, as in scikit-learn: one certain mistake
    must not make the mean infinite. A gold label that the model has no column for has probability 0.

    Args:
        gold: The right labels.
        probabilities: (examples, classes); every row sums to 1.
        labels: The label of each column.
    """
    columns = _gold_columns(gold, probabilities, labels)
    rows = np.arange(len(gold))
    likelihoods = np.where(columns < 0, 0.0, np.asarray(probabilities, np.float64)[rows, columns])
    smallest = np.finfo(np.float64).eps
    return float(-np.log(np.clip(likelihoods, smallest, 1.0)).mean())


def expected_calibration_error(
    gold: Sequence[str], probabilities: np.ndarray, labels: Sequence[str], bins: int = CALIBRATION_BINS
) -> float:
    """How far confidence is from accuracy, in percentage points.

    Guo et al. 2017, equation 3: the examples are sorted by the probability of their most probable label into bins of
    equal width, and the gaps between mean probability and accuracy are averaged over the bins by their examples.

    Args:
        gold: The right labels.
        probabilities: (examples, classes); every row sums to 1.
        labels: The label of each column.
        bins: How many bins; bin m of M holds the probabilities above (m - 1) / M, up to m / M.
    """
    columns = _gold_columns(gold, probabilities, labels)
    confidence = np.asarray(probabilities, np.float64).max(axis=1)
    right = np.asarray(probabilities).argmax(axis=1) == columns
    bin_of = np.clip(np.ceil(confidence * bins).astype(np.int64) - 1, 0, bins - 1)
    # The size of a bin cancels: (size / n) * |sum of right / size - sum of confidence / size|.
    gaps = np.bincount(bin_of, right - confidence, bins)
    return float(100.0 * np.abs(gaps).sum() / len(gold))


def majority_baseline(train_labels: Sequence[str], gold: Sequence[str]) -> dict[str, float | str]:
    """What a model scores that always gives the most frequent training label (of equals the alphabetically first).

    Returns:
        The `label`, and its `accuracy` and `macro_f1` on the gold labels.
    """
    assert len(train_labels) > 0, "no training label: the most frequent one is not defined"
    counts = Counter(train_labels)
    label = min(counts, key=lambda one: (-counts[one], one))
    predicted = [label] * len(gold)
    return {"label": label, "accuracy": accuracy(gold, predicted), "macro_f1": macro_f1(gold, predicted)}


@dataclass(frozen=True)
class ClassificationReport(Report):
    """How good labels are.

    `scores` and every baseline hold figures by the name of the metric. A baseline may also name the one `label` that it
    always gives; whatever else it holds is kept, but not shown.
    """

    name: str
    count: int
    scores: dict[str, float]
    classes: dict[str, ClassFigures]
    confusions: list[Confusion]
    baselines: Mapping[str, Mapping[str, float | str]] = field(default_factory=dict)
    predicted: list[str] = field(default_factory=list, repr=False)
    gold: list[str] = field(default_factory=list, repr=False)
    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    mistakes: list[Mistake] = field(default_factory=list, repr=False)

    def rescore(self, metric: str) -> Rescore | None:
        if metric == "accuracy":
            return of_mean(100.0 * (np.array(self.gold) == np.array(self.predicted)))
        if metric == "macro_f1":
            return of_sums(_label_counts(self.gold, self.predicted, list(self.classes)), _macro_of_counts)
        return None

    @property
    def figures(self) -> dict[str, float]:
        return self.scores

    @property
    def answers(self) -> list[str]:
        return self.predicted

    def beside(self, baselines: Mapping[str, Mapping[str, float | str]]) -> ClassificationReport:
        return replace(self, baselines={**self.baselines, **baselines})

    def to_dict(self) -> dict[str, Any]:
        """One flat JSON object: every score under its own name, then the details."""
        return {
            "name": self.name,
            "count": self.count,
            **self.scores,
            "classes": {label: asdict(figures) for label, figures in self.classes.items()},
            "confusions": [
                {"gold": one.gold, "predicted": one.predicted, "count": one.times} for one in self.confusions
            ],
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
            "mistakes": [one._asdict() for one in self.mistakes],
            "baselines": {name: dict(figures) for name, figures in self.baselines.items()},
        }

    def render(self) -> str:
        """The report as plain text."""
        parts = [self._heading(), aligned(score_cells(self.scores, self.baselines))]
        if self.intervals:
            ends = (f"{METRICS[name].title} {low:.2f} to {high:.2f}" for name, (low, high) in self.intervals.items())
            parts.append(f"95 % intervals by bootstrap: {', '.join(ends)}")
        always = [f"{name}: always {one['label']}" for name, one in self.baselines.items() if "label" in one]
        if always:
            parts.append("\n".join(always))
        if len(self.classes) <= CLASSES_SHOWN:
            header = ("class", "precision", "recall", "F1", "examples")
            rows = [
                (label, f"{one.precision:.2f}", f"{one.recall:.2f}", f"{one.f1:.2f}", f"{one.support:,}")
                for label, one in self.classes.items()
            ]
            parts.append(aligned([header, *rows]))
        if self.confusions:
            shown = self.confusions[:CONFUSIONS_SHOWN]
            cells = [("gold", "predicted", "times"), *((one.gold, one.predicted, f"{one.times:,}") for one in shown)]
            parts.append("most frequent confusions\n\n" + aligned(cells, left=2))
        if self.mistakes:
            wrong = [
                (shorten(" ".join(one.text.split()), ERROR_WIDTH), one.gold, one.predicted, f"{one.probability:.3f}")
                for one in self.mistakes[:ERRORS_SHOWN]
            ]
            parts.append(
                "surest mistakes\n\n" + aligned([("text", "gold", "predicted", "probability"), *wrong], left=3)
            )
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        """The scores beside those of the baselines, and all the rest folded away."""
        header, *rows = score_cells(self.scores, self.baselines)
        head = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
        return (
            f"<table><caption>{html.escape(self._heading())}</caption><tr>{head}</tr>{body}</table>"
            f"<details><summary>all of it</summary><pre>{html.escape(self.render())}</pre></details>"
        )

    def _heading(self) -> str:
        return f"{self.name}: {self.count:,} {'example' if self.count == 1 else 'examples'}"


def score_cells(
    scores: Mapping[str, float], baselines: Mapping[str, Mapping[str, float | str]]
) -> list[tuple[str, ...]]:
    """Rows of text, the head first: a column for the model and for each baseline."""
    columns = [scores, *baselines.values()]
    names = dict.fromkeys(name for column in columns for name in column if name in METRICS)

    def cell(name: str, column: Mapping[str, float | str]) -> str:
        return METRICS[name].show(float(column[name])) if name in column else DASH

    rows = [
        (METRICS[name].title, *(cell(name, column) for column in columns), f"{METRICS[name].better} is better")
        for name in names
    ]
    return [("score", "model", *baselines, ""), *rows]


def classification_report(
    name: str,
    gold: Sequence[str],
    predicted: Sequence[str],
    probabilities: np.ndarray | None = None,
    labels: Sequence[str] | None = None,
    baselines: Mapping[str, Mapping[str, float | str]] | None = None,
    texts: Sequence[str] | None = None,
) -> ClassificationReport:
    """Score the labels that a classifier gave.

    Args:
        name: What was evaluated; the heading of the report.
        gold: The right labels.
        predicted: The labels the model gave, in the same order.
        probabilities: (examples, classes), where they are known: adds the loss and the calibration error.
        labels: The label of each column of `probabilities`.
        baselines: Name -> figures of what the model has to beat (see `majority_baseline`).
        texts: What was classified: adds the mistakes that the model was surest of, where there are probabilities.
    """
    figures = class_figures(gold, predicted)
    scores = {
        "accuracy": accuracy(gold, predicted),
        "macro_f1": _macro(figures),
        "weighted_f1": _weighted(figures),
        "mcc": matthews_correlation(gold, predicted),
    }
    mistakes: list[Mistake] = []
    if probabilities is not None:
        assert labels is not None, "probabilities need the label of each of their columns"
        scores["loss"] = log_loss(gold, probabilities, labels)
        scores["calibration_error"] = expected_calibration_error(gold, probabilities, labels)
        if texts is not None:
            mistakes = surest_mistakes(texts, gold, predicted, np.max(probabilities, axis=1).tolist())
    return ClassificationReport(
        name,
        len(gold),
        scores,
        figures,
        most_frequent_confusions(gold, predicted),
        dict(baselines or {}),
        list(predicted),
        list(gold),
        bootstrap_intervals(gold, predicted),
        mistakes,
    )


def _label_counts(gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> np.ndarray:
    """(examples, 3 * labels) for each label: whether it was rightly given, and how often it is gold or given."""
    expected, given = (np.array([[label == one for label in labels] for one in side]) for side in (gold, predicted))
    return np.concatenate([expected & given, expected, given], axis=1).astype(np.float64)


def _macro_of_counts(sums: np.ndarray) -> float:
    """The macro F1 of sums of `_label_counts`: the mean over labels that occur."""
    right, expected, given = sums.reshape(3, -1)
    occurs = expected + given > 0
    return float((200.0 * right[occurs] / (expected + given)[occurs]).mean())


def shorten(text: str, most: int) -> str:
    """At most so many characters, the last one then an ellipsis."""
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0


def _macro(figures: Mapping[str, ClassFigures]) -> float:
    return sum(one.f1 for one in figures.values()) / len(figures)


def _weighted(figures: Mapping[str, ClassFigures]) -> float:
    return sum(one.f1 * one.support for one in figures.values()) / sum(one.support for one in figures.values())


def _gold_columns(gold: Sequence[str], probabilities: np.ndarray, labels: Sequence[str]) -> np.ndarray:
    """(examples,) the column of each gold label; -1 where it has none."""
    assert len(gold) > 0, "nothing to score: the list of gold labels is empty"
    expected = (len(gold), len(labels))
    assert np.shape(probabilities) == expected, f"probabilities have shape {np.shape(probabilities)}, not {expected}"
    sums = np.sum(probabilities, axis=1, dtype=np.float64)
    assert np.allclose(sums, 1.0, atol=1e-3), "every row of probabilities must sum to 1 (are they logarithms?)"
    column_of = {label: column for column, label in enumerate(labels)}
    return np.array([column_of.get(label, -1) for label in gold], np.int64)


def aligned(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Lines of a table, the head first and a rule below it; the first `left` columns and notes are left-aligned."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    # A column without a head holds notes.
    to_left = [i < left or not head for i, head in enumerate(rows[0])]
    lines = [
        "  ".join(c.ljust(w) if at_left else c.rjust(w) for c, w, at_left in zip(row, widths, to_left, strict=True))
        for row in rows
    ]
    rule = "-" * max(len(line.rstrip()) for line in lines)
    return "\n".join(line.rstrip() for line in [lines[0], rule, *lines[1:]])
