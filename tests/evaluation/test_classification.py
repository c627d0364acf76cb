"""Scores of labels by hand and against scikit-learn; what a reader of the report sees."""

from __future__ import annotations

import json
import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.evaluation.classification import (
    CLASSES_SHOWN,
    CONFUSIONS_KEPT,
    ClassFigures,
    ClassificationReport,
    Confusion,
    accuracy,
    bootstrap_intervals,
    class_figures,
    classification_report,
    confusion_counts,
    expected_calibration_error,
    log_loss,
    macro_f1,
    majority_baseline,
    matthews_correlation,
    most_frequent_confusions,
    weighted_f1,
)
from seqloom.evaluation.figures import METRICS

LABELS = ["a", "b", "c", "d"]
PAIRS = st.lists(st.tuples(st.sampled_from(LABELS), st.sampled_from([*LABELS, "never gold"])), min_size=1, max_size=30)
GOLD = ["a", "a", "a", "b", "c"]
PREDICTED = ["a", "a", "b", "b", "d"]


def random_probabilities(count: int, classes: int, seed: int) -> np.ndarray:
    """(count, classes), some rows far from even."""
    powers = np.exp(4 * np.random.default_rng(seed).normal(size=(count, classes)))
    return powers / powers.sum(axis=1, keepdims=True)


def test_scores_by_hand() -> None:
    assert accuracy(GOLD, PREDICTED) == 60.0
    assert class_figures(GOLD, PREDICTED) == {
        "a": ClassFigures(precision=100.0, recall=pytest.approx(200 / 3), f1=80.0, support=3),
        "b": ClassFigures(precision=50.0, recall=100.0, f1=pytest.approx(200 / 3), support=1),
        "c": ClassFigures(0.0, 0.0, 0.0, 1),  # gold, never predicted
        "d": ClassFigures(0.0, 0.0, 0.0, 0),  # predicted, never gold
    }
    assert macro_f1(GOLD, PREDICTED) == pytest.approx((80 + 200 / 3) / 4)
    assert weighted_f1(GOLD, PREDICTED) == pytest.approx((3 * 80 + 200 / 3) / 5)
    assert confusion_counts(GOLD, PREDICTED) == {("a", "a"): 2, ("a", "b"): 1, ("b", "b"): 1, ("c", "d"): 1}
    assert most_frequent_confusions(GOLD, PREDICTED) == [Confusion("a", "b", 1), Confusion("c", "d", 1)]


def test_confusions_are_ordered_by_frequency_and_then_by_name() -> None:
    pairs = [("x", "y"), ("b", "c"), ("x", "y"), ("b", "a"), ("a", "a")]
    found = most_frequent_confusions(*zip(*pairs, strict=True))
    assert found == [("x", "y", 2), ("b", "a", 1), ("b", "c", 1)]
    assert most_frequent_confusions(*zip(*pairs, strict=True), limit=1) == [("x", "y", 2)]
    many = [str(number) for number in range(CONFUSIONS_KEPT + 5)]
    assert len(most_frequent_confusions(many, ["other"] * len(many))) == CONFUSIONS_KEPT


@given(PAIRS)
def test_equal_to_scikit_learn(pairs: list[tuple[str, str]]) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    gold, predicted = [theirs for theirs, _ in pairs], [ours for _, ours in pairs]
    assert accuracy(gold, predicted) == pytest.approx(100 * metrics.accuracy_score(gold, predicted))
    for ours, average in ((macro_f1, "macro"), (weighted_f1, "weighted")):
        theirs = metrics.f1_score(gold, predicted, average=average, zero_division=0)
        assert ours(gold, predicted) == pytest.approx(100 * theirs)
    labels = sorted({*gold, *predicted})
    figures = class_figures(gold, predicted)
    assert list(figures) == labels
    theirs = metrics.precision_recall_fscore_support(gold, predicted, labels=labels, zero_division=0)
    for label, precision, recall, f1, support in zip(labels, *theirs, strict=True):
        one = figures[label]
        assert (one.precision, one.recall, one.f1) == pytest.approx((100 * precision, 100 * recall, 100 * f1))
        assert one.support == support
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a single class
        matrix = metrics.confusion_matrix(gold, predicted, labels=labels)
    counts = confusion_counts(gold, predicted)
    assert [[counts.get((row, column), 0) for column in labels] for row in labels] == matrix.tolist()


