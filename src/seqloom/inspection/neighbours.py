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
    OUTLINE,
    PAD,
    RULE,
    SMALL,
    TINY,
    TITLE,
    Sheet,
    checked_path,
    look,
    save_page,
    text_size,
)
from seqloom.inspection.projection import known_form, no_vectors
from seqloom.inspection.terminal import SEQUENTIAL, bar, display_width, painted, shorten, shown
from seqloom.inspection.view import Picture, Progress, View, ViewOptions
from seqloom.vectors.table import WordVectors

MOST_WORDS, MOST_NEIGHBOURS, MOST_TITLED = 50, 200, 3
BAR = 24  # characters of a bar that stands for 1
LINE, DOTS_WIDTH, GAP = 0.19, 1.35, 0.34  # inches
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
    """A list of dots for each word, as many side by side as make the page about as wide as high."""
    left = max((text_size(shown(name))[0] for near in found.values() for name, _ in near), default=0.0) + PAD
    wide = max(left + DOTS_WIDTH + 0.4, max(text_size(shown(word), TITLE)[0] for word in found))
    deepest = max(len(near) for near in found.values())
    high = 0.5 + LINE * deepest
    across = min(len(found), max(1, round(math.sqrt(len(found) * high / wide * 1.4))), max(1, int(13 // (wide + GAP))))
    rows = math.ceil(len(found) / across)
    sheet = Sheet(title, CAPTION, across * wide + (across - 1) * GAP, rows * high + (rows - 1) * GAP)
    for index, (word, near) in enumerate(found.items()):
        x, y = (index % across) * (wide + GAP), (index // across) * (high + GAP)
        sheet.text(x + left, y + 0.1, shown(word), TITLE, fontweight="bold")
        paint_neighbours(sheet, near, x, y + 0.3, left)
    return sheet.page


def paint_neighbours(sheet: Sheet, near: Sequence[tuple[str, float]], x: float, y: float, left: float) -> None:
    """Words, and dots on an axis of cosines that begins at 0, or at −1 where one is less."""
    low = -1.0 if any(similarity < 0 for _, similarity in near) else 0.0
    bottom = y + LINE * len(near)
    for tick in (low, (low + 1) / 2, 1.0):
        place = x + left + DOTS_WIDTH * (tick - low) / (1 - low)
        sheet.line([place, place], [y, bottom + 0.03], RULE)
        sheet.text(place, bottom + 0.11, f"{tick:g}".replace("-", "−"), TINY, FAINT, ha="center")
    for line, (name, similarity) in enumerate(near):
        middle = y + LINE * (line + 0.5)
        place = x + left + DOTS_WIDTH * (min(1.0, max(low, similarity)) - low) / (1 - low)
        sheet.text(x + left - PAD, middle, shown(name), ha="right")
        sheet.line([x + left, place], [middle, middle], OUTLINE, linewidth=0.5)
        sheet.line([place], [middle], SEQUENTIAL[4], marker="o", markersize=4.5)
        sheet.text(x + left + DOTS_WIDTH + 0.07, middle, f"{similarity:.2f}".replace("-", "−"), SMALL, FAINT)


def _nearest(found: Neighbours) -> str:
    """The finding: which word is nearest to which."""
    firsts = [f"“{near[0][0]}” is nearest to “{word}”" for word, near in found.items() if near][:MOST_TITLED]
    return ", ".join(firsts) + (" …" if len(found) > MOST_TITLED else "")


# ---------------------------------------------------------------------------------------------------------------------
# The view


class NeighboursView(View):
    name = "neighbours"
    about = "the words nearest to some words, of word vectors"
    recipe = "demo-skipgram"
    inputs, least, most = "words", 1, MOST_WORDS
    example = "king paris"

    class Options(ViewOptions):
        count: int = Field(10, ge=1, le=MOST_NEIGHBOURS, description="how many of each word")

    def missing(self, model: Any) -> str | None:
        return no_vectors(model)

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        found = find_neighbours(model.network, inputs, options.count)
        title = f"{_nearest(found)} ({model.name})"
        drawn = partial(_drawn, found, title=title)
        return Picture(
            title,
            text=lambda width, colour: drawn(colour=colour),
            draw=drawn,
            values={"neighbours": {word: [[name, float(near)] for name, near in some] for word, some in found.items()}},
        )
