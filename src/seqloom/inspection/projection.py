"""Word vectors on a page: the view `projection`.

Vectors are brought to length 1 first, so that what is near on the page is near by cosine. PCA keeps as much of their
variance as two directions can. t-SNE (van der Maaten & Hinton 2008) keeps who is whose neighbour; distances between
groups then say little. It runs in openTSNE, with forces from a Fourier transform beyond 10,000 words (Linderman et al.
2019), and starts from the PCA (Kobak & Berens 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from seqloom.errors import UserError, one_of
from seqloom.inspection.page import LINES, OUTLINE, checked_path
from seqloom.inspection.scatter import Cloud, scatter, scatter_text
from seqloom.inspection.terminal import SEQUENTIAL
from seqloom.inspection.trace import plain
from seqloom.inspection.view import Picture, Progress, View, ViewOptions
from seqloom.machine import num_cores
from seqloom.vectors.table import WordVectors

METHODS = ("pca", "tsne")
COLOURS = ("groups", "frequency")
MOST_WORDS = 2_000
MOST_LABELS = 90
MOST_ASKED = 300
SHADES = (*LINES[:7], OUTLINE)  # of groups, the largest first
GROUPS = len(SHADES)
PERPLEXITY = 30.0
TSNE_SIZE = 50  # directions of the PCA that neighbours are looked for in
EARLY, LATE = 250, 500  # steps with and without exaggeration
SAMPLE = 20_000  # words that groups are learned from


def draw_projection(
    vectors: WordVectors,
    save: str | Path | None = None,
    *,
    method: Literal["pca", "tsne"] = "pca",
    words: Sequence[str] | None = None,
    most: int = MOST_WORDS,
    labels: int = MOST_LABELS,
    colours: Literal["groups", "frequency"] = "groups",
    seed: int = 1,
    threads: int | None = None,
    title: str | None = None,
    colour: bool = True,
    width: int | None = None,
    progress: Progress | None = None,
) -> str:
    """Draw words as points in a plane.

    Args:
        vectors: The table of word vectors.
        save: A .svg, .png, .pdf or .html file; None returns a drawing for the terminal.
        method: pca or tsne.
        words: Name these words, all of them; None names frequent ones, spread over the page.
        most: Draw so many of the most frequent words, and `words` in any case; 0 draws `words` alone.
        labels: How many words are named at the most, unless `words` are given.
        colours: groups of like words, or frequency.
        seed: Of t-SNE and of the groups.
        threads: For t-SNE; all cores if None.
        title: The heading; by default the method, the number of words and what PCA keeps.
        colour: Whether the terminal shows colours.
        width: Characters in a line of the terminal.
        progress: Hears how far t-SNE is.

    Returns:
        The drawing for the terminal, or the path of the file that was written.

    Raises:
        UserError: A word is unknown, a value is outside its bounds, openTSNE is missing or the file cannot be written.
    """
    target = None if save is None else checked_path(save)  # before anything that takes time
    found = project(
        vectors,
        method=method,
        words=words,
        most=most,
        labels=labels,
        colours=colours,
        seed=seed,
        threads=threads,
        progress=progress,
    )
    return _drawn(found, target, title=title, colour=colour, width=width)


class Projected(NamedTuple):
    """Points in a plane, and what is written above and below them."""

    cloud: Cloud
    heading: str
    caption: str


def project(
    vectors: WordVectors,
    *,
    method: Literal["pca", "tsne"] = "pca",
    words: Sequence[str] | None = None,
    most: int = MOST_WORDS,
    labels: int = MOST_LABELS,
    colours: Literal["groups", "frequency"] = "groups",
    seed: int = 1,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Projected:
    """Where words go; the arguments are those of `draw_projection`."""
    for name, value, choices in (("method", method, METHODS), ("colours", colours, COLOURS)):
        if value not in choices:
            raise UserError(one_of(name, value, choices))
    if most < 0 or labels < 0:
        raise UserError(f"most and labels must be 0 or more; got {most} and {labels}")
    if words is not None and len(words) > MOST_ASKED:
        raise UserError(f"at most {MOST_ASKED} words can be named on one page; got {len(words):,}")
    asked = list(dict.fromkeys(known_form(vectors, word) for word in words or ()))
    order = by_frequency(vectors)
    names = list(dict.fromkeys([*(vectors.words[row] for row in order[:most]), *asked]))
    if len(names) < 3:
        raise UserError(f"a projection needs at least 3 words, there are {len(names)}; name more words or raise most")
    matrix = unit_rows(vectors, names)
    if method == "tsne":
        points = tsne(matrix, seed=seed, threads=threads, progress=progress)
        heading = f"t-SNE of {len(names):,} words"
        caption = "Words near each other are neighbours by cosine; distances between groups mean little."
    else:
        points, shares = principal_components(matrix, 2)
        heading = f"PCA of {len(names):,} words, {shares.sum():.1%} of the variance"
        heading += f" ({shares[0]:.1%} across, {shares[1]:.1%} up)"
        caption = "Vectors of length 1, seen along the two directions in which they vary most."
    if colours == "groups":
        groups, key = named_groups(matrix, names, seed)
        caption += " Colours: groups of like words (k-means in all dimensions), with their most typical words."
    else:
        ranks = np.argsort(order)
        # A word made of its pieces only never occurred: it is as rare as can be.
        groups, key = frequency_classes(
            np.array([ranks[vectors.index[n]] if n in vectors else len(vectors) for n in names])
        )
        caption += " Colours: rank by frequency."
    place = {name: index for index, name in enumerate(names)}
    named = [place[word] for word in asked] if asked else range(len(names))
    return Projected(Cloud(points, names, groups, key, named, labels, everyone=bool(asked)), heading, caption)


def _drawn(
    found: Projected,
    target: Path | None = None,
    *,
    title: str | None = None,
    colour: bool = True,
    width: int | None = None,
) -> str:
    heading = title or found.heading
    if target is None:
        return f"{heading}\n\n{scatter_text(found.cloud, colour=colour, width=width)}"
    return str(scatter(found.cloud, target, heading, found.caption))


# ---------------------------------------------------------------------------------------------------------------------
# Words and their rows


def known_form(vectors: WordVectors, word: str) -> str:
    """The word as the table has it.

    Raises:
        UserError: The word has no vector.
    """
    form = vectors.spelled(word)
    vectors.vector(form)
    return form


def by_frequency(vectors: WordVectors) -> np.ndarray:
    """All rows, the most frequent first; the table's own order where it holds no counts."""
    if vectors.counts is None:
        return np.arange(len(vectors.words))
    return np.argsort(-np.asarray(vectors.counts, dtype=np.int64), kind="stable")


