"""What a model would say next, at several temperatures: the view `next`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, field_validator

from seqloom.errors import UserError
from seqloom.inspection.page import FAINT, INK, LABEL, SMALL, Sheet, checked_path, look, save_page, text_size
from seqloom.inspection.softmax import softmax
from seqloom.inspection.terminal import SEQUENTIAL, bar, display_width, painted, shorten, shown
from seqloom.inspection.view import Picture, Progress, View, ViewOptions

LINE, WIDE, BAR = 0.21, 1.5, 14  # inches, inches, characters
TEMPERATURES = (0.5, 1.0, 2.0)
CAPTION = (
    "The temperature divides the logits before the softmax: below 1 the likeliest symbols get more, above 1 less. "
    "Symbols stand in the order of temperature 1; bars have one scale."
)


@dataclass(frozen=True, eq=False)
class NextSymbols:
    """Symbols and their log probabilities at temperature 1, the likeliest first."""

    labels: Sequence[str]
    log_probs: np.ndarray

    @classmethod
    def of(cls, labels: Sequence[str], log_probs: np.ndarray) -> NextSymbols:
        """Of all symbols, in any order."""
        order = np.argsort(-log_probs, kind="stable")
        return cls([labels[i] for i in order], log_probs[order])

    def at(self, temperature: float) -> np.ndarray:
        """Probabilities of all."""
        return softmax(self.log_probs / temperature)


def draw_next(
    found: NextSymbols,
    path: str | Path | None = None,
    *,
    temperatures: Sequence[float] = TEMPERATURES,
    count: int = 10,
    colour: bool = True,
    title: str = "",
) -> str:
    """Draw the likeliest next symbols.

    Args:
        found: The symbols.
        path: A .svg, .png, .pdf or .html file; None returns bars for the terminal.
        temperatures: A column of bars for each.
        count: How many symbols.
        colour: Whether the terminal shows colours.
        title: A heading.

    Returns:
        The bars, or the path of the file that was written.
    """
    if path is None:
        return _text(found, temperatures, count, colour, title)
    target = checked_path(path)
    with look():
        return str(save_page(_page(found, temperatures, count, title), target))


def _rows(found: NextSymbols, temperatures: Sequence[float], count: int) -> list[tuple[str, list[float]]]:
    """Names and their probabilities at each temperature; all that is not shown is one row."""
    shares = [found.at(temperature) for temperature in temperatures]
    rows = [(shown(label), [float(share[i]) for share in shares]) for i, label in enumerate(found.labels[:count])]
    rest = len(found.labels) - count
    return [*rows, (f"{rest:,} others", [float(share[count:].sum()) for share in shares])] if rest > 0 else rows


def _text(found: NextSymbols, temperatures: Sequence[float], count: int, colour: bool, title: str) -> str:
    rows = _rows(found, temperatures, count)
    wide = max(display_width(name) for name, _ in rows)
    heads = "  ".join(f"{f'temperature {t:g}':<{BAR + 7}}" for t in temperatures)
    lines = [*([title, ""] if title else []), f"{' ' * wide}  {heads}".rstrip()]
    for name, shares in rows:
        cells = []
        for share in shares:
            drawn = bar(share, BAR)
            filled = drawn + " " * (BAR - len(drawn))
            cells.append(f"{share:6.1%} {painted(filled, SEQUENTIAL[3]) if colour else filled}")
        lines.append(f"{name}{' ' * (wide - display_width(name))}  {'  '.join(cells)}".rstrip())
    return "\n".join(lines)


def _page(found: NextSymbols, temperatures: Sequence[float], count: int, title: str) -> Any:
    rows = _rows(found, temperatures, count)
    left = max(text_size(name)[0] for name, _ in rows) + 0.12
    each = WIDE + 0.55
    others = len(found.labels) > count
    sheet = Sheet(title, CAPTION, left + each * len(temperatures), 0.3 + LINE * len(rows) + (0.08 if others else 0))
    highest = max(share for _, shares in rows[:count] for share in shares)
    for place, temperature in enumerate(temperatures):
        sheet.text(left + each * place, 0.1, f"temperature {temperature:g}", LABEL, FAINT)
    for line, (name, shares) in enumerate(rows):
        last = others and line == len(rows) - 1
        y = 0.26 + LINE * line + (0.08 if last else 0.0)
        sheet.text(left - 0.08, y + LINE / 2, name, LABEL, FAINT if last else INK, ha="right")
        for place, share in enumerate(shares):
            x = left + each * place
            size = 0.0 if last else WIDE * share / highest
            sheet.box(x, y + 0.03, size, LINE - 0.06, SEQUENTIAL[3])
            sheet.text(x + size + 0.05, y + LINE / 2, f"{share:.1%}", SMALL, FAINT)
    return sheet.page


# ---------------------------------------------------------------------------------------------------------------------
# The view


class NextView(View):
    name = "next"
    about = "what a model would say next, at several temperatures"
    inputs, least, most = "one text in quotes: to go on from, or the source of a translation", 1, 1
    example = '"the green"'
    recipe = "demo-language"

    class Options(ViewOptions):
        prefix: str = Field("", description="what a translator has said already")
        temperatures: tuple[float, ...] = Field(
            TEMPERATURES, description="divide the logits (may be given several times)"
        )
        count: int = Field(10, ge=1, le=50, description="how many symbols are shown")

        @field_validator("temperatures")
        @classmethod
        def _some_above_zero(cls, value: tuple[float, ...]) -> tuple[float, ...]:
            if not 1 <= len(value) <= 5 or not all(0.01 <= temperature <= 100 for temperature in value):
                raise ValueError(f"must be 1 to 5 numbers from 0.01 to 100; got {', '.join(f'{t:g}' for t in value)}")
            return value

    def missing(self, model: Any) -> str | None:
        able = hasattr(model.task, "next_log_probs")
        return None if able else f"this is for models that say one symbol after the other, not for {model.task.kind}"

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        labels, log_probs = model.task.next_log_probs(model.network, inputs[0], options.prefix)
        found = NextSymbols.of(labels, log_probs)
        if not np.isfinite(found.log_probs[0]):
            raise UserError("the model gave numbers that are not finite; the training must have diverged")
        after = f"“{shorten(inputs[0], 60)}”" + (f" → “{shorten(options.prefix, 40)}”" if options.prefix else "")
        best = float(np.exp(found.log_probs[0]))
        title = f"after {after}: “{shown(found.labels[0])}” {best:.0%} at temperature 1 ({model.name})"
        drawn = partial(draw_next, found, temperatures=options.temperatures, count=options.count, title=title)
        kept = slice(0, options.count)
        return Picture(
            title,
            text=lambda width, colour: drawn(colour=colour),
            draw=drawn,
            values={
                "symbols": list(found.labels[kept]),
                "probabilities": {f"{t:g}": found.at(t)[kept].tolist() for t in options.temperatures},
            },
        )
