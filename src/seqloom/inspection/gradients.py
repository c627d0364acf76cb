"""How far back a loss reaches: norms of its gradient with respect to earlier states; the view `gradients`.

Where every step back multiplies the gradient by less than one it vanishes, and nothing is learned from what was long
ago; where by more than one it explodes (Bengio et al. 1994; Pascanu et al. 2013). The matrix from state to state says
which of both to expect: its largest singular value bounds what a step of a simple recurrent network multiplies by.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from seqloom.errors import UserError
from seqloom.inspection.draw import spread
from seqloom.inspection.page import (
    DASHES,
    FAINT,
    INK,
    LABEL,
    LINES,
    MARGIN,
    MARKERS,
    PAPER,
    RULE,
    SMALL,
    TITLE,
    Heading,
    Notes,
    axes_at,
    checked_path,
    figure,
    look,
    save_page,
    text_size,
)
from seqloom.inspection.terminal import bar, display_width, shown
from seqloom.inspection.trace import plain
from seqloom.inspection.view import Picture, Progress, View, ViewOptions, compared, part_of

EMBEDDING = "embedding"
STEPS_SHOWN = (0, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000)
FAINTEST = 1e-300  # what is less counts as nothing


@dataclass(frozen=True, eq=False)
class RecurrentMatrix:
    """The weights from state to state of one gate: `singular` values from the largest on, and the spectral radius."""

    name: str
    singular: np.ndarray
    radius: float

    @classmethod
    def of(cls, name: str, weights: Any) -> RecurrentMatrix:
        """Of a square matrix."""
        matrix = np.asarray(weights, dtype=float)
        return cls(name, np.linalg.svd(matrix, compute_uv=False), float(np.abs(np.linalg.eigvals(matrix)).max()))


@dataclass(frozen=True, eq=False)
class Gradients:
    """What was measured of one model.

    `norms` has an array for every quantity, such as "layer 0 hidden", "layer 0 cell", "embedding": its k-th number is
    the mean norm of the gradient of a loss with respect to that quantity k steps earlier, NaN where no text was so
    long. `sample` says of which text, at how many positions.
    """

    name: str
    norms: Mapping[str, np.ndarray]
    matrices: Sequence[RecurrentMatrix] = field(default_factory=tuple)
    sample: str = ""

    @property
    def recurrent(self) -> bool:
        return any(name != EMBEDDING for name in self.norms)

    def own(self) -> dict[str, np.ndarray]:
        """The quantities that say most: the states of a recurrent network, the embeddings of another."""
        return {name: norms for name, norms in self.norms.items() if name != EMBEDDING or not self.recurrent}

    def layer(self, number: int | None) -> dict[str, np.ndarray]:
        """The states of a layer; by default of the last one, from which only time leads to the loss."""
        layers = sorted({int(name.split()[1]) for name in self.norms if name != EMBEDDING})
        number = layers[-1] if number is None else number
        if number not in layers:
            raise UserError(f"{self.name}: there is no recurrent layer {number}; it has {', '.join(map(str, layers))}")
        return {name: norms for name, norms in self.norms.items() if name.startswith(f"layer {number} ")}


class GradientTally:
    """Adds up norms by distance."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._sums: dict[str, np.ndarray] = {}
        self._counts: dict[str, np.ndarray] = {}

    def add(self, name: str, norms: np.ndarray, ends: np.ndarray) -> None:
        """`norms` (rows, time) of the gradients of each row's own loss, which was taken at `ends` (rows,)."""
        sums = self._sums.setdefault(name, np.zeros(self.steps + 1))
        counts = self._counts.setdefault(name, np.zeros(self.steps + 1, np.int64))
        back = ends[:, None] - np.arange(norms.shape[1])
        near = (back >= 0) & (back <= self.steps)
        np.add.at(sums, back[near], norms[near])
        np.add.at(counts, back[near], 1)

    def means(self) -> dict[str, np.ndarray]:
        """Mean norms from 0 steps back to the furthest that was met."""
        found = {}
        for name, sums in self._sums.items():
            counts = self._counts[name]
            last = int(np.flatnonzero(counts)[-1]) + 1
            found[name] = np.divide(sums[:last], counts[:last], out=np.full(last, np.nan), where=counts[:last] > 0)
        return found


