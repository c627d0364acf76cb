"""What CBOW and skip-gram learn from a sentence, window by window, and what came of it: the view `windows`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from seqloom.errors import UserError
from seqloom.inspection.neighbours import find_neighbours, paint_neighbours
from seqloom.inspection.page import (
    FAINT,
    INK,
    LABEL,
    LINES,
    SMALL,
    Sheet,
    checked_path,
    look,
    save_page,
    text_size,
)
from seqloom.inspection.projection import known_form, no_vectors
from seqloom.inspection.terminal import display_width, painted, shown
from seqloom.inspection.view import Picture, Progress, View, ViewOptions, compared

MOST_WORDS = 30
LINE, GAP = 0.26, 0.07  # inches
CENTRE, CONTEXT = LINES[0], "#f5c88b"
CAPTION = (
    "A line is a window: the word in the middle (blue), its context (orange). CBOW foresees the middle from the mean "
    "of its context: one example a window. Skip-gram foresees each word of the context from the middle: one example a "
    "pair."
)

Near = Mapping[str, Sequence[tuple[str, float]]]


@dataclass(frozen=True)
class Window:
    """A word in the middle, and the places of its context."""

    centre: int
    context: tuple[int, ...]


def windows(length: int, size: int) -> list[Window]:
    """Of each of `length` words: those at most `size` places before or after it."""
    return [
        Window(i, tuple(j for j in range(max(0, i - size), min(length, i + size + 1)) if j != i)) for i in range(length)
    ]


def pairs(words: Sequence[str], found: Sequence[Window]) -> list[tuple[str, str]]:
    """What skip-gram learns: (middle, one word of its context)."""
    return [(words[window.centre], words[place]) for window in found for place in window.context]


def draw_windows(
    words: Sequence[str],
    size: int,
    path: str | Path | None = None,
    *,
    learned: Mapping[str, Near] | None = None,
    colour: bool = True,
    title: str = "",
) -> str:
    """Draw the windows of a sentence and the examples they make.

    Args:
        words: The sentence.
        size: Words to each side.
        path: A .svg, .png, .pdf or .html file; None returns lines for the terminal.
        learned: Model name -> the neighbours of some words.
        colour: Whether the terminal shows colours.
        title: A heading for the picture.

    Returns:
        The lines, or the path of the file that was written.
    """
    if not 2 <= len(words) <= MOST_WORDS:
        raise UserError(f"windows are shown of 2 to {MOST_WORDS} words; got {len(words)}")
    if path is None:
        return _text(words, windows(len(words), size), learned or {}, colour, title)
    target = checked_path(path)
    with look():
        return str(save_page(_page(words, windows(len(words), size), learned or {}, title), target))


def _text(words: Sequence[str], found: Sequence[Window], learned: Mapping[str, Near], colour: bool, title: str) -> str:
    names = list(map(shown, words))
    lines = [title, ""] if title else []
    for window in found:
        cells = []
        for place, name in enumerate(names):
            if place == window.centre:
                cells.append(painted(f"[{name}]", CENTRE) if colour else f"[{name}]")
            elif place in window.context:
                cells.append(painted(name, LINES[1]) if colour else name)
            else:
                cells.append("·" * display_width(name))
        lines.append(" ".join(cells))
    lines += ["", "CBOW: the mean of the context -> the middle"]
    lines += [f"  {', '.join(names[i] for i in window.context)} -> {names[window.centre]}" for window in found]
    lines += ["", f"skip-gram: the middle -> each word of the context, {len(pairs(words, found))} pairs"]
    for window in found:
        lines.append("  " + "  ".join(f"{names[window.centre]} -> {names[i]}" for i in window.context))
    for word in dict.fromkeys(word for near in learned.values() for word in near):
        lines += ["", f"nearest to {shown(word)}:"]
        lines += [
            f"  {name}: {', '.join(f'{shown(other)} {cosine:.2f}' for other, cosine in near[word])}"
            for name, near in learned.items()
        ]
    return "\n".join(lines).replace("-0.", "−0.")


def _page(words: Sequence[str], found: Sequence[Window], learned: Mapping[str, Near], title: str) -> Any:
    names = list(map(shown, words))
    sizes = [text_size(name)[0] + 0.12 for name in names]
    starts = [sum(sizes[:i]) + GAP * i for i in range(len(sizes))]
    sentence = starts[-1] + sizes[-1] + 0.35
    examples = [", ".join(names[i] for i in window.context) for window in found]
    skips = [", ".join(names[i] for i in window.context) for window in found]
    cbow = max(text_size(f"{e} → {names[w.centre]}", SMALL)[0] for e, w in zip(examples, found, strict=True)) + 0.35
    skip = max(text_size(f"{names[w.centre]} → {e}", SMALL)[0] for e, w in zip(skips, found, strict=True))
    lists = [(model, word, some) for model, near in learned.items() for word, some in near.items()]
    deepest = max((len(some) for _, _, some in lists), default=0)
    below = 0.55 + 0.19 * deepest if lists else 0.0
    left = max((text_size(shown(name))[0] for _, _, some in lists for name, _ in some), default=0.0) + 0.06
    each = max([left + 1.75, *(text_size(f"nearest to {word}: {model}", LABEL)[0] + 0.2 for model, word, _ in lists)])
    height = 0.3 + LINE * len(found) + below
    sheet = Sheet(title, CAPTION, max(sentence + cbow + skip, each * len(lists)), height)
    heads = ((0.0, "windows"), (sentence, "CBOW: one example each"), (sentence + cbow, "skip-gram: a pair each"))
    for x, text in heads:
        sheet.text(x, 0.1, text, SMALL, FAINT)
    for line, window in enumerate(found):
        y = 0.26 + LINE * line
        for place, (name, x, size) in enumerate(zip(names, starts, sizes, strict=True)):
            here = place == window.centre
            if here or place in window.context:
                sheet.box(x, y, size, LINE - 0.05, CENTRE if here else CONTEXT)
            ink = "#ffffff" if here else INK if place in window.context else "#aab2bb"
            sheet.text(x + size / 2, y + LINE / 2 - 0.025, name, LABEL, ink, ha="center")
        middle = y + LINE / 2 - 0.025
        sheet.text(sentence, middle, f"{examples[line]} → {names[window.centre]}", SMALL)
        sheet.text(sentence + cbow, middle, f"{names[window.centre]} → {skips[line]}", SMALL)
    for number, (model, word, some) in enumerate(lists):
        x, y = number * each, 0.3 + LINE * len(found) + 0.22
        sheet.text(x, y, f"nearest to {shown(word)}: {shown(model)}", LABEL)
        paint_neighbours(sheet, some, x, y + 0.2, left)
    return sheet.page


# ---------------------------------------------------------------------------------------------------------------------
# The view


class WindowsView(View):
    name = "windows"
    about = "the windows of a sentence, the examples that CBOW and skip-gram learn from, and what came of them"
    inputs, least, most = "one sentence in quotes", 1, 1
    example = '"the green witch sings a song"'
    recipe = "demo-cbow"

    class Options(ViewOptions):
        window: int = Field(2, ge=1, le=10, description="words to each side")
        word: str | None = Field(None, description="whose neighbours are shown (default: the rarest of the sentence)")
        count: int = Field(8, ge=1, le=30, description="how many neighbours")
        compare: tuple[str, ...] = Field((), description="a further model whose neighbours are shown beside")

    def missing(self, model: Any) -> str | None:
        return no_vectors(model)

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        words = model.task.words(inputs[0])
        models = compared(model, options.compare, self)
        wanted = options.word or rarest(model.network, words)
        learned = {one.name: find_neighbours(one.network, [wanted], options.count) for one in models}
        found = windows(len(words), options.window)
        title = (
            f"“{' '.join(words)}”: {len(found)} examples for CBOW, {len(pairs(words, found))} for skip-gram "
            f"(window {options.window})"
        )
        drawn = partial(draw_windows, words, options.window, learned=learned, title=title)
        return Picture(
            title,
            text=lambda width, colour: drawn(colour=colour),
            draw=drawn,
            values={
                "words": list(words),
                "windows": [{"centre": window.centre, "context": list(window.context)} for window in found],
                "pairs": [list(pair) for pair in pairs(words, found)],
                "neighbours": {
                    name: {word: [[other, float(cosine)] for other, cosine in some] for word, some in near.items()}
                    for name, near in learned.items()
                },
            },
        )


def rarest(vectors: Any, words: Sequence[str]) -> str:
    """The word of a sentence that stands last in the table, which begins with the most frequent."""
    known = [vectors.spelled(word) for word in words if vectors.spelled(word) in vectors.index]
    if not known:
        raise UserError(f"no word of the sentence has a vector: {' '.join(words) or 'it is empty'}")
    return known_form(vectors, max(known, key=vectors.index.__getitem__))
