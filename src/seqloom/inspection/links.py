"""Attention as lines between two columns of symbols, as strong as their weights (after BertViz, Vig 2019).

In a browser, pointing at a symbol leaves only its own lines: a rule of style does it, no script.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.inspection.page import (
    CLASS,
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
from seqloom.inspection.terminal import bar, display_width, shown

LINE, ACROSS = 0.25, 1.9  # inches
FAINTEST = 0.02  # weights below are left out
CAPTION = (
    "Lines lead from each symbol that looks (left) to those that it looks at (right), as strong as the weight; weights "
    f"below {FAINTEST} are left out. In a browser, point at a symbol to see its lines alone."
)


def draw_links(
    weights: Any,
    rows: Sequence[str],
    columns: Sequence[str],
    path: str | Path | None = None,
    *,
    title: str = "",
) -> str:
    """Draw weights as lines.

    Args:
        weights: (rows, columns), nan where there is none.
        rows: What looks.
        columns: What is looked at.
        path: A .svg, .png, .pdf or .html file; None returns a list for the terminal.
        title: A heading.

    Returns:
        The list, or the path of the file that was written.
    """
    values = np.nan_to_num(np.asarray(weights, dtype=float))
    if path is None:
        return _text(values, rows, columns, title)
    target = checked_path(path)
    with look():
        return str(save_page(_page(values, rows, columns, title), target))


def _text(values: np.ndarray, rows: Sequence[str], columns: Sequence[str], title: str) -> str:
    """What each symbol looks at, the strongest first, a bar for each."""
    names, others = list(map(shown, rows)), list(map(shown, columns))
    left, right = max(map(display_width, names)), max(map(display_width, others))
    lines = [title, ""] if title else []
    for name, row in zip(names, values, strict=True):
        start = name + " " * (left - display_width(name))
        for place in np.argsort(-row, kind="stable")[:3]:
            if row[place] >= 0.1 or start.strip():
                other = others[place] + " " * (right - display_width(others[place]))
                lines.append(f"{start} ── {other} {row[place]:4.2f} {bar(float(row[place]), 20)}".rstrip())
                start = " " * left
    return "\n".join(lines)


def _page(values: np.ndarray, rows: Sequence[str], columns: Sequence[str], title: str) -> Any:
    names, others = list(map(shown, rows)), list(map(shown, columns))
    left, right = (max(text_size(name)[0] for name in some) for some in (names, others))
    deep = LINE * max(len(names), len(others))
    sheet = Sheet(title, CAPTION, left + ACROSS + right + 0.2, deep + 0.25)
    sheet.page.set_gid(f"{CLASS}links")
    sheet.text(left, 0.08, "looks", SMALL, FAINT, ha="right")
    sheet.text(left + ACROSS + 0.2, 0.08, "is looked at", SMALL, FAINT)
    heights = [
        [0.22 + (deep - LINE * len(some)) / 2 + LINE * (i + 0.5) for i in range(len(some))] for some in (names, others)
    ]
    for i, y in enumerate(heights[0]):
        sheet.text(left, y, names[i], LABEL, INK, ha="right", gid=f"{CLASS}from{i}")
    for j, y in enumerate(heights[1]):
        sheet.text(left + ACROSS + 0.2, y, others[j], LABEL, INK, gid=f"{CLASS}to{j}")
    for i, j in np.argwhere(values >= FAINTEST):
        weight, ends = float(values[i, j]), (heights[0][i], heights[1][j])
        how: dict[str, Any] = {"alpha": 0.12 + 0.88 * min(1.0, weight), "linewidth": 0.5 + 3.0 * min(1.0, weight)}
        where = (left + 0.1, left + ACROSS + 0.1)
        sheet.line(where, ends, LINES[0], solid_capstyle="round", gid=f"{CLASS}link from{i} to{j}", **how)
    sheet.page.rules = [
        f".links:has(.{side}{number} text:hover) .link:not(.{side}{number}) {{opacity: 0.05}}"
        for side, some in (("from", names), ("to", others))
        for number in range(len(some))
    ]
    return sheet.page
