"""Teacher forcing beside free running: where a translator leaves the reference, and what follows; the view `forcing`.

In training each symbol is foreseen after the reference's own beginning (teacher forcing); in use, after what the model
has said itself. What is worse then is exposure bias (Bengio et al. 2015; Ranzato et al. 2016).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from seqloom.corpus.readers import read_pairs
from seqloom.errors import UserError
from seqloom.inspection.page import (
    FAINT,
    INK,
    LABEL,
    LINES,
    OUTLINE,
    RULE,
    SMALL,
    Sheet,
    checked_path,
    look,
    save_page,
    text_size,
)
from seqloom.inspection.terminal import bar, display_width, painted, shorten, shown
from seqloom.inspection.trace import plain
from seqloom.inspection.view import Picture, Progress, View, ViewOptions, part_of

RIGHT, WRONG = "#d6e4f1", "#f5c88b"
WIDE, HIGH, BAR = 4.6, 2.4, 20  # inches, inches, characters
LEAST = 5  # sentences that a place must have to be shown, where there are so many
FEWEST = 30  # sentences below which a point is hollow


@dataclass(frozen=True, eq=False)
class Forcing:
    """One pair: the reference with its end, what is likeliest at each of its places, and the model's own answer.

    Attributes:
        reference: Labels of the symbols.
        forced: What the model would say at each place, after the reference's beginning.
        probabilities: Of the reference's own symbols, after its beginning.
        free: The answer, its end included.
    """

    reference: Sequence[str]
    forced: Sequence[str]
    probabilities: np.ndarray
    free: Sequence[str]

    @property
    def parted(self) -> int | None:
        """The first place at which the free answer differs from the reference; None if they are the same."""
        longest = max(len(self.reference), len(self.free))
        return next((i for i in range(longest) if self.reference[i : i + 1] != self.free[i : i + 1]), None)


def agreement(found: Sequence[Forcing]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By the number of symbols said before: how often each way says the reference's symbol, and of how many sentences.

    Returns:
        (places,) shares of teacher forcing, (places,) of free running, (places,) sentences that are so long.
    """
    longest = max(len(one.reference) for one in found)
    forced, free, counts = np.zeros(longest), np.zeros(longest), np.zeros(longest, int)
    for one in found:
        for place, symbol in enumerate(one.reference):
            counts[place] += 1
            forced[place] += one.forced[place] == symbol
            free[place] += place < len(one.free) and one.free[place] == symbol
    shown = counts >= (LEAST if counts[0] >= LEAST else 1)
    return (forced / counts)[shown], (free / counts)[shown], counts[shown]


def draw_one(found: Forcing, path: str | Path | None = None, *, colour: bool = True, title: str = "") -> str:
    """Draw one pair, place by place: the reference, what teacher forcing and what free running say.

    Args:
        found: The pair.
        path: A .svg, .png, .pdf or .html file; None returns a table for the terminal.
        colour: Whether the terminal shows colours.
        title: A heading.

    Returns:
        The table, or the path of the file that was written.
    """
    if path is None:
        return _table(found, colour, title)
    target = checked_path(path)
    with look():
        return str(save_page(_page_of_one(found, title), target))


def draw_many(found: Sequence[Forcing], path: str | Path | None = None, *, sample: str = "", title: str = "") -> str:
    """Draw how often both ways say the reference's symbol, by the number of symbols said before.

    Args:
        found: The pairs.
        path: A .svg, .png, .pdf or .html file; None returns a table for the terminal.
        sample: What was measured, for the caption.
        title: A heading.

    Returns:
        The table, or the path of the file that was written.
    """
    if path is None:
        return _table_of_many(found, sample, title)
    target = checked_path(path)
    with look():
        return str(save_page(_page_of_many(found, sample, title), target))


# ---------------------------------------------------------------------------------------------------------------------
# One pair


def _rows(found: Forcing) -> list[tuple[str, list[str]]]:
    longest = max(len(found.reference), len(found.free))
    return [
        (name, [shown(label) for label in some] + [""] * (longest - len(some)))
        for name, some in (("reference", found.reference), ("forced", found.forced), ("free", found.free))
    ]


