"""What a recurrent layer let in, kept and showed: its gates and states, unit by unit and step by step.

A recurrent layer adds one view of (time, units) for each of its quantities, named `side.layer.direction.quantity`, such
as "encoder.0.forward.forget_gate"; a layer that runs only one way may leave the direction out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from seqloom.errors import UserError
from seqloom.inspection import draw
from seqloom.inspection.terminal import to_terminal, value_range
from seqloom.inspection.trace import Trace, View

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
        path: A .svg, .png or .pdf file; None returns a drawing for the terminal.
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
    views = _layer(trace, side, layer, direction)
    tokens = next(iter(views.values())).rows
    if path is None:
        return _text(views, tokens, width, colour)
    num_units = max(view.values.shape[1] for view in views.values())
    items = [
        draw.Band(view.values, QUANTITIES[quantity], *_range(quantity, view.values), most=most)
        for quantity, view in views.items()
    ]
    caption = f"Rows are units, in the model's order; the line is the mean over all {num_units} units."
    if num_units > most:
        caption = f"The first {most} of {num_units} units; the line is the mean over all {num_units}."
    flow = f", {direction}" if any(f".{direction}." in view.name for view in views.values()) else ""
    return str(draw.bands(items, tokens, path, f"{side}, layer {layer}{flow}", caption))


def _layer(trace: Trace, side: str, layer: int, direction: str) -> dict[str, View]:
    """The views of one layer, by quantity, in the order of `QUANTITIES`."""
    for prefix in (f"{side}.{layer}.{direction}.", f"{side}.{layer}."):
        found = {quantity: trace[prefix + quantity] for quantity in QUANTITIES if prefix + quantity in trace}
        if found:
            return found
    layers = sorted({name.rsplit(".", 1)[0] for name in trace.names() if name.rsplit(".", 1)[-1] in QUANTITIES})
    if not layers:
        listed = ", ".join(trace.names()) or "none"
        raise UserError(f"this model has no recurrent layer to show; views it has: {listed}")
    raise UserError(f"there are no gates of {side}.{layer}.{direction}; layers it has: {', '.join(layers)}")


def _range(quantity: str, values: np.ndarray) -> tuple[float, float]:
    if quantity.endswith("_gate"):
        return 0.0, 1.0
    # tanh stays within one; only a memory cell can grow beyond it.
    bound = max(1.0, value_range(values)[1])
    return -bound, bound


def _text(views: dict[str, View], tokens: Sequence[str], width: int | None, colour: bool) -> str:
    parts = []
    for heading, gates in (("mean over units: gates", True), ("mean over units: states", False)):
        chosen = {q: view for q, view in views.items() if q.endswith("_gate") == gates}
        if chosen:
            means = np.stack([view.values.mean(axis=1) for view in chosen.values()])
            bound = max(float(np.abs(means[np.isfinite(means)]).max(initial=0.0)), 0.1)
            low, high = (0.0, 1.0) if gates else (-bound, bound)
            names = [QUANTITIES[quantity] for quantity in chosen]
            drawing = to_terminal(means, names, tokens, colour=colour, width=width, low=low, high=high)
            parts.append(f"{heading}\n\n{drawing}")
    return "\n\n".join(parts)
