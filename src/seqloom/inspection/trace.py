"""A trace: what a model showed while it answered, as named arrays whose axes carry their labels.

    trace = Trace()
    trace.labels["source"] = ["the", "witch", "arrived"]
    trace.append("decoder.attention", weights_of_one_step, rows="target", columns="source")
    …
    trace.labels["target"] = ["llegó", "la", "bruja"]
    trace["decoder.attention"].plot("alignment.svg")

A model names an axis, the trace knows its labels, so no picture has to guess which tokens belong where. Labels may be
set late, as the target's must be; they are compared with the shapes whenever both are known.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.errors import UserError, did_you_mean
from seqloom.inspection import draw
from seqloom.inspection.hovering import hovering_words
from seqloom.inspection.page import html_of
from seqloom.inspection.terminal import to_terminal, value_range

ALIGNMENT = "decoder.attention"
"""The array of (target, source) that every decoder with attention adds."""

UNIT = "unit"
"""The name of a second axis nobody named: the units of a layer."""


@dataclass(frozen=True, eq=False)
class LabelledArray:
    """One array of a trace. An axis without labels is counted from 0."""

    name: str
    values: np.ndarray
    axes: tuple[str, ...]
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def labels_of(self, axis: int) -> list[str]:
        """The labels along one axis."""
        known = self.labels.get(self.axes[axis])
        return list(known) if known is not None else [str(i) for i in range(self.values.shape[axis])]

    @property
    def shape(self) -> tuple[int, ...]:
        """How long each of `axes` is."""
        return self.values.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """For NumPy: `np.asarray(trace["decoder.attention"])`."""
        if copy is False and dtype is not None and np.dtype(dtype) != self.values.dtype:
            raise ValueError(f"{self.name!r} holds {self.values.dtype}; as {np.dtype(dtype)} it must be copied")
        return np.array(self.values, dtype) if copy else np.asarray(self.values, dtype)

    @property
    def rows(self) -> list[str]:
        """The labels of the last axis but one; for a single row of values, the last part of the array's name."""
        return self.labels_of(-2) if self.values.ndim > 1 else [self.name.rsplit(".", 1)[-1]]

    @property
    def columns(self) -> list[str]:
        """The labels of the last axis."""
        return self.labels_of(-1)

    def plot(
        self, path: str | Path | None = None, title: str | None = None, *, marks: Iterable[tuple[int, int]] = ()
    ) -> Any:
        """The array as a heat map; axes before the last two become panels.

        Args:
            path: a .svg, .png, .pdf or .html file to write, which is given back; None: give back matplotlib's figure.
            title: a heading; the array's name when absent.
            marks: cells (row, column) to frame, such as gold links.
        """
        title = self.name if title is None else title
        low, high = value_range(self.values)
        pages = self._pages()
        marks = tuple(marks)
        if len(pages) == 1:
            return draw.heatmap(pages[0][1], self.rows, self.columns, title, path, marks=marks, low=low, high=high)
        items = [
            draw.Panel(matrix, self.rows, self.columns, name, marks=marks, low=low, high=high) for name, matrix in pages
        ]
        return draw.panels(items, path, title)

    def to_text(self, width: int | None = None, *, colour: bool = True) -> str:
        """The array as a heat map for the terminal."""
        low, high = value_range(self.values)
        pages = self._pages()
        blocks = []
        for name, matrix in pages:
            block = to_terminal(matrix, self.rows, self.columns, colour=colour, width=width, low=low, high=high)
            blocks.append(f"{name}\n{block}" if len(pages) > 1 else block)
        return "\n\n".join(blocks)

    def to_dict(self, digits: int | None = None) -> dict[str, Any]:
        """The array as JSON-able values; numbers that JSON lacks (nan, inf) become null."""
        return {"axes": list(self.axes), "shape": list(self.values.shape), "values": plain(self.values, digits)}

    def _repr_html_(self) -> str:
        return html_of(self.plot, lambda: self.to_text(colour=False), self.name)

    def to_hover(self) -> str:
        """The array of (rows, columns) as HTML: two lines of words; pointing at one darkens what it looked at."""
        assert self.values.ndim == 2, self.shape
        return hovering_words(self.values, self.rows, self.columns)

    def _pages(self) -> list[tuple[str, np.ndarray]]:
        """The array cut into matrices, each with the place it was cut from."""
        values = np.atleast_2d(self.values)
        pages = []
        for place in np.ndindex(*values.shape[:-2]):
            parts = [f"{self.axes[axis]} {self.labels_of(axis)[index]}" for axis, index in enumerate(place)]
            pages.append((", ".join(parts), values[place]))
        return pages