@given(st.lists(st.sampled_from(LABELS), min_size=1, max_size=30), st.integers(0, 99))
def test_losses_equal_to_scikit_learn_and_to_the_definition(gold: list[str], seed: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    probabilities = random_probabilities(len(gold), len(LABELS), seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about a single class
        theirs = metrics.log_loss(gold, probabilities, labels=LABELS)
    assert log_loss(gold, probabilities, LABELS) == pytest.approx(theirs)

    expected, bins = 0.0, 15
    for number in range(bins):
        members = [i for i, row in enumerate(probabilities) if number / bins < max(row) <= (number + 1) / bins]
        if members:
            right = sum(LABELS[int(np.argmax(probabilities[i]))] == gold[i] for i in members) / len(members)
            confidence = sum(max(probabilities[i]) for i in members) / len(members)
            expected += len(members) / len(gold) * abs(right - confidence)
    assert expected_calibration_error(gold, probabilities, LABELS) == pytest.approx(100 * expected, abs=1e-9)


def test_probabilities_by_hand() -> None:
    probabilities = np.array([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75]])
    gold = ["yes", "no", "yes"]
    expected = -(math.log(0.75) + math.log(0.5) + math.log(0.25)) / 3
    assert log_loss(gold, probabilities, ["yes", "no"]) == pytest.approx(expected)
    # Both answers with 0.75 share a bin, and one is right: |1 - 1.5| / 3.
    # The tie goes to the first label, which is wrong: |0 - 0.5| / 3.
    assert expected_calibration_error(gold, probabilities, ["yes", "no"]) == pytest.approx(100 / 3)
    assert expected_calibration_error(gold, probabilities, ["yes", "no"], bins=1) == pytest.approx(100 / 3)
    certain = np.array([[1.0, 0.0], [0.0, 1.0]])
    assert expected_calibration_error(["yes", "no"], certain, ["yes", "no"]) == 0.0
    assert log_loss(["yes", "no"], certain, ["yes", "no"]) == 0.0
    assert expected_calibration_error(["no", "yes"], certain, ["yes", "no"]) == 100.0
    assert log_loss(["no", "yes"], certain, ["yes", "no"]) == pytest.approx(-math.log(2**-52))


def test_a_gold_label_that_the_model_has_never_seen() -> None:
    probabilities = np.array([[0.9, 0.1], [0.2, 0.8]])
    report = classification_report("test", ["yes", "maybe"], ["yes", "no"], probabilities, ["yes", "no"])
    assert report.scores["accuracy"] == 50.0
    assert report.classes["maybe"] == ClassFigures(0.0, 0.0, 0.0, 1)
    assert report.scores["loss"] == pytest.approx(-(math.log(0.9) + math.log(2**-52)) / 2)
    assert report.scores["calibration_error"] == pytest.approx(100 * (0.1 + 0.8) / 2)
    assert report.confusions == [("maybe", "no", 1)]


def test_one_class() -> None:
    report = classification_report("test", ["a", "a"], ["a", "a"], np.ones((2, 1)), ["a"])
    assert report.scores == {
        "accuracy": 100.0,
        "macro_f1": 100.0,
        "weighted_f1": 100.0,
        "mcc": 0.0,  # nothing varies, so nothing can go together
        "loss": 0.0,
        "calibration_error": 0.0,
    }
    assert report.confusions == []
    assert "confusions" not in report.render()


def test_majority_baseline_by_hand() -> None:
    assert majority_baseline(["b", "a", "b"], ["a", "b", "b", "b"]) == {
        "label": "b",
        "accuracy": 75.0,
        "macro_f1": pytest.approx(100 * (0 + 6 / 7) / 2),
    }
    assert majority_baseline(["c", "b", "a"], ["b"]) == {"label": "a", "accuracy": 0.0, "macro_f1": 0.0}
    with pytest.raises(AssertionError, match="no training label"):
        majority_baseline([], ["a"])


def example_report() -> ClassificationReport:
    baselines = {
        "majority class": majority_baseline(["a"], GOLD),
        "TF-IDF + logistic regression": {"accuracy": 40.0, "macro_f1": 30.125, "loss": 1.0, "seconds": 3},
    }
    return classification_report("trees <test>", GOLD, PREDICTED, baselines=baselines)


def test_the_report_as_text() -> None:
    assert example_report().render().splitlines() == [
        "trees <test>: 5 examples",
        "",
        "score        model  majority class  TF-IDF + logistic regression",
        "-" * 82,
        "accuracy     60.00           60.00                         40.00  higher is better",
        "macro F1     36.67           25.00                         30.12  higher is better",
        "weighted F1  61.33               –                             –  higher is better",
        "MCC          0.468               –                             –  higher is better",
        "loss             –               –                         1.000  lower is better",
        "",
        "95 % intervals by bootstrap: accuracy 20.00 to 100.00, macro F1 10.00 to 100.00",
        "",
        "majority class: always a",
        "",
        "class  precision  recall     F1  examples",
        "-----------------------------------------",
        "a         100.00   66.67  80.00         3",
        "b          50.00  100.00  66.67         1",
        "c           0.00    0.00   0.00         1",
        "d           0.00    0.00   0.00         0",
        "",
        "most frequent confusions",
        "",
        "gold  predicted  times",
        "----------------------",
        "a     b              1",
        "c     d              1",
    ]


def test_a_report_of_many_classes_shows_none_and_few_confusions() -> None:
    gold = [f"{number:03}" for number in range(CLASSES_SHOWN + 1)]
    report = classification_report("test", gold, gold[1:] + gold[:1])
    assert "precision" not in report.render()
    assert report.render().count("  1") == 5
    assert len(report.to_dict()["classes"]) == len(gold)
    assert "precision" in classification_report("test", gold[1:], gold[1:]).render()
    assert classification_report("test", ["a"], ["a"]).render().startswith("test: 1 example\n")


def test_the_report_as_json_and_as_figures() -> None:
    probabilities = np.full((5, 3), 1 / 3, np.float32)
    report = classification_report("test", GOLD, PREDICTED, probabilities, ["a", "b", "c"], {"m": {"accuracy": 1.0}})
    assert list(report.figures) == ["accuracy", "macro_f1", "weighted_f1", "mcc", "loss", "calibration_error"]
    found = json.loads(json.dumps(report.to_dict()))
    assert {name: found[name] for name in report.figures} == report.figures
    assert (found["name"], found["count"], found["baselines"]) == ("test", 5, {"m": {"accuracy": 1.0}})
    assert found["classes"]["a"]["support"] == 3
    assert found["confusions"][0] == {"gold": "a", "predicted": "b", "count": 1}
    assert found["loss"] == pytest.approx(math.log(3), rel=1e-6)
    assert set(report.figures) <= set(METRICS)
    assert report.answers == PREDICTED


def test_the_correlation_is_that_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(4)
    for classes in (2, 3, 7):
        gold, predicted = ([str(number) for number in random.integers(0, classes, 50)] for _ in range(2))
        predicted[:20] = gold[:20]
        assert matthews_correlation(gold, predicted) == pytest.approx(metrics.matthews_corrcoef(gold, predicted))


def test_the_interval_is_that_of_the_binomial_distribution_and_always_the_same() -> None:
    gold = ["a"] * 400
    predicted = ["a"] * 320 + ["b"] * 80
    found = bootstrap_intervals(gold, predicted)
    assert found == bootstrap_intervals(gold, predicted)
    half = 196 * math.sqrt(0.8 * 0.2 / 400)
    assert found["accuracy"] == pytest.approx((80 - half, 80 + half), abs=0.6)
    low, high = found["macro_f1"]
    assert low < macro_f1(gold, predicted) < high


def test_mistakes_come_with_the_surest_first() -> None:
    probabilities = np.array([[0.9, 0.1], [0.3, 0.7], [0.4, 0.6], [0.2, 0.8]])
    report = classification_report(
        "test",
        ["b", "a", "b", "a"],
        ["a", "b", "b", "b"],
        probabilities,
        ["a", "b"],
        texts=["1", "2", "3", "4  4" * 30],
    )
    assert [(one.text[0], one.gold, one.predicted, one.probability) for one in report.mistakes] == [
        ("1", "b", "a", 0.9),
        ("4", "a", "b", 0.8),
        ("2", "a", "b", 0.7),
    ]
    shown = report.render().split("surest mistakes")[1]
    assert shown.index("0.900") < shown.index("0.800")
    assert "…" in shown
    assert json.loads(json.dumps(report.to_dict()))["mistakes"][0]["text"] == "1"


def test_the_report_as_html_is_escaped() -> None:
    page = example_report()._repr_html_()
    assert "trees &lt;test&gt;: 5 examples" in page
    assert "<test>" not in page
    assert "<td>accuracy</td><td>60.00</td><td>60.00</td><td>40.00</td>" in page


def test_our_own_mistakes_fail_at_once() -> None:
    with pytest.raises(AssertionError, match="empty"):
        classification_report("test", [], [])
    with pytest.raises(AssertionError, match="1 hypotheses, 2 references"):
        accuracy(["a", "b"], ["a"])
    with pytest.raises(AssertionError, match=r"shape \(1, 3\), not \(1, 2\)"):
        log_loss(["a"], np.ones((1, 3)), ["a", "b"])
    with pytest.raises(AssertionError, match="must sum to 1"):
        log_loss(["a"], np.log([[0.5, 0.5]]), ["a", "b"])
    with pytest.raises(AssertionError, match="label of each of their columns"):
        classification_report("test", ["a"], ["a"], np.ones((1, 1)))
