"""The report takes a test set apart without losing a sentence."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.evaluation.metrics import corpus_scores
from seqloom.evaluation.report import Bucket, Group, by_length, by_tag, evaluate_texts

SENTENCE = st.lists(st.sampled_from(["la", "bruja", "verde", "llegó"]), max_size=13).map(" ".join)
SOURCES = ["a b c", "a b c d e f g", "a", "a b c d e f g h i j k l"]
HYPOTHESES = ["x y z", "the green witch arrived", "x", "the green witch arrived at last"]
REFERENCES = ["x y z", "the green witch left", "y", "the green witch arrived at last"]
TAGS = [("negation",), ("negation", "relative"), (), ("relative", "relative")]


@settings(max_examples=40, deadline=None)
@given(st.lists(SENTENCE, min_size=1, max_size=12), st.sets(st.integers(0, 15), min_size=1, max_size=4).map(sorted))
def test_every_sentence_is_in_exactly_one_bucket(sources: list[str], edges: list[int]) -> None:
    buckets = by_length(sources, sources, sources, edges)
    assert sum(bucket.count for bucket in buckets) == len(sources)
    for bucket in buckets:
        upper = 1000 if bucket.upper is None else bucket.upper
        inside = [source for source in sources if bucket.lower <= len(source.split()) <= upper]
        assert bucket.count == len(inside) > 0
        assert bucket.exact_match == 100.0
    assert len({bucket.label for bucket in buckets}) == len(buckets)


def test_buckets_by_hand() -> None:
    first, second, last = by_length(SOURCES, HYPOTHESES, REFERENCES, (5, 10))
    assert (first.label, first.lower, first.upper, first.count, first.exact_match) == ("≤5", 0, 5, 2, 50.0)
    assert (second.label, second.lower, second.upper, second.count, second.exact_match) == ("6–10", 6, 10, 1, 0.0)
    assert (last.label, last.lower, last.upper, last.count) == ("11+", 11, None, 1)
    assert last.bleu == pytest.approx(100.0)
    assert second.bleu == corpus_scores(HYPOTHESES[1:2], REFERENCES[1:2])["bleu"]
    assert 0 < second.bleu < 100


@pytest.mark.parametrize("edges", [(5, 5), (10, 5), (-1, 5)])
def test_edges_must_rise(edges: tuple[int, ...]) -> None:
    with pytest.raises(AssertionError, match="edges must rise"):
        by_length(SOURCES, HYPOTHESES, REFERENCES, edges)


def test_tags_by_hand() -> None:
    groups = by_tag(TAGS, HYPOTHESES, REFERENCES)
    assert list(groups) == ["negation", "relative"]
    assert (groups["negation"].count, groups["negation"].exact_match) == (2, 50.0)
    # A tag given twice counts once.
    assert (groups["relative"].count, groups["relative"].exact_match) == (2, 50.0)
    assert by_tag(["ab", "ab"], ["x", "y"], ["x", "z"]) == {
        "ab": Group(2, corpus_scores(["x", "y"], ["x", "z"])["bleu"], 50.0)
    }


def test_the_dictionary_has_the_promised_keys() -> None:
    full = evaluate_texts("demo", SOURCES, HYPOTHESES, REFERENCES, TAGS, aer=0.25).to_dict()
    scores = corpus_scores(HYPOTHESES, REFERENCES)
    assert {key: full[key] for key in scores} == scores
    assert (full["name"], full["count"], full["aer"]) == ("demo", 4, 0.25)
    assert sum(bucket["count"] for bucket in full["by_length"]) == 4
    assert set(full["by_phenomenon"]) == {"negation", "relative"}
    assert "tok:13a" in full["signatures"]["bleu"]
    assert json.loads(json.dumps(full)) == full
    assert [Bucket(**bucket) for bucket in full["by_length"]] == by_length(SOURCES, HYPOTHESES, REFERENCES)
    bare = evaluate_texts("demo", SOURCES, HYPOTHESES, REFERENCES).to_dict()
    assert set(full) - set(bare) == {"aer", "by_phenomenon"}


def test_only_the_metrics_that_were_asked_for_are_measured() -> None:
    report = evaluate_texts("demo", SOURCES, HYPOTHESES, REFERENCES, metrics=["chrf", "word_error_rate"], aer=0.5)
    assert list(report.figures) == ["chrf", "word_error_rate", "aer"]
    assert list(report.signatures) == ["chrf"]
    assert "word error rate" in report.render()


def test_the_report_keeps_the_answers() -> None:
    assert evaluate_texts("demo", SOURCES, HYPOTHESES, REFERENCES).answers == HYPOTHESES


def test_options_reach_scores_and_buckets() -> None:
    texts = ["The Green Witch arrived ."]
    lowered = evaluate_texts("demo", texts, texts, [texts[0].lower()], lowercase=True)
    assert lowered.scores["bleu"] == pytest.approx(100.0)
    assert lowered.buckets[0].bleu == pytest.approx(100.0)
    assert lowered.buckets[0].exact_match == 100.0
    assert "case:lc" in lowered.signatures["bleu"]
    assert evaluate_texts("demo", texts, texts, [texts[0].lower()]).buckets[0].exact_match == 0.0


def test_rendering() -> None:
    evaluation = evaluate_texts("demo", SOURCES, HYPOTHESES, REFERENCES, TAGS, aer=0.25)
    text = evaluation.render()
    assert text.startswith("demo: 4 sentences\n")
    assert f"{evaluation.scores['bleu']:.2f}  higher is better" in text
    assert "0.250  lower is better" in text
    for expected in ("exact match", "≤5", "6–10", "11–15", "negation", "relative", "tok:13a"):
        assert expected in text
    assert all(line == line.rstrip() for line in text.splitlines())
    assert "phenomenon" not in evaluate_texts("demo", SOURCES, HYPOTHESES, REFERENCES).render()
