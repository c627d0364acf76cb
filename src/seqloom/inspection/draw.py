"""Pictures: heat maps, units through time, curves.

Every picture is laid out in inches from the measured size of its labels, so that nothing overlaps and nothing is cut
off: cells keep their size and the page grows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.inspection.page import (
    FAINT,
    INK,
    LABEL,
    LINES,
    MARGIN,
    MARKERS,
    OUTLINE,
    PAD,
    PAPER,
    RULE,
    SMALL,
    TINY,
    TITLE,
    Heading,
    Notes,
    axes_at,
    checked_path,
    figure,
    look,
    save_page,
    text_size,
)
from seqloom.inspection.terminal import DIVERGING, SEQUENTIAL, format_number, limits, shade_of, shown

MARK = "#d55e00"

# Sizes in inches, angles in degrees.
CELL = 0.32
MOST_CELLS = 60
LEAST_RULED = 0.15  # a cell so large has a line around it
MOST_NAMED = 24  # units of which each has its number beside it
SLANT = 45.0


@dataclass(frozen=True, eq=False)
class Panel:
    """One heat map: (rows, columns) values, a label for each row and column, and cells (row, column) to frame.

    With `numbers` the values are written into their cells, instead of a bar of colours beside them.
    """

    matrix: Any
    rows: Sequence[str]
    columns: Sequence[str]
    title: str = ""
    marks: Iterable[tuple[int, int]] = ()
    low: float | None = None
    high: float | None = None
    numbers: bool = False
    digits: int = 2
    cell: float = CELL


@dataclass(frozen=True, eq=False)
class Block:
    """A grid of small heat maps that share their labels: one (columns of the grid, rows, columns) array a line.

    `names` name the lines; the columns of the grid are heads, counted from 0.
    """

    title: str
    lines: Sequence[Any]
    names: Sequence[str]
    rows: Sequence[str]
    columns: Sequence[str]


@dataclass(frozen=True, eq=False)
class Band:
    """Many units through time, (time, units): `units` of them are drawn, in that order, above the mean over all."""

    matrix: Any
    title: str
    units: Sequence[int]
    low: float | None = None
    high: float | None = None

    @property
    def names(self) -> list[str]:
        return list(map(str, self.units))


# ---------------------------------------------------------------------------------------------------------------------
# Heat maps


def heatmap(
    matrix: Any,
    rows: Sequence[str],
    columns: Sequence[str],
    title: str,
    path: str | Path | None,
    *,
    marks: Iterable[tuple[int, int]] = (),
    marks_label: str = "gold alignment",
    low: float | None = None,
    high: float | None = None,
    numbers: bool = False,
) -> Any:
    """Draw one matrix with its columns named along the top and its rows on the left.

    Args:
        matrix: (rows, columns).
        rows: A label for each row.
        columns: A label for each column; slanted only where they would not fit side by side.
        title: A heading, or "".
        path: A .svg, .png, .pdf or .html file in a folder that exists; None: give back the figure instead.
        marks: Cells (row, column) to frame.
        marks_label: What a frame means.
        low: The value of the lightest colour; see `terminal.value_range` for what is chosen otherwise.
        high: The value of the darkest colour.
        numbers: Write the values into their cells, instead of a bar of colours beside them.
    """
    panel = Panel(matrix, rows, columns, "", marks=tuple(marks), low=low, high=high, numbers=numbers)
    return panels([panel], path, title, marks_label=marks_label)


def panels(
    items: Sequence[Panel],
    path: str | Path | None,
    title: str = "",
    *,
    across: int | None = None,
    marks_label: str = "gold alignment",
    caption: str = "",
) -> Any:
    """Draw several heat maps in one figure, `across` of them side by side (as many as fit a page if None).

    Without a path the figure itself is given back.
    """
    assert items, "no panel to draw"
    target = None if path is None else checked_path(path)
    with look():
        places = [_place(item) for item in items]
        if across is None:
            widest = max(place.width for place in places)
            across = max(1, min(len(items), int(13.0 // widest), math.ceil(math.sqrt(len(items)))))
        gap = 0.22
        wide = [max(place.width for place in places[column::across]) for column in range(min(across, len(items)))]
        deep = [max(place.height for place in places[i : i + across]) for i in range(0, len(places), across)]
        content = sum(wide) + (len(wide) - 1) * gap
        heading = Heading(title, content)
        marked = any(tuple(item.marks) for item in items)
        notes = Notes(caption, content)
        footer = notes.height + (0.26 if marked else 0.0) + (0.1 if caption else 0.0)
        width = max(content, heading.width, notes.width) + 2 * MARGIN
        height = heading.height + sum(deep) + (len(deep) - 1) * gap + footer + 2 * MARGIN
        page = figure(width, height)
        heading.write(page)
        for index, (item, place) in enumerate(zip(items, places, strict=True)):
            row, column = divmod(index, across)
            left = MARGIN + sum(wide[:column]) + column * gap
            top = height - MARGIN - heading.height - sum(deep[:row]) - row * gap
            _paint(page, item, place, left, top)
        if marked:
            _mark_legend(page, marks_label, MARGIN + notes.height)
        notes.write(page)
        return page if target is None else save_page(page, target)


@dataclass(frozen=True)
class _Place:
    """The room one heat map needs, in inches, and how its labels are set."""

    cell: float
    slanted: bool
    row_step: int
    column_step: int
    left: float
    top: float
    right: float

    num_rows: int
    num_columns: int

    @property
    def inner_width(self) -> float:
        return self.cell * self.num_columns

    @property
    def inner_height(self) -> float:
        return self.cell * self.num_rows

    @property
    def width(self) -> float:
        return self.left + self.inner_width + self.right

    @property
    def height(self) -> float:
        return self.top + self.inner_height


def _place(item: Panel) -> _Place:
    shape = np.asarray(item.matrix).shape
    assert shape == (len(item.rows), len(item.columns)), (
        f"a matrix of {shape} cannot carry {len(item.rows)} row and {len(item.columns)} column labels"
    )
    assert min(shape) > 0, "an empty matrix cannot be drawn"
    for mark in item.marks:
        assert all(0 <= place < size for place, size in zip(mark, shape, strict=True)), f"{mark} is outside {shape}"
    # Beyond the number of tokens one can read anyway, the page stops growing and labels are left out instead.
    cell = item.cell * min(1.0, MOST_CELLS / max(shape))
    step = max(1, math.ceil(0.2 / cell))
    sizes = [text_size(shown(label)) for label in item.columns]
    longest = max(width for width, _ in sizes)
    slanted = longest > 0.9 * cell * step
    left = max(text_size(shown(label))[0] for label in item.rows) + PAD
    title_size = text_size(item.title, TITLE)
    title_height = title_size[1] + 0.1 if item.title else 0.0
    bar = 0.0 if item.numbers else 0.12 + 0.09 + 0.05 + _bar_label_width(item)
    if slanted:
        angle = math.radians(SLANT)
        label_height = longest * math.sin(angle) + 0.13 * math.cos(angle)
        reach = max(
            (i + 0.5) * cell + width * math.cos(angle) + 0.05 for i, (width, _) in enumerate(sizes) if i % step == 0
        )
        right = max(bar, reach - cell * shape[1])
    else:
        label_height, right = 0.15, bar
    right = max(right, title_size[0] - left - cell * shape[1])
    return _Place(cell, slanted, step, step, left, label_height + PAD + title_height, right, *shape)


def _paint(page: Any, item: Panel, place: _Place, left: float, top: float) -> None:
    values = np.asarray(item.matrix, dtype=float)
    low, high = limits(values, item.low, item.high)
    axes = axes_at(page, left + place.left, top - place.height, place.inner_width, place.inner_height)
    mesh = _cells(axes, values, low, high, grid=place.cell >= LEAST_RULED)
    axes.set_xlim(0, values.shape[1])
    axes.set_ylim(values.shape[0], 0)
    columns, rows = range(0, values.shape[1], place.column_step), range(0, values.shape[0], place.row_step)
    axes.set_xticks([])
    axes.set_yticks([])
    # Labels are placed as texts, not as tick labels: a tick label's distance depends on its own rotated box.
    page_width, page_height = page.get_size_inches()
    for column in columns:
        x = (left + place.left + (column + 0.5) * place.cell) / page_width
        y = (top - place.height + place.inner_height + PAD) / page_height
        style: dict[str, Any] = (
            {"rotation": SLANT, "ha": "left", "va": "baseline", "rotation_mode": "anchor"}
            if place.slanted
            else {"ha": "center", "va": "baseline"}
        )
        page.text(x, y, shown(item.columns[column]), fontsize=LABEL, color=INK, **style)
    for row in rows:
        x = (left + place.left - PAD) / page_width
        y = (top - place.height + place.inner_height - (row + 0.5) * place.cell) / page_height
        page.text(x, y, shown(item.rows[row]), fontsize=LABEL, color=INK, ha="right", va="center_baseline")
    if item.title:
        page.text(left / page_width, top / page_height, item.title, fontsize=TITLE, color=INK, ha="left", va="top")
    _draw_marks(axes, item.marks)
    if item.numbers:
        _write_numbers(axes, values, low, high, item.digits)
        return
    bar_height = min(place.inner_height, 1.25)
    bar = axes_at(
        page,
        left + place.left + place.inner_width + 0.12,
        top - place.height + (place.inner_height - bar_height),
        0.09,
        bar_height,
    )
    _colour_bar(page, bar, mesh, low, high)


def _cells(axes: Any, values: np.ndarray, low: float, high: float, *, grid: bool) -> Any:
    colours = _colour_map(low, high)
    if grid and values.size <= MOST_CELLS**2:
        # A cell without a value is left out altogether, so that it cannot be taken for a zero.
        edges = RULE if np.isfinite(values).all() else [RULE if known else "none" for known in np.isfinite(values).flat]
        return axes.pcolormesh(values, cmap=colours, vmin=low, vmax=high, edgecolors=edges, linewidth=0.4)
    extent = (0, values.shape[1], values.shape[0], 0)
    return axes.imshow(values, cmap=colours, vmin=low, vmax=high, extent=extent, aspect="auto", interpolation="nearest")


def _write_numbers(axes: Any, values: np.ndarray, low: float, high: float, digits: int) -> None:
    colours = DIVERGING if low < 0 < high else SEQUENTIAL
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            _, dark = shade_of(colours, (value - low) / (high - low))
            text = f"{round(value, digits) + 0.0:.{digits}f}" if abs(value) < 9.995 else f"{value:.1f}"  # never −0.00
            style: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": TINY}
            axes.text(column + 0.5, row + 0.5, text.replace("-", "−"), color="#ffffff" if dark else INK, **style)


def _draw_marks(axes: Any, marks: Iterable[tuple[int, int]]) -> None:
    from matplotlib.patches import Rectangle

    for row, column in sorted(set(marks)):
        # A white frame below the coloured one keeps it visible on the darkest cells.
        for colour, weight in (("#ffffff", 3.0), (MARK, 1.5)):
            axes.add_patch(
                Rectangle((column + 0.2, row + 0.2), 0.6, 0.6, fill=False, edgecolor=colour, linewidth=weight)
            )


def _mark_legend(page: Any, label: str, bottom: float) -> None:
    from matplotlib.patches import Rectangle

    width, height = page.get_size_inches()
    side = 0.11
    page.add_artist(
        Rectangle(
            (MARGIN / width, bottom / height),
            side / width,
            side / height,
            fill=False,
            edgecolor=MARK,
            linewidth=1.5,
            transform=page.transFigure,
        )
    )
    page.text((MARGIN + side + 0.07) / width, bottom / height, label, fontsize=SMALL, color=FAINT, va="baseline")


def _colour_bar(page: Any, axes: Any, mesh: Any, low: float, high: float) -> None:
    from matplotlib.ticker import FuncFormatter

    figures = FuncFormatter(lambda value, _: format_number(value))
    bar = page.colorbar(mesh, cax=axes, ticks=[low, high], format=figures)
    bar.outline.set_visible(False)
    # The two figures stay within the bar's height, so that neighbours never touch.
    lower, upper = axes.get_yticklabels()
    lower.set_verticalalignment("bottom")
    upper.set_verticalalignment("top")
    axes.tick_params(length=0, pad=2, labelsize=SMALL, labelcolor=FAINT)


def _bar_label_width(item: Panel | Band) -> float:
    low, high = limits(item.matrix, item.low, item.high)
    return max(text_size(format_number(low), SMALL)[0], text_size(format_number(high), SMALL)[0])


def _colour_map(low: float, high: float) -> Any:
    from matplotlib.colors import LinearSegmentedColormap

    name, anchors = ("seqloom-signed", DIVERGING) if low < 0 < high else ("seqloom", SEQUENTIAL)
    return LinearSegmentedColormap.from_list(name, list(anchors)).with_extremes(bad="#ffffff")


# ---------------------------------------------------------------------------------------------------------------------
# Grids of small heat maps

SMALL_CELL = 0.19
LEAST_LABELLED = 0.105  # a cell as high as the smallest letters


def blocks(
    items: Sequence[Block],
    path: str | Path,
    title: str = "",
    caption: str = "",
    *,
    unlabelled: str = "",
    low: float = 0.0,
    high: float = 1.0,
) -> Path:
    """Draw many small heat maps with one scale of colours, block by block.

    Rows are labelled left of a line's first heat map, columns below each column of the grid. Cells without a value stay
    empty, outside the frame. `unlabelled` is added to the caption where cells are too small for labels.
    """
    assert items, "no block to draw"
    target = checked_path(path)
    with look():
        most = max(len(line) for item in items for line in item.lines)
        longest = max(max(len(item.rows), len(item.columns)) for item in items)
        # Sentences may take more room for the sake of their labels, as long as all heads fit side by side on a page.
        side = min(12.0 / most, max(1.9, min(3.0, 0.11 * longest)))
        cell = min(SMALL_CELL, max(0.9, side) / longest)
        labelled = cell >= LEAST_LABELLED
        rooms = _rooms(items, cell, labelled)
        across = _balanced(rooms)
        wide = [max(room.width for room in rooms[i::across]) for i in range(across)]
        deep = [max(room.height for room in rooms[i : i + across]) for i in range(0, len(rooms), across)]
        between, bar_room = 0.34, 0.62
        content = sum(wide) + (across - 1) * between + bar_room
        heading = Heading(title, content)
        notes = Notes(caption if labelled else f"{caption} {unlabelled}", content)
        width = max(content, heading.width, notes.width) + 2 * MARGIN
        height = heading.height + sum(deep) + (len(deep) - 1) * between + 0.12 + notes.height + 2 * MARGIN
        page = figure(width, height)
        heading.write(page)
        # One pair of axes for the whole page, in inches: hundreds of pairs would take many seconds.
        canvas = axes_at(page, 0.0, 0.0, width, height)
        canvas.set_axis_off()
        canvas.set_xlim(0, width)
        canvas.set_ylim(0, height)
        for index, (item, room) in enumerate(zip(items, rooms, strict=True)):
            column, row = index % across, index // across
            left = MARGIN + sum(wide[:column]) + column * between
            top = height - MARGIN - heading.height - sum(deep[:row]) - row * between
            mesh = _paint_block(canvas, item, room, left, top, low, high)
        bar = axes_at(page, MARGIN + content - bar_room + 0.2, height - MARGIN - heading.height - 1.6, 0.09, 1.25)
        _colour_bar(page, bar, mesh, low, high)
        notes.write(page)
        return save_page(page, target)


@dataclass(frozen=True)
class _Room:
    """The room one block needs, in inches; `slot` is that of one heat map and its title."""

    inner: tuple[float, float]
    slot: float
    left: float
    below: float
    num_lines: int
    num_maps: int
    title_width: float

    title, heading, gap = 0.25, 0.17, 0.13

    @property
    def step(self) -> float:
        return self.heading + self.inner[1] + self.gap

    @property
    def width(self) -> float:
        return max(self.left + self.num_maps * (self.slot + self.gap) - self.gap, self.title_width)

    @property
    def height(self) -> float:
        return self.title + self.num_lines * self.step - self.gap + self.below


def _letters(cell: float) -> float:
    """Size of labels beside cells of a height in inches: as large as fits, so that a small page can be read."""
    return min(LABEL + 1, max(TINY, 0.7 * 72 * cell))


def _rooms(items: Sequence[Block], cell: float, labelled: bool) -> list[_Room]:
    """Slots are the same everywhere, so that the columns of all blocks are in line."""
    titles = [
        _head_title(name, len(line) - 1) for item in items for name, line in zip(item.names, item.lines, strict=True)
    ]
    slot = max(max(text_size(title, SMALL)[0] for title in titles), max(cell * len(item.columns) for item in items))

    letters = _letters(cell)

    def longest(labels: Iterable[str]) -> float:
        return max(text_size(shown(label), letters)[0] for label in labels) + PAD if labelled else 0.0

    left = longest(label for item in items for label in item.rows)
    return [
        _Room(
            inner=(cell * len(item.columns), cell * len(item.rows)),
            slot=slot,
            left=left,
            below=longest(item.columns),
            num_lines=len(item.lines),
            num_maps=max(map(len, item.lines)),
            title_width=text_size(item.title, LABEL)[0],
        )
        for item in items
    ]


def _balanced(rooms: Sequence[_Room]) -> int:
    """How many blocks stand side by side, one or all: whichever makes the page's longer edge shorter."""
    wide, high = [room.width for room in rooms], [room.height for room in rooms]
    return 1 if max(max(wide), sum(high)) <= max(sum(wide), max(high)) else len(rooms)


