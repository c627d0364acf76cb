"""How models got better while they were trained: one line each, in one picture or on the terminal."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.errors import UserError
from seqloom.inspection.page import (
    FAINT,
    INK,
    LABEL,
    LINES,
    MARGIN,
    MARKERS,
    RULE,
    Heading,
    Notes,
    axes_at,
    checked_path,
    figure,
    look,
    save_page,
    text_size,
)
from seqloom.inspection.terminal import display_width, shown

STEPS = "▁▂▃▄▅▆▇█"
COLUMNS = 48
GAP = 0.42  # inches from the edge of a picture's lines to the names
RIGHT = 1.02  # of the longest training: where the axis ends
MOST_MARKED = 30  # points of a line that can be told apart


@dataclass(frozen=True)
class Curve:
    """One model: (minutes of training, figure) in the order of time, and the figure it ended with.

    Without points it is a level line at `final`.
    """

    name: str
    points: Sequence[tuple[float, float]]
    final: float | None = None

    @property
    def figures(self) -> list[float]:
        return [y for _, y in self.points] if self.points else [] if self.final is None else [self.final]


def draw_curves(
    curves: Sequence[Curve],
    path: str | Path | None = None,
    *,
    measured: str,
    title: str = "",
    caption: str = "",
    logarithmic: bool = False,
    decimals: int = 2,
    columns: int = COLUMNS,
) -> str:
    """Draw figures against minutes of training.

    Args:
        curves: One a model; those with neither points nor a final figure are left out.
        path: A .svg, .png, .pdf or .html file; None returns lines of text.
        measured: What the figures are, such as "perplexity".
        title: A heading for the picture.
        caption: What else is to be known, below the picture.
        logarithmic: Equal ratios get equal distances; for perplexities.
        decimals: Of the final figures.
        columns: Width of the lines of text, names and figures apart.

    Returns:
        The text, or the path of the file that was written.

    Raises:
        UserError: There is nothing to draw, or the file cannot be written.
    """
    drawn = [curve for curve in curves if curve.figures]
    if not drawn:
        raise UserError("there is no validation to draw a learning curve from; train a run until its first one")
    logarithmic = logarithmic and min(min(curve.figures) for curve in drawn) > 0

    def final(curve: Curve) -> str:
        return f"{curve.figures[-1] if curve.final is None else curve.final:.{decimals}f}"

    if path is None:
        return _text(drawn, measured, logarithmic, columns, final)
    return str(_picture(drawn, checked_path(path), measured, title, caption, logarithmic, final))


# ---------------------------------------------------------------------------------------------------------------------
# Pictures


def _picture(
    curves: Sequence[Curve],
    target: Path,
    measured: str,
    title: str,
    caption: str,
    logarithmic: bool,
    final: Callable[[Curve], str],
) -> Path:
    with look():
        labels = [f"{shown(curve.name)}  {final(curve)}" for curve in curves]
        apart = 0.19
        inner_width, inner_height = 5.4, max(3.1, apart * len(curves) + 0.3)
        left, bottom, right = 0.68, 0.42, GAP + 0.19 + max(text_size(label)[0] for label in labels)
        content = left + inner_width + right
        heading, notes = Heading(title, content), Notes(caption, content)
        foot = notes.height + (0.08 if caption else 0.0)
        width = max(content, heading.width, notes.width) + 2 * MARGIN
        height = heading.height + 0.08 + inner_height + bottom + foot + 2 * MARGIN
        page = figure(width, height)
        heading.write(page)
        notes.write(page)
        axes = axes_at(page, MARGIN + left, MARGIN + foot + bottom, inner_width, inner_height, frame=True)
        longest = max((x for curve in curves for x, _ in curve.points), default=0.0)
        if logarithmic:
            axes.set_yscale("log")
        for index, curve in enumerate(curves):
            _draw_line(axes, index, curve, longest or 1.0)
        axes.set_xlim(0.0, (longest or 1.0) * RIGHT)
        _scale(axes, [y for curve in curves for y in curve.figures], logarithmic)
        axes.grid(axis="y", color=RULE, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(which="both", length=3, color=RULE, labelsize=LABEL, labelcolor=INK)
        if not longest:
            axes.set_xticks([])
        axes.set_xlabel("minutes of training", fontsize=LABEL, color=FAINT)
        axes.set_ylabel(measured + (" (logarithmic)" if logarithmic else ""), fontsize=LABEL, color=FAINT)
        _write_names(axes, curves, labels, longest or 1.0, (inner_width, inner_height), apart)
        return save_page(page, target)


def _style(index: int) -> dict[str, Any]:
    """Colour and marker of a line; those of a second round are hollow and broken."""
    round_, place = divmod(index, len(LINES))
    marker = MARKERS[(place + 3 * round_) % len(MARKERS)]
    face = LINES[place] if not round_ else "white"
    return {"color": LINES[place], "marker": marker, "markerfacecolor": face, "markersize": 4.0}


def _draw_line(axes: Any, index: int, curve: Curve, longest: float) -> None:
    style = _style(index)
    if not curve.points:
        level = [0.0, longest * RIGHT], curve.figures * 2
        axes.plot(*level, color=style["color"], linewidth=1.4, linestyle=(0, (6, 3)), zorder=2)
        return
    xs, ys = zip(*curve.points, strict=True)
    if len(xs) > MOST_MARKED:
        style["marker"] = None
    broken = (0, (3, 1.2)) if index >= len(LINES) else "-"
    axes.plot(xs, ys, linewidth=1.5, linestyle=broken, clip_on=False, zorder=3, **style)


def _scale(axes: Any, figures: Sequence[float], logarithmic: bool) -> None:
    """The range of the figures with a little room, and numbers a reader can use along it."""
    low, high = min(figures), max(figures)
    if not logarithmic:
        room = 0.06 * (high - low) or abs(high) * 0.1 or 1.0
        axes.set_ylim(low - room, high + room)
        return
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    room = max(high / low, 1.1) ** 0.06
    axes.set_ylim(low / room, high * room)
    axes.yaxis.set_major_locator(FixedLocator(round_numbers(low / room, high * room)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))


def round_numbers(low: float, high: float, most: int = 8) -> list[float]:
    """Numbers with few digits between two, at about equal ratios: for a logarithmic axis."""
    first, last = math.floor(math.log10(low)), math.floor(math.log10(high))
    for leading in ([1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9], [1, 1.5, 2, 3, 4, 5, 7], [1, 2, 5], [1]):
        powers = range(first, last + 1)
        found = [float(f"{digit}e{power}") for power in powers for digit in leading]
        found = [number for number in found if low <= number <= high]
        if len(found) <= most:
            break
    if len(found) > most:  # too many powers of ten
        return found[:: math.ceil(len(found) / most)]
    if len(found) >= 2:
        return found
    return [float(number) for number in np.linspace(low, high, 5)]  # so near each other that no scale is round


def _write_names(
    axes: Any,
    curves: Sequence[Curve],
    labels: Sequence[str],
    longest: float,
    size: tuple[float, float],
    apart: float,
) -> None:
    """Write each name at the right, as near to the height its line ended at as its neighbours let it."""
    width, height = size
    to_shares = axes.transData + axes.transAxes.inverted()
    ends = [
        to_shares.transform(curve.points[-1] if curve.points else (longest * RIGHT, curve.figures[-1]))
        for curve in curves
    ]
    order = sorted(range(len(curves)), key=lambda i: (ends[i][1], curves[i].final or 0.0))
    places = keep_apart([ends[i][1] * height for i in order], apart, 0.0, height)
    for index, place in zip(order, places, strict=True):
        (x, y), style = ends[index], _style(index)
        # Level with the end up to the edge, so that it crosses no other line aslant; only beyond it to the name.
        steps = [x, 1 + 0.04 / width, 1 + (GAP - 0.06) / width], [y, y, place / height]
        shared = {"transform": axes.transAxes, "clip_on": False}
        axes.plot(*steps, color=style["color"], linewidth=0.6, alpha=0.7, linestyle=(0, (1, 2)), zorder=1, **shared)
        if curves[index].points:
            axes.plot([1 + GAP / width], [place / height], linestyle="", **style, **shared)
        else:
            dash = [1 + (GAP - 0.05) / width, 1 + (GAP + 0.05) / width]
            axes.plot(dash, [place / height] * 2, color=style["color"], linewidth=1.4, **shared)
        axes.text(
            1 + (GAP + 0.09) / width,
            place / height,
            labels[index],
            fontsize=LABEL,
            color=style["color"],
            va="center",
            transform=axes.transAxes,
        )


def keep_apart(places: Sequence[float], apart: float, low: float, high: float) -> list[float]:
    """Rising places moved as little as it takes (by the sum of squares) until neighbours are `apart`.

    They stay between low and high, or begin at low where there is no room for them.
    """
    # Less what they must be apart, they only have to rise: neighbours that fall share their mean.
    blocks: list[tuple[float, int]] = []
    for index, place in enumerate(places):
        mean, count = place - index * apart, 1
        while blocks and blocks[-1][0] > mean:
            before, others = blocks.pop()
            mean, count = (mean * count + before * others) / (count + others), count + others
        blocks.append((mean, count))
    last = max(low, high - apart * (len(places) - 1))
    level = [min(max(mean, low), last) for mean, count in blocks for _ in range(count)]
    return [place + index * apart for index, place in enumerate(level)]


# ---------------------------------------------------------------------------------------------------------------------
# The terminal


def _text(
    curves: Sequence[Curve], measured: str, logarithmic: bool, columns: int, final: Callable[[Curve], str]
) -> str:
    """A line of blocks each, over the same time and the same range."""
    assert columns >= 2
    figures = [y for curve in curves for y in curve.figures]
    low, high = min(figures), max(figures)
    longest = max((x for curve in curves for x, _ in curve.points), default=0.0)
    names = [shown(curve.name) for curve in curves]
    wide = max(map(display_width, names))
    scale = ", logarithmic" if logarithmic else ""
    span = f"{STEPS[0]} {_short(low)} to {STEPS[-1]} {_short(high)}{scale}"
    head = f"{measured} over {longest:,.3g} minutes of training ({span})" if longest else f"{measured} ({span})"
    figure_width = max(len(final(curve)) for curve in curves)
    lines = [head]
    for name, curve in zip(names, curves, strict=True):
        blocks = _blocks(curve, low, high, longest, logarithmic, columns)
        lines.append(f"{name}{' ' * (wide - display_width(name))}  {blocks:<{columns}}  {final(curve):>{figure_width}}")
    return "\n".join(lines)


def _blocks(curve: Curve, low: float, high: float, longest: float, logarithmic: bool, columns: int) -> str:
    points = list(curve.points) or [(0.0, curve.figures[0]), (longest, curve.figures[0])]
    times = np.array([x for x, _ in points])
    figures = np.array([y for _, y in points])
    if logarithmic:
        figures, low, high = np.log(figures), math.log(low), math.log(high)
    width = longest / (columns - 1) or 1.0  # minutes from one column to the next
    first, last = (min(columns - 1, int(time / width + 1e-6)) for time in (times[0], times[-1]))
    if not curve.points:
        last = columns - 1
    found = np.interp(np.arange(first, last + 1) * width, times, figures)
    found[-1] = figures[-1]
    parts = (found - low) / (high - low) if high > low else np.zeros(len(found))
    levels = np.clip((parts * len(STEPS)).astype(int), 0, len(STEPS) - 1)
    return " " * first + "".join(STEPS[level] for level in levels)


def _short(value: float) -> str:
    return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"