def _table(found: Forcing, colour: bool, title: str) -> str:
    rows = dict(_rows(found))
    wide = [max(map(display_width, [name, *cells])) for name, cells in rows.items()]
    lines = [*([title, ""] if title else [])]
    lines.append(
        "  ".join(name + " " * (size - len(name)) for name, size in zip(rows, wide, strict=True)) + "  probability"
    )
    for place in range(len(rows["reference"])):
        cells = []
        for (name, column), size in zip(rows.items(), wide, strict=True):
            cell = column[place]
            padded = cell + " " * (size - display_width(cell))
            wrong = name != "reference" and cell != rows["reference"][place]
            cells.append(painted(padded, LINES[1]) if wrong and colour else padded)
        share = f"{found.probabilities[place]:6.1%}" if place < len(found.probabilities) else ""
        mark = "  <- they part here" if place == found.parted else ""
        lines.append(f"{'  '.join(cells)}  {share}{mark}".rstrip())
    lines += ["", CAPTION]
    return "\n".join(lines)


CAPTION = (
    "Forced: what is likeliest after the reference's own beginning. Free: what the model says by itself. Probability: "
    "of the reference's symbol when forced."
)


def _page_of_one(found: Forcing, title: str) -> Any:
    rows = _rows(found)
    count = len(rows[0][1])
    left, line = 0.95, 0.34
    sizes = [max(0.5, max(text_size(cells[i])[0] for _, cells in rows) + 0.14) for i in range(count)]
    per_line, lines = 9.5, [[0]]
    for place in range(1, count):  # long sentences go on below
        if sum(sizes[i] for i in lines[-1]) + sizes[place] > per_line:
            lines.append([])
        lines[-1].append(place)
    width = left + max(sum(sizes[i] for i in some) for some in lines)
    deep = 4 * line + 0.25
    caption = f"{CAPTION} Orange differs from the reference; the line is where the free answer leaves it."
    sheet = Sheet(title, caption, width, deep * len(lines))
    for number, places in enumerate(lines):
        top, x = deep * number, left
        for row, (name, _) in enumerate(rows):
            sheet.text(left - 0.1, top + line * (row + 0.5), name, LABEL, FAINT, ha="right")
        sheet.text(left - 0.1, top + line * 3.4, "probability", SMALL, FAINT, ha="right")
        for place in places:
            for row, (name, cells) in enumerate(rows):
                if cells[place]:
                    same = cells[place] == rows[0][1][place]
                    shade = "#f2f4f7" if name == "reference" else RIGHT if same else WRONG
                    sheet.box(x + 0.02, top + line * row + 0.03, sizes[place] - 0.04, line - 0.06, shade)
                    sheet.text(x + sizes[place] / 2, top + line * (row + 0.5), cells[place], LABEL, INK, ha="center")
            if place < len(found.probabilities):
                share = f"{found.probabilities[place]:.0%}"
                sheet.text(x + sizes[place] / 2, top + line * 3.4, share, SMALL, FAINT, ha="center")
            if place == found.parted:
                sheet.line([x, x], [top, top + 3 * line], LINES[1], linewidth=1.8)
            x += sizes[place]
    return sheet.page


# ---------------------------------------------------------------------------------------------------------------------
# Many pairs

MANY = (
    "Of the symbols at that place, the share that is the reference's. Forced: after the reference's own beginning. "
    "Free: after what the model has said itself. What lies between is exposure bias, and answers that are right in "
    "other words: they count as wrong."
)


def _table_of_many(found: Sequence[Forcing], sample: str, title: str) -> str:
    forced, free, counts = agreement(found)
    lines = [*([title, ""] if title else []), "said before  sentences  forced    free"]
    for place, (one, two, count) in enumerate(zip(forced, free, counts, strict=True)):
        lines.append(f"{place:>11}  {count:>9,}  {one:6.1%}  {two:6.1%}  {bar(float(two), BAR)}".rstrip())
    return "\n".join([*lines, "", f"{MANY} {sample}".rstrip()])


