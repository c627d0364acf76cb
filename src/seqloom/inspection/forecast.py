"""A forecast beside what came before and, where it is known, what came after: the view `forecast`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from seqloom.errors import UserError, one_of
from seqloom.inspection.page import INK, LINES
from seqloom.inspection.plot import blocks, columns_of, panels
from seqloom.inspection.terminal import display_width, shorten, shown
from seqloom.inspection.trace import plain
from seqloom.inspection.view import Picture, Progress, View, ViewOptions

MOST_CHANNELS = 8
FAN = "#56b4e9"


@dataclass(frozen=True, eq=False)
class Forecast:
    """Arrays (steps, channels): what was read, what is forecast, its quantiles by share, and the truth if known."""

    channels: Sequence[str]
    history: np.ndarray
    values: np.ndarray
    quantiles: dict[float, np.ndarray]
    truth: np.ndarray | None
    start: int
    """The step of the series that the forecast begins at."""

    def bands(self) -> list[tuple[float, float]]:
        """Pairs of quantiles, the widest first."""
        shares = sorted(self.quantiles)
        return [(low, high) for low, high in zip(shares, reversed(shares), strict=True) if low < high]

    def caption(self) -> str:
        parts = []
        if bands := self.bands():
            listed = ", ".join(f"{low:g} to {high:g}" for low, high in bands)
            parts.append(f"Shaded: between the quantiles {listed}.")
        if self.truth is not None:
            wrong = np.abs(self.values[: len(self.truth)] - self.truth).mean(0)
            listed = ", ".join(f"{name} {error:.3g}" for name, error in zip(self.channels, wrong, strict=True))
            parts.append(f"Mean absolute error: {listed}.")
        return " ".join(parts)


def draw_forecast(found: Forecast, path: str | Path | None = None, *, width: int | None = None, title: str = "") -> str:
    """Draw a panel for each channel into a file; or, without a path, lines of blocks for the terminal."""
    if path is None:
        return _text(found, width)
    words = [("history", INK), ("forecast", LINES[0])]
    if found.truth is not None:
        words.append(("what followed", LINES[1]))
    paint = partial(_paint, found)
    names = list(found.channels) if len(found.channels) > 1 else [""]
    caption = found.caption()
    return str(panels(names, paint, path, title=title, caption=caption, xlabel="step", words=words))


def _paint(found: Forecast, axes: Any, channel: int) -> None:
    before = np.arange(found.start - len(found.history), found.start)
    after = np.arange(found.start, found.start + len(found.values))
    for number, (low, high) in enumerate(found.bands()):
        edges = found.quantiles[low][:, channel], found.quantiles[high][:, channel]
        axes.fill_between(after, *edges, color=FAN, alpha=0.22 + 0.12 * number, linewidth=0, zorder=1)
    axes.axvline(found.start - 0.5, color="#aab2bb", linewidth=0.8, linestyle=(0, (2, 2)), zorder=1)
    axes.plot(before, found.history[:, channel], color=INK, linewidth=1.0, zorder=2)
    if found.truth is not None:
        steps = after[: len(found.truth)]
        axes.plot(steps, found.truth[:, channel], color=LINES[1], linewidth=1.2, zorder=3)
    axes.plot(after, found.values[:, channel], color=LINES[0], linewidth=1.5, zorder=4)
    axes.set_xlim(before[0], after[-1])


def _text(found: Forecast, width: int | None) -> str:
    """History, then forecast, in blocks of one range; the truth below the forecast."""
    names = [shorten(shown(name), 14) for name in found.channels]
    wide = max([13, *map(display_width, names)])
    room = columns_of(width, wide + 4)
    share = min(0.6, max(0.2, len(found.values) / (len(found.history) + len(found.values))))
    right = max(5, round(room * share))
    left = room - right
    lines = [f"{'':{wide}}  {'history':<{left}} │ forecast"]
    for channel, name in enumerate(names):
        parts = [found.history, found.values, *([] if found.truth is None else [found.truth])]
        every = np.concatenate([part[:, channel] for part in parts])
        low, high = float(every.min()), float(every.max())
        before = blocks(found.history[:, channel], left, low, high)
        lines.append(f"{name:<{wide}}  {before:<{left}} │ {blocks(found.values[:, channel], right, low, high)}")
        if found.truth is not None:
            known = max(1, round(right * len(found.truth) / len(found.values)))
            truth = blocks(found.truth[:, channel], min(right, known), low, high)
            lines.append(f"{'what followed':<{wide}}  {'':<{left}} │ {truth}")
    caption = found.caption().removeprefix("Shaded: ")
    return "\n".join([*lines, *(["", caption] if caption else [])])


class ForecastView(View):
    name = "forecast"
    about = "what follows a series: history, forecast, its quantiles, and the truth where it is known"
    inputs, least, most = "a file with a series (default: the recipe's first test data)", 0, 1
    example = "series.csv"
    recipe = "demo-forecast"

    class Options(ViewOptions):
        at: int | None = Field(
            None, ge=1, description="the step that the forecast begins at (default: so that the truth is known)"
        )
        channel: tuple[str, ...] = Field((), description="only this channel; may be repeated")
        shown: int | None = Field(None, ge=1, description="steps of the history to draw (default: 3 horizons)")

    def missing(self, model: Any) -> str | None:
        return None if hasattr(model.task, "ask") else f"this is for forecasters, not for {model.task.kind}"

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        series = model.task.inputs(inputs) if inputs else model.task.series_of(next(iter(model.corpora().values())))
        if len(series) != 1:
            raise UserError(
                f"look forecast takes one series; {inputs[0] if inputs else 'the test data'} has {len(series)}"
            )
        asked = model.task.ask(model.network, series[0], options.at)
        channels = list(asked.answer.names)
        for name in options.channel:
            if name not in channels:
                raise UserError(one_of("--channel", name, channels))
        notes = []
        chosen = list(options.channel) or channels
        if len(chosen) > MOST_CHANNELS:
            notes.append(f"{len(chosen) - MOST_CHANNELS} more channels are not drawn; --channel chooses others")
            chosen = chosen[:MOST_CHANNELS]
        places = [channels.index(name) for name in chosen]
        steps = options.shown or 3 * len(asked.answer.values)
        found = Forecast(
            chosen,
            asked.history[-steps:, places],
            asked.answer.values[:, places],
            {share: values[:, places] for share, values in asked.answer.quantiles.items()},
            None if asked.truth is None else asked.truth[:, places],
            asked.start,
        )
        title = f"{len(found.values)} steps ahead, from step {found.start:,} on"
        drawn = partial(draw_forecast, found, title=title)
        return Picture(
            title,
            text=lambda width, colour: drawn(width=width),
            draw=drawn,
            values={
                "channels": chosen,
                "start": found.start,
                "history": plain(found.history),
                "forecast": plain(found.values),
                "quantiles": {f"{share:g}": plain(values) for share, values in found.quantiles.items()},
                "truth": None if found.truth is None else plain(found.truth),
            },
            notes=notes,
        )
