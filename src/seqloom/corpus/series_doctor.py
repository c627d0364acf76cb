"""The data doctor of series: what is wrong with a corpus before step 1, and what makes a test figure too good.

Overlapping windows of one person in training and test are the classic leak of activity recognition: the people of each
corpus are compared, and every window by a hash of its numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np

from seqloom.corpus.series import SeriesSettings, describe, read_examples
from seqloom.errors import DataError, UserError

CHECKS = {
    "unreadable": "error",
    "encoding": "error",
    "line size": "error",
    "columns": "error",
    "csv": "error",
    "json": "error",
    "missing": "error",
    "channels": "error",
    "groups": "warning",
    "leakage": "warning",
    "new label": "warning",
    "constant": "note",
    "duplicate": "note",
}
"""Every check of series with its severity."""


@dataclass
class Seen:
    """What one corpus holds."""

    count: int = 0
    steps: int = 0
    shortest: int = 0
    longest: int = 0
    widths: Counter[int] = field(default_factory=Counter)
    groups: Counter[str] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    hashes: dict[bytes, str] = field(default_factory=dict)
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    findings: list[dict[str, Any]] = field(default_factory=list)
    totals: Counter[str] = field(default_factory=Counter)

    def add(self, check: str, place: str, message: str, most: int) -> None:
        self.totals[check] += 1
        if self.totals[check] <= most:
            found = {"severity": CHECKS[check], "check": check, "place": place, "message": message}
            self.findings.append(found)


def examine_series(
    corpora: Mapping[str, SeriesSettings], *, most: int = 5, **limits: Any
) -> tuple[str, dict[str, Any], bool]:
    """Read every corpus once -> the report as text and as plain values, and whether training may begin.

    `limits` of texts mean nothing here.
    """
    found = {name: _seen(corpus, most) for name, corpus in corpora.items()}
    train = found["train"]
    for name, seen in found.items():
        if name != "train":
            _compare(train, seen, name, most)
    values = {
        "corpora": {name: _figures(seen) for name, seen in found.items()},
        "findings": [{"corpus": name, **one} for name, seen in found.items() for one in seen.findings],
    }
    ok = not any(one["severity"] == "error" for one in values["findings"])  # type: ignore[index]
    return _render(corpora, found), {**values, "ok": ok}, ok


def _seen(corpus: SeriesSettings, most: int) -> Seen:
    seen = Seen()

    def complain(check: str, error: DataError) -> None:
        seen.add(check, f"{error.path}:{error.line}" if error.line else error.path, error.message, most)

    try:
        for example in read_examples(corpus, complain):
            values, place = example.source, f"{example.path}:{example.line}" if example.line else example.path
            seen.shortest = min(seen.shortest or len(values), len(values))
            seen.count, seen.steps, seen.longest = (
                seen.count + 1,
                seen.steps + len(values),
                max(seen.longest, len(values)),
            )
            seen.widths[values.shape[1]] += 1
            if len(seen.widths) > 1 and seen.widths[values.shape[1]] == 1:
                first = next(iter(seen.widths))
                seen.add("channels", place, f"{values.shape[1]} channels; those before have {first}", most)
                continue
            if example.group:
                seen.groups[example.group] += 1
            seen.labels.update(example.target if isinstance(example.target, tuple) else [str(example.target)])
            key = blake2b(np.ascontiguousarray(values).tobytes(), digest_size=8).digest()
            if key in seen.hashes:
                seen.add("duplicate", place, f"the same numbers as {seen.hashes[key]}", most)
            seen.hashes.setdefault(key, place)
            if len(values) and len(seen.widths) == 1:
                low, high = values.min(0), values.max(0)
                seen.low = low if seen.low is None else np.minimum(seen.low, low)
                seen.high = high if seen.high is None else np.maximum(seen.high, high)
    except DataError as error:
        complain("unreadable", error)
    except UserError as error:
        seen.add("unreadable", corpus.series, str(error), most)
    if seen.low is not None and seen.high is not None:
        for channel in np.flatnonzero(seen.low == seen.high):
            seen.add("constant", describe(corpus), f"channel {channel} is {seen.low[channel]:g} all along", most)
    return seen


def _compare(train: Seen, seen: Seen, name: str, most: int) -> None:
    """What a corpus shares with the training data."""
    shared = sorted(seen.groups.keys() & train.groups.keys())
    if shared:
        listed = ", ".join(shared[:most]) + (" …" if len(shared) > most else "")
        message = f"{len(shared)} of {len(seen.groups)} are in training too: {listed}; figures will be too good"
        seen.add("groups", name, message, most)
    for key in seen.hashes.keys() & train.hashes.keys():
        seen.add("leakage", seen.hashes[key], f"the same numbers as {train.hashes[key]} of training", most)
    new = [] if len(train.labels) > 1000 else sorted(seen.labels.keys() - train.labels.keys())  # numbers are no labels
    for label in new:
        seen.add("new label", name, f"{label!r} is not in the training data", most)
    if seen.widths and train.widths and next(iter(seen.widths)) != next(iter(train.widths)):
        message = f"{next(iter(seen.widths))} channels; training has {next(iter(train.widths))}"
        seen.add("channels", name, message, most)


def _figures(seen: Seen) -> dict[str, Any]:
    return {
        "series": seen.count,
        "steps": seen.steps,
        "shortest": seen.shortest,
        "longest": seen.longest,
        "channels": next(iter(seen.widths), 0),
        "groups": len(seen.groups),
        "labels": dict(seen.labels.most_common(100)) if len(seen.labels) <= 1000 else {},
    }


def _render(corpora: Mapping[str, SeriesSettings], found: Mapping[str, Seen]) -> str:
    lines = []
    for name, seen in found.items():
        people = f", {len(seen.groups)} groups" if seen.groups else ""
        few = seen.labels if 0 < len(seen.labels) <= 20 and set(seen.labels) != {"None"} else Counter[str]()
        labels = "; labels: " + ", ".join(f"{label} {n:,}" for label, n in sorted(few.items())) if few else ""
        lengths = f"{seen.shortest:,}" if seen.shortest == seen.longest else f"{seen.shortest:,} to {seen.longest:,}"
        channels = next(iter(seen.widths), 0)
        lines.append(
            f"{name}: {describe(corpora[name])}: {seen.count:,} series of {lengths} steps, "
            f"{channels} channel{'s' if channels != 1 else ''}{people}{labels}"
        )
    total = Counter(CHECKS[check] for seen in found.values() for check in seen.totals.elements())
    for name, seen in found.items():
        lines += [f"{one['severity']}: {one['check']}: {one['place']}: {one['message']}" for one in seen.findings]
        for check, count in seen.totals.items():
            listed = sum(one["check"] == check for one in seen.findings)
            if count > listed:
                lines.append(f"{CHECKS[check]}: {check}: {name}: … and {count - listed:,} more")
    many = [f"{total[kind]:,} {kind}{'s' if total[kind] != 1 else ''}" for kind in ("error", "warning", "note")]
    lines.append(", ".join(many))
    return "\n".join(lines)
