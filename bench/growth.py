"""How a layer's cost grows with the length of the sequence: self-attention (n²d) beside recurrence (nd²).

    python -m bench.growth [--quick] [--write]

Times forward and backward of one self-attention layer and of one LSTM layer at several widths d and lengths n. A step
always has the same number of tokens, so that only the length of the sequences changes. Prints a table, draws
docs/images/growth.svg, and prints one JSON object on the last line.

Attention needs 8nd² operations for its four projections and 4n²d for scores and means, an LSTM 16nd²: by count alone
attention's quadratic part overtakes its own projections at n = 2d, and all of the LSTM at n = 2d as well. The clock
says otherwise, since an LSTM goes step by step: that is what the picture shows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bench.machine import describe_machine
from bench.report import section, table, write_section

WIDTHS = (64, 128, 256, 512)
LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
TOKENS = 4096
HEAD = 32  # width of a head: fixed, as models keep it
IMAGE = Path(__file__).resolve().parents[1] / "docs" / "images" / "growth.svg"
LAYERS = ("self-attention", "LSTM")


def layer_of(kind: str, width: int) -> nn.Module:
    """A layer of seqloom's own, as its models use it."""
    if kind == "LSTM":
        from seqloom.nn.recurrent import RecurrentStack

        return RecurrentStack(cell="lstm", input_size=width, hidden_size=width, num_layers=1)
    from seqloom.nn.multihead import SelfAttention
    from seqloom.nn.positions import NoPositions

    positions = NoPositions(size=width, num_heads=max(1, width // HEAD), max_length=1, distance=1)
    return SelfAttention(size=width, num_heads=max(1, width // HEAD), positions=positions, causal=False, dropout=0.0)


def step_of(kind: str, width: int, length: int, tokens: int) -> Callable[[], None]:
    """Forward and backward of the layer over `tokens` tokens in sequences of this length."""
    layer = layer_of(kind, width)
    inputs = torch.randn(max(1, tokens // length), length, width, requires_grad=True)
    weights = [inputs, *layer.parameters()]

    def step() -> None:
        output: Tensor = layer(inputs)[0]
        for weight in weights:
            weight.grad = None
        output.sum().backward()

    return step


def measure(widths: Sequence[int], lengths: Sequence[int], tokens: int, rounds: int) -> dict[str, Any]:
    """Median seconds a step of each layer, width and length, all in turns."""
    steps = {(k, d, n): step_of(k, d, n, tokens) for k in LAYERS for d in widths for n in lengths}
    found: dict[tuple[str, int, int], list[float]] = {key: [] for key in steps}
    for step in steps.values():
        step()
    for turn in range(rounds):
        for key, step in steps.items():
            began = time.perf_counter()
            step()
            found[key].append(time.perf_counter() - began)
        print(f"round {turn + 1} of {rounds}", file=sys.stderr, flush=True)
    seconds = {key: statistics.median(times) for key, times in found.items()}
    return {
        "tokens": tokens,
        "seconds": {kind: {d: {n: seconds[kind, d, n] for n in lengths} for d in widths} for kind in LAYERS},
        "crossings": {d: crossing({n: seconds["self-attention", d, n] for n in lengths},
                                  {n: seconds["LSTM", d, n] for n in lengths}) for d in widths},
    }  # fmt: skip


def crossing(one: Mapping[int, float], other: Mapping[int, float]) -> float | None:
    """The length from which on `one` costs more than `other`, between measured lengths on a logarithmic scale."""
    import math

    lengths = sorted(one)
    apart = [math.log(one[n] / other[n]) for n in lengths]
    if apart[-1] <= 0:
        return None  # never within what was measured
    last = max((i for i, value in enumerate(apart) if value <= 0), default=None)
    if last is None:
        return float(lengths[0])
    share = -apart[last] / (apart[last + 1] - apart[last])
    return float(lengths[last] * (lengths[last + 1] / lengths[last]) ** share)


def growth_table(found: dict[str, Any]) -> str:
    seconds = found["seconds"]
    widths = list(seconds["LSTM"])
    lengths = list(seconds["LSTM"][widths[0]])
    header = ["length n", *(f"{kind}, d = {d}" for d in widths for kind in LAYERS)]
    rows = [[f"{n:,}", *(f"{1000 * seconds[kind][d][n]:.1f}" for d in widths for kind in LAYERS)] for n in lengths]
    crossings = ["attention costs more from n ≈"]
    for d in widths:
        at = found["crossings"][d]
        crossings += ["–" if at is None else f"{at:,.0f}", ""]
    return (
        f"{table(header, [*rows, crossings])}\n\nMilliseconds of a step forward and backward over "
        f"{found['tokens']:,} tokens in sequences of length n."
    )


def draw(found: dict[str, Any], path: Path) -> None:
    """One panel a width: both layers against length, on logarithmic scales, with n = d and the crossing marked."""
    from seqloom.inspection.page import FAINT, INK, LABEL, LINES, MARKERS, RULE, SMALL, TITLE, figure

    seconds = found["seconds"]
    widths = list(seconds["LSTM"])
    lengths = list(seconds["LSTM"][widths[0]])
    every = [1000 * value for kind in LAYERS for d in widths for value in seconds[kind][d].values()]
    page = figure(2.55 * len(widths) + 0.75, 3.6)
    panels = page.subplots(1, len(widths), sharey=True, squeeze=False)[0]
    page.subplots_adjust(left=0.65 / page.get_figwidth(), right=0.985, top=0.80, bottom=0.17, wspace=0.08)
    page.text(0.012, 0.955, f"A step over {found['tokens']:,} tokens: one layer, forward and backward",
              fontsize=TITLE, color=INK, va="center")  # fmt: skip
    for axes, d in zip(panels, widths, strict=True):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_ylim(min(every) / 1.5, max(every) * 2.2)
        for index, kind in enumerate(LAYERS):
            points = [1000 * seconds[kind][d][n] for n in lengths]
            axes.plot(
                lengths, points, color=LINES[index], marker=MARKERS[index], markersize=4.5, linewidth=1.6, label=kind
            )
        if lengths[0] <= d <= lengths[-1]:
            axes.axvline(d, color=FAINT, linewidth=0.9, linestyle=":")
            axes.text(
                d,
                0.975,
                "n = d ",
                transform=axes.get_xaxis_transform(),
                fontsize=SMALL,
                color=FAINT,
                ha="right",
                va="top",
            )
        at = found["crossings"][d]
        if at is not None:
            axes.axvline(at, color=LINES[1], linewidth=0.9, linestyle="--")
            # Left of the line where there is no room to its right.
            side = {"ha": "right"} if at > lengths[len(lengths) // 2] else {"ha": "left"}
            where = {"transform": axes.get_xaxis_transform(), "fontsize": SMALL, "color": LINES[1], **side}
            axes.text(at, 0.02, f" n ≈ {at:,.0f} ", **where)
        axes.set_title(f"d = {d}", fontsize=LABEL, color=INK)
        axes.set_xticks(lengths, [str(n) for n in lengths], fontsize=SMALL, rotation=45)
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.grid(color=RULE, linewidth=0.6)
        axes.tick_params(length=0, labelsize=SMALL, labelcolor=INK)
        axes.set_xlabel("length n", fontsize=LABEL, color=FAINT)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    panels[0].set_ylabel("milliseconds", fontsize=LABEL, color=FAINT)
    handles, labels = panels[0].get_legend_handles_labels()
    note = "dashed: attention costs more from here on"
    page.legend(handles, labels, loc="upper right", ncols=2, fontsize=LABEL, frameon=False, bbox_to_anchor=(0.99, 0.94))
    page.text(0.012, 0.89, note, fontsize=SMALL, color=FAINT, va="center")
    path.parent.mkdir(parents=True, exist_ok=True)
    page.savefig(path, metadata={"Date": None, "Creator": "seqloom"} if path.suffix == ".svg" else None)


def main(given: Sequence[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="two widths, few lengths, no picture unless --image is given"
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--image", type=Path)
    parser.add_argument("--write", action="store_true", help="put the table into docs/results.md")
    options = parser.parse_args(given)
    if options.quick:
        found = measure(WIDTHS[:2], LENGTHS[:5], 512, 2)
    else:
        found = measure(WIDTHS, LENGTHS, TOKENS, options.rounds)
    body = growth_table(found)
    print(body)
    image = options.image or (None if options.quick else IMAGE)
    if image is not None:
        draw(found, image)
    if options.write:
        write_section("bench.growth", section("How cost grows with length", describe_machine(), body))
    result = {"bench": "growth", "machine": describe_machine(), **found}
    print(json.dumps(result))
    return result


if __name__ == "__main__":
    main()
