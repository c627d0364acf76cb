"""What every model of ours gives back, whichever engine it runs on. No torch."""

from __future__ import annotations

import html
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from seqloom.errors import UserError

MOST_BARS = 10  # labels that a notebook shows


class Details(Protocol):
    """What is known of an answer beyond its text, computed when it is asked for."""

    def sums(self) -> tuple[float, float]:
        """What it is ranked by, and its log probability."""
        ...

    def labels(self) -> list[str]:
        """Its symbols as they are shown."""
        ...

    def log_probs(self) -> list[float]:
        """The log probability of each symbol and of the end."""
        ...

    def trace(self) -> Any:
        """Attention and gates on the way to it."""
        ...

    def warnings(self) -> list[str]:
        """What somebody should know before believing it."""
        ...


class AnyAnswer(Protocol):
    """What every answer has, whichever task it is of."""

    @property
    def source(self) -> Any: ...

    @property
    def text(self) -> str: ...

    @property
    def score(self) -> float: ...

    @property
    def alternatives(self) -> Sequence[Any]: ...

    @property
    def warnings(self) -> Sequence[str]: ...

    def to_dict(self) -> dict[str, Any]: ...

    def __getattr__(self, name: str) -> Any:
        """What answers of one task have besides: `label`, `tokens`, `trace` …"""
        ...


class Answer:
    """What the model said to one text.

    `alternatives` holds the other answers when more than one was asked for; `trace` shows how the answer came about.
    What not everybody asks for is computed when it is first asked for.
    """

    def __init__(
        self, source: str, text: str, finished: bool, details: Details, alternatives: Sequence[Answer] = ()
    ) -> None:
        self.source, self.text, self.finished, self.details = source, text, finished, details
        self.alternatives = list(alternatives)

    def __repr__(self) -> str:
        return f"Answer(source={self.source!r}, text={self.text!r}, finished={self.finished})"

    @cached_property
    def _sums(self) -> tuple[float, float]:
        return self.details.sums()

    @property
    def score(self) -> float:
        """What answers are ranked by."""
        return self._sums[0]

    @property
    def log_probability(self) -> float:
        """The sum over `tokens` and the end symbol."""
        return self._sums[1]

    @cached_property
    def tokens(self) -> list[str]:
        """The answer's symbols as they are shown."""
        return self.details.labels()

    @cached_property
    def token_log_probabilities(self) -> list[float]:
        """One a token, and one for the end symbol."""
        return self.details.log_probs()

    @cached_property
    def trace(self) -> Any:
        """Attention and gates."""
        return self.details.trace()

    @cached_property
    def warnings(self) -> list[str]:
        """What one should know before believing it, such as that the model knows no word of the text."""
        return self.details.warnings()

    def to_dict(self) -> dict[str, Any]:
        values: dict[str, Any] = {
            "source": self.source,
            "text": self.text,
            "score": round(self.score, 6),
            "log_probability": round(self.log_probability, 6),
            "tokens": self.tokens,
            "token_log_probabilities": [round(value, 6) for value in self.token_log_probabilities],
            "finished": self.finished,
        }
        if self.alternatives:
            values["alternatives"] = [other.to_dict() for other in self.alternatives]
        if self.warnings:
            values["warnings"] = self.warnings
        return values

    def _repr_html_(self) -> str:
        """The text, the other answers, and where the model looked if it attends."""
        others = "".join(f"<li>{html.escape(other.text)} ({other.score:.3f})</li>" for other in self.alternatives)
        listed = f"<ol start='2'>{others}</ol>" if others else ""
        try:
            alignment = getattr(self.trace, "alignment", None)
        except UserError:  # not every engine shows one
            alignment = None
        looked = "" if alignment is None else alignment.to_hover()
        return f"<p><b>{html.escape(self.text)}</b></p>{_warned(self.warnings)}{looked}{listed}"


