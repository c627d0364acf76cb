"""Beam search as a tree: which beginnings were kept at each step, and what was pruned: the view `beam`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from seqloom.errors import UserError
from seqloom.inspection.page import (
    FAINT,
    INK,
    LABEL,
    LINES,
    OUTLINE,
    TINY,
    Sheet,
    checked_path,
    look,
    save_page,
    text_size,
)
from seqloom.inspection.terminal import painted, shorten, shown
from seqloom.inspection.view import Picture, Progress, View, ViewOptions

MOST_STEPS = 40
ROW, BETWEEN = 0.36, 0.3  # inches
KEPT, ENDED, PRUNED = "#d6e4f1", "#f5c88b", "#ffffff"
CAPTION = (
    "A column is a step; a box is a beginning's newest symbol with the sum of its log probabilities, the best above. "
    "Blue boxes were kept, orange ones have ended, white ones were pruned. The thick line leads to the answer."
)


@dataclass(frozen=True)
class Candidate:
    """A beginning that was looked at: the one it extends among those kept before, its newest symbol, and their sum.

    `fate` is kept, ended or pruned.
    """

    parent: int
    label: str
    total: float
    fate: str


@dataclass(frozen=True)
class Search:
    """A beam search: the candidates of each step, the best first, and the labels of the answer, its end included."""

    steps: Sequence[Sequence[Candidate]]
    answer: Sequence[str]
    score: float
    width: int


@dataclass
class Node:
    """A candidate in the tree."""

    step: int
    candidate: Candidate
    parent: Node | None
    row: int = 0
    best: bool = False
    children: list[Node] = field(default_factory=list)

    @property
    def path(self) -> list[str]:
        """The labels that lead here."""
        return [*([] if self.parent is None else self.parent.path), self.candidate.label]


def tree_of(found: Search, pruned: int) -> list[list[Node]]:
    """The nodes of each step: all that was kept or has ended, and the best few of what was pruned."""
    columns, before = list[list[Node]](), list[Node]()
    for number, candidates in enumerate(found.steps):
        column, left = list[Node](), pruned
        for one in candidates:
            if one.fate == "pruned":
                left -= 1
                if left < 0:
                    continue
            parent = before[one.parent] if before else None
            node = Node(number, one, parent, row=len(column))
            if parent is not None:
                parent.children.append(node)
            column.append(node)
        columns.append(column)
        before = [node for node in column if node.candidate.fate == "kept"]
    _mark_answer(columns, list(found.answer))
    return columns


def _mark_answer(columns: Sequence[Sequence[Node]], answer: list[str]) -> None:
    """Mark the way to the answer."""
    for column in columns:
        for node in column:
            if node.candidate.fate == "ended" and node.path == answer:
                step: Node | None = node
                while step is not None:
                    step.best, step = True, step.parent
                return


def draw_beam(
    found: Search, path: str | Path | None = None, *, pruned: int = 2, colour: bool = True, title: str = ""
) -> str:
    """Draw a beam search.

    Args:
        found: The search.
        path: A .svg, .png, .pdf or .html file; None returns a tree for the terminal.
        pruned: How many pruned candidates of each step are shown.
        colour: Whether the terminal shows colours.
        title: A heading.

    Returns:
        The tree, or the path of the file that was written.
    """
    if len(found.steps) > MOST_STEPS:
        raise UserError(f"a search is drawn of at most {MOST_STEPS} steps; got {len(found.steps)}: give a shorter text")
    columns = tree_of(found, pruned)
    if path is None:
        return _text(columns, colour, title)
    target = checked_path(path)
    with look():
        return str(save_page(_page(columns, title), target))


def _number(value: float) -> str:
    return f"{round(value, 2) + 0.0:.2f}".replace("-", "−")  # never −0.00


def _text(columns: Sequence[Sequence[Node]], colour: bool, title: str) -> str:
    lines = [title, ""] if title else []

    def write(node: Node, before: str, last: bool, top: bool) -> None:
        fate = node.candidate.fate
        label = f"{shown(node.candidate.label)} {_number(node.candidate.total)}"
        label += {"kept": "", "ended": "  ended", "pruned": "  pruned"}[fate]
        if node.best:
            label += "  *"
            label = painted(label, LINES[0]) if colour else label
        elif fate == "pruned" and colour:
            label = painted(label, FAINT)
        lines.append(label if top else f"{before}{'└─ ' if last else '├─ '}{label}")
        inner = "" if top else before + ("   " if last else "│  ")
        for child in node.children:
            write(child, inner, child is node.children[-1], False)

    for node in columns[0]:
        write(node, "", True, True)
    return "\n".join(
        [*lines, "", "numbers: sum of log probabilities; * leads to the answer; what was pruned had no room"]
    )


def _page(columns: Sequence[Sequence[Node]], title: str) -> Any:
    wide = [
        max(
            max(text_size(shown(node.candidate.label))[0], text_size(_number(node.candidate.total), TINY)[0])
            for node in c
        )
        + 0.14
        for c in columns
    ]
    starts = [sum(wide[:i]) + BETWEEN * i for i in range(len(wide))]
    deepest = max(map(len, columns))
    sheet = Sheet(title, CAPTION, starts[-1] + wide[-1], ROW * deepest + 0.25)
    for number, (column, x) in enumerate(zip(columns, starts, strict=True)):
        sheet.text(x + wide[number] / 2, 0.08, str(number + 1), TINY, FAINT, ha="center")
        for node in column:
            middle = 0.22 + ROW * (node.row + 0.5)
            if node.parent is not None:
                back = starts[number - 1] + wide[number - 1], 0.22 + ROW * (node.parent.row + 0.5)
                faint = node.candidate.fate == "pruned"
                style: dict[str, Any] = {"linewidth": 2.2 if node.best else 0.8, "zorder": 2 if node.best else 1}
                style["linestyle"] = (0, (2, 2)) if faint else "-"
                sheet.line([back[0], x], [back[1], middle], LINES[0] if node.best else OUTLINE, **style)
        for node in column:
            top = 0.22 + ROW * node.row
            fate = node.candidate.fate
            shade = {"kept": KEPT, "ended": ENDED, "pruned": PRUNED}[fate]
            edge: dict[str, Any] = {"edgecolor": LINES[0] if node.best else OUTLINE, "zorder": 3}
            edge["linewidth"] = 1.6 if node.best else 0.6
            sheet.box(x, top + 0.02, wide[number], ROW - 0.04, shade, **edge)
            ink = FAINT if fate == "pruned" else INK
            centre = x + wide[number] / 2
            sheet.text(centre, top + 0.13, shown(node.candidate.label), LABEL, ink, ha="center", zorder=4)
            sheet.text(centre, top + 0.26, _number(node.candidate.total), TINY, FAINT, ha="center", zorder=4)
    return sheet.page


# ---------------------------------------------------------------------------------------------------------------------
# The view


class BeamView(View):
    name = "beam"
    about = "beam search as a tree: what was kept, what has ended, what was pruned"
    inputs, least, most = "one text in quotes", 1, 1
    example = '"the green witch arrived"'
    recipe = "demo"

    class Options(ViewOptions):
        width: int = Field(3, ge=1, le=12, description="of the beam")
        pruned: int = Field(2, ge=0, le=12, description="how many pruned candidates of each step are shown")
        length: int = Field(20, ge=1, le=MOST_STEPS, description="the most symbols of an answer")

    def missing(self, model: Any) -> str | None:
        able = hasattr(model.task, "beam")
        return None if able else f"this is for models that say one symbol after the other, not for {model.task.kind}"

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        chosen = {"method": "beam", "beam_size": options.width, "n_best": 1, "max_length": options.length}
        found = model.task.beam(model.network, inputs[0], model.options.overridden(chosen))
        if not found.steps:
            raise UserError("there is nothing to search for: give a text")
        columns = tree_of(found, options.pruned)
        kept = sum(one.fate != "pruned" for step in found.steps for one in step)
        looked = sum(len(step) for step in found.steps)
        title = (
            f"“{shorten(inputs[0], 60)}”, beam {found.width}: {kept} of {looked} candidates kept in {len(columns)} "
            f"steps ({model.name})"
        )
        drawn = partial(draw_beam, found, pruned=options.pruned, title=title)
        steps = [[asdict(one) for one in step] for step in found.steps]
        return Picture(
            title,
            text=lambda width, colour: drawn(colour=colour),
            draw=drawn,
            values={"width": found.width, "answer": list(found.answer), "score": found.score, "steps": steps},
        )
