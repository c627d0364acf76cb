"""How good word vectors are: analogies solved, and agreement with what people say of pairs of words.

report = evaluate_file(vectors, "questions-words.txt")
print(report.render())
json.dumps(report.to_dict())
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.evaluation.figures import METRICS, Report
from seqloom.evaluation.word_files import Judged, Question, asks_analogies, read_judgements, read_questions
from seqloom.vectors.table import METHODS, Method, WordVectors

SYNTACTIC = re.compile(r"gram\d*-.*|(JJ|NN|VB)[A-Z]*_(JJ|NN|VB)[A-Z]*")  # Google's and MSR's names of sections


@dataclass(frozen=True)
class Solved:
    """Some questions: how many there are, how many could be asked, and how many each method got right."""

    name: str
    count: int
    asked: int
    right: Mapping[str, int]

    def accuracy(self, method: str) -> float | None:
        """Percent of the questions that could be asked."""
        return 100.0 * self.right[method] / self.asked if self.asked else None

    def to_dict(self) -> dict[str, Any]:
        accuracies = {method: self.accuracy(method) for method in self.right}
        return {"name": self.name, "count": self.count, "asked": self.asked, **accuracies}


@dataclass(frozen=True)
class AnalogyReport(Report):
    """Accuracy on a file of analogies, by section and together. Questions with an unknown word are not asked."""

    name: str
    methods: tuple[Method, ...]
    sections: tuple[Solved, ...]
    most_frequent: int | None = None

    @property
    def figures(self) -> dict[str, float]:
        found = {method: self.all.accuracy(method) for method in self.methods}
        return {str(method): accuracy for method, accuracy in found.items() if accuracy is not None}

    @property
    def coverage(self) -> dict[str, int]:
        return {"questions": self.all.asked}

    @property
    def all(self) -> Solved:
        return self._together("all", self.sections)

    @property
    def semantic(self) -> Solved | None:
        """Sections about what words mean, where a file has both kinds."""
        others = [section for section in self.sections if not SYNTACTIC.fullmatch(section.name)]
        return self._together("semantic", others) if others and self.syntactic is not None else None

    @property
    def syntactic(self) -> Solved | None:
        """Sections about the forms of words."""
        found = [section for section in self.sections if SYNTACTIC.fullmatch(section.name)]
        return self._together("syntactic", found) if found else None

    def _together(self, name: str, sections: Sequence[Solved]) -> Solved:
        right: dict[str, int] = {method: sum(section.right[method] for section in sections) for method in self.methods}
        return Solved(name, sum(s.count for s in sections), sum(s.asked for s in sections), right)

    def to_dict(self) -> dict[str, Any]:
        """Accuracies in percent; None where no question could be asked."""
        overall = self.all
        found: dict[str, Any] = {"name": self.name, "kind": "analogies", "count": overall.count, "asked": overall.asked}
        found["coverage"] = 100.0 * overall.asked / overall.count
        found |= {method: overall.accuracy(method) for method in self.methods}
        for group in (self.semantic, self.syntactic):
            if group is not None:
                found[group.name] = group.to_dict()
        found["sections"] = [section.to_dict() for section in self.sections]
        if self.most_frequent is not None:
            found["most_frequent"] = self.most_frequent
        return found

    def render(self) -> str:
        """The report as plain text."""
        overall = self.all
        among = "" if self.most_frequent is None else f", among the {self.most_frequent:,} most frequent words"
        share = f"{100.0 * overall.asked / overall.count:.1f} %"
        head = f"{self.name}: {overall.asked:,} of {overall.count:,} questions asked ({share}){among}"
        groups = [group for group in (self.semantic, self.syntactic) if group is not None and len(self.sections) > 1]
        cells = [("section", "questions", "asked", *(METRICS[method].title for method in self.methods))]
        cells += [
            (s.name, f"{s.count:,}", f"{s.asked:,}", *(_percent(s.accuracy(method)) for method in self.methods))
            for s in [*(self.sections if len(self.sections) > 1 else ()), *groups, overall]
        ]
        return f"{head}\n\n{_table(cells, len(cells) - 1 - len(groups))}"


@dataclass(frozen=True)
class SimilarityReport(Report):
    """Agreement with people on pairs of words; pairs with an unknown word are left out, unless its pieces are known."""

    name: str
    count: int
    compared: int
    by_pieces: int
    spearman: float | None

    @property
    def figures(self) -> dict[str, float]:
        return {} if self.spearman is None else {"spearman": self.spearman}

    @property
    def coverage(self) -> dict[str, int]:
        return {"pairs": self.compared}

    def to_dict(self) -> dict[str, Any]:
        """Spearman's correlation from -1 to 1; None where it is not defined."""
        return {
            "name": self.name,
            "kind": "similarity",
            "count": self.count,
            "compared": self.compared,
            "by_pieces": self.by_pieces,
            "coverage": 100.0 * self.compared / self.count,
            "spearman": self.spearman,
        }

    def render(self) -> str:
        """The report as plain text."""
        shown = "not defined" if self.spearman is None else f"{self.spearman:.4f}"
        pieces = f", {self.by_pieces:,} by their pieces" if self.by_pieces else ""
        share = f"{100.0 * self.compared / self.count:.1f} %"
        return f"{self.name}: {self.compared:,} of {self.count:,} pairs compared ({share}){pieces}\n\nSpearman  {shown}"