class Trace:
    """Named arrays with labelled axes. `labels` maps the name of an axis to the labels along it."""

    def __init__(self, labels: Mapping[str, Sequence[str]] | None = None) -> None:
        self.labels: dict[str, list[str]] = {name: list(words) for name, words in (labels or {}).items()}
        self._entries: dict[str, _Entry] = {}

    def add(
        self,
        name: str,
        values: Any,
        *,
        rows: str | None = None,
        columns: str | None = None,
        axes: Sequence[str] | None = None,
    ) -> None:
        """Keep an array under a name that is still free.

        Args:
            name: Where it was seen, from the outside in: "decoder.attention", "encoder.0.forward.forget_gate".
            values: A tensor, an array or nested lists. They are copied.
            rows: The name of the first of two axes, or of the only one.
            columns: The name of the second axis; "unit" if it is not given.
            axes: The names of all axes, instead of `rows` and `columns`: ("head", "target", "source").
        """
        self._must_be_free(name)
        array = _array(values)
        named = _axes(name, array.ndim, rows, columns, axes)
        self._check(name, array.shape, named)
        self._entries[name] = _Entry(named, [array], stack=None)

    def append(
        self,
        name: str,
        row: Any,
        *,
        rows: str | None = None,
        columns: str | None = None,
        axes: Sequence[str] | None = None,
        stack: int = 0,
    ) -> None:
        """Keep one step of an array that grows while the model answers.

        The steps are stacked when the array is read. Steps may get longer, as a decoder's attention to its own words
        does; shorter ones are then filled with zeros at their end.

        Args:
            name: As for `add`.
            row: The values of one step, without the axis of the steps.
            rows: As for `add`; it names the axes of the stacked array.
            columns: As for `add`.
            axes: As for `add`.
            stack: Where the axis of the steps goes. Steps of (head, source) with stack=1 become (head, target, source).
        """
        array = _array(row)
        named = _axes(name, array.ndim + 1, rows, columns, axes)
        entry = self._entries.get(name)
        if entry is None:
            self._entries[name] = _Entry(named, [array], stack=stack)
            return
        if entry.stack is None:
            raise ValueError(f"trace: {name!r} was added as a whole; a step cannot be appended to it")
        if (entry.axes, entry.stack) != (named, stack):
            raise ValueError(f"trace: {name!r} was begun with axes {entry.axes}, this step says {named}")
        entry.arrays.append(array)

    def names(self) -> list[str]:
        """The arrays this trace holds, in the order they were first seen."""
        return list(self._entries)

    def keys(self) -> list[str]:
        """The same, as a mapping has it."""
        return self.names()

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __repr__(self) -> str:
        return f"<trace: {', '.join(self.names()) or 'nothing'}>"

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def __getitem__(self, name: str) -> LabelledArray:
        if name not in self._entries:
            listed = ", ".join(self._entries) or "none"
            hint = did_you_mean(name, self._entries)
            raise UserError(f"the trace has no array {name!r}{hint}; arrays it has: {listed}")
        entry = self._entries[name]
        values = entry.read()
        self._check(name, values.shape, entry.axes)
        labels = {axis: self.labels[axis] for axis in entry.axes if axis in self.labels}
        return LabelledArray(name, values, entry.axes, labels)

    @property
    def alignment(self) -> LabelledArray | None:
        """Where a decoder looked at each of its steps, (target, source); None of a model that does not."""
        if ALIGNMENT not in self:
            return None
        return self[ALIGNMENT]

    def to_dict(self, digits: int | None = None) -> dict[str, Any]:
        """The whole trace as JSON-able values: the labels, and every array with its axes. `digits` rounds."""
        return {
            "labels": {name: list(words) for name, words in self.labels.items()},
            "arrays": {name: self[name].to_dict(digits) for name in self._entries},
        }

    def _repr_html_(self) -> str:
        rows = []
        for name in self._entries:
            array = self[name]
            sizes = ", ".join(f"{axis} {size}" for axis, size in zip(array.axes, array.values.shape, strict=True))
            rows.append(f"<tr><td><code>{html.escape(name)}</code></td><td>{html.escape(sizes)}</td></tr>")
        lines = (f"<b>{html.escape(axis)}</b> {html.escape(' '.join(words))}" for axis, words in self.labels.items())
        table = f"<table><tr><th>array</th><th>axes</th></tr>{''.join(rows)}</table>"
        drawn = "" if self.alignment is None else self.alignment._repr_html_()
        return f"<p>{'<br>'.join(lines)}</p>{drawn}{table}"

    def _must_be_free(self, name: str) -> None:
        if name in self._entries:
            raise ValueError(f"trace: {name!r} was added before; names must differ")

    def _check(self, name: str, shape: tuple[int, ...], axes: tuple[str, ...]) -> None:
        for size, axis in zip(shape, axes, strict=True):
            if axis in self.labels and len(self.labels[axis]) != size:
                raise ValueError(
                    f"trace: {name!r} has {size} entries along {axis!r}, but there are {len(self.labels[axis])} "
                    f"{axis} labels: {_short(self.labels[axis])}"
                )


