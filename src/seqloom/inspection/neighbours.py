"""The words nearest to a word: the view `neighbours`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from seqloom.errors import UserError
from seqloom.inspection.page import (
    FAINT,
    INK,
    LABEL,
    MARGIN,
    PAD,
    SMALL,
    TITLE,
    Heading,
    Notes,
    axes_at,
    checked_path,
    figure,
    look,
    save_page,
    text_size,
)
from seqloom.inspection.projection import known_form, no_vectors
from seqloom.inspection.terminal import SEQUENTIAL, bar, display_width, painted, shorten, shown
from seqloom.inspection.view import Picture, Progress, View
from seqloom.settings import Settings
from seqloom.vectors.table import WordVectors

MOST_WORDS, MOST_NEIGHBOURS = 50, 200
BAR = 24  # characters of a bar that stands for 1
LINE, BAR_WIDTH, GAP = 0.19, 1.35, 0.34  # inches
CAPTION = "Cosine of the angle between two words' vectors: 1 is the same direction, 0 none in common."

Neighbours = Mapping[str, Sequence[tuple[str, float]]]


def draw_neighbours(
    vectors: WordVectors,
    words: Sequence[str],
    save: str | Path | None = None,
    *,
    count: int = 10,
    colour: bool = True,
    title: str = "",
) -> str:
    """Draw the words nearest to some words, and how near they are.

    Args:
        vectors: The table of word vectors.
        words: Whose neighbours.
        save: A .svg, .png, .pdf or .html file; None returns a drawing for the terminal.
        count: How many neighbours of each.
        colour: Whether the terminal shows colours.
        title: A heading for the picture.

    Returns:
        The drawing for the terminal, or the path of the file that was written.

    Raises:
        UserError: A word has no vector, there are too many, or the file cannot be written.
    """
    target = None if save is None else checked_path(save)
    return _drawn(find_neighbours(vectors, words, count), target, colour=colour, title=title)


def find_neighbours(vectors: WordVectors, words: Sequence[str], count: int) -> Neighbours:
    """Each word as the table has it, and its neighbours with their cosines."""
    if not words:
        raise UserError("name at least one word whose neighbours to show")
    if len(words) > MOST_WORDS or not 1 <= count <= MOST_NEIGHBOURS:
        raise UserError(
            f"at most {MOST_WORDS} words and 1 to {MOST_NEIGHBOURS} neighbours can be shown; "
            f"got {len(words)} words and {count} neighbours"
        )
    asked = dict.fromkeys(known_form(vectors, word) for word in words)
    return {word: vectors.neighbours(word, count) for word in asked}


def _drawn(found: Neighbours, target: Path | None = None, *, colour: bool = True, title: str = "") -> str:
    if target is None:
        return "\n\n".join(_table(word, near, colour) for word, near in found.items())
    with look():
        return str(save_page(_page(found, title), target))


def _table(word: str, near: Sequence[tuple[str, float]], colour: bool) -> str:
    names = [shorten(shown(name), 24) for name, _ in near]
    widest = max((display_width(name) for name in names), default=0)
    lines = [shown(word)]
    for name, (_, similarity) in zip(names, near, strict=True):
        drawn = bar(similarity, BAR)
        number = f"{similarity:6.3f}".replace("-", "−")
        drawn = painted(drawn, SEQUENTIAL[3]) if colour else drawn
        lines.append(f"  {name}{' ' * (widest - display_width(name))} {number}  {drawn}".rstrip())
    return "\n".join(lines)


def _page(found: Neighbours, title: str) -> Any:
    """One panel of bars for each word, as many side by side as make the page about as wide as high."""
    left = max((text_size(shown(name))[0] for near in found.values() for name, _ in near), default=0.0) + PAD
    wide = max(left + BAR_WIDTH + 0.36, max(text_size(shown(word), TITLE)[0] for word in found))
    deepest = max(len(near) for near in found.values())
    high = 0.3 + LINE * deepest
    across = min(len(found), max(1, round(math.sqrt(len(found) * high / wide * 1.4))), max(1, int(13 // (wide + GAP))))
    rows = math.ceil(len(found) / across)
    content = across * wide + (across - 1) * GAP
    heading, notes = Heading(title, content), Notes(CAPTION, content)
    width = max(content, heading.width, notes.width) + 2 * MARGIN
    height = heading.height + rows * high + (rows - 1) * GAP + notes.height + 0.12 + 2 * MARGIN
    page = figure(width, height)
    heading.write(page)
    notes.write(page)
    canvas = axes_at(page, 0.0, 0.0, width, height)
    canvas.set_axis_off()
    canvas.set_xlim(0, width)
    canvas.set_ylim(0, height)
    for index, (word, near) in enumerate(found.items()):
        x = MARGIN + (index % across) * (wide + GAP)
        y = height - MARGIN - heading.height - (index // across) * (high + GAP)
        _paint(canvas, word, near, x, y, left)
    return page


def _paint(canvas: Any, word: str, near: Sequence[tuple[str, float]], x: float, y: float, left: float) -> None:
    from matplotlib.patches import Rectangle

    canvas.text(x + left, y, shown(word), fontsize=TITLE, color=INK, fontweight="bold", va="top")
    for line, (name, similarity) in enumerate(near):
        middle = y - 0.3 - LINE * (line + 0.5)
        canvas.text(x + left - PAD, middle, shown(name), fontsize=LABEL, color=INK, ha="right", va="center_baseline")
        length = BAR_WIDTH * min(1.0, max(0.0, similarity))
        for size, shade in ((BAR_WIDTH, SEQUENTIAL[0]), (length, SEQUENTIAL[3])):
            canvas.add_patch(Rectangle((x + left, middle - 0.36 * LINE), size, 0.72 * LINE, color=shade, linewidth=0))
        number = f"{similarity:.2f}".replace("-", "−")
        canvas.text(x + left + BAR_WIDTH + 0.05, middle, number, fontsize=SMALL, color=FAINT, va="center_baseline")


# ---------------------------------------------------------------------------------------------------------------------
# The view


class NeighboursView(View):
    name = "neighbours"
    about = "the words nearest to some words, of word vectors"
    inputs, least, most = "words", 1, MOST_WORDS
    example = "king paris"

    class Options(Settings):
        count: int = Field(10, ge=1, le=MOST_NEIGHBOURS, description="how many of each word")

    def missing(self, model: Any) -> str | None:
        return no_vectors(model)

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        found = find_neighbours(model.network, inputs, options.count)
        drawn = partial(_drawn, found, title=model.name)
        return Picture(
            f"neighbours of {', '.join(found)}",
            text=lambda width, colour: drawn(colour=colour),
            draw=drawn,
            values={"neighbours": {word: [[name, float(near)] for name, near in some] for word, some in found.items()}},
        )
