"""How good tags are: F1 of spans, accuracy of words, what is confused, beside the most frequent tag of every word."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from seqloom.evaluation.classification import (
    ClassFigures,
    ClassificationReport,
    accuracy,
    class_figures,
    most_frequent_confusions,
)
from seqloom.evaluation.significance import Rescore, of_sums
from seqloom.evaluation.spans import spans_of

ERRORS_KEPT, ERRORS_SHOWN = 20, 5

Sequences = Sequence[Sequence[str]]


class WordError(NamedTuple):
    """A word, its tag, what was answered instead, and how often."""

    word: str
    gold: str
    predicted: str
    times: int


def span_figures(gold: Sequences, predicted: Sequences) -> dict[str, ClassFigures]:
    """Precision, recall and F1 of the spans of every label, in alphabetical order: right ones agree in all words.

    A label counts if it occurs among the gold spans or the predicted ones.
    """
    right, expected, answered = Counter[str](), Counter[str](), Counter[str]()
    for theirs, ours in zip(gold, predicted, strict=True):
        one, other = spans_of(theirs), spans_of(ours)
        right.update(span.label for span in set(one) & set(other))
        expected.update(span.label for span in one)
        answered.update(span.label for span in other)
    return {
        label: _figures(right[label], expected[label], answered[label]) for label in sorted(expected | answered)
    } | {"": _figures(right.total(), expected.total(), answered.total())}


def _figures(right: int, expected: int, answered: int) -> ClassFigures:
    def percent(part: int, whole: int) -> float:
        return 100.0 * part / whole if whole else 0.0

    return ClassFigures(
        percent(right, answered), percent(right, expected), percent(2 * right, answered + expected), expected
    )


def tag_scores(gold: Sequences, predicted: Sequences, *, spans: bool) -> dict[str, float]:
    """Accuracy of words; where tags mark spans, before it F1, precision and recall over all of them (micro)."""
    found = {"accuracy": accuracy(_all(gold), _all(predicted))}
    if spans:
        together = span_figures(gold, predicted)[""]
        found = {"f1": together.f1, "precision": together.precision, "recall": together.recall, **found}
    return found


Labels = Sequence[str] | None


def label_scores(gold: Sequences, predicted: Sequences, labels: Labels, answered: Labels) -> dict[str, float]:
    """How often the label of a text is right, and how often it and all tags are; nothing where there are no labels."""
    if labels is None or answered is None:
        return {}
    whole = [(*tags, label) for tags, label in zip(gold, labels, strict=True)]
    ours = [(*tags, label) for tags, label in zip(predicted, answered, strict=True)]
    right = sum(one == other for one, other in zip(whole, ours, strict=True))
    return {"label_accuracy": accuracy(labels, answered), "exact_match": 100.0 * right / len(whole)}


def _all(sequences: Sequences) -> list[str]:
    return list(chain.from_iterable(sequences))


class FrequentTags:
    """The most frequent tag of each word; of a word that was never met, the most frequent one of all."""

    def __init__(self, examples: Iterable[tuple[Sequence[str], Sequence[str]]]) -> None:
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        every: Counter[str] = Counter()
        for words, tags in examples:
            every.update(tags)
            for word, tag in zip(words, tags, strict=True):
                counts[word][tag] += 1
        self.other = _most_frequent(every)
        self.tags = {word: _most_frequent(found) for word, found in counts.items()}

    def predict(self, words: Sequence[str]) -> list[str]:
        return [self.tags.get(word, self.other) for word in words]


def _most_frequent(counts: Counter[str]) -> str:
    """Of equally frequent ones the alphabetically first."""
    return min(counts, key=lambda one: (-counts[one], one))


@dataclass(frozen=True)
class TaggingReport(ClassificationReport):
    """How good tags are. `classes` are the labels of spans, or the tags; `predicted` has a line of tags a text."""

    words: int = 0
    errors: list[WordError] = field(default_factory=list)
    counts: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False, compare=False)
    """Of each text: by the metric, what is summed up and what the sum is divided by."""

    def rescore(self, metric: str) -> Rescore | None:
        counts = self.counts.get(metric)
        return None if counts is None else of_sums(counts, lambda sums: 100.0 * sums[0] / sums[1] if sums[1] else 0.0)

    def to_dict(self) -> dict[str, Any]:
        errors = [one._asdict() for one in self.errors]
        return {**super().to_dict(), "words": self.words, "errors": errors}

    def render(self) -> str:
        parts = [super().render()]
        if self.errors:
            shown = self.errors[:ERRORS_SHOWN]
            widest = max(len(one.word) for one in shown)
            lines = [f"{one.word:<{widest}}  {one.times:,} × {one.predicted} for {one.gold}" for one in shown]
            parts.append("most frequent errors\n\n" + "\n".join(lines))
        return "\n\n".join(parts)

    def _heading(self) -> str:
        texts = f"{self.count:,} text{'s' * (self.count != 1)}"
        return f"{self.name}: {texts}, {self.words:,} word{'s' * (self.words != 1)}"


def tagging_report(
    name: str,
    words: Sequences,
    gold: Sequences,
    predicted: Sequences,
    *,
    spans: bool,
    labels: Labels = None,
    answered: Labels = None,
) -> TaggingReport:
    """Score tags.

    Args:
        name: What was evaluated; the heading of the report.
        words: Of each text.
        gold: The right tags.
        predicted: Those of the model.
        spans: Whether tags mark spans.
        labels: The right labels of texts, where they have any.
        answered: Those of the model.
    """
    theirs, ours = _all(gold), _all(predicted)
    if spans:
        classes = {label: one for label, one in span_figures(gold, predicted).items() if label}
    else:
        classes = class_figures(theirs, ours)
    wrong = Counter(
        (word, right, answer) for word, right, answer in zip(_all(words), theirs, ours, strict=True) if right != answer
    )
    lines = [" ".join(tags) for tags in predicted]
    errors = sorted((WordError(*key, times) for key, times in wrong.items()), key=lambda one: (-one.times, one))
    return TaggingReport(
        name,
        len(gold),
        tag_scores(gold, predicted, spans=spans) | label_scores(gold, predicted, labels, answered),
        classes,
        most_frequent_confusions(theirs, ours),
        {},
        lines if answered is None else [f"{label}\t{line}" for label, line in zip(answered, lines, strict=True)],
        [" ".join(tags) for tags in gold],
        words=len(theirs),
        errors=errors[:ERRORS_KEPT],
        counts=_counts(gold, predicted, labels, answered, spans=spans),
    )


def _counts(
    gold: Sequences, predicted: Sequences, labels: Labels, answered: Labels, *, spans: bool
) -> dict[str, np.ndarray]:
    """By metric (texts, 2): what is right, and of how much."""
    texts = list(zip(gold, predicted, strict=True))
    words = np.array([(sum(map(str.__eq__, theirs, ours)), len(theirs)) for theirs, ours in texts])
    counts = {"accuracy": words}
    if spans:
        found = [(set(spans_of(theirs)), set(spans_of(ours))) for theirs, ours in texts]
        right, expected, given = np.array([(len(one & other), len(one), len(other)) for one, other in found]).T
        counts["f1"] = np.stack([2 * right, expected + given], 1)
        counts |= {"precision": np.stack([right, given], 1), "recall": np.stack([right, expected], 1)}
    if labels is not None and answered is not None:
        same = np.array([one == other for one, other in zip(labels, answered, strict=True)])
        whole = same & (words[:, 0] == words[:, 1])
        counts["label_accuracy"] = np.stack([same, np.ones_like(same)], 1)
        counts["exact_match"] = np.stack([whole, np.ones_like(same)], 1)
    return {name: values.astype(np.float64) for name, values in counts.items()}


def frequent_tag_baseline(
    train: Iterable[tuple[Sequence[str], Sequence[str]]], words: Sequences, gold: Sequences, *, spans: bool
) -> dict[str, float]:
    """What is reached by always giving a word its most frequent tag."""
    simple = FrequentTags(train)
    return tag_scores(gold, [simple.predict(one) for one in words], spans=spans)