class LabelAnswer:
    """A class for one input: `label` is the likeliest, `probabilities` has all of them, the likeliest first."""

    alternatives: Sequence[Any] = ()

    def __init__(
        self,
        source: Any,
        probabilities: Mapping[str, float],
        trace: Callable[[], Any],
        warnings: Callable[[], list[str]] = list,
    ) -> None:
        self.source, self._trace, self._warnings = source, trace, warnings
        self.probabilities = dict(sorted(probabilities.items(), key=lambda one: (-one[1], one[0])))

    def __repr__(self) -> str:
        return f"LabelAnswer(source={self.source!r}, label={self.label!r}, probability={self.probability:.4f})"

    @property
    def label(self) -> str:
        return next(iter(self.probabilities))

    @property
    def text(self) -> str:
        """The label: what every answer has."""
        return self.label

    @property
    def probability(self) -> float:
        return self.probabilities[self.label]

    @property
    def score(self) -> float:
        """The log probability of the label."""
        return math.log(max(self.probability, sys.float_info.min))

    @cached_property
    def trace(self) -> Any:
        """What the model looked at."""
        return self._trace()

    @cached_property
    def warnings(self) -> list[str]:
        """What one should know before believing it."""
        return self._warnings()

    def _repr_html_(self) -> str:
        """The likeliest labels with a bar each."""
        rows = "".join(
            f"<tr><td>{html.escape(label)}</td><td><div style='background:#0072b2;height:.8em;"
            f"width:{12 * chance:.2f}em;min-width:1px'></div></td><td>{100 * chance:.1f} %</td></tr>"
            for label, chance in list(self.probabilities.items())[:MOST_BARS]
        )
        more = len(self.probabilities) - MOST_BARS
        others = f"<p>and {more:,} less likely labels</p>" if more > 0 else ""
        return f"<p><b>{html.escape(self.label)}</b></p>{_warned(self.warnings)}<table>{rows}</table>{others}"

    def to_dict(self) -> dict[str, Any]:
        values = {
            "source": plain_source(self.source),
            "label": self.label,
            "probability": round(self.probability, 6),
            "probabilities": {label: round(chance, 6) for label, chance in self.probabilities.items()},
        }
        return {**values, "warnings": self.warnings} if self.warnings else values


class LabelsAnswer(LabelAnswer):
    """Any number of classes for one input: `labels` are those above their thresholds, in alphabetical order.

    The probabilities are of each label by itself, so they need not sum to 1; `label` is the likeliest.
    """

    def __init__(
        self,
        source: Any,
        probabilities: Mapping[str, float],
        thresholds: Mapping[str, float],
        separator: str,
        trace: Callable[[], Any],
        warnings: Callable[[], list[str]] = list,
    ) -> None:
        super().__init__(source, probabilities, trace, warnings)
        self.thresholds, self.separator = thresholds, separator

    def __repr__(self) -> str:
        return f"LabelsAnswer(source={self.source!r}, labels={self.labels!r})"

    @property
    def labels(self) -> list[str]:
        return sorted(name for name, chance in self.probabilities.items() if chance >= self.thresholds[name])

    @property
    def text(self) -> str:
        return self.separator.join(self.labels)

    @property
    def score(self) -> float:
        """The log probability of exactly these labels."""
        chosen = set(self.labels)
        chances = (chance if name in chosen else 1 - chance for name, chance in self.probabilities.items())
        return sum(math.log(max(chance, sys.float_info.min)) for chance in chances)

    def to_dict(self) -> dict[str, Any]:
        values = {
            "source": plain_source(self.source),
            "labels": self.labels,
            "probabilities": {label: round(chance, 6) for label, chance in self.probabilities.items()},
        }
        return {**values, "warnings": self.warnings} if self.warnings else values


class AnsweredSpan(NamedTuple):
    """Some words that belong together: from word `start` to word `end`, which is not among them, and their text."""

    label: str
    start: int
    end: int
    text: str


