"""One word in several texts: the view `contexts`. How alike its vectors are, layer by layer, and where they lie."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from seqloom.errors import UserError
from seqloom.inspection.page import LINES, checked_path
from seqloom.inspection.projection import principal_components
from seqloom.inspection.scatter import Cloud, scatter, scatter_text
from seqloom.inspection.terminal import SEQUENTIAL, bar, painted, shorten, shown
from seqloom.inspection.trace import plain
from seqloom.inspection.view import Picture, Progress, View, ViewOptions, has_part

MOST_TEXTS = 30
BAR = 20  # characters of a bar that stands for 1
PICTURE = 12  # lines

CAPTION = "Cosine of the angle between two vectors: 1 is the same direction, 0 none in common."


def draw_contexts(
    word: str,
    texts: Sequence[str],
    layers: Sequence[np.ndarray],
    save: str | Path | None = None,
    *,
    layer: int | None = None,
    colour: bool = True,
    width: int | None = None,
    title: str = "",
) -> str:
    """Draw how a word's vectors differ from text to text.

    Args:
        word: the word.
        texts: that it stands in.
        layers: (texts, size) vectors of each layer; the first knows nothing but the word.
        save: A .svg, .png, .pdf or .html file, which gets the picture of one layer; None returns all for the terminal.
        layer: whose vectors are drawn as points, from 0; the last if None.
        colour: Whether the terminal shows colours.
        width: Characters in a line of the terminal.
        title: The model's name, for the heading.

    Returns:
        The drawing for the terminal, or the path of the file that was written.

    Raises:
        UserError: There are too few or too many texts, or no such layer; or the file cannot be written.
    """
    chosen = _chosen(texts, layers, layer)
    target = None if save is None else checked_path(save)
    similar = [cosines(vectors) for vectors in layers]
    cloud, shares = _cloud([marked(text, word) for text in texts], layers[chosen], similar[chosen])
    of = f" of {title}" if title else ""
    # Two directions hold all there is of three points: that says nothing about the vectors.
    share = f", {shares.sum():.1%} of the variance" if len(texts) > 3 else ""
    near = similar[chosen] - 2 * np.eye(len(texts))
    one, two = sorted(int(place) + 1 for place in np.unravel_index(int(near.argmax()), near.shape))
    heading = f"“{word}” is most alike in texts {one} and {two}: {_layer_name(chosen, len(layers))}{of}, PCA{share}"
    texts = [marked(text, word) for text in texts]
    if target is not None:
        caption = "Vectors of length 1. A text has the colour of the text that is nearest to it. " + CAPTION
        return str(scatter(cloud, target, heading, f"{caption} {_nearest_words(similar[chosen])}"))
    numbered = [f"{number:>2}  {shown(text)}" for number, text in enumerate(texts, 1)]
    blocks = [f"“{word}” in {len(texts)} texts{of}", "\n".join(numbered)]
    blocks += [_table(index, len(layers), matrix, colour) for index, matrix in enumerate(similar)]
    blocks += [CAPTION, f"{heading}\n\n{scatter_text(cloud, colour=colour, width=width, height=PICTURE)}"]
    return "\n\n".join(blocks)


def marked(text: str, word: str) -> str:
    """The text with the word in brackets, where it stands first as a whole word, else where it stands at all."""
    for pattern in (rf"(?<!\w){re.escape(word)}(?!\w)", re.escape(word)):
        changed, count = re.subn(pattern, lambda found: f"[{found[0]}]", text, count=1, flags=re.IGNORECASE)
        if count:
            return changed
    return text


def _chosen(texts: Sequence[str], layers: Sequence[np.ndarray], layer: int | None) -> int:
    """Which layer is drawn as points."""
    if not 2 <= len(texts) <= MOST_TEXTS:
        raise UserError(f"a word is compared in 2 to {MOST_TEXTS} texts; got {len(texts)}")
    chosen = len(layers) - 1 if layer is None else layer
    if not 0 <= chosen < len(layers):
        raise UserError(f"layer counts from 0, without context, to {len(layers) - 1}; got {layer}")
    return chosen


def cosines(vectors: np.ndarray) -> np.ndarray:
    """(vectors, size) -> (vectors, vectors) cosines of their angles; that of a vector of zeros with any other is 0."""
    rows = unit_rows(vectors)
    return np.clip(rows @ rows.T, -1.0, 1.0)


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    """(vectors, size), each of length 1; a vector of zeros stays one."""
    rows = np.asarray(vectors, np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1.0))


def nearest(similar: np.ndarray) -> np.ndarray:
    """(vectors, vectors) -> for each vector the other one that is most alike, the first of several."""
    others = similar.copy()
    np.fill_diagonal(others, -np.inf)
    return np.asarray(others.argmax(axis=1))


def families(similar: np.ndarray) -> np.ndarray:
    """(vectors, vectors) -> the number of each vector's family: it is in that of its nearest."""
    found = np.arange(len(similar))
    for one, other in enumerate(nearest(similar)):
        found[found == found[one]] = found[other]
    return np.unique(found, return_inverse=True)[1]


