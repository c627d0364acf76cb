"""Named points in a plane: in files, and on the terminal. Names are placed so that none covers another.

Pictures are laid out in inches, and so are the points before anything is drawn. Beyond a few thousand points they are
one picture inside the file, while letters and lines stay what they are: a file of 100,000 points is small.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.inspection.page import (
    FAINT,
    INK,
    MARGIN,
    OUTLINE,
    SMALL,
    Heading,
    Notes,
    axes_at,
    checked_path,
    figure,
    look,
    save_page,
    text_size,
)
from seqloom.inspection.terminal import display_width, painted, shown

WIDTH = 7.4
LOWEST, HIGHEST = 3.6, 6.6
EDGE = 0.3  # between the outermost points and the edge
LETTERS = 8.0
LINE = 0.145  # inches that a line of such letters takes
REACH = 0.055  # from a point to its name
DOT = 0.03  # half the side of the square that a named point keeps free
DPI, DPI_INSIDE = 200, 144  # of a .png, and of the picture of many points inside a .svg or .pdf
MOST_DRAWN_ONE_BY_ONE = 2000
MOST_TRIED = 20_000  # names that are tried for a place
RINGS = (1.0, 2.6, 4.5, 7.0, 10.0, 14.0, 19.0)  # distances of a name from its point, in reaches

DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
"""Bits of the dots of a Braille letter, by column and row."""


@dataclass(frozen=True, eq=False)
class Cloud:
    """Points and what is said about them.

    `groups` gives each point its line of `key`, which holds a colour and its meaning. Names are tried in the `order`
    given; those that find no room near their point are left out, unless `everyone` of the order must be named.
    """

    points: np.ndarray  # (points, 2)
    names: Sequence[str]
    groups: np.ndarray  # (points,)
    key: Sequence[tuple[str, str]]
    order: Sequence[int]
    labels: int
    everyone: bool = False
    arrows: Sequence[tuple[int, int]] = ()
    mean: bool = False  # a thick arrow for the mean of all


@dataclass(frozen=True)
class Label:
    """A name beside its point: left, bottom, right, top. With `line` it stands so far away that a line leads to it."""

    point: int
    box: tuple[float, float, float, float]
    line: bool = False


# ---------------------------------------------------------------------------------------------------------------------
# Where names go

SizeOf = Callable[[int], tuple[float, float] | np.ndarray]


class Places:
    """What is taken on a page of that size; boxes are (left, bottom, right, top)."""

    def __init__(self, width: float, height: float) -> None:
        self.width, self.height = width, height
        self.boxes = np.empty((16, 4))
        self.count = 0

    def free(self, boxes: np.ndarray, outside: bool = False) -> np.ndarray:
        """(boxes, 4) -> for each whether nothing taken touches it, and it lies on the page unless `outside` will do."""
        left, bottom, right, top = boxes.T
        fits = (left >= 0) & (bottom >= 0) & (right <= self.width) & (top <= self.height) | outside
        taken = self.boxes[: self.count]
        apart = (
            (right[:, None] <= taken[:, 0])
            | (left[:, None] >= taken[:, 2])
            | (top[:, None] <= taken[:, 1])
            | (bottom[:, None] >= taken[:, 3])
        )
        return np.asarray(fits & apart.all(axis=1))

    def take(self, box: Sequence[float] | np.ndarray) -> None:
        if self.count == len(self.boxes):
            self.boxes = np.concatenate([self.boxes, np.empty_like(self.boxes)])
        self.boxes[self.count] = box
        self.count += 1


def boxes_around(anchor: np.ndarray, size: np.ndarray, reach: float, num: int = 8) -> np.ndarray:
    """Boxes of a size at that distance from a point: right of it first, then left, above, below, and between."""
    directions = _directions(num)
    slanted = np.where(np.abs(directions).min(axis=1) > 0.99, 0.7, 1.0)[:, None]
    centres = anchor + directions * (reach * slanted + size / 2)
    return np.concatenate([centres - size / 2, centres + size / 2], axis=1)


@cache
def _directions(num: int) -> np.ndarray:
    first = (0.0, 0.5, 0.25, 0.75)  # parts of a turn
    turns = sorted((i / num for i in range(num)), key=lambda turn: first.index(turn) if turn in first else len(first))
    angles = 2 * math.pi * np.array(turns)
    # At a slant the whole box lies beyond the point, both sideways and up or down.
    return np.clip(1.5 * np.stack([np.cos(angles), np.sin(angles)], axis=1), -1.0, 1.0)


def place_labels(
    anchors: np.ndarray, size_of: SizeOf, width: float, height: float, most: int, reach: float = REACH
) -> list[Label]:
    """Name points where there is room, in the order given, spread over the page.

    A name first needs a wide berth from every point named before, so that each region gets its own first; what is left
    of `most` then fills the gaps.

    Args:
        anchors: (points, 2), those to be named first at the front.
        size_of: Gives the width and height of a point's name; only asked where there may be room.
        width: Of the page.
        height: Of the page.
        most: How many names at the most.
        reach: The distance of a name from its point.

    Returns:
        Labels whose boxes are on the page and overlap neither each other nor a named point.
    """
    places, labels = Places(width, height), list[Label]()
    if not len(anchors) or most < 1:
        return []
    nearest = np.full(len(anchors), np.inf)  # of each point to a named one
    berth = math.sqrt(width * height / most)
    while berth > reach:
        start = 0
        while len(labels) < most and len(ahead := np.flatnonzero(nearest[start:] >= berth)):
            index = start + int(ahead[0])
            start = index + 1
            anchor = anchors[index]
            dot = np.concatenate([anchor - DOT, anchor + DOT])
            boxes = boxes_around(anchor, np.asarray(size_of(index)), reach)
            free = np.flatnonzero(places.free(boxes))
            if not len(free) or not places.free(dot[None], outside=True)[0]:
                nearest[index] = -np.inf  # what is taken stays taken: no need to try again
                continue
            places.take(boxes[free[0]])
            places.take(dot)
            labels.append(Label(index, _box(boxes[free[0]])))
            nearest = np.minimum(nearest, np.hypot(*(anchors - anchor).T))
        berth /= 2
    return labels


def place_every_label(
    anchors: np.ndarray, sizes: np.ndarray, width: float, height: float, avoid: np.ndarray, reach: float = REACH
) -> list[Label]:
    """Name all points: a name goes as far from its point as it must, and then a line leads to it, across other names
    only where there is no other room.

    `avoid` (points, 2) are places better not covered. A name that fits nowhere is left out; on a page with room for
    its names that does not happen.
    """
    places, labels = Places(width, height), list[Label]()
    names, leaders = np.empty((0, 4)), np.empty((0, 2))  # boxes taken by names, points along lines to them
    for anchor in anchors:
        places.take(np.concatenate([anchor - DOT, anchor + DOT]))
    for index, (anchor, size) in enumerate(zip(anchors, sizes, strict=True)):
        boxes = np.concatenate([boxes_around(anchor, size, ring * reach, 16) for ring in RINGS])
        ring = np.repeat(np.arange(len(RINGS)), 16)
        inside = (
            (avoid[:, 0] > boxes[:, None, 0])
            & (avoid[:, 0] < boxes[:, None, 2])
            & (avoid[:, 1] > boxes[:, None, 1])
            & (avoid[:, 1] < boxes[:, None, 3])
        )
        ends = np.clip(anchor, boxes[:, :2], boxes[:, 2:])  # where the line to each place would arrive
        ways = anchor + np.linspace(0.0, 1.0, 24)[:, None, None] * (ends - anchor)  # (points, boxes, 2)
        crossing = (ring > 0) & _within(ways, names).any(axis=(0, 2))
        crossing |= _within(leaders[:, None], boxes)[:, 0].any(axis=0)
        cost = ring + 0.15 * inside.sum(axis=1) + 100.0 * crossing  # only where nothing else is left
        cost = np.where(places.free(boxes), cost, np.inf)
        best = int(cost.argmin())
        if np.isfinite(cost[best]):
            places.take(boxes[best])
            names = np.concatenate([names, boxes[best][None]])
            if ring[best] > 0:
                leaders = np.concatenate([leaders, ways[:-1, best]])
            labels.append(Label(index, _box(boxes[best]), line=bool(ring[best] > 0)))
    return labels


def _within(points: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """(…, 2) points, (boxes, 4) -> (…, boxes): which lie in which."""
    low, high = points[..., None, :] > boxes[:, :2], points[..., None, :] < boxes[:, 2:]
    return np.asarray((low & high).all(axis=-1))


def _box(values: np.ndarray) -> tuple[float, float, float, float]:
    left, bottom, right, top = map(float, values)
    return left, bottom, right, top


def to_page(points: np.ndarray) -> tuple[np.ndarray, float, float]:
    """Points in inches, the same scale both ways, and the page's width and height."""
    low, high = points.min(axis=0), points.max(axis=0)
    span = np.maximum(high - low, 1e-12 * max(1.0, float(np.abs(points).max())))
    height = min(HIGHEST, max(LOWEST, float((WIDTH - 2 * EDGE) * span[1] / span[0]) + 2 * EDGE))
    scale = float(np.min((np.array([WIDTH, height]) - 2 * EDGE) / span))
    middle = np.array([WIDTH, height]) / 2
    return (points - (low + high) / 2) * scale + middle, WIDTH, height


