"""Where a model looked: one row for each token that looks, one column for each that is looked at; the view `attention`.

`draw_attention` shows the alignment of target and source, which every model with attention has. A Transformer has many
heads besides: `draw_head` shows one of them or the mean of a layer, `draw_all_heads` all of them in small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from seqloom.errors import UserError
from seqloom.inspection import draw
from seqloom.inspection.heads import SITES, distance, entropy, head_arrays, profile, sites_of
from seqloom.inspection.links import draw_links
from seqloom.inspection.terminal import display_width, shades, shorten, to_terminal
from seqloom.inspection.terminal import shown as printable
from seqloom.inspection.trace import ALIGNMENT, LabelledArray, Trace
from seqloom.inspection.view import Picture, Progress, View, ViewOptions, has_part

NO_ATTENTION = "this model has no attention to show; one trained with model.decoder: attention has, and a Transformer"
LONGEST_TITLE, LONGEST_CAPTION = 80, 400
UNKNOWN = "<unk: "  # before the word that an unknown symbol stands for
REACH = 4  # places to each side that a head's line on the terminal shows
DARKEST = 0.5  # share of attention on one of these places that is darkest there


def draw_attention(
    shown: LabelledArray | Trace,
    path: str | Path | None = None,
    gold: Iterable[tuple[int, int]] | None = None,
    *,
    name: str = ALIGNMENT,
    title: str | None = None,
    numbers: bool = False,
    lines: bool = False,
    width: int | None = None,
    colour: bool = True,
) -> str:
    """Draw the attention of a decoder to its source.

    The weights of several heads are averaged; `LabelledArray.plot` shows them apart.

    Args:
        shown: A trace, or its array of the attention.
        path: A .svg, .png, .pdf or .html file; None returns a drawing for the terminal.
        gold: Links (source, target) to frame, counted in the tokens that label the axes. Only pictures show them.
        name: The array to pick from a trace.
        title: The heading; by default the two sentences, if they are short.
        numbers: Write the weights into the cells.
        lines: Draw lines between two columns of symbols instead of cells.
        width: Characters in a line of the terminal.
        colour: Whether the terminal shows colours.

    Returns:
        The drawing for the terminal, or the path of the file that was written.

    Raises:
        UserError: The model has no attention, or the file cannot be written.
    """
    array = shown if isinstance(shown, LabelledArray) else _pick(shown, name)
    values = np.asarray(array.values, dtype=float)
    note = ""
    if values.ndim > 2:
        num_heads = int(np.prod(values.shape[:-2]))
        values = values.reshape(num_heads, *values.shape[-2:]).mean(axis=0)
        note = f"mean of {num_heads} heads" if num_heads > 1 else ""
    if lines:
        return draw_links(values, array.rows, array.columns, path, title=title or _title(array.columns, array.rows))
    if path is None:
        text = to_terminal(values, array.rows, array.columns, colour=colour, width=width, low=0.0, high=1.0)
        return f"{note}\n{text}" if note else text
    if title is None:
        title = _title(array.columns, array.rows)
        title = f"{title} ({note})" if note else title
    marks = tuple((target, source) for source, target in gold or ())
    for target, source in marks:
        if not (0 <= target < values.shape[0] and 0 <= source < values.shape[1]):
            raise UserError(
                f"the gold link ({source}, {target}) is outside the picture, which has {values.shape[1]} source and "
                f"{values.shape[0]} target tokens; links are counted from 0 in the tokens that are shown"
            )
    written = draw.heatmap(
        values, array.rows, array.columns, title, path, marks=marks, low=0.0, high=1.0, numbers=numbers
    )
    return str(written)


# ---------------------------------------------------------------------------------------------------------------------
# Heads


def draw_head(
    trace: Trace,
    path: str | Path | None = None,
    *,
    site: str = "cross",
    layer: int = 0,
    head: int | None = None,
    numbers: bool = False,
    lines: bool = False,
    title: str = "",
    width: int | None = None,
    colour: bool = True,
) -> str:
    """Draw one head of a Transformer, or the mean of a layer's heads.

    Args:
        trace: What the model showed.
        path: A .svg, .png, .pdf or .html file; None returns a drawing for the terminal.
        site: One of `SITES`.
        layer: Counted from 0.
        head: Counted from 0; None is the mean of all.
        numbers: Write the weights into the cells.
        lines: Draw lines between two columns of symbols instead of cells.
        title: What stands before the head in the heading.
        width: Characters in a line of the terminal.
        colour: Whether the terminal shows colours.

    Returns:
        The drawing for the terminal, or the path of the file that was written.

    Raises:
        UserError: The model has no such head, or the file cannot be written.
    """
    array = _chosen(trace, site, layer)[site][layer]
    values, which = _which_heads(array, site, layer, head)
    title = f"{title}{site}, layer {layer}, {which}: {SITES[site].about}"
    if lines:
        return draw_links(values, array.rows, array.columns, path, title=title)
    if path is not None:
        return str(draw.heatmap(values, array.rows, array.columns, title, path, low=0.0, high=1.0, numbers=numbers))
    text = to_terminal(values, array.rows, array.columns, colour=colour, width=width, low=0.0, high=1.0)
    hidden = "   · not to be seen yet" if SITES[site].causal else ""
    return f"{title}\n\n{text}{hidden}"


def draw_all_heads(
    trace: Trace,
    path: str | Path | None = None,
    *,
    site: str | None = None,
    layer: int | None = None,
    title: str = "",
    colour: bool = True,
) -> str:
    """Draw every head of a Transformer: a small matrix each in a picture, a line each on the terminal.

    Args:
        trace: What the model showed.
        path: A .svg, .png, .pdf or .html file; None returns a drawing for the terminal.
        site: One of `SITES`; None is all.
        layer: Counted from 0; None is all.
        colour: Whether the terminal shows colours.

    Returns:
        The drawing for the terminal, or the path of the file that was written.

    Raises:
        UserError: The model has no such heads, or the file cannot be written.
    """
    chosen = _chosen(trace, site, layer)
    sentences = {side: _sentence(trace.labels[side]) for side in ("source", "target") if side in trace.labels}
    title = title or " → ".join(sentences.values())
    if path is None:
        return "\n\n".join([title, *(_lines(name, arrays, colour) for name, arrays in chosen.items()), LEGEND])
    blocks = []
    for name, arrays in chosen.items():
        array = next(iter(arrays.values()))
        blocks.append(
            draw.Block(
                f"{name}: {SITES[name].about}",
                [array.values for array in arrays.values()],
                [f"layer {number}" for number in arrays],
                array.rows,
                array.columns,
            )
        )
    caption = "Each row is a symbol that looks, each column one that is looked at; the weights of a row add up to 1."
    if any(SITES[name].causal for name in chosen):
        caption += " In the decoder a row is named by the symbol to be said, and what comes later is not to be seen."
    title = title if display_width(title) <= 2 * LONGEST_TITLE else "attention of every head"
    unlabelled = " — ".join(
        f"{side.capitalize()}: {shorten(text, LONGEST_CAPTION)}" for side, text in sentences.items()
    )
    return str(draw.blocks(blocks, path, title, caption, unlabelled=unlabelled))


LEGEND = (
    "entropy: bits, 0 is one symbol. distance: symbols, for cross from the diagonal.\n"
    f"−{REACH} … +{REACH}: share of attention so many places left or right of its own, at the ends\n"
    f"with all beyond; darkest from {DARKEST:.0%}. most at: the symbol that gets most, and its share."
)


def _lines(site: str, arrays: Mapping[int, LabelledArray], colour: bool) -> str:
    """One site's heads, a line each: figures, where they look from their own place, the symbol they look at most."""
    places = [f"{place:+d}".replace("-", "−") if place else "0" for place in range(-REACH, REACH + 1)]
    heading = "layer head  entropy  distance   " + " ".join(f"{place:>2}" for place in places) + "   most at"
    lines = [f"{site}: {SITES[site].about}", heading]
    for layer, array in arrays.items():
        weights = np.nan_to_num(array.values.astype(float))
        near = profile(weights, REACH)
        if SITES[site].causal:
            near[:, REACH + 1 :] = np.nan
        received = weights.mean(axis=1)  # (heads, keys)
        for head, own in enumerate(weights):
            most = int(received[head].argmax())
            figures = f"{entropy(own).mean():>7.2f}  {distance(own).mean():>8.2f}"
            strip = shades(near[head], colour=colour, high=DARKEST)
            label = shorten(printable(array.columns[most]), 16)
            lines.append(f"{layer:>5} {head:>4}  {figures}   {strip}   {label} {received[head, most]:.0%}")
    return "\n".join(lines)