def _layer_name(index: int, count: int) -> str:
    return "layer 0 (without context)" if index == 0 else f"layer {index}{' (the last)' if index == count - 1 else ''}"


def _table(index: int, count: int, similar: np.ndarray, colour: bool) -> str:
    """The cosines of one layer, a shaded cell and the number for each pair, and which text is nearest to which."""
    lines = [_layer_name(index, count), "    " + " ".join(f"{number:>6}" for number in range(1, len(similar) + 1))]
    near = nearest(similar)
    same = bool(np.allclose(similar, 1.0, atol=1e-6))
    for row, values in enumerate(similar):
        numbers = " ".join(f"{value:6.3f}".replace("-", "−") for value in values)
        best = float(values[near[row]])
        drawn = bar(best, BAR)
        drawn = painted(drawn, SEQUENTIAL[3]) if colour else drawn
        which = "all are the same" if same else f"nearest to {near[row] + 1}"
        lines.append(f"{row + 1:>2}  {numbers}   {which}  {'' if same else drawn}".rstrip())
    return "\n".join(lines)


def _cloud(texts: Sequence[str], vectors: np.ndarray, similar: np.ndarray) -> tuple[Cloud, np.ndarray]:
    points, shares = principal_components(unit_rows(vectors), 2)
    groups = families(similar)
    hues = [LINES[group % len(LINES)] for group in range(int(groups.max()) + 1)]
    members = [[str(i + 1) for i in np.flatnonzero(groups == group)] for group in range(len(hues))]
    key = [(hue, f"texts {', '.join(own)}") for hue, own in zip(hues, members, strict=True)]
    names = [f"{number} {shorten(shown(text), 36)}" for number, text in enumerate(texts, 1)]
    return Cloud(points, names, groups, key, range(len(texts)), len(texts), everyone=True), shares


def _nearest_words(similar: np.ndarray) -> str:
    near = nearest(similar)
    pairs = ", ".join(f"{i + 1} to {near[i] + 1} ({similar[i, near[i]]:.3f})" for i in range(len(near)))
    return f"Nearest: {pairs}.".replace("-0.", "−0.")


# ---------------------------------------------------------------------------------------------------------------------
# The view


class ContextsView(View):
    name = "contexts"
    about = "one word in several texts: how alike a language model's vectors of it are, layer by layer"
    recipe = "demo-language"
    inputs, least, most = "a word, and at least two texts that it stands in", 3, 1 + MOST_TEXTS
    example = 'stick "he broke the stick" "they stick to the plan"'

    class Options(ViewOptions):
        layer: int | None = Field(
            None, ge=0, description="whose vectors are drawn as points, 0 for those without context (default: the last)"
        )

    def missing(self, model: Any) -> str | None:
        if not hasattr(model.task, "contexts"):
            return f"words in their context are compared by language models, not by {model.task.kind}"
        if has_part(model, "cells") or has_part(model, "num_heads"):
            return None
        return "this model has no vectors of words in their context; a recurrent one or a Transformer has"

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        word, *texts = inputs
        notes: list[str] = []
        layers = model.task.contexts(model.network, word, texts, notes.append)
        chosen = _chosen(texts, layers, options.layer)
        drawn = partial(draw_contexts, word, texts, layers, layer=chosen, title=model.name)
        return Picture(
            f"“{word}” in {len(texts)} texts of {model.name}",
            text=lambda width, colour: drawn(width=width, colour=colour),
            draw=drawn,
            values={"word": word, "texts": texts, "cosines": [plain(cosines(vectors)) for vectors in layers]},
            notes=notes,
        )
