"""Which words counted for a label: the view `words`.

A classifier's logit of a label is a bias plus one number for each symbol that was read (`Classifier.contributions`).
From each number the mean over all labels is taken, and pieces of a word are added up; so the numbers of words add up to
the logit above the mean of all labels.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from seqloom.answers import LabelsAnswer
from seqloom.errors import UserError, one_of
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
    text_size,
)
from seqloom.inspection.terminal import (
    DIVERGING,
    bar,
    display_width,
    painted,
    shade_of,
    shorten,
    shown,
    visible,
)
from seqloom.inspection.trace import plain
from seqloom.inspection.view import Picture, Progress, View, ViewOptions

CONTRIBUTIONS = "contributions"
PIECE = "·"  # how a label begins that continues a word
BAR = 16  # characters to each side
WIDTH, LINE, BOX, GAP = 6.6, 0.5, 0.25, 0.05  # inches: the text, its lines, a word's box, the room between two
OTHERS = 4  # labels that a caption names besides


@dataclass(frozen=True, eq=False)
class Contributions:
    """What each word adds to the logit of a label; `probabilities` are those of all labels, the likeliest first."""

    label: str
    words: Sequence[str]
    values: np.ndarray
    bias: float
    probabilities: Mapping[str, float]
    apart: bool = False
    """Whether labels do not exclude each other."""

    @property
    def logit(self) -> float:
        return float(self.values.sum()) + self.bias

    def rows(self) -> list[tuple[str, float]]:
        """What is drawn as bars."""
        return [*zip(map(shown, self.words), self.values.tolist(), strict=True), ("bias", self.bias)]

    def caption(self) -> str:
        """What a picture of it shows."""
        return (
            f"What the vector of each word adds to the logit of “{self.label}”: blue speaks for the label, "
            f"orange against it. With the bias, {signed(self.bias)}, they add up to {self.summary()}. "
            f"Other labels: {_others(self)}."
        )

    def conclusion(self) -> str:
        """One sentence below the bars."""
        return f"They add up to {self.summary()}."

    def logit_of(self, label: str) -> float:
        """Of another label: logits differ as the logarithms of probabilities do."""
        share, own = (max(self.probabilities[name], sys.float_info.min) for name in (label, self.label))
        return self.logit + math.log(share / own)

    def summary(self) -> str:
        """What the numbers add up to, beside the likeliest other label."""
        if self.apart:
            return f"{signed(self.logit)}, the logit of {self.label}: above 0 it is more likely than not"
        other = next((label for label in self.probabilities if label != self.label), None)
        beside = "" if other is None else f"; that of {other} is {signed(self.logit_of(other))}"
        return f"{signed(self.logit)}, the logit of {self.label} above the mean of all labels{beside}"


def whole_words(labels: Sequence[str], values: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Symbols and their numbers -> words and the sums over their pieces."""
    starts = [i for i, label in enumerate(labels) if not i or len(label) == 1 or not label.startswith(PIECE)]
    words = [
        labels[start] + "".join(piece.removeprefix(PIECE) for piece in labels[start + 1 : end])
        for start, end in zip(starts, [*starts[1:], len(labels)], strict=True)
    ]
    return words, np.add.reduceat(values, starts)


def draw_words(
    found: Contributions,
    path: str | Path | None = None,
    *,
    width: int | None = None,
    colour: bool = True,
    title: str = "",
) -> str:
    """Show what each word adds to a label's logit, in the order of the text.

    Args:
        found: The words and their numbers.
        path: A .svg, .png, .pdf or .html file; None returns bars for the terminal.
        width: Characters in a line of the terminal.
        colour: Whether the terminal shows colours.
        title: A heading for the picture; by default the label and its probability.

    Returns:
        The text, or the path of the file that was written.
    """
    if path is None:
        return _text(found, width, colour)
    target = checked_path(path)
    with look():
        return str(save_page(_page(found, title or _heading(found)), target))


def _heading(found: Contributions) -> str:
    return f"{found.label}: {found.probabilities[found.label]:.1%}"


def _others(found: Contributions) -> str:
    """The probabilities of the likeliest other labels."""
    rest = [f"{label} {share:.1%}" for label, share in found.probabilities.items() if label != found.label]
    return ", ".join(rest[:OTHERS]) + (f" and {len(rest) - OTHERS} more" if len(rest) > OTHERS else "")


def signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")  # never −0.00


# ---------------------------------------------------------------------------------------------------------------------
# Terminal


