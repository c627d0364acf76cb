"""What each attention head looks at, and what the answers would be without it: formulas, measures, the view `heads`.

A Transformer adds one array of (head, looking, looked at) for each layer of each site in `SITES`. All weights here are
(…, queries, keys): a query is a position that looks, a key one that is looked at, and each query's weights add up to 1.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from seqloom.corpus.readers import read_pairs
from seqloom.errors import UserError
from seqloom.inspection import draw
from seqloom.inspection.trace import LabelledArray, Trace, plain
from seqloom.inspection.view import Picture, Progress, View, ViewOptions, part_of

NO_HEADS = "this model has no attention heads to show; a Transformer has (model.kind: transformer_translator)"


@dataclass(frozen=True)
class Site:
    """A place where heads sit.

    `array` names a layer's array in a trace, `about` says who looks at what, `edge` is the place of the boundary symbol
    among the keys, `neighbours` are the keys near the query that it can see, as steps from it.
    """

    array: str
    about: str
    edge: int
    neighbours: dict[str, int]
    causal: bool = False


SITES = {
    "encoder": Site(
        "encoder.{}.self", "source symbols look at source symbols", -1, {"previous": -1, "itself": 0, "next": 1}
    ),
    "decoder": Site(
        "decoder.{}.self", "target symbols look at those before them", 0, {"previous": -1, "itself": 0}, causal=True
    ),
    "cross": Site("decoder.{}.cross", "target symbols look at source symbols", -1, {}),
}


# ---------------------------------------------------------------------------------------------------------------------
# Formulas


def entropy(weights: Any) -> np.ndarray:
    """How spread the attention is, in bits: (…, keys) -> (…).  0 for one key, log2(n) for n keys looked at alike."""
    weights = np.asarray(weights, dtype=float)
    logs = np.log2(weights, out=np.zeros_like(weights), where=weights > 0)
    return 0.0 - (weights * logs).sum(-1)


def offsets(num_queries: int, num_keys: int) -> np.ndarray:
    """How far each key lies right of each query's own place, in keys: (queries, keys).

    Its own place is on the diagonal from the first query and key to the last: j + 1/2 - (i + 1/2) · keys / queries.
    Where queries and keys are the same symbols, that is j - i.
    """
    keys, queries = np.arange(num_keys) + 0.5, np.arange(num_queries) + 0.5
    return keys - queries[:, None] * num_keys / num_queries


def distance(weights: Any) -> np.ndarray:
    """How far each query looks on average, in keys: (…, queries, keys) -> (…, queries)."""
    weights = np.asarray(weights, dtype=float)
    return (weights * np.abs(offsets(*weights.shape[-2:]))).sum(-1)


def share_at(weights: Any, step: int) -> np.ndarray:
    """The weight on the key `step` places right of the query, nan where there is none: (…, n, n) -> (…, n)."""
    weights = np.asarray(weights, dtype=float)
    size = weights.shape[-1]
    assert weights.shape[-2] == size, f"only self-attention has neighbours; got {weights.shape}"
    found = np.full(weights.shape[:-1], np.nan)
    queries = np.arange(max(0, -step), min(size, size - step))
    found[..., queries] = weights[..., queries, queries + step]
    return found


def profile(weights: Any, reach: int) -> np.ndarray:
    """Mean weight by offset, rounded: (…, queries, keys) -> (…, 2·reach + 1); the ends take all that lies beyond."""
    weights = np.asarray(weights, dtype=float)
    places = np.floor(offsets(*weights.shape[-2:]) + 0.5).clip(-reach, reach).astype(int) + reach
    found = np.zeros((*weights.shape[:-2], 2 * reach + 1))
    for place in range(2 * reach + 1):
        found[..., place] = (weights * (places == place)).sum((-2, -1)) / weights.shape[-2]
    return found


def divergence(log_p: Any, log_q: Any) -> np.ndarray:
    """Kullback–Leibler divergence of q from p in bits, from natural logarithms: (…, symbols) -> (…)."""
    log_p, log_q = np.asarray(log_p), np.asarray(log_q)
    p = np.exp(log_p)
    with np.errstate(invalid="ignore"):  # 0 · (-inf - …): a symbol that p never says adds nothing
        parts = np.where(p > 0, p * (log_p - log_q), 0.0)
    # Rounding may leave a hair less than nothing.
    return np.maximum(parts.sum(-1, dtype=float), 0.0) / np.log(2)


# ---------------------------------------------------------------------------------------------------------------------
# Heads of a trace


def head_arrays(trace: Trace, site: str) -> dict[int, LabelledArray]:
    """Layer -> its array (head, queries, keys); no layer if the model has no heads there.

    Weights on keys that a causal query cannot see are nan: they are not small, there is no such thing.
    """
    pattern = re.compile(re.escape(SITES[site].array).replace(r"\{\}", r"(\d+)"))
    found = {}
    for name in trace.names():
        matched = pattern.fullmatch(name)
        if matched and trace[name].values.ndim == 3:
            array = trace[name]
            if SITES[site].causal:
                seen = np.tri(*array.values.shape[-2:]) > 0
                array = replace(array, values=np.where(seen, array.values, np.nan))
            found[int(matched[1])] = array
    return dict(sorted(found.items()))


def sites_of(trace: Trace) -> list[str]:
    """The sites where this model has heads.

    Raises:
        UserError: It has none.
    """
    found = [site for site in SITES if head_arrays(trace, site)]
    if not found:
        raise UserError(NO_HEADS)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Measures


class HeadName(NamedTuple):
    """Which head: its site, its layer there, its place in the layer."""

    site: str
    layer: int
    head: int


@dataclass(frozen=True)
class HeadMeasures:
    """One head over a sample of sentences: means over all positions that look, and over all target symbols.

    Attributes:
        name: Which head.
        entropy: Of its weights, in bits.
        distance: Mean |offset| of what it looks at, in symbols looked at; see `offsets`.
        previous: Share of attention on the symbol before, over the positions that have one.
        itself: Share on the position's own symbol, in the decoder the one read last.
        next: Share on the symbol after.
        edge: Share on the boundary symbol: the source's end symbol, in the decoder the target's begin symbol.
        divergence: How much what the model would say changes when the head is silent: Kullback–Leibler divergence of
            the output without it from the output with it, in bits a target symbol.
        loss_change: How much more the references then cost, in bits a target symbol; below 0 the head does harm.

    A share that has no meaning at a site is nan.
    """

    name: HeadName
    entropy: float
    distance: float
    previous: float
    itself: float
    next: float
    edge: float
    divergence: float
    loss_change: float


class HeadTally:
    """Gathers what heads did, sentence by sentence, and what their silence did, batch by batch."""

    def __init__(self) -> None:
        self._looks: dict[tuple[str, int], dict[str, list[np.ndarray]]] = defaultdict(lambda: defaultdict(list))
        self._silences: dict[HeadName, list[np.ndarray]] = defaultdict(list)

    def look(self, trace: Trace) -> None:
        """Add one sentence's weights of every head."""
        for site in sites_of(trace):
            about = SITES[site]
            for layer, array in head_arrays(trace, site).items():
                weights = np.nan_to_num(array.values.astype(float))
                seen = self._looks[site, layer]
                seen["entropy"].append(entropy(weights))
                seen["distance"].append(distance(weights))
                seen["edge"].append(weights[..., about.edge])
                for name, step in about.neighbours.items():
                    seen[name].append(share_at(weights, step))

    def silence(self, head: tuple[str, int, int], log_p: Any, log_q: Any, gold: Any) -> None:
        """Add what a head's silence did to some symbols.

        Args:
            head: Site, layer and head.
            log_p: The model's log probabilities, (symbols, vocabulary).
            log_q: Those without the head.
            gold: What should be said, (symbols,).
        """
        places = np.asarray(gold)[:, None]
        whole, without = (np.take_along_axis(np.asarray(logs), places, 1)[:, 0] for logs in (log_p, log_q))
        change = (whole.astype(float) - without) / np.log(2)
        self._silences[HeadName(*head)].append(np.stack([divergence(log_p, log_q), change]))

    def measures(self) -> list[HeadMeasures]:
        """The means, by site, layer and head."""
        means = {
            place: {name: _means(np.concatenate(parts, -1)) for name, parts in seen.items()}
            for place, seen in self._looks.items()
        }
        found = []
        for name in sorted(self._silences, key=lambda n: (list(SITES).index(n.site), n.layer, n.head)):
            here = means[name.site, name.layer]
            shares = {
                key: float(here[key][name.head]) if key in here else float("nan")
                for key in ("entropy", "distance", "previous", "itself", "next", "edge")
            }
            change = np.concatenate(self._silences[name], -1).mean(-1)
            found.append(HeadMeasures(name, **shares, divergence=float(change[0]), loss_change=float(change[1])))
        return found


