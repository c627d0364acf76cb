"""Which steps of a series, or words of a text (`text_saliency.py`), decided a label: the view `saliency`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from seqloom.errors import UserError, one_of
from seqloom.inspection.page import INK
from seqloom.inspection.plot import blocks, columns_of, panels
from seqloom.inspection.terminal import DIVERGING, display_width, painted, shade_of, shorten, shown
from seqloom.inspection.text_saliency import words_picture
from seqloom.inspection.trace import plain
from seqloom.inspection.view import Picture, Progress, View, ViewOptions

MOST_CHANNELS = 9
Method = Literal["gradient", "integrated", "occlusion"]
SAYS = {
    "gradient": "gradient × input: how far a step's value moves the logit of the label above the mean of all labels",
    "occlusion": "occlusion: how far that logit falls when the steps around one are hidden",
}


@dataclass(frozen=True, eq=False)
class Saliency:
    """`values` (time,): what each step adds to a label's logit; `read` (time, channels) is the series."""

    label: str
    probabilities: Mapping[str, float]
    values: np.ndarray
    method: str
    read: np.ndarray
    channels: Sequence[str]

    @property
    def high(self) -> float:
        return max(float(np.abs(self.values).max(initial=0.0)), 1e-12)

    def heading(self) -> str:
        return f"{self.label}: {self.probabilities[self.label]:.1%}"


def draw_saliency(
    found: Saliency, path: str | Path | None = None, *, width: int | None = None, colour: bool = True
) -> str:
    """Draw the input with its steps coloured; without a path, for the terminal."""
    if path is None:
        return _text(found, width, colour)
    caption = f"Blue speaks for the label, orange against it ({SAYS[found.method]})."
    channels = [f"channel {name}" if name.isdecimal() else name for name in found.channels[:MOST_CHANNELS]]
    names = ["saliency", *channels]
    paint = partial(_paint, found)
    return str(panels(names, paint, path, title=found.heading(), caption=caption, xlabel="step"))


def _paint(found: Saliency, axes: Any, number: int) -> None:
    steps = np.arange(len(found.values))
    if number == 0:
        colours = [DIVERGING[-2] if value >= 0 else DIVERGING[1] for value in found.values]
        axes.bar(steps, found.values, width=1.0, color=colours, linewidth=0)
        axes.axhline(0.0, color=INK, linewidth=0.6)
        axes.set_ylim(
            1.05 * min(-0.1 * found.high, found.values.min()), 1.05 * max(0.1 * found.high, found.values.max())
        )
    else:
        for step, value in enumerate(found.values):
            shade, _ = shade_of(DIVERGING, (1 + float(value) / found.high) / 2)
            axes.axvspan(step - 0.5, step + 0.5, color=shade, alpha=0.65, linewidth=0, zorder=0)
        axes.plot(steps, found.read[:, number - 1], color=INK, linewidth=0.9)
    axes.set_xlim(-0.5, len(steps) - 0.5)


def _text(found: Saliency, width: int | None, colour: bool) -> str:
    names = [shorten(shown(name), 14) for name in found.channels[:MOST_CHANNELS]]
    wide = max([8, *map(display_width, names)])
    room = columns_of(width, wide + 2)
    lines = [found.heading(), ""]
    for channel, name in enumerate(names):
        lines.append(f"{name}{' ' * (wide - display_width(name))}  {blocks(found.read[:, channel], room)}")
    values = found.values
    if len(values) > room:
        values = np.array([part.mean() for part in np.array_split(values, room)])
    high = max(float(np.abs(values).max(initial=0.0)), 1e-12)
    for name, sign, hue in (("for", 1, DIVERGING[-2]), ("against", -1, DIVERGING[1])):
        drawn = blocks(np.maximum(sign * values, 0) / high, room, 0.0, 1.0)
        lines.append(f"{name:<{wide}}  {painted(drawn, hue) if colour else drawn}")
    first, last = strongest(found.values)
    lines += ["", f"Half of what speaks for it comes from steps {first:,} to {last:,}."]
    return "\n".join(lines)


def strongest(values: np.ndarray) -> tuple[int, int]:
    """The shortest stretch of steps that has half of all that speaks for a label."""
    support = np.maximum(values, 0.0)
    total, sums = float(support.sum()), np.append(0.0, np.cumsum(support))
    best = (0, len(values) - 1)
    start = 0
    for end in range(len(values)):
        while start < end and sums[end + 1] - sums[start + 1] >= total / 2:
            start += 1
        if sums[end + 1] - sums[start] >= total / 2 and end - start < best[1] - best[0]:
            best = (start, end)
    return best


class SaliencyView(View):
    name = "saliency"
    about = "which steps of a series, or words of a text, decided a label, of classifiers"
    inputs, least, most = "a file with series, or a text in quotes", 1, 1
    example = "series.ts"
    recipe = "trec"

    class Options(ViewOptions):
        label: str | None = Field(None, description="for which label (default: the one that the model answers)")
        method: Method | None = Field(
            None,
            description="gradient: gradient × input (default for series); integrated: integrated gradients of texts "
            "(default there); occlusion: steps or words are hidden",
        )
        width: int = Field(5, ge=1, le=10_000, description="of occlusion: steps that are hidden together")
        number: int = Field(1, ge=1, description="which series of the file")

    def missing(self, model: Any) -> str | None:
        return None if hasattr(model.task, "saliency") else f"this is for classifiers, not for {model.task.kind}"

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        given = model.task.inputs(inputs)
        if options.number > len(given):
            raise UserError(f"--number {options.number}: {inputs[0]} has {len(given)}")
        one = given[options.number - 1]
        answer = model(one)
        label = answer.label if options.label is None else options.label
        if label not in answer.probabilities:
            raise UserError(one_of("label", label, answer.probabilities))
        share = lambda done: progress(done, "")  # noqa: E731
        if model.task.source.is_text:
            return words_picture(model, answer, inputs[0], label, options.method or "integrated")
        if options.method == "integrated":
            raise UserError("--method integrated is for texts; of a series take gradient or occlusion")
        method = options.method or "gradient"
        values = model.task.saliency(model.network, one, label, method, options.width, share)
        found = Saliency(label, answer.probabilities, values, method, np.asarray(one), model.task.source.channels)
        drawn = partial(draw_saliency, found)
        notes = []
        if len(found.channels) > MOST_CHANNELS:
            notes = [f"{len(found.channels) - MOST_CHANNELS} more channels count, but are not drawn"]
        return Picture(
            f"steps that counted for {label}",
            text=lambda width, colour: drawn(width=width, colour=colour),
            draw=drawn,
            values={
                "label": label,
                "probabilities": dict(answer.probabilities),
                "method": method,
                "steps": model.task.source.labels(one),
                "saliency": plain(values),
            },
            notes=notes,
        )
