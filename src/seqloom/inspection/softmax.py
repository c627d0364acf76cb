"""How CBOW foresees a word: the mean of the context, a score for each word, their softmax; the view `softmax`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from seqloom.errors import UserError
from seqloom.inspection.page import (
    FAINT,
    INK,
    LABEL,
    RULE,
    SMALL,
    Sheet,
    checked_path,
    look,
    save_page,
    text_size,
)
from seqloom.inspection.projection import known_form, no_vectors
from seqloom.inspection.terminal import (
    DIVERGING,
    SEQUENTIAL,
    bar,
    display_width,
    painted,
    shade_of,
    shown,
)
from seqloom.inspection.view import Picture, Progress, View, ViewOptions
from seqloom.vectors.table import WordVectors

GAP_MARK = "_"
SHOWN = 12  # numbers of a vector
LINE, CELL, BAR = 0.21, 0.2, 24  # inches, inches, characters
MISSING = "this needs the vectors of words as contexts, which skip-gram and CBOW have learned"


def softmax(scores: np.ndarray) -> np.ndarray:
    """exp(s) / Σ exp(s) along the last axis; the largest score is taken from all first, so that nothing overflows."""
    raised = np.exp(scores - scores.max(-1, keepdims=True))
    return np.asarray(raised / raised.sum(-1, keepdims=True))


@dataclass(frozen=True, eq=False)
class Foreseen:
    """A context, the mean of its vectors, and every word with its score and its share of the softmax, best first."""

    context: Sequence[str]
    vectors: np.ndarray  # (context, size)
    mean: np.ndarray  # (size,)
    words: Sequence[str]
    scores: np.ndarray
    shares: np.ndarray


def foresee(vectors: WordVectors, context: Sequence[str]) -> Foreseen:
    """What stands in the middle of a context: scores are products of its mean with each word's output vector."""
    assert vectors.output is not None, "the view asks first"
    rows = np.array([vectors.vector(word) for word in context], dtype=float)
    mean = rows.mean(0)
    scores = np.asarray(vectors.output, dtype=float) @ mean
    order = np.argsort(-scores, kind="stable")
    return Foreseen(context, rows, mean, [vectors.words[i] for i in order], scores[order], softmax(scores)[order])


def draw_softmax(
    found: Foreseen,
    path: str | Path | None = None,
    *,
    count: int = 10,
    colour: bool = True,
    title: str = "",
) -> str:
    """Draw a context's mean and the likeliest words.

    Args:
        found: What was computed.
        path: A .svg, .png, .pdf or .html file; None returns lines for the terminal.
        count: How many words.
        colour: Whether the terminal shows colours.
        title: A heading.

    Returns:
        The lines, or the path of the file that was written.
    """
    if path is None:
        return _text(found, count, colour, title)
    target = checked_path(path)
    with look():
        return str(save_page(_page(found, count, title), target))


