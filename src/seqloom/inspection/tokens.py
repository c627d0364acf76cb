"""How a text becomes symbols, merge by merge where the tokenizer is BPE: the view `tokens`.

BPE (Sennrich et al. 2016) begins with letters and applies the merges it learned, the earliest learned first.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from seqloom.errors import UserError, one_of
from seqloom.inspection.page import (
    FAINT,
    INK,
    LABEL,
    LINES,
    OUTLINE,
    SMALL,
    Sheet,
    checked_path,
    look,
    save_page,
    text_size,
)
from seqloom.inspection.terminal import painted, shorten, shown
from seqloom.inspection.view import Picture, Progress, View, ViewOptions

MOST_WORDS = 12
LINE, GAP, BETWEEN = 0.25, 0.04, 0.35  # inches
FRESH, KEPT = "#9dc3e0", "#f2f4f7"


@dataclass(frozen=True)
class Step:
    """The pieces of a word, and the merge that made them: its number in the order of learning, from 1, and its pair."""

    pieces: tuple[str, ...]
    number: int | None = None
    pair: tuple[str, str] | None = None

    @property
    def fresh(self) -> set[int]:
        """The places of pieces that this merge made."""
        made = None if self.pair is None else "".join(self.pair)
        return {place for place, piece in enumerate(self.pieces) if piece == made}


def bpe_steps(word: str, ranks: Mapping[tuple[str, str], int]) -> list[Step]:
    """From the letters of a word to its pieces.

    Args:
        word: As the tokenizer cuts it out of a text, with its "▁".
        ranks: Pair of pieces -> its place in the order of learning, from 0.
    """
    pieces = list(word)
    steps = [Step(tuple(pieces))]
    while True:
        met = [pair for pair in itertools.pairwise(pieces) if pair in ranks]
        if not met:
            return steps
        pair = min(met, key=ranks.__getitem__)
        joined, place = list[str](), 0
        while place < len(pieces):
            if tuple(pieces[place : place + 2]) == pair:
                joined.append("".join(pair))
                place += 2
            else:
                joined.append(pieces[place])
                place += 1
        pieces = joined
        steps.append(Step(tuple(pieces), ranks[pair] + 1, pair))


@dataclass(frozen=True)
class Cut:
    """A text and how each of its words was cut; `ids` has the id of every symbol of the text, and its label."""

    words: Sequence[tuple[str, Sequence[Step]]]
    ids: Sequence[tuple[int, str]]
    kind: str


def cut(tokenizer: Any, text: str) -> Cut:
    """A text, cut by one of our tokenizers."""
    found = tokenizer.encode(text)
    ids = list(zip(found, tokenizer.labels_of(text), strict=True))
    if tokenizer.kind != "bpe":
        return Cut([(text, [Step(tuple(label for _, label in ids))])], ids, tokenizer.kind)
    ranks = {pair: rank for rank, pair in reversed(list(enumerate(tokenizer.merges())))}
    return Cut([(word, bpe_steps(word, ranks)) for word in tokenizer.chunks(text)], ids, tokenizer.kind)


def draw_tokens(found: Cut, path: str | Path | None = None, *, colour: bool = True, title: str = "") -> str:
    """Draw how a text is cut.

    Args:
        found: The text.
        path: A .svg, .png, .pdf or .html file; None returns lines for the terminal.
        colour: Whether the terminal shows colours.
        title: A heading.

    Returns:
        The lines, or the path of the file that was written.
    """
    if not 1 <= len(found.words) <= MOST_WORDS:
        raise UserError(f"tokens are shown of 1 to {MOST_WORDS} words; got {len(found.words)}")
    if path is None:
        return _text(found, colour, title)
    target = checked_path(path)
    with look():
        return str(save_page(_page(found, title), target))


def _about(step: Step) -> str:
    if step.pair is None:
        return ""
    return f"merge {step.number:,}: {shown(step.pair[0])} + {shown(step.pair[1])}"


def _text(found: Cut, colour: bool, title: str) -> str:
    lines = [title] if title else []
    if found.kind == "bpe":
        for word, steps in found.words:
            rows = [
                " ".join(
                    painted(shown(piece), LINES[0]) if colour and place in step.fresh else shown(piece)
                    for place, piece in enumerate(step.pieces)
                )
                for step in steps
            ]
            plain = [" ".join(map(shown, step.pieces)) for step in steps]
            wide = max(map(len, plain))
            lines += ["", shown(word)]
            lines += [
                f"  {row}{' ' * (wide - len(bare))}   {_about(step)}".rstrip()
                for row, bare, step in zip(rows, plain, steps, strict=True)
            ]
    lines += ["", "symbols: " + "  ".join(f"{shown(label)} ({number:,})" for number, label in found.ids)]
    return "\n".join(lines).strip("\n")


def _page(found: Cut, title: str) -> Any:
    """A ladder for each word: its letters above, a line for each merge."""
    sizes = [
        max(sum(text_size(shown(p))[0] + 0.1 + GAP for p in step.pieces) for step in steps) for _, steps in found.words
    ]
    notes = [max(text_size(_about(step), SMALL)[0] for step in steps) for _, steps in found.words]
    wide = [size + (note + 0.12 if note else 0.0) for size, note in zip(sizes, notes, strict=True)]
    rows, x = list[list[int]](), 0.0
    for number, size in enumerate(wide):  # ladders side by side, as many as fit a page
        if rows and x + size <= 9.0:
            rows[-1].append(number)
        else:
            rows.append([number])
            x = 0.0
        x += size + BETWEEN
    deep = [max(len(found.words[number][1]) for number in row) * LINE + 0.25 for row in rows]
    width = max(sum(wide[n] for n in row) + BETWEEN * (len(row) - 1) for row in rows)
    learned = "Letters above; each line applies the earliest learned merge that fits (blue), its number beside it."
    caption = f"{learned if found.kind == 'bpe' else f'A {found.kind} tokenizer has no merges.'} ▁ is a space. "
    caption += "Ids: " + ", ".join(f"{shown(label)} {number}" for number, label in found.ids) + "."
    sheet = Sheet(title, caption, width, sum(deep) + 0.1)
    y = 0.0
    for row, high in zip(rows, deep, strict=True):
        x = 0.0
        for number in row:
            _paint(sheet, found.words[number][1], x, y, sizes[number])
            x += wide[number] + BETWEEN
        y += high
    return sheet.page


def _paint(sheet: Sheet, steps: Sequence[Step], x: float, y: float, size: float) -> None:
    for line, step in enumerate(steps):
        place, top = x, y + line * LINE
        for index, piece in enumerate(step.pieces):
            wide = text_size(shown(piece))[0] + 0.1
            shade = FRESH if index in step.fresh else KEPT
            sheet.box(place, top, wide, LINE - 0.05, shade, edgecolor=OUTLINE, linewidth=0.5)
            sheet.text(place + wide / 2, top + LINE / 2 - 0.025, shown(piece), LABEL, INK, ha="center")
            place += wide + GAP
        if step.pair is not None:
            sheet.text(x + size + 0.08, top + LINE / 2 - 0.025, _about(step), SMALL, FAINT)


# ---------------------------------------------------------------------------------------------------------------------
# The view


class TokensView(View):
    name = "tokens"
    about = "how a text becomes symbols; of BPE merge by merge"
    inputs, least, most = "one text in quotes", 1, 1
    example = '"unbelievable"'
    recipe = "demo"

    class Options(ViewOptions):
        side: str | None = Field(None, description="whose tokenizer, such as target (default: the first)")

    def missing(self, model: Any) -> str | None:
        tokenizers = model.task.tokenizers().values() if hasattr(model.task, "tokenizers") else ()
        able = tokenizers and all(hasattr(tokenizer, "labels_of") for tokenizer in tokenizers)
        return None if able else f"{model.task.kind} has no tokenizer to show"

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        tokenizers = model.task.tokenizers()
        side = options.side or next(iter(tokenizers))
        if side not in tokenizers:
            raise UserError(one_of("side", side, list(tokenizers)))
        found = cut(tokenizers[side], inputs[0])
        if not found.ids:
            raise UserError("there is nothing to look at: give a text")
        merges = sum(len(steps) - 1 for _, steps in found.words)
        by = f" by {merges} merges" if found.kind == "bpe" else ""
        count = f"{len(found.ids)} symbol{'s' if len(found.ids) > 1 else ''}"
        title = f"“{shorten(inputs[0], 60)}” becomes {count}{by} ({found.kind}, {side} of {model.name})"
        drawn = partial(draw_tokens, found, title=title)
        return Picture(
            title,
            text=lambda width, colour: drawn(colour=colour),
            draw=drawn,
            values={
                "kind": found.kind,
                "side": side,
                "words": [
                    {"word": word, "steps": [{"pieces": list(s.pieces), "merge": s.number} for s in steps]}
                    for word, steps in found.words
                ],
                "symbols": [{"id": number, "label": label} for number, label in found.ids],
            },
        )
