"""What tells a Transformer the order of its symbols, drawn: the view `positions`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from seqloom.inspection import draw
from seqloom.inspection.terminal import to_terminal
from seqloom.inspection.trace import plain
from seqloom.inspection.view import Picture, Progress, View, ViewOptions

CELL = 0.11  # inches
NO_POSITIONS = "this model has no position encoding to show; a Transformer has, unless it was told positions: none"


@dataclass(frozen=True, eq=False)
class Encoding:
    """A matrix that shows a position encoding; `alike` (positions, positions) shows how it tells positions apart."""

    kind: str
    finding: str
    matrix: np.ndarray
    rows: Sequence[str]
    columns: Sequence[str]
    title: str
    alike: np.ndarray | None
    about_alike: str


def encodings_of(network: Any, count: int) -> dict[str, Encoding]:
    """Name of a part of a network -> its position encoding, of so many positions; those that are equal are one."""
    found: dict[str, Encoding] = {}
    for name, part in network.named_modules():
        encoding = encoding_of(part, count)
        if encoding is not None and not any(_equal(encoding, other) for other in found.values()):
            found[name.removesuffix(".positions")] = encoding
    return found


def encoding_of(part: Any, count: int) -> Encoding | None:
    """What a module says about positions; None if it says nothing."""
    if not all(hasattr(part, hook) for hook in ("embed", "rotate", "bias")):
        return None
    positions = [str(i) for i in range(count)]
    if hasattr(part, "slopes"):
        slopes = _array(part.slopes)
        bias = -slopes[:, None] * np.arange(count)
        heads = [f"head {i}" for i in range(len(slopes))]
        away = -slopes[0] * np.abs(np.arange(count)[:, None] - np.arange(count))
        finding = f"scores fall with the distance, from {slopes.max():.2g} to {slopes.min():.2g} a step"
        title = "what is added to a score, by head and distance"
        return Encoding("alibi", finding, bias, heads, positions, title, away, "the same for two positions, head 0")
    if hasattr(part, "turns"):
        cosines, sines = map(_array, part.turns(count))
        steps = np.arange(count)[:, None] - np.arange(count)
        rates = np.arctan2(sines[1], cosines[1]) if count > 1 else np.zeros(cosines.shape[1])
        alike = np.cos(steps[:, :, None] * rates).mean(-1)
        finding = f"each pair of numbers turns at its own speed, the first by {np.degrees(rates[0]):.0f}° a step"
        pairs = [str(i) for i in range(cosines.shape[1])]
        title = "cosine of the angle, by position and pair of numbers"
        return Encoding("rotary", finding, cosines, positions, pairs, title, alike, "mean cosine of the angles between")
    if hasattr(part, "distance"):
        table, reach = _array(part.table), int(part.distance)
        rows = [f"{d:+d}".replace("-", "−") if d else "0" for d in range(-reach, reach + 1)]
        columns = [str(i) for i in range(table.shape[1])]
        finding = f"one learned vector for each distance up to {reach}"
        title = "learned vectors, by distance"
        return Encoding("relative", finding, table, rows, columns, title, _cosines(table), "cosines between distances")
    if not hasattr(part, "table"):
        return None
    table = _array(part.table)[:count]
    learned = getattr(part, "max_length", None) is not None
    finding = "one learned vector for each position" if learned else "waves of many lengths, one pair for each"
    rows, columns = [str(i) for i in range(len(table))], [str(i) for i in range(table.shape[1])]
    return Encoding(
        "learned" if learned else "sinusoidal",
        finding,
        table,
        rows,
        columns,
        "what is added, by position and dimension",
        _cosines(table),
        "cosines between positions",
    )


def _array(tensor: Any) -> np.ndarray:
    return np.asarray(tensor.detach().cpu().float().numpy(), dtype=float)


def _cosines(table: np.ndarray) -> np.ndarray:
    unit = table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1e-12)
    return np.asarray(np.clip(unit @ unit.T, -1.0, 1.0))


def _equal(one: Encoding, other: Encoding) -> bool:
    return one.kind == other.kind and one.matrix.shape == other.matrix.shape and np.allclose(one.matrix, other.matrix)


def draw_positions(
    found: dict[str, Encoding],
    path: str | Path | None = None,
    *,
    width: int | None = None,
    colour: bool = True,
    title: str = "",
) -> str:
    """Draw position encodings.

    Args:
        found: Part of the network -> its encoding.
        path: A .svg, .png, .pdf or .html file; None returns drawings for the terminal.
        width: Characters in a line of the terminal.
        colour: Whether the terminal shows colours.
        title: A heading.

    Returns:
        The drawings, or the path of the file that was written.
    """
    if path is None:
        parts = [title] if title else []
        for name, one in found.items():
            rows = one.rows if len(one.rows) <= 24 else one.rows[:24]
            drawing = to_terminal(one.matrix[: len(rows)], rows, one.columns, colour=colour, width=width)
            parts.append(f"{name}: {one.title}\n\n{drawing}")
        return "\n\n".join(parts)
    panels, cell = list[draw.Panel](), CELL
    for name, one in found.items():
        where = f"{name}: " if len(found) > 1 else ""
        panels.append(draw.Panel(one.matrix, one.rows, one.columns, where + one.title, cell=cell))
        if one.alike is not None:
            labels = one.rows if len(one.rows) == len(one.alike) else [str(i) for i in range(len(one.alike))]
            panels.append(draw.Panel(one.alike, labels, labels, where + one.about_alike, cell=cell))
    return str(draw.panels(panels, path, title, across=2, caption=_caption(found)))


ABOUT = {
    "alibi": "ALiBi (Press et al. 2022) takes from a score what grows with the distance; each head has its own rate.",
    "learned": "Learned positions (Gehring et al. 2017): a vector for each is added to the embedding.",
    "relative": "Relative positions (Shaw et al. 2018): a vector for each distance is compared with the query.",
    "rotary": "Rotary positions (Su et al. 2021) turn queries and keys; a score sees the difference of two angles.",
    "sinusoidal": "Sinusoids (Vaswani et al. 2017) are added to the embeddings; near positions have like vectors.",
}


def _caption(found: dict[str, Encoding]) -> str:
    return " ".join(ABOUT[kind] for kind in dict.fromkeys(one.kind for one in found.values()))


# ---------------------------------------------------------------------------------------------------------------------
# The view


class PositionsView(View):
    name = "positions"
    recipe = "demo-transformer"
    about = "the position encoding of a Transformer: sinusoids, learned vectors, angles, distances"

    class Options(ViewOptions):
        count: int = Field(40, ge=2, le=200, description="how many positions")

    def missing(self, model: Any) -> str | None:
        if not hasattr(model.network, "named_modules"):
            return f"this is for Transformers, not for {model.task.kind}"
        return None if encodings_of(model.network, 2) else NO_POSITIONS

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        found = encodings_of(model.network, options.count)
        kinds = dict.fromkeys(f"{one.kind} positions: {one.finding}" for one in found.values())
        title = f"{'; '.join(kinds)} ({model.name})"
        drawn = partial(draw_positions, found, title=title)
        return Picture(
            title,
            text=lambda width, colour: drawn(width=width, colour=colour),
            draw=drawn,
            values={
                "encodings": {name: {"kind": one.kind, "values": plain(one.matrix)} for name, one in found.items()}
            },
        )
