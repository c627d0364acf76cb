"""Two sentences as one-hot vectors and as dense ones: the view `onehot`.

A one-hot vector has a 1 in the place of its word and 0 elsewhere, so any two different words have the cosine 0. Dense
vectors have few numbers, and words that are used alike point in like directions.
"""

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
from seqloom.inspection.projection import no_vectors, unit_rows
from seqloom.inspection.terminal import to_terminal
from seqloom.inspection.trace import plain
from seqloom.inspection.view import Picture, Progress, View, ViewOptions
from seqloom.vectors.table import WordVectors

MOST_WORDS = 24  # of a sentence


@dataclass(frozen=True, eq=False)
class TwoSentences:
    """The words of two sentences, and their dense vectors of length 1."""

    first: Sequence[str]
    second: Sequence[str]
    dense: np.ndarray  # (words of both, size)
    num_words: int  # that have a vector at all

    @property
    def words(self) -> list[str]:
        return [*self.first, *self.second]

    @property
    def distinct(self) -> list[str]:
        return list(dict.fromkeys(self.words))

    @property
    def one_hot(self) -> np.ndarray:
        """(words of both, distinct words): those columns of the one-hot vectors that hold a 1 somewhere."""
        return np.array([[float(word == other) for other in self.distinct] for word in self.words])

    def between(self, vectors: np.ndarray) -> np.ndarray:
        """(words of both, size), each of length 1 -> cosines (words of the first, words of the second)."""
        return np.asarray(vectors[: len(self.first)] @ vectors[len(self.first) :].T, dtype=float)

    def of_sentences(self, vectors: np.ndarray) -> float:
        """The cosine of the sums of both sentences' vectors."""
        one, two = vectors[: len(self.first)].sum(0), vectors[len(self.first) :].sum(0)
        return float(one @ two / max(float(np.linalg.norm(one) * np.linalg.norm(two)), 1e-12))


def two_sentences(vectors: WordVectors, first: Sequence[str], second: Sequence[str]) -> TwoSentences:
    """The words of two sentences that have vectors."""
    sides = []
    for words in (first, second):
        known = [vectors.spelled(word) for word in words if vectors.knows(vectors.spelled(word))]
        if not 0 < len(known) <= MOST_WORDS:
            shown = " ".join(words) or "nothing"
            raise UserError(
                f"a sentence needs 1 to {MOST_WORDS} words that have a vector; got {len(known)} in: {shown}"
            )
        sides.append(known)
    return TwoSentences(sides[0], sides[1], unit_rows(vectors, [*sides[0], *sides[1]]), len(vectors))


def draw_onehot(
    found: TwoSentences,
    path: str | Path | None = None,
    *,
    dimensions: int = 16,
    width: int | None = None,
    colour: bool = True,
    title: str = "",
) -> str:
    """Draw two sentences both ways.

    Args:
        found: The sentences.
        path: A .svg, .png, .pdf or .html file; None returns tables for the terminal.
        dimensions: Numbers of a dense vector that are shown.
        width: Characters in a line of the terminal.
        colour: Whether the terminal shows colours.
        title: The heading; by default what both ways say of the two sentences.

    Returns:
        The tables, or the path of the file that was written.
    """
    hot, dense = found.between(found.one_hot), found.between(found.dense)
    size, first = found.dense.shape[1], found.dense[:, :dimensions]
    title = title or finding(found)
    places = f"one-hot: {found.num_words:,} numbers each, {len(found.distinct)} of them shown"
    numbers = f"dense: {size:,} numbers each, {first.shape[1]} of them shown"
    if path is None:
        options: dict[str, Any] = {"colour": colour, "width": width}
        parts = [
            title,
            f"{places}\n\n{to_terminal(found.one_hot, found.words, found.distinct, **options)}",
            f"{numbers}\n\n{to_terminal(first, found.words, list(map(str, range(first.shape[1]))), **options)}",
            "cosines of dense vectors\n\n"
            + to_terminal(dense, found.first, found.second, **options, low=-1.0, high=1.0),
            "Cosines of one-hot vectors are 1 for the same word and 0 for any other.",
        ]
        return "\n\n".join(parts)
    panels = [
        draw.Panel(found.one_hot, found.words, found.distinct, places, low=0.0, high=1.0),
        draw.Panel(first, found.words, list(map(str, range(first.shape[1]))), numbers),
        draw.Panel(hot, found.first, found.second, "cosines of one-hot vectors", low=-1.0, high=1.0, numbers=True),
        draw.Panel(dense, found.first, found.second, "cosines of dense vectors", low=-1.0, high=1.0, numbers=True),
    ]
    caption = (
        "Above: a row is a word's vector; the places of a one-hot vector that are not shown hold 0. Below: how alike "
        "the words of the first sentence (rows) and of the second (columns) are. One-hot vectors know only whether two "
        "words are the same."
    )
    return str(draw.panels(panels, path, title, across=2, caption=caption))


def finding(found: TwoSentences) -> str:
    """What both ways say of the two sentences."""
    hot, dense = (f"{found.of_sentences(some):.2f}".replace("-", "−") for some in (found.one_hot, found.dense))
    sentences = " and ".join(f"“{' '.join(words)}”" for words in (found.first, found.second))
    return f"{sentences}: cosine {hot} one-hot, {dense} dense"


# ---------------------------------------------------------------------------------------------------------------------
# The view


class OneHotView(View):
    name = "onehot"
    about = "two sentences as one-hot vectors and as dense ones, and how alike their words are"
    inputs, least, most = "two sentences, each in quotes", 2, 2
    example = '"the green witch sleeps" "a red bird sings"'
    recipe = "demo-cbow"

    class Options(ViewOptions):
        dimensions: int = Field(16, ge=1, le=60, description="how many numbers of a dense vector are shown")

    def missing(self, model: Any) -> str | None:
        return no_vectors(model)

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        cut = [model.task.words(text) for text in inputs]
        found = two_sentences(model.network, *cut)
        without = [word for words in cut for word in words if not model.network.knows(model.network.spelled(word))]
        title = f"{finding(found)} ({model.name})"
        drawn = partial(draw_onehot, found, dimensions=options.dimensions, title=title)
        return Picture(
            title,
            text=lambda width, colour: drawn(width=width, colour=colour),
            draw=drawn,
            values={
                "sentences": [list(found.first), list(found.second)],
                "one_hot": plain(found.between(found.one_hot)),
                "dense": plain(found.between(found.dense)),
                "of_sentences": [found.of_sentences(found.one_hot), found.of_sentences(found.dense)],
            },
            notes=[f"without a vector, left out: {', '.join(without)}"] if without else [],
        )