def _means(values: np.ndarray) -> np.ndarray:
    """(heads, queries) -> (heads,), over the queries that have a value; nan if none has."""
    known = np.isfinite(values)
    count = known.sum(-1)
    return np.where(count > 0, np.where(known, values, 0.0).sum(-1) / np.maximum(count, 1), np.nan)


# ---------------------------------------------------------------------------------------------------------------------
# Drawing


def draw_heads(
    measures: Sequence[HeadMeasures],
    path: str | Path | None = None,
    *,
    sample: str = "",
    title: str = "",
    colour: bool = False,
) -> str:
    """Show what every head does and how much the model needs it.

    Args:
        measures: One for each head, as `HeadTally.measures` orders them.
        path: A .svg, .png, .pdf or .html file; None returns a table.
        sample: What was measured, such as "100 sentences of valid"; for the caption.
        title: A heading for the picture.
        colour: Whether the table may stress a line by terminal codes.

    Returns:
        The table, or the path of the file that was written.

    Raises:
        UserError: There is nothing to show, or the file cannot be written.
    """
    if not measures:
        raise UserError(NO_HEADS)
    if path is None:
        return _table(measures, sample, colour)
    panels = []
    for site in dict.fromkeys(m.name.site for m in measures):
        for name, heading in CHARTED.items():
            # One scale a measure, so that shades can be compared between sites.
            every = [getattr(m, name) for m in measures]
            high = max(max(map(abs, every)), 1e-9)
            panels.append(_chart([m for m in measures if m.name.site == site], name, f"{site}: {heading}", high))
    num_heads = max(m.name.head for m in measures) + 1
    across = 2 if num_heads <= 12 else 1  # narrow, so that a small page can be read
    return str(draw.panels(panels, path, title or "attention heads", across=across, caption=_caption(sample)))


