"""One contract for every report: figures by known names, flat JSON, plain text, a table that is escaped."""

from __future__ import annotations

import json
from typing import Any

import pytest

from seqloom.evaluation.classification import classification_report
from seqloom.evaluation.figures import METRICS, Metric, Report, metrics
from seqloom.evaluation.language import LanguageReport, LastSymbolReport, TextSize
from seqloom.evaluation.masked import MaskedReport
from seqloom.evaluation.report import evaluate_texts
from seqloom.evaluation.words import AnalogyReport, SimilarityReport, Solved

NAME = "trees <test> & more"
REPORTS: dict[str, Report] = {
    "texts": evaluate_texts(NAME, ["a b"], ["c d"], ["c e"], aer=0.25),
    "labels": classification_report(NAME, ["a", "b"], ["a", "a"]),
    "language": LanguageReport(NAME, 7.0, 5, 1, TextSize(lines=2, words=3, characters=11), "line by line"),
    "last symbols": LastSymbolReport(NAME, 3.0, 5, 2),
    "hidden symbols": MaskedReport(NAME, 3.0, 5, 17, "line by line"),
    "analogies": AnalogyReport(NAME, ("add", "multiply"), (Solved("capitals", 7, 5, {"add": 3, "multiply": 2}),)),
    "similarity": SimilarityReport(NAME, 7, 5, 0, 0.5),
}
every_report = pytest.mark.parametrize("report", REPORTS.values(), ids=list(REPORTS))


@every_report
def test_figures_have_known_names_and_stand_in_the_dictionary(report: Report) -> None:
    assert report.figures
    assert report.figures.keys() <= METRICS.keys()
    found = json.loads(json.dumps(report.to_dict()))
    assert found["name"] == report.name == NAME
    assert {name: found[name] for name in report.figures} == report.figures


@every_report
def test_the_text_has_every_figure_and_the_page_is_escaped(report: Report) -> None:
    text, page = report.render(), report._repr_html_()
    assert text.startswith(NAME)
    assert "<test>" not in page
    assert "trees &lt;test&gt; &amp; more" in page
    for name, figure in report.figures.items():
        assert METRICS[name].title in page
        assert METRICS[name].show(figure) in page


@every_report
def test_coverage_and_answers_can_be_written_as_json(report: Report) -> None:
    assert json.loads(json.dumps([report.coverage, report.answers])) == [dict(report.coverage), report.answers]


def test_what_was_not_measured_is_no_figure() -> None:
    nothing = Solved("capitals", 7, 0, {"add": 0, "multiply": 0})
    assert AnalogyReport(NAME, ("add", "multiply"), (nothing,)).figures == {}
    assert SimilarityReport(NAME, 7, 1, 0, None).figures == {}


@pytest.mark.parametrize(("better", "new", "improves"), [("higher", 2.0, True), ("lower", 2.0, False)])
def test_which_way_is_better(better: Any, new: float, improves: bool) -> None:
    metric = Metric("some", "some", better, 1)
    assert metric.improves(new, 1.0) == improves
    assert metric.improves(1.0, new) != improves
    assert not metric.improves(new, new)
    assert metric.improves(new, None)
    assert metric.show(new) == "2.0"


def test_metrics_are_found_by_name() -> None:
    assert [metric.title for metric in metrics("aer", "bleu")] == ["AER", "BLEU"]
    assert all(name == metric.name for name, metric in METRICS.items())
    lower = {name for name, metric in METRICS.items() if metric.better == "lower"}
    rates = {name for name in METRICS if name.endswith("_rate")}
    assert lower == rates | {
        "ter", "aer", "loss", "perplexity", "bits_per_character", "pseudo_perplexity", "calibration_error",
        "mse", "mae",
    }  # fmt: skip
