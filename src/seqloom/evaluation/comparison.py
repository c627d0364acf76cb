"""Several models on the same data: what is known of each, which is best, and the table that says so.

comparison = Comparison(task.name, data, task.metrics, entries)
print(comparison.render())
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from seqloom.evaluation.figures import LEVEL, METRICS, Metric
from seqloom.layout import hanging, table

DASH = "–"


# ---------------------------------------------------------------------------------------------------------------------
# What a journal tells


@dataclass(frozen=True)
class Validated:
    """One validation: after how many seconds of training (None where no clock is kept), and what it found."""

    seconds: float | None
    figures: Mapping[str, float]


@dataclass(frozen=True)
class Training:
    """What is known of how a model came about; None is what is not."""

    parameters: int | None = None
    ngrams: int | None = None
    seconds: float | None = None
    steps: int | None = None
    tokens_per_second: float | None = None
    workers: int | None = None
    validations: tuple[Validated, ...] = ()

    def best(self, metric: str) -> Mapping[str, float]:
        """The figures of the validation that was best by a metric; none where there was none."""
        found = [one.figures for one in self.validations if metric in one.figures]
        pick = max if METRICS[metric].better == "higher" else min
        return pick(found, key=lambda figures: figures[metric]) if found else {}

    def curve(self, metric: str) -> list[tuple[float, float]]:
        """(minutes, figure) of every validation that has both, in the order of time."""
        return sorted(
            (one.seconds / 60, one.figures[metric])
            for one in self.validations
            if one.seconds is not None and metric in one.figures
        )


def training_from(events: Iterable[Any]) -> Training:
    """The lines of a journal, of whatever task, in one view."""
    known: dict[str, Any] = {}
    paces, validations, starts = list[float](), list[Validated](), 0
    for event in events:
        if not isinstance(event, Mapping):
            continue
        numbers = {name: number for name, value in event.items() if (number := _number(value)) is not None}
        kind = event.get("event")
        starts += kind == "start"
        known |= {name: int(numbers[name]) for name in ("parameters", "ngrams", "workers") if name in numbers}
        if "step" in numbers:
            known["steps"] = int(numbers["step"])
        if "seconds" in numbers:
            known["seconds"] = numbers["seconds"]
        if kind == "train" and numbers.get("tokens_per_second", 0.0) > 0:  # 0: a pace that was not measured
            paces.append(numbers["tokens_per_second"])
        if kind == "validation":
            figures = {name: number for name, number in numbers.items() if name in METRICS}
            validations.append(Validated(numbers.get("seconds"), figures))
        if kind == "end":
            if starts > 1:  # the clock of an end begins at its own start: a resumed run took longer
                known.pop("seconds", None)
            if "words_per_second" in numbers:
                paces = [numbers["words_per_second"]]
    pace = statistics.median(paces) if paces else None
    return Training(tokens_per_second=pace, validations=tuple(validations), **known)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


# ---------------------------------------------------------------------------------------------------------------------
# Side by side


@dataclass(frozen=True)
class Entry:
    """One model: `figures` are its scores by the name of the metric."""

    name: str
    place: str
    kind: str
    figures: Mapping[str, float]
    training: Training = Training()
    finished: bool = True


LEAST_TELLING = ("tokens/s", "steps", "model", "training", "parameters")
"""Columns that a narrow table does without, the first one first."""


@dataclass(frozen=True)
class Comparison:
    """Models of one task on one set of data; `data` says which, in words.

    `drawn` is what can be followed through a training, the most telling first; `per_symbol` are means over symbols,
    which say nothing beside those of models that cut text into other symbols.
    """

    task: str
    data: str
    metrics: tuple[Metric, ...]
    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()
    drawn: tuple[str, ...] = ()
    per_symbol: frozenset[str] = frozenset()
    p_values: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By metric, of each other model's distance from the best one, where it was tested."""

    def chance(self, metric: Metric) -> dict[str, float]:
        """Those whose distance from the best may be chance, with their p-values."""
        return {name: p for name, p in self.p_values.get(metric.name, {}).items() if p >= LEVEL}

    def best(self, metric: Metric) -> set[str]:
        """The names of the best finished models, all that show the same digits; none where there is no contest, or
        where chance may have decided it."""
        if self.chance(metric):
            return set()
        found = {e.name: e.figures[metric.name] for e in self.entries if e.finished and metric.name in e.figures}
        if len(found) < 2:
            return set()
        first = (max if metric.better == "higher" else min)(found.values())
        return {name for name, figure in found.items() if metric.show(figure) == metric.show(first)}

    def followed(self, wanted: Iterable[str | None] = ()) -> str | None:
        """The metric whose way through the training is worth drawing.

        `wanted` is what each recipe decides by: taken where all agree and it can be compared between models.
        """
        agreed = set(wanted)
        known = [{name for one in e.training.validations for name in one.figures} for e in self.entries]
        known = [names for names in known if names]
        choices = [name for name in agreed if len(agreed) == 1 and name not in (None, *self.per_symbol)]
        for held in (all, any):
            for name in (*choices, *self.drawn):
                if known and held(name in names for names in known):
                    return name
        return None

    def _tested(self) -> list[str]:
        """What is to be read below the table about differences that were tested."""
        chance = {metric: self.chance(metric) for metric in self.metrics}
        found = [
            f"No star for {metric.title}: the best may be ahead by chance, of "
            + ", ".join(f"{name} (p = {p:.2f})" for name, p in rivals.items())
            + "."
            for metric, rivals in chance.items()
            if rivals
        ]
        if found or any(self.p_values.values()):
            found.append(f"Differences are tested by paired bootstrap resampling; a star needs p < {LEVEL}.")
        return found

    def to_dict(self) -> dict[str, Any]:
        """One JSON object: a run each, null for what is not known."""
        best = {metric.name: self.best(metric) for metric in self.metrics}
        return {
            "task": self.task,
            "data": self.data,
            "metrics": {metric.name: f"{metric.better} is better" for metric in self.metrics},
            "runs": [
                {
                    "name": e.name,
                    "place": e.place,
                    "model": e.kind,
                    "finished": e.finished,
                    **{metric.name: e.figures.get(metric.name) for metric in self.metrics},
                    "best": [name for name, names in best.items() if e.name in names],
                    "parameters": e.training.parameters,
                    "ngrams": e.training.ngrams,
                    "seconds": e.training.seconds,
                    "steps": e.training.steps,
                    "tokens_per_second": e.training.tokens_per_second,
                    "workers": e.training.workers,
                    "validations": [{"seconds": v.seconds, **v.figures} for v in e.training.validations],
                }
                for e in self.entries
            ],
            "p_values": {name: dict(found) for name, found in self.p_values.items()},
            "notes": [*self._tested(), *self.notes],
        }

    def render(self, width: int | None = None) -> str:
        """The table as plain text; a star marks the best. Where it is too wide, the least telling columns go first."""
        marks = ("*", " ") if any(map(self.best, self.metrics)) else ("", "")
        cells = self._cells(lambda figure, best: figure + marks[0 if best else 1])
        spare = [*LEAST_TELLING, *(metric.title for metric in reversed(self.metrics[1:]))]
        body = "\n".join(table(cells, left=2, width=width, spare=spare))
        star = ["* the best"] if marks[0] else []
        below = hanging("\n".join([*star, *self._tested(), *self.notes]), width)
        return "\n\n".join(part for part in (hanging(self.data, width), body, below) if part)

    def markdown(self) -> str:
        """The table for a page; the best in bold."""
        table = self._cells(lambda figure, best: f"**{figure}**" if best else figure)
        rows = ["| " + " | ".join(_escaped(cell) for cell in row) + " |" for row in table]
        rule = "|" + "|".join("---" if i < 2 else "---:" for i in range(len(table[0]))) + "|"
        body = "\n".join([rows[0], rule, *rows[1:]])
        notes = "\n".join(f"- {_escaped(note)}" for note in (*self._tested(), *self.notes))
        return "\n\n".join(part for part in (_escaped(self.data), body, notes) if part)

    def _cells(self, marked: Any) -> list[list[str]]:
        """Rows of text, the head first; a column about which nothing is known of any model is left out."""
        columns: list[tuple[str, list[str]]] = [
            ("name", [e.name if e.finished else f"{e.name} (unfinished)" for e in self.entries]),
            ("model", [e.kind for e in self.entries]),
        ]
        for metric in self.metrics:
            best = self.best(metric)
            cells = [
                marked(metric.show(e.figures[metric.name]) if metric.name in e.figures else DASH, e.name in best)
                for e in self.entries
            ]
            columns.append((marked(metric.title, False), cells))
        counted = [e.training for e in self.entries]
        columns += [
            ("parameters", [_size(one) for one in counted]),
            ("training", [_duration(one.seconds) for one in counted]),
            ("steps", [_count(one.steps) for one in counted]),
            ("tokens/s", [_count(one.tokens_per_second) for one in counted]),
            ("threads", [_count(one.workers) for one in counted]),
        ]
        kept = [(title, cells) for title, cells in columns if any(cell.strip() != DASH for cell in cells)]
        return [[title for title, _ in kept], *([cells[i] for _, cells in kept] for i in range(len(self.entries)))]


def _size(training: Training) -> str:
    if training.parameters is None and training.ngrams is not None:
        return f"{training.ngrams:,} n-grams"
    return _count(training.parameters)


def _count(number: float | None) -> str:
    return DASH if number is None else f"{number:,.0f}"


def _duration(seconds: float | None) -> str:
    """75 -> '1:15', 3700 -> '1:01:40'; a tenth of a second where there are few."""
    if seconds is None:
        return DASH
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds + 0.5), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def distinct_names(paths: Sequence[Sequence[str]]) -> list[str]:
    """Paths, part by part -> the last part of each, or as many parts as it takes to tell them apart."""
    names = []
    for index, path in enumerate(paths):
        others = [other for i, other in enumerate(paths) if i != index]
        longest = max(1, len(path))
        length = next((n for n in range(1, longest) if all(tuple(o[-n:]) != tuple(path[-n:]) for o in others)), longest)
        names.append("/".join(path[-length:]))
    return names
