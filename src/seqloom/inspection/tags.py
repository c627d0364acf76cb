"""What a tagger answers and what it has learned of neighbours: the views `tags` and `transitions`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from seqloom.errors import UserError
from seqloom.inspection import draw
from seqloom.inspection.page import (
    INK,
    LABEL,
    LINES,
    MARGIN,
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
from seqloom.inspection.terminal import display_width, painted, shown, to_terminal, visible
from seqloom.inspection.trace import plain
from seqloom.inspection.view import Picture, Progress, View, ViewOptions

BEGIN, END = "begin", "end"
NOTHING = ("O", "")
"""Tags and labels of words that belong to no span."""
LINE, BOX, GAP, WIDTH = 0.62, 0.25, 0.06, 6.6  # inches: a line of text, a word's box, the room between, all of it


@dataclass(frozen=True, eq=False)
class TaggedText:
    """Words with a tag and its probability each, cut into `groups`: (label, start, end), every word in one of them."""

    words: Sequence[str]
    tags: Sequence[str]
    probabilities: Sequence[float]
    groups: Sequence[tuple[str, int, int]]

    @property
    def colours(self) -> dict[str, str]:
        """Of each label, in the order in which they come."""
        labels = dict.fromkeys(label for label, _, _ in self.groups if label not in NOTHING)
        return {label: LINES[place % len(LINES)] for place, label in enumerate(labels)}


def grouped(answer: Any, *, spans: bool) -> TaggedText:
    """An answer as groups of words: its spans and the words between; or every word by itself with its tag."""
    groups: list[tuple[str, int, int]] = []
    if spans:
        begins = {span.start: span for span in answer.spans}
        place = 0
        while place < len(answer.tokens):
            span = begins.get(place)
            groups.append(("", place, place + 1) if span is None else (span.label, span.start, span.end))
            place = groups[-1][2]
    else:
        groups = [(tag, place, place + 1) for place, tag in enumerate(answer.tags)]
    return TaggedText(answer.tokens, answer.tags, answer.chosen, groups)


def draw_tags(
    found: TaggedText,
    path: str | Path | None = None,
    *,
    width: int | None = None,
    colour: bool = True,
    title: str = "",
) -> str:
    """Show a text with a box around each span, its label, and how probable the tag of each word is.

    Args:
        found: The words and their tags.
        path: A .svg, .png, .pdf or .html file; None returns text for the terminal.
        width: Characters in a line of the terminal.
        colour: Whether the terminal shows colours.
        title: A heading for the picture.

    Returns:
        The text, or the path of the file that was written.
    """
    if path is None:
        return _text(found, width, colour)
    target = checked_path(path)
    with look():
        return str(save_page(_page(found, title), target))


def _percent(share: float) -> str:
    return f"{100 * share:.0f}%"


# ---------------------------------------------------------------------------------------------------------------------
# Terminal


def _text(found: TaggedText, width: int | None, colour: bool) -> str:
    """The text with its spans in brackets, and below it a line for each span (or word) that has a label."""
    parts, rows = [], []
    for label, start, end in found.groups:
        words = " ".join(visible(word) for word in found.words[start:end])
        if label in NOTHING:
            parts.append(words)
            continue
        hue = found.colours[label]
        marked = f"[{words}]{label}"
        parts.append(painted(marked, hue) if colour else marked)
        rows.append((words, label, [_percent(share) for share in found.probabilities[start:end]], hue))
    lines, length = [""], 0
    room = 80 if width is None else max(20, width)
    for part, (label, start, end) in zip(parts, found.groups, strict=True):
        plain_words = " ".join(visible(word) for word in found.words[start:end])
        size = display_width(plain_words) + (0 if label in NOTHING else 2 + len(label))
        if length and length + 1 + size > room:
            lines.append("")
            length = 0
        lines[-1] += (" " if length else "") + part
        length += size + bool(length)
    if not rows:
        return "\n".join([*lines, "", "no word has a tag other than O"])
    widest, label_size = max(display_width(words) for words, *_ in rows), max(len(label) for _, label, *_ in rows)
    table = []
    for words, label, shares, hue in rows:
        name = label.ljust(label_size)
        named = painted(name, hue) if colour else name
        table.append(f"{words}{' ' * (widest - display_width(words))}  {named}  {' '.join(shares)}")
    return "\n".join([*lines, "", *table])


# ---------------------------------------------------------------------------------------------------------------------
# Pictures


def _page(found: TaggedText, title: str) -> Any:
    """Words in lines; behind a group a box in its label's colour, the label below, and each word's probability."""
    from matplotlib.patches import FancyBboxPatch

    names = [shown(word) for word in found.words]
    widths = [text_size(name)[0] + 0.07 for name in names]
    places = list[tuple[float, int]]()  # of each word
    boxes = list[tuple[str, float, float, int, bool]]()  # label, left, right, line, whether it carries the label
    x, line = 0.0, 0
    for label, start, end in found.groups:
        least = 0.0 if label in NOTHING else text_size(label, TINY)[0] + 0.1
        widths[end - 1] += max(0.0, least - sum(widths[start:end]))
        left = None
        for place in range(start, end):
            if x and x + widths[place] > WIDTH:
                if left is not None:
                    boxes.append((label, left, x, line, False))
                x, line, left = 0.0, line + 1, None
            left = x if left is None else left
            places.append((x, line))
            x += widths[place]
        assert left is not None
        boxes.append((label, left, x, line, True))
        x += GAP
    wide = max(right for _, _, right, _, _ in boxes)
    caption = (
        "Each box is a span of the answer, or a word, with its label below. The line under each word is the "
        "probability of its tag: full width is certain."
    )
    heading, notes = Heading(title, wide), Notes(caption, wide)
    width = max(wide, heading.width, notes.width) + 2 * MARGIN
    height = heading.height + line * LINE + BOX + 0.3 + notes.height + 0.06 + 2 * MARGIN
    page = figure(width, height)
    heading.write(page)
    notes.write(page)
    canvas = axes_at(page, 0.0, 0.0, width, height)
    canvas.set_axis_off()
    canvas.set_xlim(0, width)
    canvas.set_ylim(0, height)

    def top(number: int) -> float:
        return height - MARGIN - heading.height - number * LINE

    for label, left, right, number, named in boxes:
        if label in NOTHING:
            continue
        hue = found.colours[label]
        canvas.add_patch(
            FancyBboxPatch(
                (MARGIN + left + 0.02, top(number) - BOX),
                right - left - 0.04,
                BOX,
                boxstyle="round,pad=0,rounding_size=0.04",
                facecolor=hue + "22",
                edgecolor=hue,
                linewidth=0.8,
            )
        )
        if named:
            middle = MARGIN + (left + right) / 2
            canvas.text(middle, top(number) - BOX - 0.11, label, fontsize=TINY, color=INK, ha="center", va="center")
    for (left, number), size, name, share in zip(places, widths, names, found.probabilities, strict=True):
        middle, low = MARGIN + left + size / 2, top(number) - BOX
        canvas.text(middle, low + BOX / 2 + 0.02, name, fontsize=LABEL, color=INK, ha="center", va="center_baseline")
        room = size - 0.08
        canvas.plot([middle - room / 2, middle - room / 2 + room * share], [low + 0.035] * 2, color=INK, linewidth=0.8)
    return page


# ---------------------------------------------------------------------------------------------------------------------
# The views


class TagsView(View):
    name = "tags"
    about = "a text with its tags or spans, and how probable they are"
    recipe = "conll2000"
    inputs, least, most = "one text in quotes", 1, 1
    example = '"She lives in New York ."'

    def missing(self, model: Any) -> str | None:
        able = hasattr(model.network, "chain")
        return None if able else f"this is for taggers, not for {model.task.kind}"

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        answer = model(inputs[0])
        if not answer.tokens:
            raise UserError("there is nothing to look at: give a text")
        found = grouped(answer, spans=model.task.target.has_spans)
        title = f"tags of {model.name}" + ("" if answer.label is None else f": {answer.label}")
        if answer.label is not None:
            title += f" {_percent(answer.labels[answer.label])}"
        drawn = partial(draw_tags, found, title=title)
        return Picture(
            title,
            text=lambda width, colour: (
                ("" if answer.label is None else f"{visible(title)}\n\n") + drawn(width=width, colour=colour)
            ),
            draw=drawn,
            values=answer.to_dict(),
        )


class TransitionsView(View):
    name = "transitions"
    about = "what a tag adds to the score of the tag after it, of taggers with a linear chain"
    recipe = "conll2000"

    class Options(ViewOptions):
        most: int = Field(40, ge=2, description="tags that are shown: those that move others most")

    def missing(self, model: Any) -> str | None:
        if not hasattr(model.network, "chain"):
            return f"this is for taggers with a linear chain, not for {model.task.kind}"
        return "this tagger judges each word for itself (output: softmax)" if model.network.chain is None else None

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        chain, names = model.network.chain, model.task.target.names
        inner, start, end = (part.detach().double().numpy() for part in chain)
        strength = np.abs(inner).max(0) + np.abs(inner).max(1)
        kept = sorted(np.argsort(-strength, kind="stable")[: options.most], key=lambda place: _by_label(names[place]))
        rows, columns = [BEGIN, *(names[place] for place in kept)], [*(names[place] for place in kept), END]
        matrix = np.full((len(rows), len(columns)), np.nan)
        matrix[0, :-1], matrix[1:, -1] = start[kept], end[kept]
        matrix[1:, :-1] = inner[np.ix_(kept, kept)]
        title = f"transitions of {model.name}: from the tag of a row to that of a column"
        caption = "What two neighbouring tags add to the score of a text: blue is welcome, orange unwelcome."
        panel = draw.Panel(matrix, rows, columns)
        return Picture(
            title,
            text=lambda width, colour: to_terminal(matrix, rows, columns, width=width, colour=colour),
            draw=lambda path: draw.panels([panel], path, title, caption=caption),
            values={"rows": rows, "columns": columns, "values": plain(matrix)},
            notes=[f"{len(kept)} of {len(names)} tags; --most shows others"] if len(kept) < len(names) else [],
        )


def _by_label(tag: str) -> tuple[str, str]:
    """Tags of one label beside each other, O first."""
    mark, _, label = tag.partition("-")
    return label, mark