def _which_heads(array: LabelledArray, site: str, layer: int, head: int | None) -> tuple[np.ndarray, str]:
    """The weights of one head or the mean of all, and which that is."""
    num_heads = len(array.values)
    if head is None:
        return array.values.mean(axis=0), f"mean of {num_heads} heads"
    if not 0 <= head < num_heads:
        raise UserError(f"{site}, layer {layer} has no head {head}; it has {_counted('head', range(num_heads))}")
    return array.values[head], f"head {head}"


def _chosen(trace: Trace, site: str | None, layer: int | None) -> dict[str, dict[int, LabelledArray]]:
    """Site -> layer -> array of its heads, for what was asked for."""
    sites = sites_of(trace)
    if site is not None and site not in sites:
        raise UserError(f"this model has no heads at {site}; it has some at: {', '.join(sites)}")
    found = {name: head_arrays(trace, name) for name in ([site] if site else sites)}
    if layer is None:
        return found
    kept = {name: {layer: arrays[layer]} for name, arrays in found.items() if layer in arrays}
    if not kept:
        listed = "; ".join(f"{name} has {_counted('layer', arrays)}" for name, arrays in found.items())
        raise UserError(f"there is no layer {layer}: {listed}")
    return kept


def _counted(what: str, numbers: Iterable[int]) -> str:
    first, *more = numbers
    return f"{what}s {first} to {more[-1]}" if more else f"{what} {first} only"