@dataclass
class _Entry:
    axes: tuple[str, ...]
    arrays: list[np.ndarray]
    stack: int | None

    def read(self) -> np.ndarray:
        if self.stack is None:
            return self.arrays[0]
        shape = tuple(max(sizes) for sizes in zip(*(array.shape for array in self.arrays), strict=True))
        filled = [
            np.pad(array, [(0, full - size) for full, size in zip(shape, array.shape, strict=True)])
            for array in self.arrays
        ]
        return np.stack(filled, axis=self.stack)


def _axes(
    name: str, num_axes: int, rows: str | None, columns: str | None, axes: Sequence[str] | None
) -> tuple[str, ...]:
    if axes is not None:
        if rows is not None or columns is not None:
            raise ValueError(f"trace: {name!r} must name its axes either by axes=… or by rows=… and columns=…")
        named = tuple(axes)
    elif rows is None:
        raise ValueError(f"trace: {name!r} must name its axes, for example rows='target', columns='source'")
    elif num_axes == 1:
        named = (rows,) if columns is None else (rows, columns)
    else:
        named = (rows, UNIT if columns is None else columns)
    if len(named) != num_axes:
        raise ValueError(f"trace: {name!r} has {num_axes} axes, but {len(named)} names were given: {', '.join(named)}")
    return named


def _array(values: Any) -> np.ndarray:
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        try:
            values = values.numpy()
        except TypeError:  # numpy has no bfloat16
            values = values.float().numpy()
    return np.array(values)


def plain(values: np.ndarray, digits: int | None = None) -> Any:
    """An array as JSON-able values; numbers that JSON lacks (nan, inf) become null."""
    if values.dtype.kind != "f":
        return values.tolist()
    rounded = values.astype(np.float64) if digits is None else np.round(values.astype(np.float64), digits)
    if np.isfinite(rounded).all():
        return rounded.tolist()
    mixed = rounded.astype(object)
    mixed[~np.isfinite(rounded)] = None
    return mixed.tolist()


def _short(words: Sequence[str], most: int = 8) -> str:
    return " ".join(words[:most]) + (" …" if len(words) > most else "")
