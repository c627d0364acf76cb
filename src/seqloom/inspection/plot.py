"""What pictures of real-valued series share: panels above each other over one axis of steps; a line of blocks."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.inspection.curves import STEPS
from seqloom.inspection.page import (
    FAINT,
    INK,
    LABEL,
    MARGIN,
    RULE,
    SMALL,
    Heading,
    Notes,
    axes_at,
    checked_path,
    figure,
    look,
    save_page,
    text_size,
)
from seqloom.inspection.terminal import shorten, shown

WIDTH, LEFT, BOTTOM = 6.4, 0.62, 0.42  # inches
GAP = 0.16
Paint = Callable[[Any, int], None]


def panels(
    names: Sequence[str],
    paint: Paint,
    path: str | Path,
    *,
    title: str,
    caption: str,
    xlabel: str,
    height: float | None = None,
    words: Sequence[tuple[str, str]] = (),
    below: float = BOTTOM,
) -> Path:
    """One panel for each name, drawn by `paint(axes, number)`.

    `words` stand in colours above the first panel; `below` are the inches that the labels below the last one need.
    """
    target = checked_path(path)
    with look():
        tall = height if height is not None else (2.6 if len(names) == 1 else max(0.7, 4.2 / len(names)))
        content = LEFT + WIDTH
        heading, notes = Heading(title, content), Notes(caption, content)
        legend = 0.28 if words else 0.0
        inner = len(names) * tall + (len(names) - 1) * GAP
        width = max(content, heading.width, notes.width) + 2 * MARGIN
        page_height = heading.height + legend + 0.1 + inner + below + notes.height + 2 * MARGIN
        page = figure(width, page_height)
        heading.write(page)
        notes.write(page)
        top = page_height - MARGIN - heading.height
        x = MARGIN + LEFT
        for word, colour in words:
            page.text(x / width, (top - 0.06) / page_height, word, fontsize=LABEL, color=colour, va="top")
            x += text_size(word, LABEL)[0] + 0.22
        for number, name in enumerate(names):
            low = top - legend - 0.1 - (number + 1) * tall - number * GAP
            axes = axes_at(page, MARGIN + LEFT, low, WIDTH, tall, frame=True)
            paint(axes, number)
            axes.tick_params(length=3, color=RULE, labelsize=SMALL, labelcolor=INK)
            axes.locator_params(axis="y", nbins=4 if tall < 1.5 else 6)
            if number + 1 < len(names):
                axes.tick_params(labelbottom=False)
            else:
                axes.set_xlabel(xlabel, fontsize=LABEL, color=FAINT)
            if len(names) > 1 or name:
                axes.set_title(shorten(shown(name), 40), fontsize=SMALL, color=FAINT, loc="left", pad=2)
        return save_page(page, target)


def blocks(values: Any, columns: int, low: float | None = None, high: float | None = None) -> str:
    """A series as a line of blocks, the means of neighbouring steps where it is longer than the line."""
    numbers = np.asarray(values, dtype=float)
    if len(numbers) > columns:
        numbers = np.array([part.mean() for part in np.array_split(numbers, columns)])
    low = float(numbers.min()) if low is None else low
    high = float(numbers.max()) if high is None else high
    parts = (numbers - low) / (high - low) if high > low else np.zeros(len(numbers))
    return "".join(STEPS[level] for level in np.clip((parts * len(STEPS)).astype(int), 0, len(STEPS) - 1))


def columns_of(width: int | None, taken: int) -> int:
    """The characters of a line that are left for blocks."""
    return max(10, min(96, (shutil.get_terminal_size().columns if width is None else width) - taken))
