"""A classifier on data: `reliability` (are its probabilities right?) and `confusion` (which label for which?)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from seqloom.answers import LabelsAnswer
from seqloom.corpus.readers import CorpusSettings, read_pairs
from seqloom.errors import UserError
from seqloom.evaluation.calibration import Bin, reliability
from seqloom.evaluation.classification import confusion_counts
from seqloom.inspection.draw import Panel, panels
from seqloom.inspection.page import (
    INK,
    LABEL,
    MARGIN,
    OUTLINE,
    TINY,
    Heading,
    Notes,
    axes_at,
    checked_path,
    figure,
    look,
    save_page,
)
from seqloom.inspection.terminal import DIVERGING, bar, to_terminal
from seqloom.inspection.view import Picture, Progress, View, ViewOptions

BINS = 10
SIDE, COUNTS = 3.0, 0.7  # inches: the diagram, and the bars above it
SHOWN = 30
NUMBERS = 12  # labels: of more, cells are too small for numbers
CAPTION = "Rows: the right label and its examples. Columns: the model's label. Right answers are on the diagonal."
BAR = 30  # characters


def answered(model: Any, options: Any, progress: Progress) -> tuple[str, list[str], list[Any]]:
    """Name, gold labels and answers of the data that the options name."""
    corpora = model.corpora(options.data, options.test)
    pairs = [
        pair
        for corpus in corpora.values()
        for pair in (read_pairs(corpus) if isinstance(corpus, CorpusSettings) else corpus)
    ]
    if not pairs:
        raise UserError(f"{'+'.join(corpora)}: there is no example in it")
    answers = model.predict(
        [pair.source for pair in pairs], lambda done: progress(done / len(pairs), f"{done:,} of {len(pairs):,}")
    )
    return "+".join(corpora), [pair.target for pair in pairs], answers


class OnData(ViewOptions):
    """Which data a picture is of."""

    data: tuple[str, ...] = Field((), description="data as in 'evaluate' (default: the recipe's first test data)")
    test: str | None = Field(None, description="name of a test corpus of the recipe, or all of them together")


def labels_missing(model: Any) -> str | None:
    """Why a model does not answer with a label and its probability."""
    able = any(metric.name == "calibration_error" for metric in model.task.metrics)
    return None if able else f"this is for classifiers, not for {model.task.kind}"


# ---------------------------------------------------------------------------------------------------------------------
# Reliability


def calibration_gap(bins: Sequence[Bin]) -> float:
    """Mean distance of confidence and accuracy over all answers, in percentage points."""
    return 100 * sum(one.size * abs(one.accuracy - one.confidence) for one in bins) / sum(one.size for one in bins)


def draw_reliability(
    bins: Sequence[Bin], path: str | Path | None = None, *, title: str = "", colour: bool = False
) -> str:
    """How often answers of each confidence are right; bars in a terminal where no path is given."""
    if path is None:
        return _reliability_text(bins)
    target = checked_path(path)
    with look():
        return str(save_page(_reliability_page(bins, title), target))


def _reliability_text(bins: Sequence[Bin]) -> str:
    head = f"{'confidence':>11}  {'mean':>5}  {'right':>5}  {'answers':>8}"
    lines = [head, "-" * (len(head) + 2 + BAR)]
    for one in bins:
        filled = bar(one.accuracy, BAR).ljust(BAR)
        place = min(BAR - 1, int(one.confidence * BAR))
        drawn = filled[:place] + "│" + filled[place + 1 :]
        figures = f"{one.confidence:6.1%} {one.accuracy:6.1%}  {one.size:>8,}"
        lines.append(f"{f'{one.low:.0%} to {one.high:.0%}':>11} {figures}  {drawn}".rstrip())
    return "\n".join([*lines, "", f"calibration error {calibration_gap(bins):.2f}; without, all bars end at │"])


def _reliability_page(bins: Sequence[Bin], title: str) -> Any:
    low = min(one.low for one in bins)
    caption = (
        "Answers in bins by the probability of their label. Bars: the share that is right; points: where the mean "
        "probability is. The line is where both are equal. Above: how many answers each bin has. The calibration error "
        f"is {calibration_gap(bins):.2f} percentage points."
    )
    left, gap, under = 0.55, 0.12, 0.45
    wide = left + SIDE
    heading, notes = Heading(title, wide), Notes(caption, wide)
    width = max(wide, heading.width, notes.width) + 2 * MARGIN
    height = heading.height + COUNTS + gap + SIDE + under + notes.height + 2 * MARGIN
    page = figure(width, height)
    heading.write(page)
    notes.write(page)
    bottom = MARGIN + notes.height + under
    main = axes_at(page, MARGIN + left, bottom, SIDE, SIDE, frame=True)
    above = axes_at(page, MARGIN + left, bottom + SIDE + gap, SIDE, COUNTS, frame=True)
    starts, widths = [one.low for one in bins], [one.high - one.low for one in bins]
    style = {"align": "edge", "edgecolor": OUTLINE, "linewidth": 0.5}
    main.bar(starts, [one.accuracy for one in bins], widths, color=DIVERGING[-2], **style)
    main.plot([low, 1], [low, 1], color=INK, linewidth=1.0, linestyle=(0, (4, 3)))
    main.plot(
        [one.confidence for one in bins], [one.accuracy for one in bins], "o", color=INK, markersize=3.5, clip_on=False
    )
    above.bar(starts, [one.size for one in bins], widths, color=OUTLINE, **style)
    for axes in (main, above):
        axes.set_xlim(low, 1)
        axes.tick_params(labelsize=TINY, length=2, colors=INK)
    main.set_ylim(0, 1)
    ticks = [tick for tick in (0, 0.2, 0.4, 0.6, 0.8, 1.0) if tick >= low - 1e-9]
    main.set_xticks(ticks, [f"{tick:.0%}" for tick in ticks])
    main.set_yticks((0, 0.2, 0.4, 0.6, 0.8, 1.0), ["0%", "20%", "40%", "60%", "80%", "100%"])
    above.set_xticks([])
    top = max(one.size for one in bins)
    above.set_yticks([0, top], ["0", f"{top:,}"])
    main.set_xlabel("probability of the answer", fontsize=LABEL, color=INK)
    main.set_ylabel("share that is right", fontsize=LABEL, color=INK)
    above.set_ylabel("answers", fontsize=LABEL, color=INK)
    return page


class ReliabilityView(View):
    name = "reliability"
    recipe = "trec"
    about = "whether a classifier's probabilities are right: of answers given with 90 %, are 90 % right?"

    class Options(OnData):
        bins: int = Field(BINS, ge=2, le=50, description="of equal width, from 0 to 1")

    def missing(self, model: Any) -> str | None:
        return labels_missing(model)

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        name, gold, answers = answered(model, options, progress)
        if isinstance(answers[0], LabelsAnswer):  # every decision counts, with the probability of what was decided
            pairs = [
                (max(chance, 1 - chance), (chance >= 0.5) == (label in model.task.target.split(right)))
                for answer, right in zip(answers, gold, strict=True)
                for label, chance in answer.probabilities.items()
            ]
        else:
            pairs = [(answer.probability, answer.label == right) for answer, right in zip(answers, gold, strict=True)]
        bins = reliability(
            np.array([one for one, _ in pairs]), np.array([float(right) for _, right in pairs]), options.bins
        )
        title = f"reliability of {model.name} on {name}"
        drawn = partial(draw_reliability, bins, title=title)
        values: Mapping[str, Any] = {
            "bins": [one._asdict() for one in bins],
            "calibration_error": calibration_gap(bins),
            "temperature": model.task.temperature,
        }
        return Picture(title, text=lambda width, colour: drawn(), draw=drawn, values=values)


# ---------------------------------------------------------------------------------------------------------------------
# Confusion


def confusion_matrix(gold: Sequence[str], predicted: Sequence[str], most: int) -> tuple[list[str], np.ndarray]:
    """Labels and counts (gold, predicted): all of them, or those with most mistakes, in alphabetical order."""
    counts = confusion_counts(gold, predicted)
    labels = sorted({label for pair in counts for label in pair})
    if len(labels) > most:
        wrong = {
            label: sum(n for pair, n in counts.items() if label in pair and pair[0] != pair[1]) for label in labels
        }
        labels = sorted(sorted(labels, key=lambda label: (-wrong[label], label))[:most])
    return labels, np.array([[counts.get((row, column), 0) for column in labels] for row in labels], np.int64)


class ConfusionView(View):
    name = "confusion"
    recipe = "trec"
    about = "which labels a classifier takes for which"

    class Options(OnData):
        most: int = Field(SHOWN, ge=2, le=200, description="labels shown; of more, those with most mistakes")
        counts: bool = Field(False, description="numbers of examples instead of shares of each gold label")

    def missing(self, model: Any) -> str | None:
        if getattr(model.task, "thresholds", ()):
            return "labels that do not exclude each other are not taken for one another"
        return labels_missing(model)

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        name, gold, answers = answered(model, options, progress)
        labels, counts = confusion_matrix(gold, [answer.label for answer in answers], options.most)
        totals = {label: gold.count(label) for label in labels}
        shares = counts / np.maximum(1, np.array([totals[label] for label in labels]))[:, None]
        values = counts if options.counts else shares
        every = len(set(gold) | {answer.label for answer in answers})
        notes = (
            []
            if len(labels) == every
            else [f"{len(labels)} of {every} labels, those with most mistakes; --most shows more"]
        )
        title = f"confusion of {model.name} on {name}: " + (
            "examples" if options.counts else "share of each gold label"
        )
        rows = [f"{label} ({totals[label]:,})" for label in labels]

        high = None if options.counts else 1.0
        panel = Panel(values, rows, labels, "", low=0.0, high=high, numbers=len(labels) <= NUMBERS)
        return Picture(
            title,
            text=lambda width, colour: to_terminal(
                values, rows, labels, colour=colour, width=width, low=0.0, high=high
            ),
            draw=lambda path: panels([panel], path, title, caption=CAPTION),
            values={"labels": labels, "counts": counts.tolist(), "examples": totals},
            notes=notes,
        )