def _page_of_many(found: Sequence[Forcing], sample: str, title: str) -> Any:
    forced, free, counts = agreement(found)
    hollow = f" Hollow points: fewer than {FEWEST} sentences." if counts.min() < FEWEST else ""
    sheet = Sheet(title, f"{MANY}{hollow} {sample}".rstrip(), 0.6 + WIDE + 1.3, HIGH + 0.55)
    axes = sheet.axes(0.6, 0.05, WIDE, HIGH)
    places = np.arange(len(counts))
    axes.fill_between(places, free, forced, color=RIGHT, linewidth=0, zorder=1)
    for number, (values, marker, dash) in enumerate(((forced, "o", "-"), (free, "s", (0, (5, 1.5))))):
        axes.plot(places, values, color=LINES[number], linewidth=1.5, linestyle=dash, zorder=2)
        for place, value, count in zip(places, values, counts, strict=True):
            face = LINES[number] if count >= FEWEST else "#ffffff"
            style = {"marker": marker, "markersize": 4.5, "markerfacecolor": face, "markeredgecolor": LINES[number]}
            axes.plot([place], [value], linestyle="", clip_on=False, zorder=3, **style)
    axes.set_ylim(0.0, 1.0)
    axes.set_xlim(-0.3, len(counts) - 0.7)
    axes.set_yticks([0.0, 0.25, 0.5, 0.75, 1.0], ["0 %", "25 %", "50 %", "75 %", "100 %"])
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(length=3, color=RULE, labelsize=SMALL, labelcolor=INK)
    axes.grid(axis="y", color=RULE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel("symbols said before", fontsize=LABEL, color=FAINT)
    axes.spines["left"].set_color(OUTLINE)
    low, high = sorted((float(forced[-1]), float(free[-1])))
    apart = max(0.08, high - low)
    middle = min(max((low + high) / 2, apart / 2), 1 - apart / 2)
    ends = {"forced": middle + apart / 2 if forced[-1] >= free[-1] else middle - apart / 2}
    ends["free"] = 2 * middle - ends["forced"]
    for number, (name, text) in enumerate((("forced", "teacher forcing"), ("free", "free running"))):
        sheet.text(0.6 + WIDE + 0.12, 0.05 + HIGH * (1 - ends[name]), text, LABEL, LINES[number])
    return sheet.page


# ---------------------------------------------------------------------------------------------------------------------
# The view


class ForcingView(View):
    name = "forcing"
    about = "teacher forcing beside free running: where a translator leaves the reference"
    inputs, least, most = "one text in quotes, with --target its reference (default: sentences of the data)", 0, 1
    example = '"the green witch arrived" --target "la bruja verde llegó"'
    recipe = "demo"

    class Options(ViewOptions):
        target: str | None = Field(None, description="the reference of the text")
        data: tuple[str, ...] = Field((), description="data as in 'evaluate' (default: the recipe's validation data)")
        test: str | None = Field(None, description="name of a test corpus of the recipe, or all of them together")
        sentences: int = Field(200, ge=1, description="how many sentences to measure, spread over the data")

    def missing(self, model: Any) -> str | None:
        able = hasattr(model.task, "forcing")
        return None if able else f"this is for models that answer with a text, not for {model.task.kind}"

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        if inputs and (options.data or options.test):
            raise UserError("forcing is shown of one text in quotes, or measured on data, not both")
        if bool(inputs) != (options.target is not None):
            raise UserError("a text needs its reference, --target, and a reference its text")
        return self._of_one(model, inputs[0], options) if inputs else self._of_many(model, options, progress)

    def _of_one(self, model: Any, text: str, options: Any) -> Picture:
        (found,) = model.task.forcing(model.network, [(text, options.target)])
        where = "never leaves the reference"
        if found.parted is not None:
            said = found.free[found.parted] if found.parted < len(found.free) else "nothing"
            instead = f"“{shown(found.reference[found.parted])}”" if found.parted < len(found.reference) else "ending"
            where = f"free running leaves the reference after {found.parted} symbols: “{shown(said)}” for {instead}"
        title = f"“{shorten(text, 60)}”: {where} ({model.name})"
        drawn = partial(draw_one, found, title=title)
        return Picture(
            title,
            text=lambda width, colour: drawn(colour=colour),
            draw=drawn,
            values={
                "reference": list(found.reference),
                "forced": list(found.forced),
                "free": list(found.free),
                "probabilities": plain(found.probabilities),
                "parted": found.parted,
            },
        )

    def _of_many(self, model: Any, options: Any, progress: Progress) -> Picture:
        corpora = model.corpora(options.data, options.test, default="valid")
        pairs = [pair for corpus in corpora.values() for pair in read_pairs(corpus)]
        num = min(options.sentences, len(pairs))
        if not num:
            raise UserError("there is no sentence to measure; the corpus is empty")
        chosen = [pairs[i * len(pairs) // num] for i in range(num)]
        asked = [(pair.source, pair.target) for pair in chosen]
        sample = f"{num} sentence{'s' if num > 1 else ''} of {' and '.join(corpora)}."
        found = model.task.forcing(model.network, asked, part_of(progress, 0, 1, sample))
        forced, free, counts = agreement(found)
        means = [float((shares * counts).sum() / counts.sum()) for shares in (forced, free)]
        title = f"{model.name}: {means[0]:.1%} of symbols right when forced, {means[1]:.1%} when free"
        drawn = partial(draw_many, found, sample=sample, title=title)
        return Picture(
            title,
            text=lambda width, colour: drawn(),
            draw=drawn,
            values={"sample": sample, "forced": plain(forced), "free": plain(free), "sentences": counts.tolist()},
        )