def _head_title(name: str, number: int) -> str:
    return f"{name} · head {number}"


def _paint_block(canvas: Any, item: Block, room: _Room, left: float, top: float, low: float, high: float) -> Any:
    canvas.text(left, top, item.title, fontsize=LABEL, color=INK, va="top")
    wide, tall = room.inner
    cell, colours, image = tall / len(item.rows), _colour_map(low, high), None
    style: dict[str, Any] = {"fontsize": _letters(cell), "color": INK}
    for row, (name, line) in enumerate(zip(item.names, item.lines, strict=True)):
        upper = top - room.title - row * room.step
        ceiling = upper - room.heading
        floor = ceiling - tall
        for number, matrix in enumerate(line):
            x = left + room.left + number * (room.slot + room.gap)
            canvas.text(x, upper, _head_title(name, number), fontsize=SMALL, color=FAINT, va="top")
            values = np.asarray(matrix, dtype=float)
            image = canvas.imshow(
                values,
                cmap=colours,
                vmin=low,
                vmax=high,
                extent=(x, x + wide, floor, ceiling),
                aspect="auto",
                interpolation="nearest",
            )
            _outline(canvas, np.isfinite(values), x, ceiling, cell)
            if room.below and row == len(item.lines) - 1:
                for i, label in enumerate(item.columns):
                    place = x + (i + 0.5) * cell
                    canvas.text(place, floor - PAD, shown(label), rotation=90, ha="center", va="top", **style)
        if room.left:
            for i, label in enumerate(item.rows):
                place = ceiling - (i + 0.5) * cell
                canvas.text(left + room.left - PAD, place, shown(label), ha="right", va="center_baseline", **style)
    return image