def factor_a_step(norms: np.ndarray) -> float:
    """What a step back multiplies the gradient by: the median of all steps, NaN where there is none."""
    real = np.where(np.isfinite(norms) & (norms > FAINTEST), norms, np.nan)
    steps = np.diff(np.log(real))
    return float(np.exp(np.median(steps[np.isfinite(steps)]))) if np.isfinite(steps).any() else math.nan


# ---------------------------------------------------------------------------------------------------------------------
# What is shown of several models


def series_of(found: Sequence[Gradients], layer: int | None = None) -> tuple[dict[str, np.ndarray], str]:
    """Name -> norms for one picture, and what the gradient is taken of.

    One model: all its states. Several: the same of each, the states of a layer, or the embeddings where one of them has
    no state. Those are divided by the norm 0 steps back: a loss that has become small has small gradients, and models
    differ in what they still lose.
    """
    if len(found) == 1:
        model = found[0]
        if layer is not None and not model.recurrent:
            raise UserError(f"{model.name}: there is no recurrent layer to choose; leave --layer out")
        return model.own() if layer is None else model.layer(layer), "states" if model.recurrent else "embeddings"
    names = [model.name for model in found]
    if len(set(names)) < len(names):
        raise UserError(f"models of one name cannot be told apart in a picture; got {', '.join(names)}")
    if not all(model.recurrent for model in found):
        return {model.name: relative(model.norms[EMBEDDING]) for model in found}, "relative embeddings"
    series = {}
    for model in found:
        for name, norms in model.layer(layer).items():
            series[model.name + (", cell" if name.endswith(" cell") else "")] = relative(norms)
    return series, "relative states"


def relative(norms: np.ndarray) -> np.ndarray:
    """Norms divided by that of no step back."""
    return norms / norms[0] if norms[0] > FAINTEST else np.full_like(norms, np.nan)


def draw_gradients(
    found: Sequence[Gradients],
    path: str | Path | None = None,
    *,
    layer: int | None = None,
    title: str = "",
    beside: tuple[str, Sequence[Gradients]] | None = None,
) -> str:
    """Show norms of gradients against the distance, and the singular values of the matrices from state to state.

    Args:
        found: One model, whose states are shown, or several to compare.
        path: A .svg, .png, .pdf or .html file; None returns tables for the terminal.
        layer: Counted from 0; of several models the last layer is shown unless this says otherwise.
        title: A heading for the picture.
        beside: A heading and the same models in another condition, such as before training, for a second panel.

    Returns:
        The tables, or the path of the file that was written.
    """
    charts = _charts(found, layer, beside)
    if path is None:
        low, high = _powers([norms for chart in charts for norms in chart.series.values()])
        return "\n\n".join([*(_norms_table(chart, low, high) for chart in charts), *_matrix_tables(found)])
    return str(_picture(charts, found, checked_path(path), title or _title(found)))


class Chart(NamedTuple):
    """Norms to be shown together, what they are of, and where they were measured."""

    heading: str
    series: dict[str, np.ndarray]
    kind: str
    sample: str


def _charts(
    found: Sequence[Gradients], layer: int | None, beside: tuple[str, Sequence[Gradients]] | None
) -> list[Chart]:
    parts = [("", found)] if beside is None else [beside, ("after training", found)]
    return [Chart(heading, *series_of(models, layer), _sample(models)) for heading, models in parts]


def _sample(models: Sequence[Gradients]) -> str:
    return "; ".join(dict.fromkeys(model.sample for model in models if model.sample))


def _title(found: Sequence[Gradients]) -> str:
    """What a step back multiplies the gradient by, of each model."""
    parts = []
    for model in found:
        factor = factor_a_step(next(iter((model.layer(None) if model.recurrent else model.own()).values())))
        parts.append(f"{model.name} × {factor:.2f}" if math.isfinite(factor) else model.name)
    return f"gradients through time, a step back: {', '.join(parts)}"