class TagsAnswer:
    """A tag for each word: `tokens`, `tags`, the `spans` they mark, and for each word the probability of every tag.

    Where texts are labelled too: `labels`, their probabilities, the likeliest first, and the likeliest as `label`.
    """

    alternatives: Sequence[Any] = ()

    def __init__(
        self,
        source: Any,
        tokens: Sequence[str],
        tags: Sequence[str],
        probabilities: Sequence[Mapping[str, float]],
        spans: Sequence[AnsweredSpan],
        score: float,
        trace: Callable[[], Any],
        labels: Mapping[str, float] | None = None,
        warnings: Callable[[], list[str]] = list,
    ) -> None:
        """`score` is the log probability of all tags together."""
        self._warnings = warnings
        self.labels = dict(sorted((labels or {}).items(), key=lambda one: (-one[1], one[0])))
        self.source, self.tokens, self.tags = source, list(tokens), list(tags)
        self.probabilities, self.spans, self.score, self._trace = list(probabilities), list(spans), score, trace

    def __repr__(self) -> str:
        return f"TagsAnswer({self.text!r})"

    @property
    def text(self) -> str:
        """word/TAG for each word; after the label, where there is one, and a tab."""
        between = "\t" if any(" " in token for token in self.tokens) else " "  # turns of a conversation
        tagged = between.join(f"{token}/{tag}" for token, tag in zip(self.tokens, self.tags, strict=True))
        return tagged if self.label is None else f"{self.label}\t{tagged}"

    @property
    def label(self) -> str | None:
        return next(iter(self.labels), None)

    @property
    def chosen(self) -> list[float]:
        """The probability of each word's tag."""
        return [shares[tag] for shares, tag in zip(self.probabilities, self.tags, strict=True)]

    @cached_property
    def warnings(self) -> list[str]:
        """What one should know before believing it."""
        return self._warnings()

    @cached_property
    def trace(self) -> Any:
        """What the model looked at."""
        return self._trace()

    def to_dict(self) -> dict[str, Any]:
        labelled: dict[str, Any] = {}
        if self.label is not None:
            labelled = {"label": self.label, "labels": {name: round(share, 6) for name, share in self.labels.items()}}
        if self.warnings:
            labelled["warnings"] = self.warnings
        return {
            "source": self.source,
            **labelled,
            "tokens": self.tokens,
            "tags": self.tags,
            "probabilities": [round(share, 6) for share in self.chosen],
            "spans": [span._asdict() for span in self.spans],
            "score": round(self.score, 6),
        }

    def _repr_html_(self) -> str:
        """The words, with a mark around every span and its label; where tags are no spans, each below its word."""
        begins = {span.start: span for span in self.spans}
        parts, place = [], 0
        while place < len(self.tokens):
            span = begins.get(place)
            end = place + 1 if span is None else span.end
            words = html.escape(" ".join(self.tokens[place:end]))
            label = self.tags[place] if span is None else span.label
            if span is not None or label != "O":
                words = f"<mark>{words} <small><b>{html.escape(label)}</b></small></mark>"
            parts.append(words)
            place = end
        label = "" if self.label is None else f"<b>{html.escape(self.label)}</b> "
        return f"<p>{label}{' '.join(parts)}</p>{_warned(self.warnings)}"


class NumbersAnswer:
    """Numbers for one input, in the data's own units: `values` (numbers,), or (steps, channels) of what follows.

    `names` are those of the numbers or channels; `quantiles` has arrays like `values`, where the model learned any.
    """

    alternatives: Sequence[Any] = ()
    warnings: Sequence[str] = ()
    score = 0.0
    """Numbers are not ranked."""

    def __init__(
        self,
        source: Any,
        values: Any,
        names: Sequence[str],
        trace: Callable[[], Any],
        quantiles: Mapping[float, Any] | None = None,
    ) -> None:
        self.source, self.values, self.names, self._trace = source, values, list(names), trace
        self.quantiles = dict(quantiles or {})

    def __repr__(self) -> str:
        return f"NumbersAnswer(values={self.values!r}, names={self.names!r})"

    @property
    def text(self) -> str:
        """The numbers; of several channels, each with its name."""
        rows = self.values.T.tolist() if self.values.ndim == 2 else [[value] for value in self.values.tolist()]
        written = [" ".join(f"{value:.5g}" for value in row) for row in rows]
        if len(rows) == 1:
            return written[0]
        return "; ".join(f"{name}: {row}" for name, row in zip(self.names, written, strict=True))

    @cached_property
    def trace(self) -> Any:
        """What the model showed."""
        return self._trace()

    def to_dict(self) -> dict[str, Any]:
        found = {"source": plain_source(self.source), "names": self.names, "values": self.values.tolist()}
        if self.quantiles:
            found["quantiles"] = {f"{share:g}": values.tolist() for share, values in self.quantiles.items()}
        return found


