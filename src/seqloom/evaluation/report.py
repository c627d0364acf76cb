"""What we say about a model on a test set: the scores, how they were counted, and where they are weak.

evaluation = evaluate_texts("demo", sources, hypotheses, references, tags=tags)
print(evaluation.render())
json.dumps(evaluation.to_dict())
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from seqloom.evaluation.metrics import METRICS, corpus_scores, exact_match, group_bleu, signatures

EDGES = (5, 10, 15, 20, 30, 40, 50)
"""The longest sentence of each length bucket; one more bucket holds everything longer."""

TITLES = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "ter": "TER",
    "exact_match": "exact match",
    "aer": "AER",
    "loss": "loss",
    "perplexity": "perplexity",
}


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
class Evaluation:
    """Everything one evaluation found. `scores` holds the metrics by name, `extra` whatever else the caller measured
    (loss, perplexity, seconds …)."""

    name: str
    count: int
    scores: dict[str, float]
    signatures: dict[str, str]
    buckets: list[Bucket] = field(default_factory=list)
    tags: dict[str, Group] | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """One flat JSON object: every score under its own name, then the details."""
        details: dict[str, Any] = {
            "signatures": dict(self.signatures),
            "by_length": [asdict(bucket) for bucket in self.buckets],
        }
        if self.tags is not None:
            details["by_phenomenon"] = {name: asdict(group) for name, group in self.tags.items()}
        return {"name": self.name, "count": self.count, **self.scores, **self.extra, **details}

    def render(self) -> str:
        """The evaluation as plain text."""
        noun = "sentence" if self.count == 1 else "sentences"
        parts = [f"{self.name}: {self.count:,} {noun}", _score_table({**self.scores, **self.extra})]
        if self.buckets:
            header = ("words in source", "sentences", "BLEU", "exact match")
            rows = [(bucket.label, bucket.count, bucket.bleu, bucket.exact_match) for bucket in self.buckets]
            parts.append(_group_table(header, rows))
        if self.tags:
            header = ("phenomenon", "sentences", "BLEU", "exact match")
            parts.append(
                _group_table(header, [(name, g.count, g.bleu, g.exact_match) for name, g in self.tags.items()])
            )
        if self.signatures:
            width = max(len(TITLES.get(name, name)) for name in self.signatures)
            parts.append(
                "\n".join(f"{TITLES.get(name, name):<{width}}  {text}" for name, text in self.signatures.items())
            )
        return "\n\n".join(parts)


def evaluate_texts(
    name: str,
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: Sequence[str],
    tags: Sequence[Iterable[str]] | None = None,
    aer: float | None = None,
    extra: Mapping[str, Any] | None = None,
    *,
    edges: Sequence[int] = EDGES,
    lowercase: bool = False,
    tokenized: bool = False,
) -> Evaluation:
    """Score a test set and take it apart by length and, where tags are given, by phenomenon.

    Args:
        name: What was evaluated; the heading of the report.
        sources: What the model read; used for lengths only.
        hypotheses: What it answered.
        references: What it should have answered.
        tags: The phenomena of each sentence.
        aer: The alignment error rate, where gold alignments exist (see `evaluation.alignment`).
        extra: Further figures to keep beside the scores; their names must not clash with ours.
        edges: The longest sentence of each length bucket.
        lowercase: Ignore case.
        tokenized: The texts are already tokenised.
    """
    scores = corpus_scores(hypotheses, references, lowercase=lowercase, tokenized=tokenized)
    if aer is not None:
        scores["aer"] = float(aer)
    taken = {"name", "count", "signatures", "by_length", "by_phenomenon", *scores}
    clash = taken & set(extra or {})
    assert not clash, f"extra figures must not replace {', '.join(sorted(clash))}"
    return Evaluation(
        name=name,
        count=len(hypotheses),
        scores=scores,
        signatures=signatures(lowercase=lowercase, tokenized=tokenized),
        buckets=by_length(sources, hypotheses, references, edges, lowercase=lowercase, tokenized=tokenized),
        tags=None if tags is None else by_tag(tags, hypotheses, references, lowercase=lowercase, tokenized=tokenized),
        extra=dict(extra or {}),
    )


def _group(
    members: Sequence[int], hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool, tokenized: bool
) -> Group:
    ours = [hypotheses[i] for i in members]
    theirs = [references[i] for i in members]
    return Group(
        count=len(members),
        bleu=group_bleu(ours, theirs, lowercase=lowercase, tokenized=tokenized),
        exact_match=exact_match(ours, theirs, lowercase=lowercase),
    )


def _length_label(lower: int, upper: int | None) -> str:
    if upper is None:
        return f"{lower}+"
    if lower == 0:
        return f"≤{upper}"
    return str(upper) if lower == upper else f"{lower}–{upper}"


def _score_table(scores: Mapping[str, Any]) -> str:
    rows = []
    for name, value in scores.items():
        # A rate between 0 and 1, a loss and a perplexity need more digits than a percentage.
        decimals = 3 if name in ("aer", "loss", "perplexity") else 2
        shown = f"{value:.{decimals}f}" if isinstance(value, float) else str(value)
        rows.append((TITLES.get(name, name), shown, f"{METRICS[name]} is better" if name in METRICS else ""))
    left = max(len(title) for title, _, _ in rows)
    middle = max(len(shown) for _, shown, _ in rows)
    return "\n".join(f"{title:<{left}}  {shown:>{middle}}  {note}".rstrip() for title, shown, note in rows)


def _group_table(header: Sequence[str], rows: Sequence[tuple[str, int, float, float]]) -> str:
    cells = [tuple(header)]
    cells += [(label, f"{count:,}", f"{bleu:.2f}", f"{exact:.2f}") for label, count, bleu, exact in rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in cells
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])
