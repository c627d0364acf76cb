"""A recurrent network unrolled: what its state is at each step of a text, and the way it takes: the view `states`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from seqloom.errors import UserError
from seqloom.inspection.gates import LayerOptions, layer_of, no_layer
from seqloom.inspection.page import (
    FAINT,
    INK,
    LABEL,
    LINES,
    OUTLINE,
    SMALL,
    TINY,
    Sheet,
    checked_path,
    look,
    save_page,
    text_size,
)
from seqloom.inspection.projection import principal_components
from seqloom.inspection.scatter import place_every_label
from seqloom.inspection.terminal import DIVERGING, bar, display_width, shade_of, shorten, shown, to_terminal
from seqloom.inspection.trace import plain
from seqloom.inspection.view import Picture, Progress, View

MOST_STEPS = 40
CELL, MAP, BAR = 0.13, 3.4, 20  # inches, inches, characters


@dataclass(frozen=True, eq=False)
class States:
    """The state (steps, units) after each symbol that was read."""

    tokens: Sequence[str]
    values: np.ndarray

    @property
    def moved(self) -> np.ndarray:
        """(steps,): how far the state is from that of the step before; the first from zero."""
        return np.asarray(np.linalg.norm(np.diff(self.values, axis=0, prepend=0.0), axis=1))

    def liveliest(self, count: int) -> np.ndarray:
        """The units that vary most from step to step, in the model's order."""
        order = np.argsort(-self.values.var(axis=0), kind="stable")
        return np.sort(order[:count])


def draw_states(
    found: States,
    path: str | Path | None = None,
    *,
    units: int = 8,
    width: int | None = None,
    colour: bool = True,
    title: str = "",
) -> str:
    """Draw a state on its way through a text.

    Args:
        found: The states.
        path: A .svg, .png, .pdf or .html file; None returns a drawing for the terminal.
        units: How many units are shown, those that vary most.
        width: Characters in a line of the terminal.
        colour: Whether the terminal shows colours.
        title: A heading.

    Returns:
        The drawing, or the path of the file that was written.
    """
    if len(found.tokens) > MOST_STEPS:
        raise UserError(f"a network is unrolled over at most {MOST_STEPS} symbols; got {len(found.tokens)}")
    chosen = found.liveliest(units)
    if path is None:
        names = [f"unit {unit}" for unit in chosen]
        drawing = to_terminal(found.values[:, chosen].T, names, found.tokens, colour=colour, width=width)
        wide, most = max(map(display_width, map(shown, found.tokens))), max(float(found.moved.max()), 1e-9)
        moved = [
            f"{shown(token)}{' ' * (wide - display_width(shown(token)))} {far:6.2f}  {bar(far / most, BAR)}"
            for token, far in zip(found.tokens, found.moved.tolist(), strict=True)
        ]
        parts = [drawing, "\n".join(["how far each symbol moved the state", "", *moved])]
        return "\n\n".join([title, *parts] if title else parts)
    target = checked_path(path)
    with look():
        return str(save_page(_page(found, chosen, title), target))


def _page(found: States, chosen: np.ndarray, title: str) -> Any:
    """The chain of steps above, each a column of units; below, the way of the whole state in a plane."""
    names = list(map(shown, found.tokens))
    step = max(0.42, max(text_size(name)[0] for name in names) + 0.12)
    left, top, high = 0.42, 0.2, CELL * len(chosen)
    chain = left + step * len(names)
    points, shares = principal_components(found.values, 2)
    caption = (
        f"Above: the network unrolled, a column for each step; cells are the {len(chosen)} of {found.values.shape[1]} "
        "units that vary most, blue above 0, orange below. Numbers: how far the state moved, as a Euclidean distance. "
        f"Below: the whole state after each symbol, PCA, {_share(shares, len(points))}."
    )
    width = max(chain, 4.6)
    sheet = Sheet(title, caption, width, top + high + 0.75 + MAP)
    reach = max(float(np.abs(found.values[:, chosen]).max()), 1e-9)
    for line, unit in enumerate(chosen):
        sheet.text(left - 0.12, top + CELL * (line + 0.5), str(unit), TINY, FAINT, ha="right")
    for place, (name, values, far) in enumerate(zip(names, found.values[:, chosen], found.moved, strict=True)):
        x = left + step * place
        for line, value in enumerate(values):
            shade, _ = shade_of(DIVERGING, (1 + float(value) / reach) / 2)
            sheet.box(x, top + CELL * line, 0.22, CELL, shade)
        sheet.box(x, top, 0.22, high, "none", edgecolor=OUTLINE, linewidth=0.8)
        sheet.text(x + 0.11, top - 0.09, f"{far:.1f}", TINY, FAINT, ha="center")
        if place + 1 < len(names):
            sheet.arrow((x + 0.24, top + high / 2), (x + step - 0.02, top + high / 2))
        sheet.arrow((x + 0.11, top + high + 0.22), (x + 0.11, top + high + 0.02))
        sheet.text(x + 0.11, top + high + 0.32, name, LABEL, ha="center")
    _paint_way(sheet, points, names, top + high + 0.65, width)
    return sheet.page