# ---------------------------------------------------------------------------------------------------------------------
# Shared


def _pick(trace: Trace, name: str) -> LabelledArray:
    if name not in trace:
        raise UserError(NO_ATTENTION)
    return trace[name]


def finding(array: LabelledArray) -> str:
    """Who looks at whom, of the symbol that looks farthest from its own place; of several, of the surest."""
    weights = np.asarray(array.values, dtype=float)
    weights = np.nan_to_num(weights.reshape(-1, *weights.shape[-2:]).mean(axis=0))
    most = weights.argmax(axis=1)
    rows = range(len(weights) - 1 or 1)  # the end symbol says little
    row = max(rows, key=lambda i: (abs(int(most[i]) - i), float(weights[i, most[i]])))
    return f"“{printable(array.rows[row])}” looks at “{printable(array.columns[most[row]])}”"


def _sentences(trace: Trace) -> list[str]:
    return [_sentence(trace.labels[side]) for side in ("source", "target") if side in trace.labels]


def _title(source: Sequence[str], target: Sequence[str]) -> str:
    title = f"{_sentence(source)} → {_sentence(target)}"
    return title if display_width(title) <= LONGEST_TITLE else "attention: target (rows) to source (columns)"


def _sentence(tokens: Sequence[str]) -> str:
    """Tokens as one line, without marks such as </s>; pieces that carry a "▁" for their space are joined."""
    tokens = [token[len(UNKNOWN) : -1] if token.startswith(UNKNOWN) else token for token in tokens]
    words = [token for token in tokens if not (len(token) > 2 and token.startswith("<") and token.endswith(">"))]
    if any("▁" in word for word in words):
        return "".join(words).replace("▁", " ").strip()
    return " ".join(words)


