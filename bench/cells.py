"""What a step of training costs in each kind of recurrent cell, beside the LSTM's and torch's own layers.

    python -m bench.cells [--quick] [--write]

Times forward and backward of one layer over a batch of sentences of different lengths, all cells in turns: as it
trains, and as its formula is written (`plain`). One JSON object on the last line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from bench.machine import describe_machine
from bench.report import section, table, write_section
from bench.sides import say
from seqloom.nn.cells import CELLS
from seqloom.nn.plain import use_plain_paths
from seqloom.nn.recurrent import RecurrentStack

WIDTHS = (128, 256, 512)
SENTENCES, LONGEST = 128, 32
TORCH = {"elman": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}
WAYS = ("seqloom", "plain", "torch")


def step_of(cell: str, way: str, width: int, inputs: Tensor, lengths: Tensor) -> Callable[[], None]:
    """Forward and backward of a layer of this width over the sentences."""
    if way == "torch":
        layer: nn.Module = TORCH[cell](width, width, batch_first=True)

        def output() -> Tensor:
            packed: Tensor = layer(pack_padded_sequence(inputs, lengths, batch_first=True))[0].data
            return packed
    else:
        layer = RecurrentStack(cell=cell, input_size=width, hidden_size=width, num_layers=1)
        use_plain_paths(layer, way == "plain")

        def output() -> Tensor:
            given: Tensor = layer(inputs, lengths=lengths)[0]
            return given

    weights = [inputs, *layer.parameters()]

    def step() -> None:
        for weight in weights:
            weight.grad = None
        output().sum().backward()

    return step


def measure(widths: Sequence[int], sentences: int, longest: int, rounds: int) -> dict[str, Any]:
    """Median seconds of a step by cell, way and width, all in turns."""
    torch.manual_seed(1)
    lengths = torch.linspace(longest, longest // 2, sentences).round().long()  # the longest first: torch wants it so
    steps = {}
    for width in widths:
        inputs = torch.randn(sentences, longest, width, requires_grad=True)
        for cell in CELLS:
            for way in WAYS:
                if way != "torch" or cell in TORCH:
                    steps[width, cell, way] = step_of(cell, way, width, inputs, lengths)
    found: dict[tuple[int, str, str], list[float]] = {key: [] for key in steps}
    for turn in range(-1, rounds):  # the first round warms up
        for key, step in steps.items():
            began = time.perf_counter()
            step()
            if turn >= 0:
                found[key].append(time.perf_counter() - began)
        if turn >= 0:
            say(f"round {turn + 1} of {rounds}")
    seconds: dict[int, dict[str, dict[str, float]]] = {width: {cell: {} for cell in CELLS} for width in widths}
    for (width, cell, way), times in found.items():
        seconds[width][cell][way] = statistics.median(times)
    return {"sentences": sentences, "longest": longest, "threads": torch.get_num_threads(), "seconds": seconds}


def cells_table(found: dict[str, Any]) -> str:
    rows = []
    for width, cells in found["seconds"].items():
        lstm = cells["lstm"]["seqloom"]
        for cell, ways in cells.items():
            shown = [f"{1000 * ways[way]:.1f}" if way in ways else "–" for way in WAYS]
            rows.append([str(width), cell, *shown, f"{ways['seqloom'] / lstm:.2f}×"])
    header = ["units", "cell", "milliseconds", "as its formula is written", "torch's own layer", "of the LSTM's time"]
    return (
        f"{table(header, rows)}\n\nForward and backward of one layer over {found['sentences']} sentences of "
        f"{found['longest'] // 2} to {found['longest']} symbols, medians, {found['threads']} threads."
    )


def main(given: Sequence[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one small width, two rounds: checks the bench")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--write", action="store_true", help="put the table into docs/results.md")
    options = parser.parse_args(given)
    found = measure((16,), 8, 8, 2) if options.quick else measure(WIDTHS, SENTENCES, LONGEST, options.rounds)
    body = cells_table(found)
    print(body)
    if options.write:
        write_section("bench.cells", section("What a step costs in each cell", describe_machine(), body))
    result = {"bench": "cells", "machine": describe_machine(), **found}
    print(json.dumps(result))
    return result


if __name__ == "__main__":
    main()