# ---------------------------------------------------------------------------------------------------------------------
# In files


def scatter(cloud: Cloud, path: str | Path, title: str, caption: str = "") -> Path:
    """Draw a cloud into a .svg, .png, .pdf or .html file in a folder that exists."""
    target = checked_path(path)
    with look():
        dpi = DPI if target.suffix.lower() == ".png" else DPI_INSIDE
        return save_page(scatter_page(cloud, title, caption), target, dpi)


def scatter_page(cloud: Cloud, title: str, caption: str = "") -> Any:
    """The figure; to be called within `look`."""
    points, width, height = to_page(np.asarray(cloud.points, dtype=float))
    heading, notes = Heading(title, width), Notes(caption, width)
    entries, key_height = _key_places(cloud.key, width)
    page_height = heading.height + height + key_height + notes.height + 2 * MARGIN
    page = figure(max(width, heading.width, notes.width) + 2 * MARGIN, page_height)
    heading.write(page)
    notes.write(page)
    canvas = axes_at(page, MARGIN, MARGIN + notes.height + key_height, width, height)
    canvas.set_xlim(0, width)
    canvas.set_ylim(0, height)
    canvas.set_xticks([])
    canvas.set_yticks([])
    for spine in canvas.spines.values():
        spine.set_visible(True)
        spine.set_linewidth(0.6)
    _paint_points(canvas, cloud, points, width * height)
    _paint_arrows(canvas, cloud, points)
    for label in cloud_labels(cloud, points, width, height):
        _paint_label(canvas, cloud, points, label)
    _paint_key(page, cloud.key, entries, MARGIN + notes.height)
    return page


