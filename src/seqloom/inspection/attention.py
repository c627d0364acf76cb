"""Where the decoder looked: one row for each target token, one column for each source token."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from seqloom.errors import UserError
from seqloom.inspection import draw
from seqloom.inspection.terminal import display_width, to_terminal
from seqloom.inspection.trace import Trace, View

ATTENTION = "decoder.attention"
LONGEST_TITLE = 80


def draw_attention(
    shown: View | Trace,
    path: str | Path | None = None,
    gold: Iterable[tuple[int, int]] | None = None,
    *,
    name: str = ATTENTION,
    title: str | None = None,
    width: int | None = None,
    colour: bool = True,
) -> str:
    """Draw the attention of a decoder to its source.

    The weights of several heads are averaged; `View.plot` shows them apart.

    Args:
        shown: A trace, or its view of the attention.
        path: A .svg, .png or .pdf file; None returns a drawing for the terminal.
        gold: Links (source, target) to frame, counted in the tokens that label the axes. Only pictures show them.
        name: The view to pick from a trace.
        title: The heading; by default the two sentences, if they are short.
        width: Characters in a line of the terminal.
        colour: Whether the terminal shows colours.

    Returns:
        The drawing for the terminal, or the path of the file that was written.

    Raises:
        UserError: The model has no attention, or the file cannot be written.
    """
    view = shown if isinstance(shown, View) else _pick(shown, name)
    values = np.asarray(view.values, dtype=float)
    note = ""
    if values.ndim > 2:
        num_heads = int(np.prod(values.shape[:-2]))
        values = values.reshape(num_heads, *values.shape[-2:]).mean(axis=0)
        note = f"mean of {num_heads} heads" if num_heads > 1 else ""
    if path is None:
        text = to_terminal(values, view.rows, view.columns, colour=colour, width=width, low=0.0, high=1.0)
        return f"{note}\n{text}" if note else text
    if title is None:
        title = _title(view.columns, view.rows)
        title = f"{title} ({note})" if note else title
    marks = tuple((target, source) for source, target in gold or ())
    for target, source in marks:
        if not (0 <= target < values.shape[0] and 0 <= source < values.shape[1]):
            raise UserError(
                f"the gold link ({source}, {target}) is outside the picture, which has {values.shape[1]} source and "
                f"{values.shape[0]} target tokens; links are counted from 0 in the tokens that are shown"
            )
    written = draw.heatmap(values, view.rows, view.columns, title, path, marks=marks, low=0.0, high=1.0)
    return str(written)


def _pick(trace: Trace, name: str) -> View:
    if name not in trace:
        raise UserError("this model has no attention to show; one trained with model.decoder: attention has")
    return trace[name]


def _title(source: Sequence[str], target: Sequence[str]) -> str:
    title = f"{_sentence(source)} → {_sentence(target)}"
    return title if display_width(title) <= LONGEST_TITLE else "attention: target (rows) to source (columns)"


def _sentence(tokens: Sequence[str]) -> str:
    """Tokens as one line, without marks such as </s>; pieces that carry a "▁" for their space are joined."""
    words = [token for token in tokens if not (len(token) > 2 and token.startswith("<") and token.endswith(">"))]
    if any("▁" in word for word in words):
        return "".join(words).replace("▁", " ").strip()
    return " ".join(words)
