"""The data doctor behind `seqloom data check`: what is wrong with a corpus, with file and line, before step 1.

It reads every corpus once, keeps no sentence (repetitions are found by 8-byte hashes, some 200 bytes a pair), and
never stops at a fault: whatever is wrong becomes a `Finding`.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any, Literal

from seqloom.corpus.lines import open_lines
from seqloom.corpus.readers import CorpusSettings, describe, files, read_located
from seqloom.errors import DataError, UserError

Severity = Literal["error", "warning", "note"]
UnknownRate = Callable[[str, Sequence[Any]], tuple[int, int]]
"""("source" or "target", raw values) -> (unknown tokens, all tokens)"""
Progress = Callable[[str, int], None]
"""(corpus, pairs read so far)"""

CHECKS: dict[str, tuple[Severity, str]] = {
    "unreadable": ("error", "files that cannot be read"),
    "line counts": ("error", "parallel files of different length"),
    "encoding": ("error", "lines that are not UTF-8"),
    "line size": ("error", "lines too large to be sentences"),
    "columns": ("error", "rows with a wrong number of columns"),
    "csv": ("error", "rows that are not CSV"),
    "json": ("error", "lines without the JSON object needed"),
    "tags": ("error", "sequences without a tag for each of their words"),
    "empty": ("warning", "empty lines"),
    "long": ("warning", "overlong lines"),
    "ratio": ("warning", "source and target of very different length"),
    "duplicate": ("warning", "pairs that occur more than once"),
    "leakage": ("warning", "pairs to be judged by that are also trained on"),
    "unknown": ("warning", "tokens outside the vocabulary"),
    "source overlap": ("note", "sources to be judged by that are also trained on, with another target"),
    "several targets": ("note", "sources with more than one target"),
    "identical": ("note", "source and target are the same"),
    "words": ("note", "words that cannot be compared"),
    "control character": ("note", "control and invisible characters"),
    "replacement character": ("note", "characters lost in an earlier conversion"),
    "normalisation": ("note", "text that is not in Unicode's composed form (NFC)"),
}
"""Every check with its severity and its heading, in the order of the report."""

_BATCH = 1000
_UNKNOWN_LIMIT = 0.02
_RATIO_DIFFERENCE = 5
# C0 and C1 controls but tab and line feed; line and paragraph separator, zero-width space, byte order mark.
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u200b\ufeff]")


@dataclass(frozen=True)
class Finding:
    """One case, or with `count` over 1 (and no line) the cases that are not listed one by one."""

    severity: Severity
    check: str
    path: str
    line: int | None
    message: str
    count: int = 1


@dataclass(frozen=True)
class Report:
    """What the doctor found, the gravest first, and the figures of each corpus."""

    findings: tuple[Finding, ...]
    counts: dict[str, dict[str, float | int]]

    @property
    def ok(self) -> bool:
        """Whether training may begin: there is no error (warnings and notes are the user's to weigh)."""
        return not any(finding.severity == "error" for finding in self.findings)

    def total(self, severity: Severity) -> int:
        """The number of cases, listed or not."""
        return sum(finding.count for finding in self.findings if finding.severity == severity)


class _Cases:
    """The findings of one corpus: of each check and file the first `most`, and the number of the others."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.kept: dict[tuple[str, str], list[Finding]] = {}
        self.totals: dict[tuple[str, str], int] = {}

    def add(self, check: str, path: str, line: int | None, message: str) -> None:
        key = (check, path)
        self.totals[key] = self.totals.get(key, 0) + 1
        kept = self.kept.setdefault(key, [])
        if len(kept) < self.most:
            kept.append(Finding(CHECKS[check][0], check, path, line, message))

    def complain(self, check: str, error: DataError) -> None:
        self.add(check, error.path, error.line, error.message)

    def count(self, *checks: str) -> int:
        return sum(total for (check, _), total in self.totals.items() if check in checks)

    def drop(self, check: str) -> None:
        for key in [key for key in self.kept if key[0] == check]:
            del self.kept[key], self.totals[key]

    def findings(self) -> Iterator[Finding]:
        for (check, path), kept in self.kept.items():
            yield from kept
            others = self.totals[check, path] - len(kept)
            if others:
                message = f"… and {others:,} more" if kept else f"{others:,} in all"
                yield Finding(CHECKS[check][0], check, path, None, message, others)


@dataclass
class _Seen:
    """Where a source and a pair were first met: hash -> line."""

    path: str = ""
    sources: dict[int, int] = field(default_factory=dict)
    pairs: dict[int, int] = field(default_factory=dict)


@dataclass
class _Side:
    """Running figures of one side of a corpus."""

    name: str
    path: str
    words: int = 0
    longest: int = 0
    unknown: int = 0
    tokens: int = 0
    batch: list[Any] = field(default_factory=list)

    def ask(self, unknown_rate: UnknownRate) -> None:
        if self.batch:
            unknown, tokens = unknown_rate(self.name, self.batch)
            self.unknown += unknown
            self.tokens += tokens
            self.batch = []


def examine(
    corpora: Mapping[str, CorpusSettings],
    *,
    max_length: int = 200,
    max_ratio: float = 4.0,
    unknown_rate: UnknownRate | None = None,
    most: int = 5,
    progress: Progress | None = None,
) -> Report:
    """Read every corpus once and report what is wrong with it.

    Args:
        corpora: settings by name; "train" and "train:…" are trained on, every other name is judged by.
        max_length: lines with more words than this are reported.
        max_ratio: pairs whose longer side has more than this times the words of the shorter are reported.
        unknown_rate: counts the tokens that a vocabulary does not know.
        most: how many cases of each check and file are listed one by one.
        progress: told the corpus and the number of pairs read.
    """
    trained_on: list[_Seen] = []
    cases = {name: _Cases(most) for name in corpora}
    counts: dict[str, dict[str, float | int]] = {name: {} for name in corpora}
    for name in sorted(corpora, key=lambda name: not _is_training(name)):  # stable: training corpora come first
        judging = not _is_training(name)
        seen, counts[name] = _examine_one(
            name,
            corpora[name],
            cases[name],
            trained_on if judging else [],
            max_length=max_length,
            max_ratio=max_ratio,
            unknown_rate=unknown_rate,
            progress=progress,
        )
        if not judging:
            trained_on.append(seen)
    order = {check: number for number, check in enumerate(CHECKS)}
    findings = [finding for name in corpora for finding in cases[name].findings()]
    return Report(tuple(sorted(findings, key=lambda finding: order[finding.check])), counts)


def _is_training(name: str) -> bool:
    return name.partition(":")[0] == "train"


def _examine_one(
    name: str,
    settings: CorpusSettings,
    cases: _Cases,
    trained_on: Sequence[_Seen],
    *,
    max_length: int,
    max_ratio: float,
    unknown_rate: UnknownRate | None,
    progress: Progress | None,
) -> tuple[_Seen, dict[str, float | int]]:
    sides = (_Side("source", ""), _Side("target", ""))
    seen = _Seen()
    pairs = 0
    try:
        paths = files(settings)
        for path, line, pair in read_located(settings, cases.complain):
            pairs += 1
            if progress is not None and pairs % _BATCH == 0:
                progress(name, pairs)
            sides[0].path = seen.path = path
            sides[1].path = paths[1] if len(paths) > 1 else path
            raw = (pair.source, pair.target)
            texts = (_text(pair.source), _text(pair.target))
            lengths = [
                _examine_text(text, side, line, cases, max_length) for text, side in zip(texts, sides, strict=True)
            ]
            if 0 in lengths:
                continue
            _examine_lengths(lengths, path, line, cases, max_ratio)
            if texts[0] == texts[1]:
                cases.add("identical", path, line, "source and target are the same")
            _examine_repetition(texts, line, cases, seen, trained_on)
            if unknown_rate is not None:
                for value, side in zip(raw, sides, strict=True):
                    side.batch.append(value)
                    if len(side.batch) == _BATCH:
                        side.ask(unknown_rate)
    except DataError as error:
        cases.complain("unreadable", error)
        _examine_other_file(settings, error.path, cases)
    except UserError as error:
        path = settings.file or str(settings.source or settings.grammar)
        cases.add("unreadable", path, None, str(error).removeprefix(f"{path}: "))
    if progress is not None:
        progress(name, pairs)
    if unknown_rate is not None:
        for side in sides:
            side.ask(unknown_rate)
            if side.unknown > _UNKNOWN_LIMIT * side.tokens:
                share = f"{100 * side.unknown / side.tokens:.1f} % of the {side.name} tokens are unknown"
                cases.add("unknown", side.path, None, f"{share} ({side.unknown:,} of {side.tokens:,})")
    _judge_ratios(settings, cases, pairs, max_ratio)
    return seen, _figures(pairs, sides, cases, unknown_rate is not None)


def _text(value: Any) -> str:
    """A sequence of words or turns as one text."""
    return value if isinstance(value, str) else " ".join(map(_text, value))


def _examine_text(text: str, side: _Side, line: int, cases: _Cases, max_length: int) -> int:
    """Check one side of a pair and return its number of words."""
    length = len(text.split())
    side.words += length
    side.longest = max(side.longest, length)
    if length == 0:
        white = " but for white space" if text else ""
        cases.add("empty", side.path, line, f"the {side.name} is empty{white}")
    elif length > max_length:
        cases.add("long", side.path, line, f"the {side.name} has {length:,} words, over {max_length:,}")
    strange = _INVISIBLE.search(text)
    if strange:
        character = f"U+{ord(strange.group()):04X}"
        cases.add(
            "control character", side.path, line, f"{character} in the {side.name} at column {strange.start() + 1}"
        )
    if not text.isascii():
        lost = text.find("\ufffd")
        if lost >= 0:
            message = f"U+FFFD in the {side.name} at column {lost + 1}: a character was lost before"
            cases.add("replacement character", side.path, line, message)
        if not unicodedata.is_normalized("NFC", text):
            cases.add("normalisation", side.path, line, f"the {side.name} is not in Unicode's composed form (NFC)")
    return length


def _examine_lengths(lengths: Sequence[int], path: str, line: int, cases: _Cases, max_ratio: float) -> None:
    shorter, longer = sorted(lengths)
    if longer > max_ratio * shorter and longer - shorter > _RATIO_DIFFERENCE:
        source, target = (f"{length} word{'s' if length > 1 else ''}" for length in lengths)
        cases.add("ratio", path, line, f"{source} in the source, {target} in the target")


def _examine_repetition(
    texts: tuple[str, str], line: int, cases: _Cases, seen: _Seen, trained_on: Sequence[_Seen]
) -> None:
    source_digest = blake2b(texts[0].encode(), digest_size=8).digest()
    source = int.from_bytes(source_digest, "big")
    # The source enters with its hash, whose length is fixed: no other cut of the same text gives the same bytes.
    pair = int.from_bytes(blake2b(source_digest + texts[1].encode(), digest_size=8).digest(), "big")
    first = seen.pairs.setdefault(pair, line)
    if first != line:
        cases.add("duplicate", seen.path, line, f"the same pair as line {first}")
    elif seen.sources.setdefault(source, line) != line:
        message = f"the same source as line {seen.sources[source]}, with another target"
        cases.add("several targets", seen.path, line, message)
    for training in trained_on:
        if pair in training.pairs:
            cases.add("leakage", seen.path, line, f"the same pair as {training.path}:{training.pairs[pair]}")
            return
    for training in trained_on:
        if source in training.sources:
            place = f"{training.path}:{training.sources[source]}"
            cases.add("source overlap", seen.path, line, f"the same source as {place}, with another target")
            return


def _examine_other_file(settings: CorpusSettings, known: str, cases: _Cases) -> None:
    """When one of two parallel files cannot be read, say at once whether the other can."""
    for path in files(settings):
        if path != known:
            try:
                next(open_lines(path), None)
            except DataError as error:
                if error.line is None:
                    cases.complain("unreadable", error)


def _judge_ratios(settings: CorpusSettings, cases: _Cases, pairs: int, max_ratio: float) -> None:
    """A ratio that most pairs have is no outlier: one side is written without spaces, or in letters."""
    outliers = cases.count("ratio")
    if outliers > pairs / 2 and pairs > 1:
        cases.drop("ratio")
        message = (
            f"in {outliers:,} of {pairs:,} pairs one side has more than {max_ratio:g} times the words of the other; "
            "it seems that one is written without spaces, so lengths are not compared"
        )
        cases.add("words", describe(settings), None, message)


def _figures(pairs: int, sides: Sequence[_Side], cases: _Cases, asked: bool) -> dict[str, float | int]:
    figures: dict[str, float | int] = {"pairs": pairs}
    for side in sides:
        figures[f"{side.name}_words"] = side.words
        figures[f"{side.name}_mean"] = side.words / pairs if pairs else 0.0
        figures[f"{side.name}_max"] = side.longest
        if asked:
            figures[f"{side.name}_unknown"] = side.unknown / side.tokens if side.tokens else 0.0
    figures["duplicates"] = cases.count("duplicate")
    figures["empty"] = cases.count("empty")
    figures["leaked"] = cases.count("leakage")
    figures["faulty"] = cases.count("encoding", "line size", "columns", "csv", "json", "tags")
    return figures


# --- the report ----------------------------------------------------------------------------------------------------


_COLUMNS = {
    "pairs": "pairs",
    "source_words": "source words",
    "source_mean": "mean",
    "source_max": "longest",
    "source_unknown": "unknown",
    "target_words": "target words",
    "target_mean": "mean",
    "target_max": "longest",
    "target_unknown": "unknown",
    "duplicates": "duplicates",
}


def render(report: Report) -> str:
    """The report as plain text: the figures, the findings by severity, and a verdict on the last line."""
    blocks = [_table(report.counts)] if report.counts else []
    for severity, title in (("error", "Errors"), ("warning", "Warnings"), ("note", "Notes")):
        lines = []
        heading = None
        for finding in report.findings:
            if finding.severity != severity:
                continue
            if finding.check != heading:
                heading = finding.check
                lines.append(f"  {CHECKS[heading][1]}")
            place = finding.path if finding.line is None else f"{finding.path}:{finding.line}"
            lines.append(f"    {place}: {finding.message}")
        if lines:
            blocks.append("\n".join([title, *lines]))
    return "\n\n".join([*blocks, verdict(report)]) + "\n"


def verdict(report: Report) -> str:
    """One line: "2 errors, 3 warnings", or that nothing was found."""
    named = [(report.total(severity), severity) for severity in ("error", "warning", "note")]
    told = [f"{total:,} {severity}{'s' if total > 1 else ''}" for total, severity in named if total]
    if report.total("error") or report.total("warning"):
        return ", ".join(told)
    return "No problems found" + (f" ({told[0]})." if told else ".")


def to_dict(report: Report) -> dict[str, Any]:
    """The report for programs."""
    findings = [asdict(finding) for finding in report.findings]
    return {"ok": report.ok, "counts": report.counts, "findings": findings}


def _table(counts: Mapping[str, Mapping[str, float | int]]) -> str:
    keys = [key for key in _COLUMNS if any(key in figures for figures in counts.values())]
    rows = [["corpus", *(_COLUMNS[key] for key in keys)]]
    rows += [[name, *(_shown(key, figures.get(key, 0)) for key in keys)] for name, figures in counts.items()]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    )


def _shown(key: str, value: float | int) -> str:
    if key.endswith("_unknown"):
        return f"{100 * value:.1f} %"
    return f"{value:.1f}" if key.endswith("_mean") else f"{value:,}"
