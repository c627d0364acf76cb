"""Where a model looked: one row for each token that looks, one column for each that is looked at.

`draw_attention` shows the alignment of target and source, which every model with attention has. A Transformer has many
heads besides: `draw_head` shows one of them or the mean of a layer, `draw_all_heads` all of them in small.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from seqloom.errors import UserError
from seqloom.inspection import draw
from seqloom.inspection.heads import SITES, distance, entropy, head_views, profile, sites_of
from seqloom.inspection.terminal import display_width, shades, shorten, to_terminal
from seqloom.inspection.terminal import shown as printable
from seqloom.inspection.trace import Trace, View

ATTENTION = "decoder.attention"
LONGEST_TITLE, LONGEST_CAPTION = 80, 400
REACH = 4  # places to each side that a head's line on the terminal shows
DARKEST = 0.5  # share of attention on one of these places that is darkest there


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


# ---------------------------------------------------------------------------------------------------------------------
# Heads


def draw_head(
    trace: Trace,
    path: str | Path | None = None,
    *,
    site: str = "cross",
    layer: int = 0,
    head: int | None = None,
    width: int | None = None,
    colour: bool = True,
) -> str:
    """Draw one head of a Transformer, or the mean of a layer's heads.

    Args:
        trace: What the model showed.
        path: A .svg, .png or .pdf file; None returns a drawing for the terminal.
        site: One of `SITES`.
        layer: Counted from 0.
        head: Counted from 0; None is the mean of all.
        width: Characters in a line of the terminal.
        colour: Whether the terminal shows colours.

    Returns:
        The drawing for the terminal, or the path of the file that was written.

    Raises:
        UserError: The model has no such head, or the file cannot be written.
    """
    view = _chosen(trace, site, layer)[site][layer]
    num_heads = len(view.values)
    if head is not None and not 0 <= head < num_heads:
        raise UserError(f"{site}, layer {layer} has no head {head}; it has {_counted('head', range(num_heads))}")
    values = view.values.mean(axis=0) if head is None else view.values[head]
    which = f"mean of {num_heads} heads" if head is None else f"head {head}"
    title = f"{site}, layer {layer}, {which}: {SITES[site].about}"
    if path is not None:
        return str(draw.heatmap(values, view.rows, view.columns, title, path, low=0.0, high=1.0))
    text = to_terminal(values, view.rows, view.columns, colour=colour, width=width, low=0.0, high=1.0)
    hidden = "   · not to be seen yet" if SITES[site].causal else ""
    return f"{title}\n\n{text}{hidden}"


def draw_all_heads(
    trace: Trace,
    path: str | Path | None = None,
    *,
    site: str | None = None,
    layer: int | None = None,
    colour: bool = True,
) -> str:
    """Draw every head of a Transformer: a small matrix each in a picture, a line each on the terminal.

    Args:
        trace: What the model showed.
        path: A .svg, .png or .pdf file; None returns a drawing for the terminal.
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
    title = " → ".join(sentences.values())
    if path is None:
        return "\n\n".join([title, *(_lines(name, views, colour) for name, views in chosen.items()), LEGEND])
    blocks = []
    for name, views in chosen.items():
        view = next(iter(views.values()))
        blocks.append(
            draw.Block(
                f"{name}: {SITES[name].about}",
                [view.values for view in views.values()],
                [f"layer {number}" for number in views],
                view.rows,
                view.columns,
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


def _lines(site: str, views: Mapping[int, View], colour: bool) -> str:
    """One site's heads, a line each: figures, where they look from their own place, the symbol they look at most."""
    places = [f"{place:+d}".replace("-", "−") if place else "0" for place in range(-REACH, REACH + 1)]
    heading = "layer head  entropy  distance   " + " ".join(f"{place:>2}" for place in places) + "   most at"
    lines = [f"{site}: {SITES[site].about}", heading]
    for layer, view in views.items():
        weights = np.nan_to_num(view.values.astype(float))
        near = profile(weights, REACH)
        if SITES[site].causal:
            near[:, REACH + 1 :] = np.nan
        received = weights.mean(axis=1)  # (heads, keys)
        for head, own in enumerate(weights):
            most = int(received[head].argmax())
            figures = f"{entropy(own).mean():>7.2f}  {distance(own).mean():>8.2f}"
            strip = shades(near[head], colour=colour, high=DARKEST)
            label = shorten(printable(view.columns[most]), 16)
            lines.append(f"{layer:>5} {head:>4}  {figures}   {strip}   {label} {received[head, most]:.0%}")
    return "\n".join(lines)


def _chosen(trace: Trace, site: str | None, layer: int | None) -> dict[str, dict[int, View]]:
    """Site -> layer -> view of its heads, for what was asked for."""
    sites = sites_of(trace)
    if site is not None and site not in sites:
        raise UserError(f"this model has no heads at {site}; it has some at: {', '.join(sites)}")
    found = {name: head_views(trace, name) for name in ([site] if site else sites)}
    if layer is None:
        return found
    kept = {name: {layer: views[layer]} for name, views in found.items() if layer in views}
    if not kept:
        listed = "; ".join(f"{name} has {_counted('layer', views)}" for name, views in found.items())
        raise UserError(f"there is no layer {layer}: {listed}")
    return kept


def _counted(what: str, numbers: Iterable[int]) -> str:
    first, *more = numbers
    return f"{what}s {first} to {more[-1]}" if more else f"{what} {first} only"


# ---------------------------------------------------------------------------------------------------------------------
# Shared


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