def cloud_labels(cloud: Cloud, points: np.ndarray, width: float, height: float) -> list[Label]:
    """Where the names of a cloud go on a page; to be called within `look`."""
    order = np.asarray(cloud.order[:MOST_TRIED], dtype=int)

    def size_of(index: int) -> tuple[float, float]:
        return text_size(shown(cloud.names[order[index]]), LETTERS)[0] + 0.03, LINE

    if cloud.everyone:
        shafts = [points[a] + np.linspace(0.05, 0.95, 25)[:, None] * (points[b] - points[a]) for a, b in cloud.arrows]
        avoid = np.concatenate(shafts) if shafts else np.empty((0, 2))
        sizes = np.array([size_of(index) for index in range(len(order))]).reshape(-1, 2)
        found = place_every_label(points[order], sizes, width, height, avoid)
    else:
        found = place_labels(points[order], size_of, width, height, cloud.labels)
    return [Label(int(order[label.point]), label.box, label.line) for label in found]


def _paint_points(canvas: Any, cloud: Cloud, points: np.ndarray, area: float) -> None:
    # So many dots as there are cover about a quarter of the page; a dot stays one that can be seen.
    diameter = min(3.4, max(0.9, 72 * math.sqrt(area / (math.pi * len(points)))))
    many = len(points) > MOST_DRAWN_ONE_BY_ONE
    background = cloud.everyone and len(cloud.order) < len(points)  # behind words that were asked for
    palette = np.array([colour for colour, _ in cloud.key])
    backwards = slice(None, None, -1)  # the first points come to lie on top
    canvas.scatter(
        points[backwards, 0],
        points[backwards, 1],
        s=diameter**2,
        c=palette[cloud.groups][backwards],
        alpha=0.22 if background else 0.55 if many else 0.9,
        linewidths=0,
        rasterized=many,
        zorder=1,
    )