class StepLabelsAnswer:
    """A label for each step of a series; `probabilities` (steps, labels) in the order of `names`."""

    alternatives: Sequence[Any] = ()
    warnings: Sequence[str] = ()

    def __init__(self, source: Any, names: Sequence[str], probabilities: Any, trace: Callable[[], Any]) -> None:
        self.source, self.names, self.probabilities, self._trace = source, list(names), probabilities, trace

    def __repr__(self) -> str:
        return f"StepLabelsAnswer({self.text!r})"

    @cached_property
    def labels(self) -> list[str]:
        """The likeliest of each step."""
        return [self.names[place] for place in self.probabilities.argmax(1)]

    @property
    def spans(self) -> list[tuple[str, int, int]]:
        """Steps of one label that follow each other: label, first step, the one after the last."""
        found: list[tuple[str, int, int]] = []
        for step, label in enumerate(self.labels):
            if found and found[-1][0] == label:
                found[-1] = (label, found[-1][1], step + 1)
            else:
                found.append((label, step, step + 1))
        return found

    @property
    def text(self) -> str:
        """`WALKING 0-120, SITTING 120-300`"""
        return ", ".join(f"{label} {start}-{end}" for label, start, end in self.spans)

    @property
    def score(self) -> float:
        """The mean log probability of its labels."""
        best = [max(float(row.max()), sys.float_info.min) for row in self.probabilities]
        return sum(map(math.log, best)) / max(1, len(best))

    @cached_property
    def trace(self) -> Any:
        """What the model showed."""
        return self._trace()

    def to_dict(self) -> dict[str, Any]:
        spans = [{"label": label, "start": start, "end": end} for label, start, end in self.spans]
        return {"source": plain_source(self.source), "labels": self.labels, "spans": spans}


def plain_source(source: Any) -> Any:
    """An input as JSON takes it: an array becomes lists."""
    return source.tolist() if hasattr(source, "tolist") else source


def _warned(warnings: Sequence[str]) -> str:
    return "".join(f"<p>Warning: {html.escape(text)}.</p>" for text in warnings)


class NeighbourAnswer(NamedTuple):
    """The words nearest to a word: (word, cosine) each, the nearest first."""

    source: str
    known: bool
    neighbours: Sequence[tuple[str, float]]
    alternatives: Sequence[Any] = ()
    warnings: Sequence[str] = ()

    @property
    def text(self) -> str:
        return " ".join(word for word, _ in self.neighbours)

    @property
    def score(self) -> float:
        """The cosine of the nearest."""
        return self.neighbours[0][1] if self.neighbours else math.nan

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(word)}</td><td>{similarity:.4f}</td></tr>" for word, similarity in self.neighbours
        )
        return f"<table><tr><th>{html.escape(self.source)}</th><th>cosine</th></tr>{rows}</table>"

    def to_dict(self) -> dict[str, Any]:
        listed = [{"word": word, "similarity": similarity} for word, similarity in self.neighbours]
        return {"word": self.source, "known": self.known, "neighbours": listed}


class Generated(NamedTuple):
    """A text that a language model made: it begins with the prompt; `tokens` and their log probabilities follow that.

    `finished`: the model came to an end by itself (the last log probability is that of the end).
    """

    prompt: str
    text: str
    tokens: list[str]
    token_log_probabilities: list[float]
    log_probability: float
    finished: bool

    def to_dict(self) -> dict[str, Any]:
        return {
            "prompt": self.prompt,
            "text": self.text,
            "log_probability": round(self.log_probability, 6),
            "tokens": self.tokens,
            "token_log_probabilities": [round(value, 6) for value in self.token_log_probabilities],
            "finished": self.finished,
        }