def _share(shares: np.ndarray, count: int) -> str:
    return f"{shares.sum():.0%} of the variance" if count > 3 else "of too few points to speak of variance"


def _paint_way(sheet: Sheet, points: np.ndarray, names: Sequence[str], top: float, width: float) -> None:
    low, span = points.min(axis=0), np.maximum(np.ptp(points, axis=0), 1e-9)
    scale = float(np.min((np.array([width, MAP]) - 0.9) / span))
    placed = (points - low - span / 2) * scale * np.array([1, -1]) + np.array([width / 2, MAP / 2])  # downwards
    sheet.box(0.0, top, width, MAP, "none", edgecolor=OUTLINE, linewidth=0.6)
    for number, (one, two) in enumerate(itertools.pairwise(placed)):
        shade, _ = shade_of(DIVERGING[3:], 0.35 + 0.65 * number / max(1, len(placed) - 2))
        sheet.arrow((one[0], top + one[1]), (two[0], top + two[1]), shade, shrinkA=4, shrinkB=4, linewidth=1.2)
    labels = [f"{number} {name}" for number, name in enumerate(names, 1)]
    sizes = np.array([(text_size(label, SMALL)[0] + 0.03, 0.14) for label in labels])
    ways = [one + np.linspace(0.1, 0.9, 9)[:, None] * (two - one) for one, two in itertools.pairwise(placed)]
    avoid = np.concatenate(ways) if ways else np.empty((0, 2))
    for x, y in placed:
        sheet.line([x], [top + y], LINES[0], marker="o", markersize=4)
    for label in place_every_label(placed, sizes, width, MAP, avoid):
        x_left, y_low, x_right, y_high = label.box
        x, y = placed[label.point]
        if label.line:
            near = (min(max(x, x_left), x_right), min(max(y, y_low), y_high))
            sheet.line([x, near[0]], [top + y, top + near[1]], FAINT, linewidth=0.5)
        sheet.text((x_left + x_right) / 2, top + (y_low + y_high) / 2, labels[label.point], SMALL, INK, ha="center")


# ---------------------------------------------------------------------------------------------------------------------
# The view


class StatesView(View):
    name = "states"
    about = "a recurrent network unrolled: its state after each symbol, and the way it takes"
    inputs, least, most = "one text in quotes", 1, 1
    example = '"the green witch arrived"'
    recipe = "demo"

    class Options(LayerOptions):
        units: int = Field(8, ge=1, le=40, description="how many units, those that vary most")

    def missing(self, model: Any) -> str | None:
        return no_layer(model)

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        trace = model.trace(inputs[0], options.target)
        side, arrays = layer_of(trace, options.side, options.layer, options.direction)
        hidden = arrays["hidden"]
        found = States(hidden.rows, np.asarray(hidden.values, dtype=float))
        if options.direction == "backward":  # it reads the last symbol first
            found = States(found.tokens[::-1], found.values[::-1])
        farthest = found.tokens[int(found.moved[1:].argmax()) + 1] if len(found.tokens) > 1 else found.tokens[0]
        title = f"“{shorten(inputs[0], 60)}” in the {side} of {model.name}: “{shown(farthest)}” moves the state most"
        drawn = partial(draw_states, found, units=options.units, title=title)
        return Picture(
            title,
            text=lambda width, colour: drawn(width=width, colour=colour),
            draw=drawn,
            values={"tokens": list(found.tokens), "states": plain(found.values), "moved": plain(found.moved)},
        )