def _paint_arrows(canvas: Any, cloud: Cloud, points: np.ndarray) -> None:
    style: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 7, "shrinkA": 3, "shrinkB": 3, "linewidth": 0.8}
    for first, second in cloud.arrows:
        canvas.annotate(
            "",
            xy=points[second],
            xytext=points[first],
            arrowprops={**style, "color": OUTLINE, "shrinkB": 2.5},
            zorder=2,
        )
    if cloud.mean and cloud.arrows:
        start, end = points[np.asarray(cloud.arrows)].mean(axis=0)
        bold = {**style, "color": INK, "linewidth": 2.2, "mutation_scale": 14, "alpha": 0.75}
        canvas.annotate("", xy=end, xytext=start, arrowprops=bold, zorder=3)


def _paint_label(canvas: Any, cloud: Cloud, points: np.ndarray, label: Label) -> None:
    left, bottom, right, top = label.box
    x, y = points[label.point]
    colour = cloud.key[int(cloud.groups[label.point])][0]
    if label.line:
        to = (min(max(x, left), right), min(max(y, bottom), top))
        canvas.plot([x, to[0]], [y, to[1]], color=FAINT, linewidth=0.6, zorder=2.5)
    canvas.plot([x], [y], "o", markersize=4.4, color=colour, markeredgecolor="white", markeredgewidth=0.6, zorder=4)
    from matplotlib.patches import Rectangle

    # Not the text's own background: that one would follow the letters, and pages would differ from what was placed.
    canvas.add_patch(
        Rectangle((left, bottom), right - left, top - bottom, color="white", alpha=0.72, linewidth=0, zorder=4.5)
    )
    name = shown(cloud.names[label.point])
    canvas.text(
        (left + right) / 2,
        bottom + 0.27 * LINE,
        name,
        fontsize=LETTERS,
        color=INK,
        ha="center",
        va="baseline",
        zorder=5,
    )