# ---------------------------------------------------------------------------------------------------------------------
# The view


class AttentionView(View):
    name = "attention"
    about = "which source words each target word was made from; every head of a Transformer"
    recipe = "demo"
    inputs, least, most = "one text in quotes", 1, 1
    example = '"the green witch arrived"'

    class Options(ViewOptions):
        target: str | None = Field(None, description="teacher-force the model on this answer instead of its own")
        all_heads: bool = Field(False, description="every head of a Transformer by itself")
        site: Literal["encoder", "decoder", "cross", "all"] | None = Field(
            None,
            description="heads of the encoder, of the decoder among its own words, or across from decoder to encoder",
        )
        layer: int | None = Field(None, ge=0, description="the mean of a layer's heads, from 0; each with --all-heads")
        head: int | None = Field(None, ge=0, description="one head of that layer, from 0")
        numbers: bool = Field(False, description="write the weights into the cells of a picture")
        lines: bool = Field(False, description="lines between two columns of symbols instead of cells")

        @model_validator(mode="after")
        def _one_head_of_one_layer(self) -> AttentionView.Options:
            if self.head is not None and (self.all_heads or self.site == "all" or self.layer is None):
                raise ValueError("head picks one head of one layer; say which, such as site cross, layer 0, head 0")
            return self

        @model_validator(mode="after")
        def _numbers_and_lines_of_one_matrix(self) -> AttentionView.Options:
            if (self.numbers or self.lines) and (self.all_heads or self.site == "all"):
                raise ValueError("numbers and lines are for one matrix; leave all_heads and site all out")
            if self.numbers and self.lines:
                raise ValueError("numbers are written into cells, and lines have none: choose one of both")
            return self

    def missing(self, model: Any) -> str | None:
        if not model.can("trace"):
            return f"this is for models that read a text, not for {model.task.kind}"
        attends = getattr(model.network, "attends", False) or has_part(model, "num_heads")
        return None if attends else NO_ATTENTION

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        trace = model.trace(inputs[0], options.target)
        site, layer = None if options.site == "all" else options.site, options.layer
        apart = options.all_heads or options.site == "all" or (site is not None and layer is None)
        apart = apart or (layer is None and ALIGNMENT not in trace)
        sentence = shorten(" → ".join(_sentences(trace)), LONGEST_TITLE)
        drawn: Callable[..., str]
        if apart:
            if options.numbers or options.lines:
                raise UserError("numbers and lines are for one matrix; name a site and a layer, such as cross and 0")
            title = f"{sentence}: every head of {model.name}"
            drawn = partial(draw_all_heads, trace, site=site, layer=layer, title=title)
            shown = [array for layers in _chosen(trace, site, layer).values() for array in layers.values()]
            text = lambda width, colour: drawn(colour=colour)  # noqa: E731
        else:
            if layer is None:
                shown = [_pick(trace, ALIGNMENT)]
                title = f"{sentence}: {finding(shown[0])} ({model.name})"
                drawn = partial(draw_attention, shown[0], title=title, numbers=options.numbers, lines=options.lines)
            else:
                sites = sites_of(trace)
                site = site or (sites[0] if len(sites) == 1 else "cross")
                shown = [_chosen(trace, site, layer)[site][layer]]
                _which_heads(shown[0], site, layer, options.head)
                title = f"{sentence} in {model.name}"
                which: dict[str, Any] = {"site": site, "layer": layer, "head": options.head}
                how = {"numbers": options.numbers, "lines": options.lines}
                drawn = partial(draw_head, trace, title=f"{sentence} in {model.name}: ", **which, **how)
            text = lambda width, colour: drawn(width=width, colour=colour)  # noqa: E731
        values = {"labels": trace.labels, "arrays": {array.name: array.to_dict() for array in shown}}
        return Picture(title, text=text, draw=drawn, values=values)
