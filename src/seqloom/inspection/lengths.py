"""How quality depends on the length of the sentence, for several models in one picture: the view `lengths`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from pydantic import Field

from seqloom.corpus.examples import Pair
from seqloom.corpus.readers import read_pairs
from seqloom.errors import UserError
from seqloom.evaluation.metrics import bleu_interval
from seqloom.inspection import draw
from seqloom.inspection.terminal import display_width
from seqloom.inspection.view import Picture, Progress, View, ViewOptions, compared, part_of

_Key = tuple[int, int | None]
FEWEST = 30  # sentences below which a point is hollow


class LengthBucket(Protocol):
    """What a length bucket must have; `seqloom.evaluation.report.Bucket` does."""

    @property
    def label(self) -> str: ...
    @property
    def lower(self) -> int: ...
    @property
    def upper(self) -> int | None: ...
    @property
    def count(self) -> int: ...
    @property
    def bleu(self) -> float: ...


def draw_lengths(
    series: Mapping[str, Sequence[LengthBucket]],
    path: str | Path | None = None,
    *,
    intervals: Mapping[str, Mapping[_Key, tuple[float, float]]] | None = None,
    title: str = "",
) -> str:
    """Draw BLEU against the length of the source.

    Args:
        series: Model name -> its buckets. A model may lack a bucket that others have.
        path: A .svg, .png, .pdf or .html file; None returns a table.
        intervals: Model name -> (lower, upper) of a bucket -> between which scores its BLEU lies.
        title: A heading for the picture.

    Returns:
        The table, or the path of the file that was written.

    Raises:
        UserError: There is nothing to draw, or the file cannot be written.
    """
    buckets = {(b.lower, b.upper): b for model in series.values() for b in model}
    if not buckets:
        raise UserError("there are no length buckets to draw; evaluate at least one model first")
    order = sorted(buckets, key=lambda key: (key[0], key[1] is None, key[1] or 0))
    counts = {key: {b.count for model in series.values() for b in model if (b.lower, b.upper) == key} for key in order}
    if path is None:
        return _table(series, [(key, buckets[key].label) for key in order], counts)
    places = {key: float(index) for index, key in enumerate(order)}
    points = {
        name: [(places[bucket.lower, bucket.upper], bucket.bleu) for bucket in model] for name, model in series.items()
    }
    # The number of sentences belongs to the axis only where all models were measured on the same ones.
    ticks = [
        (places[key], f"{buckets[key].label}\nn={next(iter(counts[key])):,}" if _agree(counts) else buckets[key].label)
        for key in order
    ]
    bands = {
        name: [(places[key], *found[key]) for key in order if key in found] for name, found in (intervals or {}).items()
    }
    few = [places[key] for key in order if max(counts[key]) < FEWEST]
    caption = "Bands: where BLEU lies in 95 % of resampled test sets." if bands else ""
    caption += f" Hollow points: fewer than {FEWEST} sentences; little can be said about these." if few else ""
    return str(
        draw.lines(
            points,
            "words in the source sentence",
            "BLEU",
            title,
            path,
            ticks=ticks,
            bands=bands,
            hollow=few,
            caption=caption.strip(),
        )
    )


def _agree(counts: Mapping[_Key, set[int]]) -> bool:
    return all(len(found) == 1 for found in counts.values())


def _table(
    series: Mapping[str, Sequence[LengthBucket]], order: Sequence[tuple[_Key, str]], counts: Mapping[_Key, set[int]]
) -> str:
    scores = {name: {(b.lower, b.upper): b.bleu for b in model} for name, model in series.items()}
    agree = _agree(counts)
    table = [["words", *(["sentences"] if agree else []), *scores]]
    for key, label in order:
        number = [f"{next(iter(counts[key])):,}"] if agree else []
        table.append([label, *number, *(f"{found[key]:.2f}" if key in found else "–" for found in scores.values())])
    widths = [max(display_width(row[i]) for row in table) for i in range(len(table[0]))]

    def line(row: Sequence[str]) -> str:
        pads = [" " * (width - display_width(cell)) for cell, width in zip(row, widths, strict=True)]
        return "  ".join([row[0] + pads[0], *(pad + cell for pad, cell in zip(pads[1:], row[1:], strict=True))])

    return "\n".join([line(table[0]), "-" * len(line(table[0])), *(line(row) for row in table[1:])])


def intervals_of(
    pairs: Sequence[Pair], answers: Sequence[str], buckets: Sequence[LengthBucket]
) -> dict[_Key, tuple[float, float]]:
    """(lower, upper) of each bucket -> between which scores its BLEU lies."""
    lengths, found = [len(pair.source.split()) for pair in pairs], {}
    for bucket in buckets:
        inside = [i for i, n in enumerate(lengths) if bucket.lower <= n and (bucket.upper is None or n <= bucket.upper)]
        if len(inside) > 1:
            references = [pairs[i].target for i in inside]
            found[bucket.lower, bucket.upper] = bleu_interval([answers[i] for i in inside], references)
    return found


def finding(series: Mapping[str, Sequence[LengthBucket]]) -> str:
    """The scores of the shortest and of the longest sentences of which there are enough."""
    parts = []
    for name, buckets in series.items():
        enough = [bucket for bucket in buckets if bucket.count >= FEWEST]
        if len(enough) > 1:
            first, last = enough[0], enough[-1]
            parts.append(f"{name} {first.bleu:.1f} at {first.label} words, {last.bleu:.1f} at {last.label}")
    return f"BLEU by length of sentence: {'; '.join(parts) or ', '.join(series)}"


# ---------------------------------------------------------------------------------------------------------------------
# The view


class LengthsView(View):
    name = "lengths"
    about = "quality against sentence length, for one or several models"
    recipe = "demo"

    class Options(ViewOptions):
        compare: tuple[str, ...] = Field((), description="a further model to draw into the same plot")
        data: tuple[str, ...] = Field((), description="data as in 'evaluate' (default: the recipe's first test data)")
        test: str | None = Field(None, description="name of a test corpus of the recipe, or all of them together")

    def missing(self, model: Any) -> str | None:
        if not any(metric.name == "bleu" for metric in model.task.metrics):
            return f"the answers of {model.task.kind} are not texts with a BLEU"
        return None

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        models = compared(model, options.compare, self)
        corpora = model.corpora(options.data, options.test)
        pairs, name = [pair for corpus in corpora.values() for pair in read_pairs(corpus)], "+".join(corpora)
        reports = {
            one.name: one.evaluate(pairs, name=name, progress=part_of(progress, number, len(models), one.name))
            for number, one in enumerate(models)
        }
        series = {name: report.buckets for name, report in reports.items()}
        intervals = {name: intervals_of(pairs, report.texts, report.buckets) for name, report in reports.items()}
        fields = ("label", "lower", "upper", "count", "bleu")
        values = {one: [{field: getattr(b, field) for field in fields} for b in found] for one, found in series.items()}
        title = finding(series)
        drawn = partial(draw_lengths, series, intervals=intervals, title=title)
        return Picture(title, text=lambda width, colour: drawn(), draw=drawn, values={"models": values})
