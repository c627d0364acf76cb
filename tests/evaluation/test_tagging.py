"""Figures of tags beside two independent programs, and by hand."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.evaluation.spans import to_bio
from seqloom.evaluation.tagging import (
    FrequentTags,
    WordError,
    frequent_tag_baseline,
    span_figures,
    tag_scores,
    tagging_report,
)

TAG = st.sampled_from(["O", "B-x", "I-x", "B-y", "I-y"])
BOTH = st.lists(st.lists(st.tuples(TAG, TAG), min_size=1, max_size=8), min_size=1, max_size=6)


def sides(both: list[list[tuple[str, str]]]) -> tuple[list[list[str]], list[list[str]]]:
    return tuple([[pair[side] for pair in one] for one in both] for side in (0, 1))  # type: ignore[return-value]


@given(BOTH)
def test_f1_is_that_of_seqeval(both: list[list[tuple[str, str]]]) -> None:
    metrics = pytest.importorskip("seqeval.metrics")
    gold, predicted = sides(both)
    found = tag_scores(gold, predicted, spans=True)
    for name in ("f1", "precision", "recall"):
        theirs = getattr(metrics, f"{name}_score")(gold, predicted)
        assert found[name] == pytest.approx(100 * float(theirs)), name
    assert found["accuracy"] == pytest.approx(100 * metrics.accuracy_score(gold, predicted))


def test_f1_is_that_of_nervaluate() -> None:
    """Strict: label and both ends must agree. Of sound tags, since slips are read in another way there."""
    nervaluate = pytest.importorskip("nervaluate")
    draw = random.Random(5)
    for _ in range(30):
        gold, predicted = (
            [to_bio([draw.choice(["O", "B-x", "I-x", "B-y", "I-y"]) for _ in range(7)]) for _ in range(5)]
            for _ in range(2)
        )
        result = nervaluate.Evaluator(gold, predicted, tags=["x", "y"], loader="list").evaluate()
        strict = result["overall"]["strict"]
        found = span_figures(gold, predicted)
        for name in ("precision", "recall", "f1"):
            assert getattr(found[""], name) == pytest.approx(100 * getattr(strict, name)), name
        for label, scores in result["entities"].items():
            if label in found:
                assert found[label].f1 == pytest.approx(100 * scores["strict"].f1)


WORDS = [["New", "York", "sleeps"], ["York"]]
GOLD = [["B-place", "I-place", "O"], ["B-place"]]
PREDICTED = [["B-place", "O", "O"], ["B-place"]]


def test_a_report_by_hand() -> None:
    report = tagging_report("mine", WORDS, GOLD, PREDICTED, spans=True)
    assert report.figures == {"f1": 50.0, "precision": 50.0, "recall": 50.0, "accuracy": 75.0}
    assert report.classes.keys() == {"place"}
    assert report.classes["place"].support == 2
    assert report.answers == ["B-place O O", "B-place"]
    assert report.errors == [WordError("York", "I-place", "O", 1)]
    assert [tuple(one) for one in report.confusions] == [("I-place", "O", 1)]
    found = json.loads(json.dumps(report.to_dict()))
    assert found["errors"] == [{"word": "York", "gold": "I-place", "predicted": "O", "times": 1}]
    text = report.beside({"most frequent tag": {"f1": 10.0}}).render()
    assert text.startswith("mine: 2 texts, 4 words\n")
    assert "most frequent errors" in text
    assert "most frequent tag" in text
    assert "F1 of spans" in text


def test_tags_that_are_no_spans_have_no_f1() -> None:
    report = tagging_report("mine", [["a", "cat"]], [["DET", "NOUN"]], [["DET", "DET"]], spans=False)
    assert report.figures == {"accuracy": 50.0}
    assert report.classes["NOUN"].recall == 0.0
    assert report.classes["DET"].precision == 50.0
    assert "1 text, 2 words" in report.render()


def test_the_most_frequent_tag_of_each_word() -> None:
    train = [(["a", "run", "run"], ["D", "N", "V"]), (["run", "a", "a"], ["V", "D", "D"])]
    simple = FrequentTags(train)
    assert simple.predict(["a", "run", "dog"]) == ["D", "V", "D"], "of a word it never met, the most frequent of all"
    assert FrequentTags([(["a", "a"], ["Y", "X"])]).predict(["a"]) == ["X"], "of equals the first"
    figures = frequent_tag_baseline(train, [["run", "cat"]], [["V", "N"]], spans=False)
    assert figures == {"accuracy": 50.0}


def test_a_test_set_drawn_anew_has_the_scores_of_one_written_out() -> None:
    words = [("a", "b", "c"), ("d", "e"), ("f",)]
    gold = [("B-x", "I-x", "O"), ("B-y", "O"), ("O",)]
    predicted = [("B-x", "I-x", "B-y"), ("O", "O"), ("O",)]
    labels, answered = ["p", "q", "p"], ["p", "p", "p"]
    report = tagging_report("t", words, gold, predicted, spans=True, labels=labels, answered=answered)
    times = [2, 1, 3]
    drawn = [[one for one, n in zip(some, times, strict=True) for _ in range(n)] for some in (words, gold, predicted)]
    more = [[one for one, n in zip(some, times, strict=True) for _ in range(n)] for some in (labels, answered)]
    written = tagging_report("t", *drawn, spans=True, labels=more[0], answered=more[1])
    for metric, figure in written.figures.items():
        again = report.rescore(metric)
        assert again is not None, metric
        assert again(np.array(times, float)) == pytest.approx(figure), metric
    assert report.rescore("loss") is None
    assert tagging_report("t", words, gold, predicted, spans=False).rescore("f1") is None