def _outline(canvas: Any, known: np.ndarray, left: float, top: float, cell: float) -> None:
    """A line around the cells that have a value."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Line

    edged = np.pad(known, 1)
    ends = [
        *(((column - 1, row), (column, row)) for row, column in np.argwhere(edged[1:] != edged[:-1])),
        *(((column, row - 1), (column, row)) for row, column in np.argwhere(edged[:, 1:] != edged[:, :-1])),
    ]
    points = np.reshape(ends, (-1, 2)) * (cell, -cell) + (left, top)
    line = Line(points, [Line.MOVETO, Line.LINETO] * len(ends))
    canvas.add_patch(PathPatch(line, fill=False, edgecolor=OUTLINE, linewidth=0.6, capstyle="round"))


# ---------------------------------------------------------------------------------------------------------------------
# Units through time


def bands(
    items: Sequence[Band],
    columns: Sequence[str],
    path: str | Path,
    title: str = "",
    caption: str = "",
    *,
    across: int | None = None,
) -> Path:
    """Draw many units through time: time from left to right, one line of cells for each unit, their mean below.

    The bands fill column after column, `across` columns in all (one if the sentence is long, else two); the labels of
    the time axis stand below each column.
    """
    assert items, "no band to draw"
    target = checked_path(path)
    for item in items:
        assert np.asarray(item.matrix).shape[0] == len(columns), f"{item.title}: time steps and labels differ"
    with look():
        steps = len(columns)
        if across is None:
            across = 1 if len(items) < 3 or steps > 18 else 2
        deep = math.ceil(len(items) / across)
        cell = CELL * min(1.0, MOST_CELLS / steps)
        inner = cell * steps
        sizes = [text_size(shown(label)) for label in columns]
        longest = max(width for width, _ in sizes)
        step = max(1, math.ceil(0.2 / cell))
        slanted = longest > 0.9 * cell
        angle = math.radians(SLANT)
        label_height = (longest * math.sin(angle) + 0.12 if slanted else 0.15) + PAD
        # A slanted label ends below its cell and begins further left.
        reach = (
            max(width * math.cos(angle) - (i + 0.5) * cell for i, (width, _) in enumerate(sizes)) + 0.12
            if slanted
            else 0.0
        )
        left = max(0.44, reach)
        right = max(0.42, 0.12 + 0.09 + 0.05 + max(_bar_label_width(item) for item in items))
        wide = max(left + inner + right, max(text_size(item.title, LABEL)[0] for item in items) + left)
        deepest = max(len(item.units) for item in items)
        units_high = 0.11 * deepest if deepest <= MOST_NAMED else min(1.8, max(0.5, 0.05 * deepest))
        mean_high, title_high, gap, between = 0.36, 0.22, 0.2, 0.3
        band_high = title_high + units_high + PAD + mean_high
        content = across * wide + (across - 1) * between
        heading = Heading(title, content)
        notes = Notes(caption, content)
        width = max(content, heading.width, notes.width) + 2 * MARGIN
        height = heading.height + deep * band_high + (deep - 1) * gap + label_height + notes.height + 2 * MARGIN
        page = figure(width, height)
        heading.write(page)
        for index, item in enumerate(items):
            x = MARGIN + (index // deep) * (wide + between) + left
            y = height - MARGIN - heading.height - (index % deep) * (band_high + gap)
            _paint_band(page, item, x, y, inner, (title_high, units_high, mean_high))
            if index % deep == deep - 1 or index == len(items) - 1:
                for i in range(0, steps, step):
                    style: dict[str, Any] = (
                        {"rotation": SLANT, "ha": "right", "va": "top", "rotation_mode": "anchor"}
                        if slanted
                        else {"ha": "center", "va": "top"}
                    )
                    page.text(
                        (x + (i + 0.5) * cell) / width,
                        (y - band_high - PAD) / height,
                        shown(columns[i]),
                        fontsize=LABEL,
                        color=INK,
                        **style,
                    )
        notes.write(page)
        return save_page(page, target)


def _paint_band(page: Any, item: Band, x: float, y: float, inner: float, heights: tuple[float, float, float]) -> None:
    title_high, units_high, mean_high = heights
    values = np.asarray(item.matrix, dtype=float)
    steps, units = len(values), len(item.units)
    low, high = limits(values, item.low, item.high)
    width, height = page.get_size_inches()
    page.text(x / width, y / height, item.title, fontsize=LABEL, color=INK, va="top")
    upper = axes_at(page, x, y - title_high - units_high, inner, units_high)
    mesh = _cells(upper, values.T[list(item.units)], low, high, grid=False)
    upper.set_xticks([])
    names = item.names if units <= MOST_NAMED else None
    upper.set_yticks([] if names is None else [line + 0.5 for line in range(units)])
    upper.set_yticklabels(names or [], fontsize=TINY, color=FAINT)
    upper.tick_params(length=0, pad=2)
    lower = axes_at(page, x, y - title_high - units_high - PAD - mean_high, inner, mean_high)
    middle = np.arange(steps) + 0.5
    means = values.mean(axis=1)
    # The mean moves far less than the units do, so it has a scale of its own, though never one that magnifies noise.
    finite = means[np.isfinite(means)] if np.isfinite(means).any() else np.zeros(1)
    centre = float(finite.max() + finite.min()) / 2
    reach = max(float(finite.max() - finite.min()) / 2, 0.05 * (high - low))
    lower.axhspan(centre - 1.3 * reach, centre + 1.3 * reach, color=SEQUENTIAL[0], linewidth=0)
    if abs(centre) < 1.3 * reach and low < 0:
        lower.axhline(0, color=RULE, linewidth=0.8)
    lower.plot(middle, means, color=LINES[0], linewidth=1.3, marker="o", markersize=2.4)
    lower.set_xlim(0, steps)
    lower.set_ylim(centre - 1.3 * reach, centre + 1.3 * reach)
    lower.set_xticks([])
    lower.set_yticks([])
    page.text(
        (x + inner + 0.08) / width,
        (y - title_high - units_high - PAD - mean_high / 2) / height,
        f"mean\n{finite.min():.2f} …\n{finite.max():.2f}".replace("-", "−"),
        fontsize=TINY,
        color=FAINT,
        va="center",
        linespacing=1.1,
    )
    bar = axes_at(page, x + inner + 0.12, y - title_high - units_high, 0.09, units_high)
    _colour_bar(page, bar, mesh, low, high)


# ---------------------------------------------------------------------------------------------------------------------
# Lines


def lines(
    series: Mapping[str, Sequence[tuple[float, float]]],
    xlabel: str,
    ylabel: str,
    title: str,
    path: str | Path,
    *,
    ticks: Sequence[tuple[float, str]] | None = None,
    bands: Mapping[str, Sequence[tuple[float, float, float]]] | None = None,
    hollow: Iterable[float] = (),
    caption: str = "",
) -> Path:
    """Draw one line for each series, named at its right end in its own colour, on an axis that begins at 0.

    `ticks` replaces the numbers along the horizontal axis by (place, label). `bands` are (place, low, high) of one,
    drawn behind it; points at the places `hollow` are not filled.
    """
    drawn = {name: sorted((float(x), float(y)) for x, y in points) for name, points in series.items() if points}
    assert drawn, "no point to draw"
    target = checked_path(path)
    with look():
        names = list(drawn)
        apart = 0.19
        inner_height = max(2.7, apart * len(names) + 0.2)
        inner_width = 4.8
        if ticks:
            widest = max(text_size(part, LABEL)[0] for _, label in ticks for part in label.split("\n"))
            inner_width = max(inner_width, len(ticks) * (widest + 0.16))
        tick_lines = max(label.count("\n") + 1 for _, label in ticks) if ticks else 1
        right = 0.34 + max(text_size(shown(name))[0] for name in names)
        left, bottom = 0.68, 0.34 + 0.16 * tick_lines
        content = left + inner_width + right
        heading, notes = Heading(title, content), Notes(caption, content)
        foot = notes.height + (0.08 if caption else 0.0)
        height = heading.height + 0.08 + inner_height + bottom + foot + 2 * MARGIN
        page = figure(max(content, heading.width, notes.width) + 2 * MARGIN, height)
        heading.write(page)
        notes.write(page)
        axes = axes_at(page, MARGIN + left, MARGIN + foot + bottom, inner_width, inner_height, frame=True)
        places = set(hollow)
        for index, name in enumerate(names):
            xs, ys = zip(*drawn[name], strict=True)
            colour = LINES[index % len(LINES)]
            if bands and name in bands:
                where, low, high = zip(*sorted(bands[name]), strict=True)
                axes.fill_between(where, low, high, color=colour, alpha=0.15, linewidth=0, zorder=1)
            style: dict[str, Any] = {"color": colour, "clip_on": False, "zorder": 3}
            axes.plot(xs, ys, linewidth=1.6, linestyle="-" if index < len(LINES) else "--", **style)
            style |= {"marker": MARKERS[index % len(MARKERS)], "markersize": 4.5, "linestyle": ""}
            for x, y in drawn[name] if len(xs) <= 30 else ():
                axes.plot([x], [y], markerfacecolor=PAPER if x in places else colour, **style)
        axes.margins(x=0.03, y=0.08)
        if min(y for points in drawn.values() for _, y in points) >= 0:
            axes.set_ylim(bottom=0.0)
        axes.grid(axis="y", color=RULE, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(length=3, color=RULE, labelsize=LABEL, labelcolor=INK)
        if ticks:
            axes.set_xticks([place for place, _ in ticks], [label for _, label in ticks])
        axes.set_xlabel(xlabel, fontsize=LABEL, color=FAINT)
        axes.set_ylabel(ylabel, fontsize=LABEL, color=FAINT)
        _name_lines(axes, drawn, inner_width, inner_height, apart)
        return save_page(page, target)


def _name_lines(
    axes: Any, drawn: Mapping[str, Sequence[tuple[float, float]]], width: float, height: float, apart: float
) -> None:
    """Write each name beside the end of its line, moved up or down as far as its neighbours need."""
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    names = list(drawn)
    ends = {name: (drawn[name][-1][1] - bottom) / (top - bottom) * height for name in names}
    order = sorted(names, key=lambda name: ends[name])
    heights = spread([ends[name] for name in order], apart, 0.0, height)
    for name, place in zip(order, heights, strict=True):
        colour = LINES[names.index(name) % len(LINES)]
        x = (drawn[name][-1][0] - left) / (right - left)
        axes.annotate(
            shown(name),
            xy=(x, ends[name] / height),
            xytext=(1 + 0.2 / width, place / height),
            xycoords="axes fraction",
            textcoords="axes fraction",
            fontsize=LABEL,
            color=colour,
            va="center",
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "alpha": 0.5, "shrinkA": 1, "shrinkB": 3},
        )


def spread(places: Sequence[float], apart: float, low: float, high: float) -> list[float]:
    """Move rising places as little as needed until neighbours are `apart`, staying between low and high if possible."""
    moved: list[float] = []
    for place in places:
        moved.append(max(place, low) if not moved else max(place, moved[-1] + apart))
    limit = high
    for index in range(len(moved) - 1, -1, -1):
        moved[index] = min(moved[index], limit)
        limit = moved[index] - apart
    return moved
