"""Pairs of words that differ in the same way, such as countries and capitals: the view `pca`.

Mikolov et al. 2013 (fig. 2): in a plane the steps from the first words to the second ones are nearly parallel. How
parallel they are is measured in all dimensions: the cosine of each step to the mean of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from seqloom.corpus.lines import expand_path
from seqloom.errors import UserError
from seqloom.evaluation.word_files import asks_analogies, read_questions
from seqloom.inspection.page import INK, LINES, checked_path
from seqloom.inspection.projection import by_frequency, no_vectors, principal_components, unit_rows
from seqloom.inspection.scatter import Cloud, scatter
from seqloom.inspection.terminal import SEQUENTIAL, bar, display_width, painted, shorten, shown
from seqloom.inspection.trace import plain
from seqloom.inspection.view import Picture, Progress, View, ViewOptions
from seqloom.vectors.table import WordVectors

MOST_PAIRS = 25
BAR = 24


def pairs_of(questions: Iterable[Sequence[str]]) -> list[tuple[str, str]]:
    """The pairs in analogy questions, each once: (athens, greece, oslo, norway) holds two."""
    pairs = [(q[side], q[side + 1]) for q in map(tuple, questions) for side in (0, 2)]
    return list(dict.fromkeys(pairs))


def find_section(names: Iterable[str], asked: str) -> str:
    """The section of that name, or the only one whose name contains it: `countries` is capital-common-countries.

    Raises:
        UserError: None or several do.
    """
    every = list(names)
    found = [name for name in every if name == asked] or [name for name in every if asked.lower() in name.lower()]
    if len(found) == 1:
        return found[0]
    problem = f"fits {' and '.join(found)}; say more of it" if found else f"is no section; there are {', '.join(every)}"
    raise UserError(f"{asked!r} {problem}")


def draw_offsets(
    vectors: WordVectors,
    pairs: Sequence[tuple[str, str]],
    save: str | Path | None = None,
    *,
    title: str = "",
    most: int = MOST_PAIRS,
    colour: bool = True,
) -> str:
    """Draw pairs of words in a plane, with an arrow from the first to the second of each.

    Args:
        vectors: The table of word vectors.
        pairs: (first, second); written as the table has them, or lower-cased.
        save: A .svg, .png, .pdf or .html file; None returns a table for the terminal.
        title: What the pairs are, such as `capital-common-countries`.
        most: Draw so many pairs at the most, those whose rarer word is most frequent.
        colour: Whether the terminal shows colours.

    Returns:
        The table for the terminal, or the path of the file that was written.

    Raises:
        UserError: Fewer than two pairs have vectors, or the file cannot be written.
    """
    target = None if save is None else checked_path(save)
    return _drawn(find_offsets(vectors, pairs, title=title, most=most), target, colour=colour)


class Offsets(NamedTuple):
    """Pairs, the vectors of their two words (pairs, size), and what is written above them."""

    pairs: list[tuple[str, str]]
    first: np.ndarray
    second: np.ndarray
    heading: str
    left_out: str

    @property
    def cosines(self) -> np.ndarray:
        """Of each step to the mean of the others."""
        return parallelism(self.second - self.first)


def find_offsets(
    vectors: WordVectors, pairs: Sequence[tuple[str, str]], *, title: str = "", most: int = MOST_PAIRS
) -> Offsets:
    """The most frequent of the pairs that have vectors; the arguments are those of `draw_offsets`."""
    known, unknown = _known(vectors, pairs)
    if len(known) < 2:
        raise UserError(
            f"{title or 'these pairs'}: only {len(known)} of {len(pairs)} pairs have vectors for both words, 2 are "
            "needed; take other pairs, or train with a lower text.min_count"
        )
    if most < 2:
        raise UserError(f"most must be 2 or more; got {most}")
    ranks = np.argsort(by_frequency(vectors))
    rank = {word: int(ranks[vectors.index[word]]) for pair in known for word in pair if word in vectors}
    known = sorted(known, key=lambda pair: max(rank.get(word, len(vectors)) for word in pair))[:most]
    first, second = (unit_rows(vectors, side) for side in zip(*known, strict=True))
    heading = f"{title}, {len(known)} pairs" if title else f"{len(known)} pairs"
    left_out = f"{len(unknown)} without vectors" if unknown else ""
    hidden = len(pairs) - len(unknown) - len(known)
    left_out += f"{' and ' if left_out else ''}{hidden} rarer" if hidden > 0 else ""
    return Offsets(known, first, second, heading, left_out)


def _drawn(found: Offsets, target: Path | None = None, *, colour: bool = True) -> str:
    pairs, cosines, num = found.pairs, found.cosines, len(found.pairs)
    if target is None:
        left_out = f" ({found.left_out} left out)" if found.left_out else ""
        return f"{found.heading}{left_out}\n\n{_table(pairs, cosines, colour)}"
    points, shares = principal_components(np.concatenate([found.first, found.second]), 2)
    cloud = Cloud(
        points=points,
        names=[name for side in zip(*pairs, strict=True) for name in side],
        groups=np.repeat([0, 1], num),
        key=[(LINES[0], "first word of a pair"), (LINES[1], "second word"), (INK, "mean step (thick arrow)")],
        order=range(2 * num),
        labels=2 * num,
        everyone=True,
        arrows=[(i, num + i) for i in range(num)],
        mean=True,
    )
    caption = (
        f"PCA of these words' vectors, each of length 1. Cosine of each step to the mean of the others, in all "
        f"{found.first.shape[1]} dimensions: {np.mean(cosines):.2f} on average, from {min(cosines):.2f} to "
        f"{max(cosines):.2f} (1: parallel, 0: no relation)."
    )
    caption = caption.replace("-0.", "−0.") + (f" Left out: {found.left_out}." if found.left_out else "")
    return str(scatter(cloud, target, f"{found.heading}: PCA, {shares.sum():.1%} of the variance", caption))


def _known(
    vectors: WordVectors, pairs: Sequence[tuple[str, str]]
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """The pairs that have vectors, as the table writes them, and those that have none."""
    known, unknown = list[tuple[str, str]](), list[tuple[str, str]]()
    for pair in dict.fromkeys(pairs):
        first, second = (vectors.spelled(word) for word in pair)
        usable = first != second and vectors.knows(first) and vectors.knows(second)
        (known if usable else unknown).append((first, second))
    return list(dict.fromkeys(known)), unknown


def parallelism(steps: np.ndarray) -> np.ndarray:
    """(pairs, size) -> the cosine of each step to the mean of the others.

    Its own part in the mean would make any step look parallel to it: 25 steps without relation would reach 0.2.
    """
    steps = np.asarray(steps, dtype=np.float64)
    others = (steps.sum(axis=0) - steps) / max(1, len(steps) - 1)
    lengths = np.linalg.norm(steps, axis=1) * np.linalg.norm(others, axis=1)
    return np.asarray((steps * others).sum(axis=1) / np.where(lengths > 0, lengths, 1.0))


def _table(names: Sequence[tuple[str, str]], cosines: np.ndarray, colour: bool) -> str:
    cells = [(shorten(shown(first), 20), shorten(shown(second), 20)) for first, second in names]
    wide = [max(display_width(pair[side]) for pair in cells) for side in (0, 1)]

    def fit(text: str, size: int) -> str:
        return text + " " * (size - display_width(text))

    def line(left: str, value: float) -> str:
        drawn = bar(value, BAR)
        number = f"{value:6.2f}".replace("-", "−")
        return f"{left} {number}  {painted(drawn, SEQUENTIAL[3]) if colour else drawn}".rstrip()

    order = np.argsort(-cosines, kind="stable")
    rows = [line(f"{fit(cells[i][0], wide[0])} → {fit(cells[i][1], wide[1])}", float(cosines[i])) for i in order]
    mean = line(fit("mean", sum(wide) + 3), float(cosines.mean()))
    head = "cosine of each step to the mean of the others: 1 is parallel, 0 no relation"
    return "\n".join([head, *rows, "-" * (sum(wide) + 10), mean])


# ---------------------------------------------------------------------------------------------------------------------
# The view


class OffsetsView(View):
    name = "pca"
    about = "word pairs that differ in the same way, such as countries and capitals, of word vectors"
    recipe = "demo-skipgram"
    inputs, least, most = "the name of a section of an analogy file, or a part of it", 1, 1
    example = "countries"

    class Options(ViewOptions):
        data: str | None = Field(
            None, description="a file in the format of questions-words.txt (default: that of the run's recipe)"
        )
        most: int = Field(MOST_PAIRS, ge=2, description="how many pairs")

    def missing(self, model: Any) -> str | None:
        return no_vectors(model)

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        questions = read_questions(options.data or _analogies_of(model))
        section = find_section(questions, inputs[0])
        found = find_offsets(model.network, pairs_of(questions[section]), title=section, most=options.most)
        drawn = partial(_drawn, found)
        return Picture(
            f"{section} in {model.name}",
            text=lambda width, colour: drawn(colour=colour),
            draw=drawn,
            values={"section": section, "pairs": [list(pair) for pair in found.pairs], "cosines": plain(found.cosines)},
        )


def _analogies_of(model: Any) -> str:
    """The file of analogies that the run's recipe is measured on."""
    recipe = model.recipe()
    for path in map(expand_path, [] if recipe is None else recipe.data.test.values()):
        if asks_analogies(path):
            return path
    raise UserError(
        f"{model.folder}: no analogy file is known for it; give data, a file in the format of questions-words.txt"
    )