def evaluate_file(
    vectors: WordVectors,
    path: str | Path,
    methods: Sequence[Method] = ("add", "multiply"),
    most_frequent: int | None = None,
) -> AnalogyReport | SimilarityReport:
    """Measure vectors on a file; whether it holds analogies or pairs is seen from its content."""
    if asks_analogies(path):
        return solve_analogies(vectors, read_questions(path), Path(path).stem, methods, most_frequent)
    return compare_pairs(vectors, read_judgements(path), Path(path).stem)


def solve_analogies(
    vectors: WordVectors,
    sections: Mapping[str, Sequence[Question]],
    name: str = "analogies",
    methods: Sequence[Method] = ("add", "multiply"),
    most_frequent: int | None = None,
) -> AnalogyReport:
    """Accuracy of the best answer.

    Args:
        vectors: What is measured. Where no word of theirs has a capital letter, the questions are lower-cased.
        sections: Section -> questions.
        name: The heading of the report.
        methods: `add` (3CosAdd), `multiply` (3CosMul), or both.
        most_frequent: Only the first so many words are known: in questions and as answers.
    """
    assert all(method in METHODS for method in methods), methods
    known = len(vectors) if most_frequent is None else min(most_frequent, len(vectors))
    asked = {section: _rows_of(vectors, questions, known) for section, questions in sections.items()}
    together = np.concatenate([np.empty((0, 4), np.int64), *asked.values()])
    answers = vectors.answer_analogies(together[:, :3], methods, known) if len(together) else {}
    solved, start = [], 0
    for section, rows in asked.items():
        part = slice(start, start := start + len(rows))
        right: dict[str, int] = {m: int((answers[m][part] == rows[:, 3]).sum()) if len(rows) else 0 for m in methods}
        solved.append(Solved(section, len(sections[section]), len(rows), right))
    return AnalogyReport(name, tuple(methods), tuple(solved), most_frequent)


def compare_pairs(vectors: WordVectors, pairs: Sequence[Judged], name: str = "similarity") -> SimilarityReport:
    """Spearman's correlation between the cosines and what people say."""
    ours, theirs, by_pieces = [], [], 0
    for pair in pairs:
        words = [vectors.spelled(word) for word in pair[:2]]
        if all(vectors.knows(word) for word in words):
            ours.append(vectors.similarity(*words))
            theirs.append(pair.score)
            by_pieces += any(word not in vectors for word in words)
    return SimilarityReport(name, len(pairs), len(ours), by_pieces, spearman(ours, theirs))


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """The correlation of ranks, equal values sharing the mean of theirs; None for less than two different values."""
    if len(first) < 2:
        return None
    one, two = (_centred(_ranks(np.asarray(values, np.float64))) for values in (first, second))
    spread = np.sqrt((one @ one) * (two @ two))
    return float(np.clip(one @ two / spread, -1.0, 1.0)) if spread > 0 else None


def _ranks(values: np.ndarray) -> np.ndarray:
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[places])


def _centred(values: np.ndarray) -> np.ndarray:
    return np.asarray(values - values.mean())


def _rows_of(vectors: WordVectors, questions: Sequence[Question], known: int) -> np.ndarray:
    """(questions that can be asked, 4) rows of their words."""
    rows = [[vectors.index.get(vectors.spelled(word), known) for word in question] for question in questions]
    found = np.array(rows, np.int64).reshape(-1, 4)
    return np.asarray(found[(found < known).all(1)])


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _table(cells: Sequence[tuple[str, ...]], groups_from: int) -> str:
    """Lines of a table; a rule below its head, and another before what is summed up."""
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = [
        "  ".join([row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))])
        for row in cells
    ]
    rule = "-" * len(lines[0])
    summed = lines[groups_from:]
    above = lines[1:groups_from]
    return "\n".join([lines[0], rule, *above, *([rule] if above else []), *summed])
