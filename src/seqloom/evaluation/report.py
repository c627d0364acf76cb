"""What is reported about a model on a test set: the scores, how they were counted, and where they are weak.

evaluation = evaluate_texts("demo", sources, hypotheses, references, tags=tags)
print(evaluation.render())
json.dumps(evaluation.to_dict())
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from seqloom.corpus.examples import Pair
from seqloom.evaluation.figures import METRICS, Report
from seqloom.evaluation.metrics import TEXT_METRICS, USUAL, corpus_scores, rescored, signatures
from seqloom.evaluation.significance import Rescore

EDGES = (5, 10, 15, 20, 30, 40, 50)
"""The longest sentence of each length bucket; one more bucket holds everything longer."""


@dataclass(frozen=True)
class Bucket:
    """The sentences whose source has `lower` to `upper` words, both included; `upper` is None where there is no end."""

    label: str
    lower: int
    upper: int | None
    count: int
    bleu: float
    exact_match: float


@dataclass(frozen=True)
class Group:
    """The sentences that show one phenomenon."""

    count: int
    bleu: float
    exact_match: float


def by_length(
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    edges: Sequence[int] = EDGES,
    *,
    lowercase: bool = False,
    tokenized: bool = False,
) -> list[Bucket]:
    """Quality against the length of the source, in words between spaces.

    Every sentence falls into exactly one bucket; buckets without a sentence are left out.
    """
    assert len(sources) == len(hypotheses), f"{len(sources)} sources, {len(hypotheses)} hypotheses"
    rising = all(low < high for low, high in itertools.pairwise([-1, *edges]))
    assert rising, f"edges must rise and not be negative, got {tuple(edges)}"
    lowers = [0, *(edge + 1 for edge in edges)]
    uppers = [*edges, None]
    lengths = [len(source.split()) for source in sources]
    buckets = []
    for lower, upper in zip(lowers, uppers, strict=True):
        members = [i for i, length in enumerate(lengths) if lower <= length and (upper is None or length <= upper)]
        if members:
            group = _group(members, hypotheses, references, lowercase=lowercase, tokenized=tokenized)
            buckets.append(Bucket(_length_label(lower, upper), lower, upper, **asdict(group)))
    return buckets


def by_tag(
    tags: Sequence[Iterable[str]],
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    lowercase: bool = False,
    tokenized: bool = False,
) -> dict[str, Group]:
    """Quality for each phenomenon, in alphabetical order.

    `tags` holds the tags of each sentence (a plain string is one tag). A sentence counts once under each of its tags;
    a sentence without tags counts nowhere.
    """
    assert len(tags) == len(hypotheses), f"{len(tags)} lists of tags, {len(hypotheses)} hypotheses"
    members: dict[str, list[int]] = {}
    for index, names in enumerate(tags):
        for name in {names} if isinstance(names, str) else set(names):
            members.setdefault(name, []).append(index)
    return {
        name: _group(members[name], hypotheses, references, lowercase=lowercase, tokenized=tokenized)
        for name in sorted(members)
    }


@dataclass(frozen=True)
class TextReport(Report):
    """How good texts are. `scores` holds the metrics by name."""

    name: str
    count: int
    scores: dict[str, float]
    signatures: dict[str, str]
    buckets: list[Bucket] = field(default_factory=list)
    tags: dict[str, Group] | None = None
    texts: list[str] = field(default_factory=list, repr=False)
    references: list[str] = field(default_factory=list, repr=False)
    how: Mapping[str, bool] = field(default_factory=dict, repr=False)

    def rescore(self, metric: str) -> Rescore | None:
        return rescored(metric, self.texts, self.references, **self.how) if metric in TEXT_METRICS else None

    @property
    def figures(self) -> dict[str, float]:
        return self.scores

    @property
    def answers(self) -> list[str]:
        return self.texts

    def to_dict(self) -> dict[str, Any]:
        """One flat JSON object: every score under its own name, then the details."""
        details: dict[str, Any] = {
            "signatures": dict(self.signatures),
            "by_length": [asdict(bucket) for bucket in self.buckets],
        }
        if self.tags is not None:
            details["by_phenomenon"] = {name: asdict(group) for name, group in self.tags.items()}
        return {"name": self.name, "count": self.count, **self.scores, **details}

    def render(self) -> str:
        """The evaluation as plain text."""
        noun = "sentence" if self.count == 1 else "sentences"
        parts = [f"{self.name}: {self.count:,} {noun}", _score_table(self.scores)]
        groups = {"words in source": {bucket.label: bucket for bucket in self.buckets}, "phenomenon": self.tags}
        parts += [self._group_table(title, members) for title, members in groups.items() if members]
        if self.signatures:
            width = max(len(METRICS[name].title) for name in self.signatures)
            parts.append("\n".join(f"{METRICS[name].title:<{width}}  {text}" for name, text in self.signatures.items()))
        return "\n\n".join(parts)

    def _group_table(self, title: str, groups: Mapping[str, Bucket | Group]) -> str:
        """Quality group by group, by the scores of the whole that groups have too."""
        shown = [name for name in ("bleu", "exact_match") if name in self.scores]
        cells = [[title, "sentences", *(METRICS[name].title for name in shown)]]
        for label, group in groups.items():
            cells.append([label, f"{group.count:,}", *(METRICS[name].show(getattr(group, name)) for name in shown)])
        widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
        lines = [
            "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
            for row in cells
        ]
        return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def evaluate_texts(
    name: str,
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    tags: Sequence[Iterable[str]] | None = None,
    aer: float | None = None,
    *,
    metrics: Sequence[str] = USUAL,
    edges: Sequence[int] = EDGES,
    lowercase: bool = False,
    tokenized: bool = False,
) -> TextReport:
    """Score a test set and take it apart by length and, where tags are given, by phenomenon.

    Args:
        name: What was evaluated; the heading of the report.
        sources: What the model read; used for lengths only.
        hypotheses: What it answered.
        references: What it should have answered.
        tags: The phenomena of each sentence.
        aer: The alignment error rate, where gold alignments exist (see `evaluation.alignment`).
        metrics: What is measured, of `TEXT_METRICS`.
        edges: The longest sentence of each length bucket.
        lowercase: Ignore case.
        tokenized: The texts are already tokenised.
    """
    scores = corpus_scores(hypotheses, references, metrics, lowercase=lowercase, tokenized=tokenized)
    if aer is not None:
        scores["aer"] = float(aer)
    return TextReport(
        name=name,
        count=len(hypotheses),
        scores=scores,
        signatures=signatures(metrics, lowercase=lowercase, tokenized=tokenized),
        buckets=by_length(sources, hypotheses, references, edges, lowercase=lowercase, tokenized=tokenized),
        tags=None if tags is None else by_tag(tags, hypotheses, references, lowercase=lowercase, tokenized=tokenized),
        texts=list(hypotheses),
        references=list(references),
        how={"lowercase": lowercase, "tokenized": tokenized},
    )


def report_on(
    name: str,
    pairs: Sequence[Pair],
    answers: Sequence[str],
    measured: Sequence[str] = USUAL,
    *,
    aer: float | None = None,
    **how: Any,
) -> TextReport:
    """Answers beside the references of their pairs; `how` are options of `evaluate_texts`."""
    tags = [pair.tags for pair in pairs]
    return evaluate_texts(
        name,
        [pair.source for pair in pairs],
        answers,
        [pair.target for pair in pairs],
        tags=tags if any(tags) else None,
        aer=aer,
        metrics=measured,
        **how,
    )


def _group(
    members: Sequence[int], hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool, tokenized: bool
) -> Group:
    ours = [hypotheses[i] for i in members]
    theirs = [references[i] for i in members]
    scores = corpus_scores(ours, theirs, ("bleu", "exact_match"), lowercase=lowercase, tokenized=tokenized)
    return Group(len(members), **scores)


def _length_label(lower: int, upper: int | None) -> str:
    if upper is None:
        return f"{lower}+"
    if lower == 0:
        return f"≤{upper}"
    return str(upper) if lower == upper else f"{lower}–{upper}"


def _score_table(scores: Mapping[str, float]) -> str:
    rows = [
        (METRICS[name].title, METRICS[name].show(value), f"{METRICS[name].better} is better")
        for name, value in scores.items()
    ]
    left = max(len(title) for title, _, _ in rows)
    middle = max(len(shown) for _, shown, _ in rows)
    return "\n".join(f"{title:<{left}}  {shown:>{middle}}  {note}".rstrip() for title, shown, note in rows)