def _caption(charts: Sequence[Chart]) -> str:
    x = "x the embeddings that are read, as not every network has a state"
    of = {
        "states": "‖∂ loss(t) / ∂ state(t − k)‖ of each layer",
        "relative states": "‖∂ loss(t) / ∂ h(t − k)‖ divided by that at k = 0 (cell: of the memory cell c)",
        "embeddings": f"‖∂ loss(t) / ∂ x(t − k)‖, {x}",
        "relative embeddings": f"‖∂ loss(t) / ∂ x(t − k)‖ divided by that at k = 0, {x}",
    }[charts[0].kind]
    samples = list(dict.fromkeys(chart.sample for chart in charts if chart.sample))
    if len(samples) > 1:
        samples = [f"{chart.sample} ({chart.heading})" for chart in charts]
    notes = [f"{of}, the mean over {' and '.join(samples)}." if samples else f"{of}."]
    for chart in charts:
        for name, norms in chart.series.items():
            gone = np.flatnonzero(norms <= FAINTEST)
            if len(gone):
                where = f" {chart.heading}" if chart.heading else ""
                notes.append(f"{name}{where}: nothing arrives from {gone[0]} steps back or more.")
    return " ".join(notes)


# ---------------------------------------------------------------------------------------------------------------------
# Terminal


USUAL_POWERS = (-8, 0)  # of ten: the ends of a bar, wherever all norms lie between


def _powers(series: Sequence[np.ndarray]) -> tuple[int, int]:
    """The powers of ten at the ends of a bar: the same for all that can be shown so, so that tables compare."""
    finite = np.concatenate([norms[np.isfinite(norms) & (norms > FAINTEST)] for norms in series])
    low, high = USUAL_POWERS
    if not len(finite):
        return low, high
    return min(low, math.floor(np.log10(finite.min()))), max(high, math.ceil(np.log10(finite.max())))


def _norms_table(chart: Chart, low: int, high: int) -> str:
    series = chart.series
    longest = max(map(len, series.values()))
    rows = [step for step in STEPS_SHOWN if step < longest]
    if rows[-1] != longest - 1:
        rows.append(longest - 1)
    span = high - low
    table = [
        ["back", *series],
        *([f"{step}", *(_figure(n, step, low, span) for n in series.values())] for step in rows),
    ]
    table.append(["a step", *(_times(norms) for norms in series.values())])
    scale = f"Bars are logarithmic: empty is {_power(10.0**low)}, full is {_power(10.0**high)}."
    return "\n".join(
        [*([chart.heading] if chart.heading else []), f"{_caption([chart])} {scale}", "", *_aligned(table)]
    )


def _figure(norms: np.ndarray, step: int, low: float, span: float) -> str:
    if step >= len(norms) or not math.isfinite(norms[step]):
        return "–"
    value = float(norms[step])
    if value <= FAINTEST:
        return "0"
    return f"{value:.1e} {bar((math.log10(value) - low) / span, 10)}"


def _times(norms: np.ndarray) -> str:
    factor = factor_a_step(norms)
    return f"× {factor:.3f}" if math.isfinite(factor) else "–"


def _matrix_tables(found: Sequence[Gradients]) -> list[str]:
    tables = []
    for model in found:
        if model.matrices:
            rows = [["matrix", "largest", "median", "smallest", "spectral radius"]]
            for matrix in model.matrices:
                values = (matrix.singular[0], np.median(matrix.singular), matrix.singular[-1], matrix.radius)
                rows.append([matrix.name, *(f"{value:.3f}" for value in values)])
            tables.append("\n".join([f"{model.name}: singular values from state to state", "", *_aligned(rows)]))
    return tables