CHARTED = {
    "entropy": "entropy, bits",
    "distance": "distance, symbols",
    "divergence": "output change, bits",
    "loss_change": "loss change, bits",
}
"""What the picture shows, a grid of layers and heads each."""


def _chart(measures: Sequence[HeadMeasures], name: str, title: str, high: float) -> draw.Panel:
    num_layers, num_heads = (max(getattr(m.name, part) for m in measures) + 1 for part in ("layer", "head"))
    values = np.full((num_layers, num_heads), np.nan)
    for m in measures:
        values[m.name.layer, m.name.head] = getattr(m, name)
    signed = name == "loss_change"
    rows, columns = [f"layer {i}" for i in range(num_layers)], [f"head {i}" for i in range(num_heads)]
    digits = 3 if name in ("divergence", "loss_change") else 2
    return draw.Panel(
        values, rows, columns, title, low=-high if signed else 0.0, high=high, numbers=True, digits=digits, cell=0.42
    )


def _caption(sample: str) -> str:
    return (
        f"Rows are layers, columns are heads{f'; means over {sample}' if sample else ''}. Entropy: how spread a head's "
        "weights are; 0 is one symbol. Distance: how far from its own place it looks, in symbols; for cross from the "
        "diagonal, in source symbols. Output change: divergence of what the model would say when this head is silent, "
        "a target symbol. Loss change: how much more the references then cost; below 0 they cost less. Each measure "
        "has one scale of colours at all sites."
    )