def unit_rows(vectors: WordVectors, words: Sequence[str]) -> np.ndarray:
    """(words, size) float32, each of length 1; a vector of zeros stays one."""
    matrix = np.array([vectors.vector(word) for word in words], dtype=np.float32)
    broken = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if len(broken):
        word = words[int(broken[0])]
        raise UserError(f"the vector of {word!r} holds numbers that are not finite; the training must have diverged")
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix / np.where(lengths > 0, lengths, 1.0)


# ---------------------------------------------------------------------------------------------------------------------
# Formulas


def principal_components(matrix: np.ndarray, num: int) -> tuple[np.ndarray, np.ndarray]:
    """Points along the directions of greatest variance.

    Each direction points to where its largest part is positive, so that the same vectors give the same picture.

    Args:
        matrix: (points, size).
        num: How many directions.

    Returns:
        (points, num), and the share of the whole variance that each direction has.
    """
    centred = matrix - matrix.mean(axis=0, dtype=np.float64)
    if len(matrix) > matrix.shape[1]:
        values, columns = np.linalg.eigh(centred.T @ centred)
        values, directions = values[::-1], columns.T[::-1]
    else:
        _, lengths, directions = np.linalg.svd(centred, full_matrices=False)
        values = lengths**2
    values, directions = np.maximum(values, 0.0), directions[:num]
    largest = np.abs(directions).argmax(axis=1)
    directions = directions * np.where(directions[np.arange(len(directions)), largest] < 0, -1.0, 1.0)[:, None]
    found = np.zeros((len(matrix), num))
    found[:, : len(directions)] = centred @ directions.T
    shares, total = np.zeros(num), float(values.sum())
    if total > (np.finfo(np.float64).eps * np.abs(matrix).max(initial=0.0)) ** 2 * matrix.size:  # not mere rounding
        shares[: len(directions)] = values[:num] / total
    return found, shares


def tsne(
    matrix: np.ndarray, *, seed: int = 1, threads: int | None = None, progress: Progress | None = None
) -> np.ndarray:
    """Points (points, 2) whose neighbours are the neighbours of the vectors (points, size)."""
    try:
        import openTSNE
    except ImportError as error:
        raise UserError(f"t-SNE needs openTSNE: pip install 'seqloom[views]', or take method pca ({error})") from None
    if len(matrix) < 5:
        raise UserError(f"t-SNE needs at least 5 words, there are {len(matrix)}; name more, or take method pca")
    report = progress or (lambda share, figures: None)
    num = len(matrix)
    size = min(TSNE_SIZE, matrix.shape[1], num)
    reduced = principal_components(matrix, max(2, size))[0]
    spread = reduced[:, 0].std()
    report(0.0, f"t-SNE  neighbours of {num:,} words")
    steps = EARLY + LATE
    done = [0]

    def callback(iteration: int, error: float, embedding: np.ndarray) -> bool:
        done[0] += 10
        report(min(1.0, done[0] / steps), f"t-SNE  step {done[0]} of {steps}  divergence {error:.2f}")
        return False

    machine = openTSNE.TSNE(
        perplexity=min(PERPLEXITY, (num - 1) / 3),
        early_exaggeration_iter=EARLY,
        n_iter=LATE,
        initialization=reduced[:, :2] / (spread if spread > 0 else 1.0) * 1e-4,
        n_jobs=threads if threads is not None else num_cores(),
        callbacks=[callback],
        callbacks_every_iters=10,
        random_state=seed,
    )
    return np.array(machine.fit(np.ascontiguousarray(reduced, dtype=np.float32)), dtype=np.float64)