def _aligned(table: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(display_width(row[i]) for row in table) for i in range(len(table[0]))]
    return [
        "  ".join(cell + " " * (width - display_width(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    ]


# ---------------------------------------------------------------------------------------------------------------------
# Pictures

WIDE, HIGH, APART = 4.2, 2.9, 0.19  # inches: a panel, and the names beside it


def _picture(charts: Sequence[Chart], found: Sequence[Gradients], target: Path, title: str) -> Path:
    """Panels one below the other: norms, once or twice with one scale, and the singular values of a single model."""
    with look():
        names = [list(chart.series) for chart in charts]
        spectra = {matrix.name: matrix.singular for model in found for matrix in model.matrices}
        with_spectra = len(found) == 1 and len(charts) == 1 and bool(spectra)
        if with_spectra:
            names.append(list(spectra))
        rights = [0.34 + max(text_size(shown(name))[0] for name in some) for some in names]
        left, bottom, top = 0.72, 0.5, 0.28 if len(names) > 1 else 0.06
        high = max(HIGH, APART * max(map(len, names)) + 0.2)
        content = left + WIDE + max(rights)
        heading, notes = Heading(title, content), Notes(_caption(charts), content)
        each = top + high + bottom
        height = heading.height + len(rights) * each + notes.height + 2 * MARGIN
        page = figure(max(content, heading.width, notes.width) + 2 * MARGIN, height)
        heading.write(page)
        notes.write(page)
        values = [norms for chart in charts for norms in chart.series.values()]
        limits = _limits(values)
        for index in range(len(rights)):
            y = height - MARGIN - heading.height - index * each - top - high
            axes = axes_at(page, MARGIN + left, y, WIDE, high, frame=True)
            if index < len(charts):
                name, series, kind, _ = charts[index]
                _curves(axes, series, high, limits, log=True, first=0)
                axes.set_xlabel("steps back (k)", fontsize=LABEL, color=FAINT)
                of = "norm of the gradient" + (", relative" if kind.startswith("relative") else "")
                axes.set_ylabel(of, fontsize=LABEL, color=FAINT)
            else:
                name = "singular values"
                largest = max(float(values[0]) for values in spectra.values())
                _curves(axes, spectra, high, (0.0, max(1.05, 1.05 * largest)), log=False, first=1)
                axes.axhline(1.0, color=FAINT, linewidth=0.8, linestyle=":")
                axes.set_xlabel("singular value, from the largest", fontsize=LABEL, color=FAINT)
            if len(rights) > 1:
                axes.set_title(name or "norms", fontsize=TITLE, color=INK, loc="left")
        return save_page(page, target)


def _limits(values: Sequence[np.ndarray]) -> tuple[float, float]:
    """Whole powers of ten around all norms."""
    finite = np.concatenate([norms[np.isfinite(norms) & (norms > FAINTEST)] for norms in values])
    if not len(finite):
        return 0.1, 10.0
    low, high = math.floor(math.log10(finite.min())), math.ceil(math.log10(finite.max()))
    return 10.0**low, 10.0 ** max(high, low + 1)


def _power(value: float) -> str:
    """A power of ten as one writes it: 10⁻³."""
    exponent = f"{math.log10(value):.0f}" if value > 0 else ""
    return "10" + exponent.translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")) if exponent else ""


def _curves(
    axes: Any, series: Mapping[str, np.ndarray], high: float, limits: tuple[float, float], *, log: bool, first: int
) -> None:
    """One line a series, named beside its end."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    low, top = limits
    if log:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _power(value)))
    longest = max(map(len, series.values()))
    axes.set_xlim(first, first + max(1, longest - 1))
    axes.set_ylim(low, top)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    ends = {}
    hues = list(dict.fromkeys(name.removesuffix(" cell").removesuffix(" hidden").removesuffix(",") for name in series))
    for number, (name, values) in enumerate(series.items()):
        # A memory cell has the hue of its hidden state.
        index = hues.index(name.removesuffix(" cell").removesuffix(" hidden").removesuffix(","))
        memory = name.endswith(" cell")
        ys = np.where(np.isfinite(values) & (values > FAINTEST), values, np.nan) if log else values
        colour, dash = LINES[index % len(LINES)], DASHES[1 if memory else 0 if index < len(LINES) else 2]
        style: dict[str, Any] = {"color": colour, "linestyle": dash, "linewidth": 1.6, "zorder": 3}
        style |= {
            "marker": MARKERS[index % len(MARKERS)],
            "markersize": 4.0,
            "markerfacecolor": PAPER if memory else colour,
        }
        every = max(1, longest // 8)
        axes.plot(first + np.arange(len(ys)), ys, markevery=(number * every // len(series), every), **style)
        real = np.flatnonzero(np.isfinite(ys))
        at = (int(real[-1]), float(ys[real[-1]])) if len(real) else (0, low)
        share = (math.log(at[1] / low) / math.log(top / low)) if log else (at[1] - low) / (top - low)
        ends[name] = (at[0] / max(1, longest - 1), share, colour)
    axes.grid(axis="y", color=RULE, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(length=3, color=RULE, labelsize=SMALL, labelcolor=INK)
    axes.minorticks_off()
    order = sorted(ends, key=lambda name: ends[name][1])
    for name, place in zip(order, spread([ends[n][1] * high for n in order], APART, 0.0, high), strict=True):
        across, share, colour = ends[name]
        axes.annotate(
            shown(name),
            xy=(across, share),
            xytext=(1 + 0.2 / WIDE, place / high),
            xycoords="axes fraction",
            textcoords="axes fraction",
            fontsize=LABEL,
            color=colour,
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.5,
                "alpha": 0.5,
                "shrinkA": 1,
                "shrinkB": 2,
                "relpos": (0.0, 0.5),  # from the left end of the name, not across it
            },
        )


# ---------------------------------------------------------------------------------------------------------------------
# The view


class GradientsView(View):
    name = "gradients"
    about = "how far back the loss of a language model reaches, for one or several models"
    recipe = "demo-language"
    inputs, least, most = "one text in quotes, every symbol of which is asked for (default: symbols of the data)", 0, 1
    example = '"the green witch arrived"'

    class Options(ViewOptions):
        compare: tuple[str, ...] = Field((), description="a further model to draw into the same plot")
        data: tuple[str, ...] = Field((), description="data as in 'evaluate' (default: the recipe's validation data)")
        test: str | None = Field(None, description="name of a test corpus of the recipe")
        steps: int = Field(50, ge=1, le=10_000, description="how far back to look")
        count: int = Field(256, ge=1, description="at how many places of the data")
        layer: int | None = Field(
            None, ge=0, description="which layer, from 0 (default: all; of several models the last)"
        )
        untrained: bool = Field(False, description="also of the same networks as they began, before training")

    def missing(self, model: Any) -> str | None:
        measures = hasattr(model.task, "gradients") and hasattr(model.network, "modules")
        return None if measures else f"this is for networks that read from left to right, not for {model.task.kind}"

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        if inputs and (options.data or options.test):
            raise UserError("gradients are measured on one text in quotes, or on data, not on both")
        models, found, fresh = compared(model, options.compare, self), list[Gradients](), list[Gradients]()
        for number, one in enumerate(models):
            corpus = None if inputs else _one_corpus(one, options)
            networks = [(found, one.network), *([(fresh, one.fresh())] if options.untrained else [])]
            for place, (kept, network) in enumerate(networks, number * len(networks)):
                kept.append(
                    one.task.gradients(
                        network,
                        inputs[0] if inputs else None,
                        corpus,
                        steps=options.steps,
                        count=options.count,
                        name=one.name,
                        progress=part_of(progress, place, len(models) * len(networks), one.name),
                    )
                )
        beside = ("before training", fresh) if options.untrained else None
        drawn = partial(draw_gradients, found, layer=options.layer, beside=beside)
        charts = _charts(found, options.layer, beside)
        return Picture(
            _title(found),
            text=lambda width, colour: drawn(),
            draw=drawn,
            values={
                "charts": [
                    {
                        "heading": chart.heading,
                        "kind": chart.kind,
                        "sample": chart.sample,
                        "norms": {name: plain(norms) for name, norms in chart.series.items()},
                    }
                    for chart in charts
                ],
                "matrices": {
                    one.name: {m.name: {"singular": plain(m.singular), "radius": m.radius} for m in one.matrices}
                    for one in found
                },
            },
        )


def _one_corpus(model: Any, options: Any) -> Any:
    corpora = model.corpora(options.data, options.test, default="valid")
    if len(corpora) != 1:
        raise UserError(f"gradients are measured on one text at a time; got {', '.join(corpora)}")
    (corpus,) = corpora.values()
    return corpus
