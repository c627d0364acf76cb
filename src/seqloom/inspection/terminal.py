"""Heat maps and bars made of characters, and what terminals share with pictures: colours, value ranges, labels.

Nothing here needs matplotlib; `draw` takes from this file what both need.
"""

from __future__ import annotations

import math
import os
import shutil
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from seqloom.inspection.theme import on_page

# Light to dark in one hue survives every kind of colour blindness and a grey printer; orange against blue is the pair
# that the most common kinds can tell apart.
SEQUENTIAL = ("#f7f9fc", "#d6e4f1", "#9dc3e0", "#5598c9", "#22659f", "#0a2f5c")
DIVERGING = ("#7f3b08", "#cf7418", "#f5c88b", "#f7f7f7", "#a9cbe6", "#4287bd", "#0a3a6e")

SHADES = " ░▒▓█"
LONGEST_LABEL = 40


def to_terminal(
    matrix: Any,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    colour: bool = True,
    width: int | None = None,
    low: float | None = None,
    high: float | None = None,
) -> str:
    """Draw a matrix with characters.

    Column labels stand side by side where the terminal is wide enough for them, long ones shortened if need be, and
    run downwards where it is not. A matrix wider than the terminal is continued below.

    Args:
        matrix: (rows, columns).
        rows: A label for each row.
        columns: A label for each column.
        colour: Colour the background; otherwise shades from " " to "█" are used.
        width: Characters in a line; the terminal's if None.
        low: The value of the lightest cell; see `value_range` for what is chosen otherwise.
        high: The value of the darkest cell.
    """
    values = np.asarray(matrix, dtype=float)
    assert values.shape == (len(rows), len(columns)), (
        f"a matrix of {values.shape} cannot carry {len(rows)} row and {len(columns)} column labels"
    )
    if not values.size:
        return "(empty)"
    low, high = limits(values, low, high)
    width = width if width is not None else shutil.get_terminal_size().columns
    room = max(10, width)
    names = [shorten(shown(label), max(6, min(24, room // 3))) for label in rows]
    left = max(display_width(name) for name in names)
    labels = [shown(label) for label in columns]
    side_by_side = False
    for most in (LONGEST_LABEL, 16, 12, 9):
        cut = [shorten(label, most) for label in labels]
        flat = [max(2, display_width(label)) for label in cut]
        side_by_side = left + sum(size + 1 for size in flat) <= room
        if side_by_side:
            labels = cut
            break
    if side_by_side:
        blocks = [range(len(labels))]
    else:
        per_block = max(1, (room - left - 1) // 2)
        blocks = [range(start, min(start + per_block, len(labels))) for start in range(0, len(labels), per_block)]
    parts = []
    for block in blocks:
        if side_by_side:
            text = ["".join(" " + _fit(labels[i], flat[i]) for i in block)]
            sizes, gap = flat, " "
        else:
            text = [" " + line for line in _downwards([labels[i] for i in block], longest=16)]
            sizes, gap = [2] * len(labels), ""
        drawn = [" " * left + line for line in text]
        for name, row in zip(names, values, strict=True):
            cells = gap.join(_cell(row[i], low, high, sizes[i], colour) for i in block)
            drawn.append(" " * (left - display_width(name)) + name + " " + cells)
        parts.append("\n".join(line.rstrip(" ") for line in drawn))
    return "\n\n".join(parts) + "\n\n" + _scale(left, low, high, colour)


def shades(values: Any, *, colour: bool = True, low: float = 0.0, high: float = 1.0, size: int = 2) -> str:
    """Draw a row of values as cells of `size` characters with a space between them."""
    return " ".join(_cell(value, low, high, size, colour) for value in np.asarray(values, dtype=float))


def bar(part: float, size: int) -> str:
    """A bar of at most `size` characters for a share from 0 to 1, drawn to the eighth of a character."""
    eighths = round(min(1.0, max(0.0, part)) * size * 8) if math.isfinite(part) else 0
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def painted(text: str, colour: str) -> str:
    """A text in a colour such as #0072b2, for a terminal that shows colours."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return _painted(text, (red, green, blue), ground=38)


def _painted(text: str, colour: tuple[int, int, int], ground: int) -> str:
    """`ground` is 38 for the letters, 48 for what is behind them."""
    shade = on_page("#" + "".join(f"{part:02x}" for part in colour))
    red, green, blue = (int(shade[i : i + 2], 16) for i in (1, 3, 5))
    if os.environ.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return f"\x1b[{ground};2;{red};{green};{blue}m{text}\x1b[0m"
    return f"\x1b[{ground};5;{_nearest_of_256(red, green, blue)}m{text}\x1b[0m"


def _fit(text: str, size: int) -> str:
    return text + " " * (size - display_width(text))


def _downwards(labels: Sequence[str], longest: int) -> list[str]:
    """Labels written from top to bottom in columns two characters wide, ending on the same line."""
    letters = []
    for label in labels:
        stack: list[str] = []
        for char in label:
            if stack and display_width(char) == 0:
                stack[-1] += char
            else:
                stack.append(char)
        letters.append(stack if len(stack) <= longest else [*stack[: longest - 1], "⋮"])
    height = max(len(stack) for stack in letters)
    padded = [[""] * (height - len(stack)) + stack for stack in letters]
    return ["".join(_fit(stack[line], 2) for stack in padded) for line in range(height)]


def _cell(value: float, low: float, high: float, size: int, colour: bool) -> str:
    if not math.isfinite(value):
        return _fit("·", size)
    part = min(1.0, max(0.0, (value - low) / (high - low)))
    if not colour:
        if low < 0 < high:
            # Shades have no sign, so it is written into the cell.
            strength = abs(value) / max(-low, high)
            block = SHADES[min(4, round(strength * 4))] * size
            return ("-" if value < 0 else "+") + block[1:] if strength >= 0.125 else block
        return SHADES[min(4, round(part * 4))] * size
    return _painted(" " * size, _blend(DIVERGING if low < 0 < high else SEQUENTIAL, part), ground=48)


def _scale(left: int, low: float, high: float, colour: bool) -> str:
    steps = np.linspace(low, high, 9 if low < 0 < high else 5)
    bar = "".join(_cell(value, low, high, 2, colour) for value in steps)
    return " " * (left + 1) + f"{format_number(low)} {bar} {format_number(high)}"


def _nearest_of_256(red: int, green: int, blue: int) -> int:
    """The entry of the xterm palette nearest to a colour: its 6×6×6 cube, or its ramp of greys."""
    levels = (0, 95, 135, 175, 215, 255)
    cube = [int(np.abs(np.subtract(levels, part)).argmin()) for part in (red, green, blue)]
    grey = min(range(24), key=lambda i: abs(8 + 10 * i - (red + green + blue) / 3))

    def distance(other: Sequence[int]) -> int:
        return sum((a - b) ** 2 for a, b in zip((red, green, blue), other, strict=True))

    if distance([8 + 10 * grey] * 3) < distance([levels[i] for i in cube]):
        return 232 + grey
    return 16 + 36 * cube[0] + 6 * cube[1] + cube[2]


def _blend(anchors: Sequence[str], part: float) -> tuple[int, int, int]:
    places = np.linspace(0, 1, len(anchors))
    parts = [[int(anchor[i : i + 2], 16) for anchor in anchors] for i in (1, 3, 5)]
    red, green, blue = (round(float(np.interp(part, places, channel))) for channel in parts)
    return red, green, blue


def shade_of(anchors: Sequence[str], part: float) -> tuple[str, bool]:
    """The colour at a share of the way from the first to the last, such as #22659f, and whether it is a dark one."""
    red, green, blue = _blend(anchors, part)
    # About as bright as the eye finds them.
    return f"#{red:02x}{green:02x}{blue:02x}", 0.3 * red + 0.6 * green + 0.1 * blue < 0.55 * 255


# ---------------------------------------------------------------------------------------------------------------------
# Shared with pictures


def display_width(text: str) -> int:
    """How many columns of a terminal a text takes: two for East Asian wide characters, none for combining marks."""
    return sum(
        0 if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf") else char_width(char)
        for char in text
    )


def shorten(text: str, most: int) -> str:
    """A text of at most `most` columns; "…" stands for what was left out."""
    if display_width(text) <= most:
        return text
    kept = ""
    for char in text:
        if display_width(kept + char) > most - 1:
            break
        kept += char
    return kept + "…"


NAMED = {" ": "␣", "\t": "⇥", "\n": "↵", "\r": "↵", "": "∅"}


def shown(label: str) -> str:
    """A label as it can be printed: white space made visible, control characters replaced, very long ones shortened."""
    return NAMED[label] if label in NAMED else shorten(visible(label), LONGEST_LABEL)


def visible(text: str) -> str:
    """A text whose control characters are replaced: a terminal obeys them, and no file of ours can hold them."""
    return "".join(NAMED.get(char, "�") if unicodedata.category(char) in ("Cc", "Cs") else char for char in str(text))


def char_width(char: str) -> int:
    """How many columns of a terminal a letter takes: two for East Asian wide characters."""
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def value_range(values: Any) -> tuple[float, float]:
    """The values of the lightest and the darkest colour that suit an array.

    Shares and probabilities get 0 to 1, so that shades can be compared between pictures; signed values an interval with
    0 in its middle; anything else 0 to the largest.
    """
    array = np.asarray(values, dtype=float)
    finite = array[np.isfinite(array)]
    if not finite.size:
        return 0.0, 1.0
    smallest, largest = float(finite.min()), float(finite.max())
    if smallest < 0:
        bound = max(-smallest, largest)
        return -bound, bound
    # Rounding may carry a probability a hair above 1.
    return 0.0, largest if largest > 1.0 + 1e-4 else 1.0


def limits(values: Any, low: float | None = None, high: float | None = None) -> tuple[float, float]:
    """The range of an array's colours: `value_range`, but for the ends that were given; never empty."""
    lightest, darkest = value_range(values)
    low, high = (lightest if low is None else low), (darkest if high is None else high)
    return (low, high) if high > low else (low, low + 1.0)


def format_number(value: float) -> str:
    """A value as the end of a colour scale shows it: two digits, and a minus sign that is not a hyphen."""
    text = f"{value:.2g}" if abs(value) < 100 else f"{value:.0f}"
    return text.replace("-", "−")
