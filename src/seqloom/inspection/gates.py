"""What a recurrent layer let in, kept and showed, unit by unit and step by step: the view `gates`.

A recurrent layer adds one array of (time, units) for each of its quantities, named `side.layer.direction.quantity`,
such as "encoder.0.forward.forget_gate"; a layer that runs only one way may leave the direction out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from seqloom.errors import UserError
from seqloom.inspection import draw
from seqloom.inspection.terminal import to_terminal, value_range
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


def draw_gates(
    trace: Trace,
    path: str | Path | None = None,
    side: str = "encoder",
    layer: int = 0,
    most: int = MOST_UNITS,
    *,
    direction: str = "forward",
    width: int | None = None,
    colour: bool = True,
) -> str:
    """Draw the gates and states of one recurrent layer.

    A picture has a panel for each quantity: units from top to bottom in the model's own order, time from left to right,
    and below it the mean over all units. The terminal shows the means.

    Args:
        trace: What the model showed.
        path: A .svg, .png, .pdf or .html file; None returns a drawing for the terminal.
        side: "encoder" or "decoder".
        layer: Counted from 0.
        most: Units to show; the caption says so when there are more. Means are taken over all units.
        direction: "forward" or "backward", for a layer that has both.
        width: Characters in a line of the terminal.
        colour: Whether the terminal shows colours.

    Returns:
        The drawing for the terminal, or the path of the file that was written.

    Raises:
        UserError: The model has no such layer, or the file cannot be written.
    """
    _, arrays = layer_of(trace, side, layer, direction)
    tokens = next(iter(arrays.values())).rows
    if path is None:
        return _text(arrays, tokens, width, colour)
    num_units = max(array.values.shape[1] for array in arrays.values())
    items = [
        draw.Band(array.values, QUANTITIES[quantity], *_range(quantity, array.values), most=most)
        for quantity, array in arrays.items()
    ]
    caption = f"Rows are units, in the model's order; the line is the mean over all {num_units} units."
    if num_units > most:
        caption = f"The first {most} of {num_units} units; the line is the mean over all {num_units}."
    flow = f", {direction}" if any(f".{direction}." in array.name for array in arrays.values()) else ""
    return str(draw.bands(items, tokens, path, f"{side}, layer {layer}{flow}", caption))


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


def _text(arrays: dict[str, LabelledArray], tokens: Sequence[str], width: int | None, colour: bool) -> str:
    parts = []
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


class GatesView(View):
    name = "gates"
    about = "what a recurrent layer's gates and states did at each step"
    inputs, least, most = "one text in quotes", 1, 1
    example = '"the green witch arrived"'

    class Options(ViewOptions):
        target: str | None = Field(None, description="teacher-force the model on this answer instead of its own")
        side: Literal["encoder", "decoder"] | None = Field(
            None, description="gates of the encoder (the default where there is one) or of the decoder"
        )
        layer: int = Field(0, ge=0, description="which layer, from 0")
        direction: Literal["forward", "backward"] = Field("forward", description="of a bidirectional layer")

    def missing(self, model: Any) -> str | None:
        if not model.can("trace"):
            return f"this is for models that read a text, not for {model.task.kind}"
        return None if has_part(model, "cells") else NO_GATES

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        trace = model.trace(inputs[0], options.target)
        side, arrays = layer_of(trace, options.side, options.layer, options.direction)
        where: dict[str, Any] = {"side": side, "layer": options.layer, "direction": options.direction}
        drawn = partial(draw_gates, trace, **where)
        return Picture(
            f"gates of {model.name}",
            text=lambda width, colour: drawn(width=width, colour=colour),
            draw=drawn,
            values={"labels": trace.labels, "arrays": {array.name: array.to_dict() for array in arrays.values()}},
        )