def _key_places(key: Sequence[tuple[str, str]], width: float) -> tuple[list[tuple[float, float]], float]:
    """Where each line of the key begins, from the left and from above, and how high all are."""
    widest = max((text_size(text, SMALL)[0] for _, text in key), default=0.0) + 0.36
    columns = max(1, int(width // widest))
    places = [((i % columns) * widest, 0.18 * (i // columns)) for i in range(len(key))]
    return places, places[-1][1] + 0.32


def _paint_key(page: Any, key: Sequence[tuple[str, str]], places: Sequence[tuple[float, float]], bottom: float) -> None:
    from matplotlib.patches import Ellipse

    width, height = page.get_size_inches()
    lowest = places[-1][1]
    for (colour, text), (x, y) in zip(key, places, strict=True):
        if text:
            base = bottom + 0.06 + lowest - y
            centre = ((MARGIN + x + 0.06) / width, (base + 0.035) / height)
            page.add_artist(
                Ellipse(centre, 0.08 / width, 0.08 / height, color=colour, linewidth=0, transform=page.transFigure)
            )
            page.text((MARGIN + x + 0.16) / width, base / height, text, fontsize=SMALL, color=FAINT, va="baseline")


# ---------------------------------------------------------------------------------------------------------------------
# On the terminal


def scatter_text(cloud: Cloud, *, colour: bool = True, width: int | None = None, height: int | None = None) -> str:
    """Draw a cloud with Braille letters, eight dots each, and the names that fit; the key below."""
    size = shutil.get_terminal_size()
    columns = max(20, width if width is not None else size.columns)
    lines = max(8, height if height is not None else min(40, max(16, size.lines - 6)))
    points = np.asarray(cloud.points, dtype=float)
    low, high = points.min(axis=0), points.max(axis=0)
    span = np.where(high > low, high - low, 1.0)
    # (column, line) in dots: 2 across and 4 down in each letter.
    fine = (points - low) / span * (np.array([2 * columns, 4 * lines]) - 1)
    x, y = np.rint(fine[:, 0]).astype(int), 4 * lines - 1 - np.rint(fine[:, 1]).astype(int)
    dots = np.zeros((4 * lines, 2 * columns), dtype=int)
    np.add.at(dots, (y, x), 1)
    # Where most of the page would be full, only its denser places are shown.
    filled = np.sort(dots[dots > 0])
    least = filled[int(0.6 * len(filled))] if len(filled) > 0.35 * dots.size else 1
    letters = np.zeros((lines, columns), dtype=int)
    for across in range(2):
        for down in range(4):
            letters |= np.where(dots[down::4, across::2] >= least, DOTS[across][down], 0)
    owner = np.full((lines, columns), -1)
    owner[y[::-1] // 4, x[::-1] // 2] = np.asarray(cloud.groups)[::-1]  # the first point of a cell decides
    page = [
        [
            (chr(0x2800 + letters[row, column]), int(owner[row, column])) if letters[row, column] else (" ", -1)
            for column in range(columns)
        ]
        for row in range(lines)
    ]
    _write_names(page, cloud, x // 2, y // 4)
    drawn = [_joined(row, cloud.key, colour) for row in page]
    key = [
        (painted("●", hue) if colour else "●") + f" {text}"
        for hue, text in cloud.key
        if text and (colour or not _many(cloud))
    ]
    return "\n".join([*drawn, *([""] if key else []), *key])


def _many(cloud: Cloud) -> bool:
    """Whether colours tell points apart; without them their key says nothing."""
    return len(cloud.key) > 1


def _write_names(page: list[list[tuple[str, int]]], cloud: Cloud, x: np.ndarray, y: np.ndarray) -> None:
    """Write names beside their points, where no other name stands; a blank stays between two."""
    lines, columns = len(page), len(page[0])
    taken = np.zeros((lines, columns + 2), dtype=bool)
    written = 0
    for index in cloud.order[:MOST_TRIED]:
        if written == cloud.labels and not cloud.everyone:
            break
        name = shown(cloud.names[index])
        size, row, column = display_width(name), int(y[index]), int(x[index])
        for text, start in ((f"•{name}", column), (f"{name}•", column - size)):
            end = start + size + 1
            if start < 0 or end > columns or taken[row, start : end + 2].any():
                continue
            taken[row, start : end + 2] = True  # shifted by one: from the blank before to the blank after
            place = start
            for char in text:
                wide = display_width(char)
                if wide == 0:  # a combining mark joins the letter before it
                    before, group = page[row][place - 1]
                    page[row][place - 1] = (before + char, group)
                    continue
                page[row][place] = (char, int(cloud.groups[index]) if char == "•" else -1)
                if wide == 2:
                    page[row][place + 1] = ("", -1)
                place += wide
            for beside in (start - 1, end):
                if 0 <= beside < columns:
                    page[row][beside] = (" ", -1)
            written += 1
            break


def _joined(row: Sequence[tuple[str, int]], key: Sequence[tuple[str, str]], colour: bool) -> str:
    """One line, neighbours of the same colour in one stretch."""
    if not colour:
        return "".join(text for text, _ in row).rstrip()
    parts: list[tuple[str, int]] = []
    for text, group in row:
        if parts and parts[-1][1] == group:
            parts[-1] = (parts[-1][0] + text, group)
        else:
            parts.append((text, group))
    return "".join(painted(text, key[group][0]) if group >= 0 else text for text, group in parts).rstrip()