def group_vectors(matrix: np.ndarray, num: int, seed: int, rounds: int = 30) -> tuple[np.ndarray, np.ndarray]:
    """k-means by cosine, from centres drawn far apart (k-means++, Arthur & Vassilvitskii 2007).

    Args:
        matrix: (points, size), vectors of length 1.
        num: How many groups.
        seed: Of the first centres.
        rounds: At the most.

    Returns:
        The group of each point, and (num, size) centres of length 1.
    """
    random = np.random.default_rng(seed)
    sample = matrix if len(matrix) <= SAMPLE else matrix[np.sort(random.choice(len(matrix), SAMPLE, replace=False))]
    num = min(num, len(sample))
    centres = sample[[int(random.integers(len(sample)))]]
    while len(centres) < num:
        distance = np.maximum(0.0, 1.0 - (sample @ centres.T).max(axis=1).astype(np.float64)) + 1e-9
        centres = np.concatenate([centres, sample[[int(random.choice(len(sample), p=distance / distance.sum()))]]])
    nearest = np.full(len(sample), -1)
    for _ in range(rounds):
        before, nearest = nearest, (sample @ centres.T).argmax(axis=1)
        if (before == nearest).all():
            break
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, sample)
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        centres = np.where(lengths > 0, sums / np.where(lengths > 0, lengths, 1.0), centres)  # an empty one stays
    return (matrix @ centres.T).argmax(axis=1), centres


def named_groups(matrix: np.ndarray, names: Sequence[str], seed: int) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """The group of each word, and a colour and the most typical words for each; the largest group comes first."""
    num = min(GROUPS, max(2, len(matrix) // 6))
    # What all words share, such as being words of this text at all, says nothing about groups.
    centred = matrix - matrix.mean(axis=0)
    centred /= np.maximum(np.linalg.norm(centred, axis=1, keepdims=True), 1e-12)
    found, centres = group_vectors(centred, num, seed)
    sizes = np.bincount(found, minlength=num)
    ranks = np.empty(num, dtype=int)
    ranks[np.argsort(-sizes, kind="stable")] = np.arange(num)
    key = []
    for group in np.argsort(-sizes, kind="stable"):
        members = np.flatnonzero(found == group)
        known = members[: max(20, min(100, len(members) // 10))]  # a reader knows frequent words, which come first
        typical = known[np.argsort(-(centred[known] @ centres[group]), kind="stable")[:3]]
        key.append((SHADES[int(ranks[group])], ", ".join(names[i] for i in typical)))
    return ranks[found], key


def frequency_classes(ranks: np.ndarray) -> tuple[np.ndarray, list[tuple[str, str]]]:
    """Tenfold classes of ranks counted from 0, the most frequent darkest."""
    bounds = np.array([100, 1_000, 10_000])
    classes = np.searchsorted(bounds, ranks, side="right")
    texts = ["100 most frequent words", "to rank 1,000", "to rank 10,000", "rarer"]
    key = list(zip(SEQUENTIAL[:1:-1], texts, strict=True))
    return classes, key[: int(classes.max()) + 1]


# ---------------------------------------------------------------------------------------------------------------------
# The view


def no_vectors(model: Any) -> str | None:
    """Why a model is not a table of word vectors; None if it is."""
    return (
        None if hasattr(model.network, "answer_analogies") else f"this is for word vectors, not for {model.task.kind}"
    )


class ProjectionView(View):
    name = "projection"
    about = "words as points in a plane, by PCA or t-SNE, of word vectors"
    recipe = "demo-skipgram"
    inputs, least, most = "words to be named in the picture (default: frequent ones)", 0, MOST_ASKED
    example = "king queen man woman"

    class Options(ViewOptions):
        method: Literal["pca", "tsne"] = Field("pca", description="tsne shows groups and takes its time")
        most: int = Field(MOST_WORDS, ge=0, description="how many of the most frequent words are drawn")
        colours: Literal["groups", "frequency"] = Field(
            "groups", description="by groups of like words, or by how frequent they are"
        )

    def missing(self, model: Any) -> str | None:
        return no_vectors(model)

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        found = project(model.network, words=inputs or None, **options.model_dump(exclude={"theme"}), progress=progress)
        title = f"{found.heading} ({model.name})"
        drawn = partial(_drawn, found, title=title)
        cloud = found.cloud
        return Picture(
            title,
            text=lambda width, colour: drawn(width=width, colour=colour),
            draw=drawn,
            values={
                "words": list(cloud.names),
                "points": plain(cloud.points),
                "groups": plain(cloud.groups),
                "key": [text for _, text in cloud.key],
            },
        )