def _text(found: Contributions, width: int | None, colour: bool) -> str:
    rows = found.rows()
    size = BAR if width is None else max(4, min(BAR, (width - 24) // 2))
    names = [shorten(name, 24) for name, _ in rows]
    widest = max(map(display_width, names))
    high = max(max(abs(value) for _, value in rows), 1e-9)
    lines = [
        f"{name}{' ' * (widest - display_width(name))} {signed(value):>7}  {_signed_bar(value / high, size, colour)}"
        for name, (_, value) in zip(names, rows, strict=True)
    ]
    return "\n".join(
        [
            visible(f"{_heading(found)}   ({_others(found)})"),
            "",
            *(line.rstrip() for line in lines),
            "",
            visible(found.conclusion()),
        ]
    )


def _signed_bar(part: float, size: int, colour: bool) -> str:
    """A bar to the right of a line for what speaks for a label, to the left for what speaks against it."""
    halves = round(abs(part) * size * 2)
    against = "▐" * (halves % 2) + "█" * (halves // 2) if part < 0 else ""
    support = bar(part, size) if part > 0 else ""
    if colour:
        against, support = (
            painted(drawn, hue) if drawn else "" for drawn, hue in ((against, DIVERGING[1]), (support, DIVERGING[-2]))
        )
    return " " * (size - ((halves + 1) // 2 if part < 0 else 0)) + against + "│" + support


# ---------------------------------------------------------------------------------------------------------------------
# Pictures


def _page(found: Contributions, title: str) -> Any:
    """The text with a coloured box behind each word and its number below."""
    from matplotlib.patches import Rectangle

    names = [shown(word) for word in found.words]
    numbers = [signed(value) for value in found.values]
    sizes = [max(text_size(name)[0] + 0.1, text_size(n, TINY)[0]) for name, n in zip(names, numbers, strict=True)]
    places, x, line = list[tuple[float, int]](), 0.0, 0
    for size in sizes:
        if x and x + size > WIDTH:
            x, line = 0.0, line + 1
        places.append((x, line))
        x += size + GAP
    wide = max(x + size for (x, _), size in zip(places, sizes, strict=True))
    heading, notes = Heading(title, wide), Notes(found.caption(), wide)
    width = max(wide, heading.width, notes.width) + 2 * MARGIN
    deep = line * LINE + BOX + 0.3
    height = heading.height + deep + notes.height + 0.06 + 2 * MARGIN
    page = figure(width, height)
    heading.write(page)
    notes.write(page)
    canvas = axes_at(page, 0.0, 0.0, width, height)
    canvas.set_axis_off()
    canvas.set_xlim(0, width)
    canvas.set_ylim(0, height)
    high = max(float(np.abs(found.values).max(initial=0.0)), 1e-9)
    for (x, line), size, name, number, value in zip(places, sizes, names, numbers, found.values, strict=True):
        left, top = MARGIN + x, height - MARGIN - heading.height - line * LINE
        shade, dark = shade_of(DIVERGING, (1 + float(value) / high) / 2)
        canvas.add_patch(Rectangle((left, top - BOX), size, BOX, facecolor=shade, edgecolor=OUTLINE, linewidth=0.4))
        middle = {"ha": "center", "va": "center_baseline"}
        ink = "#ffffff" if dark else INK
        canvas.text(left + size / 2, top - BOX / 2, name, fontsize=LABEL, color=ink, **middle)
        canvas.text(left + size / 2, top - BOX - 0.09, number, fontsize=TINY, color=INK, **middle)
    return page


# ---------------------------------------------------------------------------------------------------------------------
# The view


class WordsView(View):
    name = "words"
    about = "which words counted for the label, of classifiers"
    recipe = "trec"
    inputs, least, most = "one text in quotes", 1, 1
    example = '"a great film"'

    class Options(ViewOptions):
        label: str | None = Field(None, description="for which label (default: the one that the model answers)")

    def missing(self, model: Any) -> str | None:
        if not hasattr(model.network, "contributions"):
            return f"this is for classifiers, not for {model.task.kind}"
        return None if model.task.source.is_text else "a series has no words; see 'saliency'"

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        answer = model(inputs[0])
        array = answer.trace[CONTRIBUTIONS]  # (label, source)
        label = answer.label if options.label is None else options.label
        if label not in array.rows:
            raise UserError(one_of("label", label, array.rows))
        number = array.rows.index(label)
        # What speaks for every label alike decides nothing: a softmax sees only differences.
        values, biases = np.asarray(array.values, dtype=float), model.network.output.bias.detach().double().numpy()
        if isinstance(answer, LabelsAnswer):  # each label is a decision by itself
            words, values = whole_words(array.columns, values[number])
            bias = float(biases[number])
        else:
            words, values = whole_words(array.columns, (values - values.mean(0))[number])
            bias = float(biases[number] - biases.mean())
        found = Contributions(label, words, values, bias, answer.probabilities, isinstance(answer, LabelsAnswer))
        heading = f"“{shorten(visible(inputs[0]), 60)}”: {_heading(found)} ({model.name})"
        drawn = partial(draw_words, found, title=heading)
        notes, only = [], np.flatnonzero(values)
        if len(only) == 1 and len(words) > 1:
            notes = [f"all comes from {words[only[0]]!r}: its vector is the only one kept, and has read the others"]
        return Picture(
            heading,
            text=lambda width, colour: drawn(width=width, colour=colour),
            draw=drawn,
            values={
                "label": label,
                "probabilities": dict(answer.probabilities),
                "words": words,
                "contributions": plain(values),
                "bias": bias,
                "logit": found.logit,
            },
            notes=notes,
        )