def _number(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def _vector(values: np.ndarray) -> str:
    more = ", …" if len(values) > 6 else ""
    return f"({', '.join(_number(value) for value in values[:6].tolist())}{more})"


def _text(found: Foreseen, count: int, colour: bool, title: str) -> str:
    wide = max(map(display_width, map(shown, [*found.context, *found.words[:count], "mean"])))

    def name(word: str) -> str:
        return shown(word) + " " * (wide - display_width(shown(word)))

    lines = [title, ""] if title else []
    lines += [f"{name(word)}  {_vector(vector)}" for word, vector in zip(found.context, found.vectors, strict=True)]
    lines += [f"{name('mean')}  {_vector(found.mean)}", "", f"{name('word')}   score  softmax"]
    for word, score, share in zip(found.words, found.scores[:count], found.shares[:count], strict=False):
        drawn = bar(float(share), BAR)
        drawn = painted(drawn, SEQUENTIAL[3]) if colour and drawn else drawn
        lines.append(f"{name(word)}  {_number(float(score)):>6}   {share:6.1%}  {drawn}".rstrip())
    if len(found.words) > count:
        lines.append(f"{len(found.words) - count:,} other words: {found.shares[count:].sum():.1%}")
    return "\n".join(lines)


def _page(found: Foreseen, count: int, title: str) -> Any:
    """Above: the context's vectors and their mean; below: scores and shares."""
    left = max(text_size(shown(word))[0] for word in [*found.context, *found.words[:count], "mean"]) + 0.1
    numbers = min(SHOWN, len(found.mean))
    rest = len(found.words) - count
    caption = (
        f"Above: the first {numbers} of {len(found.mean)} numbers of each context word's vector, and their mean h. "
        "Below: the score of a word is h · its output vector; its softmax is exp(score) over the sum of exp(score) "
        f"of all {len(found.words):,} words."
    )
    if rest > 0:
        caption += f" The {rest:,} words that are not shown have {found.shares[count:].sum():.1%} together."
    above = LINE * (len(found.context) + 1) + 0.3
    words = list(zip(found.words, found.scores[:count].tolist(), found.shares[:count].tolist(), strict=False))
    width = left + max(CELL * numbers, 3.4)
    sheet = Sheet(title, caption, width, above + 0.3 + LINE * len(words))
    reach = max(float(np.abs(found.vectors[:, :numbers]).max()), 1e-9)
    for line, (word, vector) in enumerate([*zip(found.context, found.vectors, strict=True), ("mean", found.mean)]):
        y = LINE * line + (0.1 if line == len(found.context) else 0.0)
        sheet.text(left - 0.08, y + LINE / 2, shown(word), LABEL, INK, ha="right")
        for place, value in enumerate(vector[:numbers].tolist()):
            shade, _dark = shade_of(DIVERGING, (1 + value / reach) / 2)
            sheet.box(left + CELL * place, y, CELL, LINE - 0.03, shade, edgecolor=RULE, linewidth=0.4)
    sheet.text(left, above + 0.1, "score", SMALL, FAINT)
    sheet.text(left + 0.65, above + 0.1, "softmax", SMALL, FAINT)
    for line, (word, score, share) in enumerate(words):
        y = above + 0.22 + LINE * line
        sheet.text(left - 0.08, y + LINE / 2, shown(word), LABEL, INK, ha="right")
        sheet.text(left + 0.38, y + LINE / 2, _number(score), SMALL, INK, ha="right")
        size = 2.1 * share / max(words[0][2], 1e-9)
        sheet.box(left + 0.65, y + 0.03, size, LINE - 0.06, SEQUENTIAL[3])
        sheet.text(left + 0.71 + size, y + LINE / 2, f"{share:.1%}", SMALL, FAINT)
    return sheet.page


# ---------------------------------------------------------------------------------------------------------------------
# The view


class SoftmaxView(View):
    name = "softmax"
    about = "how CBOW foresees a word: the mean of its context, scores, their softmax"
    inputs, least, most = f"one sentence in quotes, with {GAP_MARK} in the place of a word", 1, 1
    example = '"the green _ sings a song"'
    recipe = "demo-cbow"

    class Options(ViewOptions):
        window: int = Field(5, ge=1, le=50, description="words to each side of the place")
        count: int = Field(10, ge=1, le=50, description="how many words are shown")

    def missing(self, model: Any) -> str | None:
        if (reason := no_vectors(model)) is not None:
            return reason
        return MISSING if getattr(model.network, "output", None) is None else None

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        vectors = model.network
        before, mark, after = inputs[0].partition(GAP_MARK)
        if not mark or GAP_MARK in after:
            raise UserError(f"put one {GAP_MARK} in the place of the word to foresee; got {inputs[0]!r}")
        sides = [*model.task.words(before)[-options.window :], *model.task.words(after)[: options.window]]
        known = [word for word in sides if vectors.knows(vectors.spelled(word))]
        if not known:
            raise UserError(f"no word around {GAP_MARK} has a vector: {inputs[0]!r}")
        found = foresee(vectors, [known_form(vectors, word) for word in known])
        title = f"“{inputs[0].strip()}”: “{found.words[0]}” has {found.shares[0]:.0%} of the softmax ({model.name})"
        drawn = partial(draw_softmax, found, count=options.count, title=title)
        unknown = [word for word in sides if word not in known]
        objective = model.config.get("model", {}).get("objective", "softmax")
        notes = [f"without a vector, left out: {', '.join(unknown)}"] if unknown else []
        if objective != "softmax":
            notes.append(
                f"it learned by {objective.replace('_', ' ')}, so its scores were never meant for this softmax"
            )
        shown = slice(0, options.count)
        return Picture(
            title,
            text=lambda width, colour: drawn(colour=colour),
            draw=drawn,
            values={
                "context": list(found.context),
                "words": list(found.words[shown]),
                "scores": found.scores[shown].tolist(),
                "softmax": found.shares[shown].tolist(),
            },
            notes=notes,
        )
