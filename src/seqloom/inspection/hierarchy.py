"""Which sentences and which words a hierarchical attention network looked at: the view `hierarchy`.

As in the figures of Yang et al. 2016: beside each sentence its weight in the document, behind each word its weight in
the sentence times the root of the sentence's, so that words of sentences that hardly count stay pale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

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
from seqloom.inspection.terminal import DIVERGING, bar, display_width, painted, shade_of, shown, visible
from seqloom.inspection.trace import plain
from seqloom.inspection.view import Picture, Progress, View

SENTENCES, WORDS = DIVERGING[3::-1], DIVERGING[3:]
"""From pale to dark: orange for sentences, blue for words."""
WIDTH, LINE, BOX, SIDE = 6.6, 0.3, 0.23, 0.55  # inches
BAR = 8  # characters
TERMINAL = 100


@dataclass(frozen=True, eq=False)
class Hierarchy:
    """A document: the words of each sentence, their weights, which sum to 1 there, and the sentences' weights, too."""

    label: str
    probability: float
    sentences: Sequence[Sequence[str]]
    words: Sequence[np.ndarray]
    weights: np.ndarray

    def strengths(self) -> list[np.ndarray]:
        """How dark each word is, from 0 to 1."""
        found = [weights * share**0.5 for weights, share in zip(self.words, self.weights, strict=True)]
        high = max(float(one.max(initial=0.0)) for one in found)
        return [one / max(high, 1e-9) for one in found]


def draw_hierarchy(
    found: Hierarchy, path: str | Path | None = None, *, width: int | None = None, colour: bool = True
) -> str:
    """Colour sentences and words by attention, in a file or (None) on the terminal."""
    if path is None:
        return _text(found, width or TERMINAL, colour)
    target = checked_path(path)
    with look():
        return str(save_page(_page(found), target))


def _heading(found: Hierarchy) -> str:
    return f"{found.label}: {found.probability:.1%}"


def _text(found: Hierarchy, width: int, colour: bool) -> str:
    """A line or more for each sentence; without colours the strongest words stand between [brackets]."""
    left = 7 + BAR + 2
    room, lines = max(20, width - left), [visible(_heading(found)), ""]
    high = float(found.weights.max())
    for sentence, strengths, share in zip(found.sentences, found.strengths(), found.weights.tolist(), strict=True):
        drawn = bar(share / high, BAR)
        drawn += " " * (BAR - len(drawn))
        head = f"{share:6.1%} {painted(drawn, SENTENCES[2]) if colour else drawn}  "
        rows: list[list[str]] = [[]]
        used = 0
        for word, strength in zip(sentence, strengths.tolist(), strict=True):
            text = shown(word)
            text = f"[{text}]" if not colour and strength > 0.5 else text
            if used and used + 1 + display_width(text) > room:
                rows.append([])
                used = 0
            used += display_width(text) + (used > 0)
            rows[-1].append(_behind(text, strength) if colour else text)
        lines += [(head if not number else " " * left) + " ".join(row) for number, row in enumerate(rows)]
    return "\n".join(line.rstrip() for line in lines)


def _behind(text: str, strength: float) -> str:
    """The text on a ground as dark as it is strong."""
    if strength < 0.05:
        return text
    ground, dark = shade_of(WORDS, strength)
    red, green, blue = (int(ground[i : i + 2], 16) for i in (1, 3, 5))
    ink = "255;255;255" if dark else "0;0;0"
    return f"\x1b[38;2;{ink};48;2;{red};{green};{blue}m{text}\x1b[0m"


def _page(found: Hierarchy) -> Any:
    from matplotlib.patches import Rectangle

    caption = (
        "Orange: how much each sentence counts in the document. Blue: how much each word counts in its sentence, times "
        "the root of the sentence's share. Attention says what was looked at, not why."
    )
    room = WIDTH - SIDE
    rows = list[tuple[int, list[tuple[float, float, str, float]]]]()  # sentence; left, size, word, strength
    for number, (sentence, strengths) in enumerate(zip(found.sentences, found.strengths(), strict=True)):
        row, x = list[tuple[float, float, str, float]](), 0.0
        for word, strength in zip(map(shown, sentence), strengths.tolist(), strict=True):
            size = text_size(word)[0] + 0.07
            if row and x + size > room:
                rows.append((number, row))
                row, x = [], 0.0
            row.append((x, size, word, strength))
            x += size
        rows.append((number, row))
    heading, notes = Heading(_heading(found), WIDTH), Notes(caption, WIDTH)
    width = max(WIDTH, heading.width, notes.width) + 2 * MARGIN
    height = heading.height + len(rows) * LINE + notes.height + 0.1 + 2 * MARGIN
    page = figure(width, height)
    heading.write(page)
    notes.write(page)
    canvas = axes_at(page, 0.0, 0.0, width, height)
    canvas.set_axis_off()
    canvas.set_xlim(0, width)
    canvas.set_ylim(0, height)
    middle = {"ha": "center", "va": "center_baseline"}
    high, before = float(found.weights.max()), -1
    for line, (number, row) in enumerate(rows):
        top = height - MARGIN - heading.height - line * LINE
        if number != before:
            share, before = float(found.weights[number]), number
            shade, dark = shade_of(SENTENCES, share / high)
            box = Rectangle((MARGIN, top - BOX), SIDE - 0.12, BOX, facecolor=shade, edgecolor=OUTLINE, linewidth=0.4)
            canvas.add_patch(box)
            ink = "#ffffff" if dark else INK
            canvas.text(MARGIN + SIDE / 2 - 0.06, top - BOX / 2, f"{share:.0%}", fontsize=TINY, color=ink, **middle)
        for x, size, word, strength in row:
            shade, dark = shade_of(WORDS, strength)
            left = MARGIN + SIDE + x
            if strength >= 0.02:
                canvas.add_patch(Rectangle((left, top - BOX), size, BOX, facecolor=shade, linewidth=0))
            ink = "#ffffff" if dark else INK
            canvas.text(left + size / 2, top - BOX / 2, word, fontsize=LABEL, color=ink, **middle)
    return page


class HierarchyView(View):
    name = "hierarchy"
    recipe = "imdb-han"
    about = "which sentences and words a hierarchical attention network looked at"
    inputs, least, most = "one text in quotes", 1, 1
    example = '"A slow start. But what an ending!"'

    def missing(self, model: Any) -> str | None:
        able = hasattr(model.network, "sentence_attention")
        return None if able else "this is for hierarchical classifiers, and this model is none"

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        answer = model(inputs[0])
        trace, sentences = answer.trace, model.task.source.parts(inputs[0])
        over_words, weights = trace["words.attention"].values, trace["sentences.attention"].values[0]
        ends = np.cumsum([0, *map(len, sentences)])
        words = [over_words[i, ends[i] : ends[i + 1]] for i in range(len(sentences))]
        found = Hierarchy(answer.label, answer.probability, sentences, words, np.asarray(weights))
        drawn = partial(draw_hierarchy, found)
        values: Mapping[str, Any] = {
            "label": answer.label,
            "probability": answer.probability,
            "sentences": [
                {"weight": float(weight), "words": list(sentence), "weights": plain(share)}
                for weight, sentence, share in zip(weights, sentences, words, strict=True)
            ],
        }
        return Picture(
            f"what was looked at for {answer.label}",
            text=lambda width, colour: drawn(width=width, colour=colour),
            draw=drawn,
            values=values,
        )