def _table(measures: Sequence[HeadMeasures], sample: str, colour: bool) -> str:
    heading = ["site", "layer", "head", "entropy", "distance", "previous", "itself", "next", "edge", "change", "loss"]
    rows = [
        [
            m.name.site,
            str(m.name.layer),
            str(m.name.head),
            f"{m.entropy:.2f}",
            f"{m.distance:.2f}",
            *(_percent(share) for share in (m.previous, m.itself, m.next, m.edge)),
            f"{m.divergence:.3f}",
            f"{m.loss_change:+.3f}".replace("-", "−"),
        ]
        for m in measures
    ]
    widths = [max(len(row[i]) for row in [heading, *rows]) for i in range(len(heading))]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in [heading, *rows]]
    strongest = max(range(len(measures)), key=lambda i: measures[i].divergence)
    shown = [lines[0], "-" * len(lines[0])]
    for index, (m, line) in enumerate(zip(measures, lines[1:], strict=True)):
        if index and m.name.site != measures[index - 1].name.site:
            shown.append("")
        marked = f"{line}  ◀ strongest"
        shown.append((f"\033[1m{marked}\033[0m" if colour else marked) if index == strongest else line)
    means = f"Means over {sample}.\n" if sample else ""
    return "\n".join(shown) + f"\n\n{means}{LEGEND}"


LEGEND = """\
entropy: of the weights, bits. distance: from its own place, symbols; for cross from
the diagonal, source symbols. previous, itself, next, edge: share of attention there;
edge is the source's end symbol, in the decoder the target's begin symbol. change: of
what the model would say when this head is silent, bits a target symbol (divergence).
loss: how much more the references then cost, bits a target symbol."""


def _percent(share: float) -> str:
    return "–" if np.isnan(share) else f"{share:.0%}"


# ---------------------------------------------------------------------------------------------------------------------
# The view


class HeadsView(View):
    name = "heads"
    about = "what each head of a Transformer looks at, and how much the model needs it"
    recipe = "demo-transformer"

    class Options(ViewOptions):
        data: tuple[str, ...] = Field((), description="data as in 'evaluate' (default: the recipe's validation data)")
        test: str | None = Field(None, description="name of a test corpus of the recipe, or all of them together")
        sentences: int = Field(100, ge=1, description="how many sentences to measure, spread over the data")

    def missing(self, model: Any) -> str | None:
        if not hasattr(model.task, "head_measures"):
            return f"this is for models that answer with a text, not for {model.task.kind}"
        heads = getattr(model.network, "heads", None)
        return None if heads is not None and heads() else NO_HEADS

    def show(self, model: Any, inputs: Sequence[str], options: Any, progress: Progress) -> Picture:
        corpora = model.corpora(options.data, options.test, default="valid")
        pairs = [pair for corpus in corpora.values() for pair in read_pairs(corpus)]
        num = min(options.sentences, len(pairs))
        if not num:
            raise UserError("there is no sentence to measure heads on; the corpus is empty")
        chosen = [pairs[i * len(pairs) // num] for i in range(num)]
        sample = f"{num} sentence{'s' if num > 1 else ''} of {' and '.join(corpora)}"
        measures = model.task.head_measures(model.network, chosen, part_of(progress, 0, 1, sample))
        most = max(measures, key=lambda m: m.divergence).name
        title = (
            f"attention heads of {model.name}: the answers need most {most.site}, layer {most.layer}, head {most.head}"
        )
        drawn = partial(draw_heads, measures, sample=sample, title=title)
        return Picture(
            title,
            text=lambda width, colour: drawn(colour=colour),
            draw=drawn,
            values={"sample": sample, "heads": [_values(m) for m in measures]},
        )


def _values(measures: HeadMeasures) -> dict[str, Any]:
    """One head as JSON-able values."""
    values = asdict(measures)
    return {**values.pop("name")._asdict(), **{key: plain(np.asarray(value)) for key, value in values.items()}}
