"""What a recurrent layer let in, kept and showed, unit by unit and step by step: the view `gates`.

A recurrent layer adds one array of (time, units) for each of its quantities, named `side.layer.direction.quantity`,
such as "encoder.0.forward.forget_gate"; a layer that runs only one way may leave the direction out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from seqloom.errors import UserError
from seqloom.inspection import draw
from seqloom.inspection.page import (
    FAINT,
    INK,
    LABEL,
    OUTLINE,
    PAPER,
    TINY,
    Sheet,
    checked_path,
    look,
    save_page,
    text_size,
)
from seqloom.inspection.projection import principal_components
from seqloom.inspection.terminal import DIVERGING, painted, shade_of, shorten, shown, to_terminal, value_range
from seqloom.inspection.trace import LabelledArray, Trace
from seqloom.inspection.view import Picture, Progress, View, ViewOptions, has_part

QUANTITIES = {
    "input_gate": "input gate",
    "forget_gate": "forget gate",
    "reset_gate": "reset gate",
    "update_gate": "update gate",
    "output_gate": "output gate",
    "candidate": "candidate",
    "cell": "cell",
    "hidden": "hidden state",
}
"""What is drawn, in this order: first what opens and closes (0 to 1), then what flows (signed)."""

NO_GATES = "this model has no recurrent layer to show"
MOST_UNITS = 64
TEXT_WIDTH = 7.0  # inches


def draw_gates(
    trace: Trace,
    path: str | Path | None = None,
    side: str = "encoder",
    layer: int = 0,
    *,
    units: str | None = None,
    direction: str = "forward",
    title: str = "",
    width: int | None = None,
    colour: bool = True,
) -> str:
    """Draw the gates and states of one recurrent layer.

    A picture has a panel for each quantity: units from top to bottom, those that do alike next to each other, time from
    left to right, and below it the mean over all units. The terminal shows the means.

    Args:
        trace: What the model showed.
        path: A .svg, .png, .pdf or .html file; None returns a drawing for the terminal.
        side: "encoder" or "decoder".
        layer: Counted from 0.
        units: "3,17" for these, "16" for the 16 that vary most; by default up to 64. Means are over all.
        direction: "forward" or "backward", for a layer that has both.
        title: The heading; by default the layer.
        width: Characters in a line of the terminal.
        colour: Whether the terminal shows colours.

    Returns:
        The drawing for the terminal, or the path of the file that was written.

    Raises:
        UserError: The model has no such layer, or the file cannot be written.
    """
    _, arrays = layer_of(trace, side, layer, direction)
    tokens = next(iter(arrays.values())).rows
    num_units = max(array.values.shape[1] for array in arrays.values())
    chosen = which_units(_state(arrays).values, units)
    if path is None:
        return _text(arrays, tokens, width, colour, chosen if units is not None else [])
    everything = np.concatenate([array.values.T for array in arrays.values()], axis=1)  # (units, quantities · steps)
    ordered = [chosen[i] for i in by_likeness(everything[chosen])]
    items = [
        draw.Band(array.values, QUANTITIES[quantity], ordered, *_range(quantity, array.values))
        for quantity, array in arrays.items()
    ]
    caption = (
        f"Rows are {len(ordered)} of {num_units} units, those that do alike together; below, the mean over all "
        f"{num_units} units, between the limits beside it."
    )
    flow = f", {direction}" if any(f".{direction}." in array.name for array in arrays.values()) else ""
    return str(draw.bands(items, tokens, path, title or f"{side}, layer {layer}{flow}", caption))


def _state(arrays: dict[str, LabelledArray]) -> LabelledArray:
    """The hidden state, or what comes last of what there is."""
    return arrays[list(arrays)[-1]]


def which_units(hidden: np.ndarray, wanted: str | None) -> list[int]:
    """The units that were asked for: their numbers, or so many of those that vary most from step to step."""
    count = hidden.shape[1]
    parts = [str(min(count, MOST_UNITS))] if wanted is None else [part.strip() for part in wanted.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise UserError(f"units are a number of units, such as 16, or their numbers, such as 3,17; got {wanted!r}")
    numbers = [int(part) for part in parts]
    if len(numbers) == 1 and not (wanted or "").strip().endswith(","):
        most = max(1, min(numbers[0], count))
        return sorted(
            np.argsort(-np.nan_to_num(hidden, posinf=0.0, neginf=0.0).var(axis=0), kind="stable")[:most].tolist()
        )
    if max(numbers) >= count:
        raise UserError(f"units count from 0 to {count - 1}; got {max(numbers)}")
    return list(dict.fromkeys(numbers))


def by_likeness(rows: np.ndarray) -> list[int]:
    """(units, values) -> the units in the order of their angle among the two main directions of all."""
    known = np.nan_to_num(np.asarray(rows, dtype=float), posinf=0.0, neginf=0.0)
    if len(known) < 3:
        return list(range(len(known)))
    points, _ = principal_components(known - known.mean(axis=1, keepdims=True), 2)
    return np.argsort(np.arctan2(points[:, 1], points[:, 0]), kind="stable").tolist()


def draw_unit(
    array: LabelledArray, unit: int, path: str | Path | None = None, *, colour: bool = True, title: str = ""
) -> str:
    """Draw a text coloured by what one unit did at each symbol.

    Args:
        array: (time, units) of a quantity.
        unit: Counted from 0.
        path: A .svg, .png, .pdf or .html file; None returns a line for the terminal.
        colour: Whether the terminal shows colours.
        title: A heading.

    Returns:
        The text, or the path of the file that was written.
    """
    if not 0 <= unit < array.values.shape[1]:
        raise UserError(f"units count from 0 to {array.values.shape[1] - 1}; got {unit}")
    values = np.asarray(array.values[:, unit], dtype=float)
    low, high = _range("hidden", values)
    names = [shown(token) for token in array.rows]
    if path is None:
        cells = [f"{name} {_signed(value)}" for name, value in zip(names, values.tolist(), strict=True)]
        if colour:
            shades = [shade_of(DIVERGING, (value - low) / (high - low))[0] for value in values.tolist()]
            cells = [painted(cell, shade) for cell, shade in zip(cells, shades, strict=True)]
        return "  ".join(cells)
    target = checked_path(path)
    with look():
        sizes = [max(text_size(name)[0], text_size("−0.00", TINY)[0]) + 0.1 for name in names]
        places, x, line = list[tuple[float, int]](), 0.0, 0
        for size in sizes:
            if x and x + size > TEXT_WIDTH:
                x, line = 0.0, line + 1
            places.append((x, line))
            x += size + 0.04
        caption = f"Blue: above 0, orange: below; the darkest is {_signed(high)} or {_signed(low)}."
        wide = max(x + size for (x, _), size in zip(places, sizes, strict=True))
        sheet = Sheet(title, caption, wide, 0.48 * (line + 1))
        for (x, line), size, name, value in zip(places, sizes, names, values.tolist(), strict=True):
            shade, dark = shade_of(DIVERGING, (value - low) / (high - low))
            sheet.box(x, 0.48 * line, size, 0.26, shade, edgecolor=OUTLINE, linewidth=0.4)
            sheet.text(x + size / 2, 0.48 * line + 0.13, name, LABEL, PAPER if dark else INK, ha="center")
            sheet.text(x + size / 2, 0.48 * line + 0.35, _signed(value), TINY, FAINT, ha="center")
        return str(save_page(sheet.page, target))


def _signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}".replace("-", "−")


def layer_of(
    trace: Trace, side: str | None, layer: int, direction: str = "forward"
) -> tuple[str, dict[str, LabelledArray]]:
    """The arrays of one layer, by quantity, in the order of `QUANTITIES`; of the encoder where there is one."""
    if side is None:  # a language model has no encoder
        side = "encoder" if any(name.startswith("encoder") for name in trace.names()) else "decoder"
    for prefix in (f"{side}.{layer}.{direction}.", f"{side}.{layer}."):
        found = {quantity: trace[prefix + quantity] for quantity in QUANTITIES if prefix + quantity in trace}
        if found:
            return side, found
    layers = sorted({name.rsplit(".", 1)[0] for name in trace.names() if name.rsplit(".", 1)[-1] in QUANTITIES})
    if not layers:
        listed = ", ".join(trace.names()) or "none"
        raise UserError(f"{NO_GATES}; arrays it has: {listed}")
    raise UserError(f"there are no gates of {side}.{layer}.{direction}; layers it has: {', '.join(layers)}")


def _range(quantity: str, values: np.ndarray) -> tuple[float, float]:
    if quantity.endswith("_gate"):
        return 0.0, 1.0
    # tanh stays within one; only a memory cell can grow beyond it.
    bound = max(1.0, value_range(values)[1])
    return -bound, bound


def _text(
    arrays: dict[str, LabelledArray], tokens: Sequence[str], width: int | None, colour: bool, units: Sequence[int]
) -> str:
    parts = []
    if units:
        hidden = np.asarray(_state(arrays).values, dtype=float)[:, list(units)].T
        drawing = to_terminal(hidden, [f"unit {unit}" for unit in units], tokens, colour=colour, width=width)
        parts.append(f"hidden state of single units\n\n{drawing}")
    for heading, gates in (("mean over units: gates", True), ("mean over units: states", False)):
        chosen = {q: array for q, array in arrays.items() if q.endswith("_gate") == gates}
        if chosen:
            means = np.stack([array.values.mean(axis=1) for array in chosen.values()])
            bound = max(float(np.abs(means[np.isfinite(means)]).max(initial=0.0)), 0.1)
            low, high = (0.0, 1.0) if gates else (-bound, bound)
            names = [QUANTITIES[quantity] for quantity in chosen]
            drawing = to_terminal(means, names, tokens, colour=colour, width=width, low=low, high=high)
            parts.append(f"{heading}\n\n{drawing}")
    return "\n\n".join(parts)


# ---------------------------------------------------------------------------------------------------------------------
# The view


class LayerOptions(ViewOptions):
    """Which recurrent layer is watched, and on which answer."""

    target: str | None = Field(None, description="teacher-force the model on this answer instead of its own")
    side: Literal["encoder", "decoder"] | None = Field(
        None, description="gates of the encoder (the default where there is one) or of the decoder"
    )
    layer: int = Field(0, ge=0, description="which layer, from 0")
    direction: Literal["forward", "backward"] = Field("forward", description="of a bidirectional layer")


def no_layer(model: Any) -> str | None:
    """Why no recurrent layer of a model can be watched; None if one can."""
    if not model.can("trace"):
        return f"this is for models that read a text, not for {model.task.kind}"
    if not getattr(model.network, "traces_gates", True):
        return "its recurrent layers read sentences by themselves, and their gates are not traced"
    return None if has_part(model, "cells") else NO_GATES


class GatesView(View):
    name = "gates"
    about = "what a recurrent layer's gates and states did at each step"
    recipe = "demo"
    inputs, least, most = "one text in quotes", 1, 1
    example = '"the green witch arrived"'

    class Options(LayerOptions):
        units: str | None = Field(None, description="which: 3,17 for these, 16 for the 16 that vary most (default: 64)")
        unit: int | None = Field(None, ge=0, description="colour the text by the hidden state of this unit instead")

    def missing(self, model: Any) -> str | None:
        return no_layer(model)

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        trace = model.trace(inputs[0], options.target)
        side, arrays = layer_of(trace, options.side, options.layer, options.direction)
        way = f", {options.direction}" if any(f".{options.direction}." in a.name for a in arrays.values()) else ""
        text = f"“{shorten(inputs[0], 60)}”"
        drawn: Callable[..., str]
        if options.unit is not None:
            title = f"{text}: unit {options.unit} of {side}, layer {options.layer}{way} of {model.name}"
            unit = partial(draw_unit, _state(arrays), options.unit, title=title)
            unit(colour=False)  # whether there is one
            drawn = lambda path=None, width=None, colour=True: unit(path, colour=colour)  # noqa: E731
        else:
            title = f"{text} in {side}, layer {options.layer}{way} of {model.name}"
            where: dict[str, Any] = {"side": side, "layer": options.layer, "direction": options.direction}
            which_units(_state(arrays).values, options.units)
            drawn = partial(draw_gates, trace, units=options.units, title=title, **where)
        return Picture(
            title,
            text=lambda width, colour: drawn(width=width, colour=colour),
            draw=drawn,
            values={"labels": trace.labels, "arrays": {array.name: array.to_dict() for array in arrays.values()}},
        )
