"""`seqloom list`: what there is to choose from, and what a model is made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from seqloom.cli.output import Format, emit
from seqloom.errors import UserError

if TYPE_CHECKING:
    from seqloom.model import Model

What = Literal[
    "attention",
    "cells",
    "connections",
    "decoders",
    "encoders",
    "models",
    "parameters",
    "positions",
    "recipes",
    "tasks",
    "views",
]


def list_choices(what: What | None = None, model: Path | None = None, /, *, format: Format = "text") -> None:
    """Show what there is to choose from, or (parameters) what a model is made of.

    seqloom list cells

    seqloom list parameters runs/demo

    Parameters
    ----------
    what
        Which table; without it, the tables are named.
    model
        parameters: a run folder or a model folder, whose parameters are counted part by part.
    format
        text: for people. json: one object.
    """
    if what == "parameters":
        described = describe(_loaded(model))
        emit(described) if format == "json" else print(render(described))
        return
    if model is not None:
        raise UserError(f"list {what} takes no model; a model goes with 'seqloom list parameters {model}'")
    if what is None:
        tables = get_args(What)
        emit({"tables": tables}) if format == "json" else print("seqloom list " + "|".join(tables))
        return
    found = choices(what)
    if format == "json":
        emit(found)
        return
    width = max(map(len, found))
    for name, about in found.items():
        print(f"{name:<{width}}  {about}".rstrip())


def choices(what: What) -> dict[str, str]:
    """Name -> one line about it."""
    if what == "recipes":
        from seqloom.recipe import shipped_recipes
        from seqloom.settings import read_yaml

        return {name: str(read_yaml(path).get("description", "")) for name, path in shipped_recipes().items()}
    if what == "views":
        from seqloom.inspection.views import VIEWS

        return {name: view.about for name, view in VIEWS.items()}
    if what in ("models", "tasks"):
        from seqloom.tasks import TASKS, find_task

        tasks = {name: find_task(name) for name in TASKS}
        if what == "tasks":
            return {name: f"{task.about}; {', '.join(m.title for m in task.metrics)}" for name, task in tasks.items()}
        return _abouts({name: parts for task in tasks.values() for name, parts in task.models.items()})
    if what == "encoders":
        from seqloom.models.encoders import ENCODERS

        return _abouts(ENCODERS)
    if what == "decoders":
        from seqloom.models.encoder_decoder import DECODERS

        return _abouts(DECODERS)
    return {name: _first_line(kind) for name, kind in _mechanisms(what).items()}


def _mechanisms(what: What) -> Mapping[str, type]:
    from seqloom.nn.attention import SCORES
    from seqloom.nn.cells import CELLS
    from seqloom.nn.connections import CONNECTIONS
    from seqloom.nn.positions import POSITIONS

    tables: dict[str, Mapping[str, type]] = {
        "attention": SCORES,
        "cells": CELLS,
        "connections": CONNECTIONS,
        "positions": POSITIONS,
    }
    return tables[what]


def _abouts(table: Mapping[str, tuple[type, Any]]) -> dict[str, str]:
    """What each architecture is: what its class says, or its settings where several share a class or there is none."""
    shared = Counter(module for _, module in table.values())
    return {
        name: _first_line(module if module is not None and shared[module] == 1 else settings)
        for name, (settings, module) in table.items()
    }


def _first_line(kind: type) -> str:
    line = kind.__doc__.strip().splitlines()[0].removeprefix("Settings of ") if kind.__doc__ else ""
    return line[:1].upper() + line[1:]


def _loaded(path: Path | None) -> Model:
    from seqloom.model import load
    from seqloom.recipe import shipped_recipes

    if path is None:
        raise UserError("list parameters needs a model, such as 'seqloom list parameters runs/demo'")
    if path.suffix in (".yaml", ".yml") or (not path.exists() and str(path) in shipped_recipes()):
        raise UserError(f"{path}: a recipe's vocabularies get their size in training; give a run folder")
    return load(path)


def describe(model: Model) -> dict[str, Any]:
    """What `list parameters` knows of a model, as JSON has it."""
    network = model.network
    about = {"folder": str(model.folder), "model": model.config.get("model", {}).get("kind", model.task.kind)}
    if hasattr(network, "named_parameters"):
        return about | describe_parameters(network)
    if hasattr(network, "num_ngrams"):
        return about | {"ngrams": list(network.num_ngrams())}
    return about | model.task.amounts(network) | {"size": model.size()}


def render(described: dict[str, Any]) -> str:
    """The same for people."""
    if "parts" in described:
        return render_parameters(described)
    if "ngrams" in described:
        return render_ngrams(described)
    return f"{described['folder']}: {described['model']}, {described['size']}"


def describe_parameters(network: Any) -> dict[str, Any]:
    """The parts of a network."""
    from seqloom.nn.counting import LEGEND, count_parameters

    parts = count_parameters(network)
    total = sum(part.count for part in parts)
    described: list[dict[str, Any]] = []
    for part in parts:
        known: dict[str, Any] = {"name": part.name, "kind": part.kind, "tensors": part.tensors}
        if part.tied_to is None:
            known |= {"formula": part.formula, "sizes": part.sizes, "numbers": part.numbers}
        known |= {"tied_to": part.tied_to, "parameters": part.count, "share": round(part.count / total, 6)}
        described.append(known)
    used = {letter for part in parts if part.tied_to is None for letter in part.sizes}
    return {
        "parameters": total,
        "bytes": 4 * total,
        "parts": described,
        "letters": {letter: about for letter, about in LEGEND.items() if letter in used},
    }


def render_ngrams(counted: dict[str, Any]) -> str:
    """What a counted model has in place of parameters."""
    total = sum(counted["ngrams"])
    rows = [f"order {order}  {number:>14,}" for order, number in enumerate(counted["ngrams"], 1)]
    title = f"{counted['folder']}: {counted['model']}, {total:,} n-grams, each with a probability and a back-off weight"
    return "\n".join([title, "", *rows, f"total    {total:>14,}"])


def render_parameters(described: dict[str, Any]) -> str:
    """A table that fits 100 columns, and what its letters mean."""
    rows, last = [["part", "formula", "with numbers", "parameters", "share"]], ""
    for part in described["parts"]:
        name = part["name"]
        whole, _, within = name.partition(".")
        if within and not within[0].isdigit():  # an encoder or a decoder gets a line of its own
            if whole != last:
                rows.append([whole, "", "", "", ""])
            name = f"  {within}"
        last = whole
        if part["tied_to"] is None:
            count, share = f"{part['parameters']:,}", f"{part['share']:.1%}" if part["share"] > 0.0005 else "<0.1%"
            rows.append([name, part["formula"], part["numbers"], count, share])
        else:
            rows.append([name, f"= {part['tied_to']}", "", "–", "–"])
    rows.append(["total", "", "", f"{described['parameters']:,}", "100.0%"])
    widths = [max(len(row[i]) for row in rows if i != 1 or not row[1].startswith("=")) for i in range(5)]
    both = sum(widths[1:3]) + 2  # where a tie may spread
    lines = []
    for name, formula, numbers, count, share in rows:
        middle = f"{formula:<{widths[1]}}  {numbers}"
        lines.append(f"{name:<{widths[0]}}  {middle:<{both}}  {count:>{widths[3]}}  {share:>{widths[4]}}".rstrip())
    bar = "-" * len(lines[0])
    size = f"In float32, 4 bytes each, that is {described['bytes']:,} bytes ({described['bytes'] / 1e6:.1f} MB)."
    letters = [f"{letter}  {about}" for letter, about in described["letters"].items()]
    notes = [note for key, note in NOTES.items() if any(key in part["name"] for part in described["parts"])]
    title = f"{described['folder']}: {described['model']}, {described['parameters']:,} parameters"
    blocks = [[title], [lines[0], bar, *lines[1:-1], bar, lines[-1]], [size], letters, notes]
    return "\n\n".join("\n".join(block) for block in blocks if block)


NOTES = {  # by what a part's name holds
    ".cells.1": "cells.0 reads forward, cells.1 backward.",
    ".around.1": "around.0 belongs to self-attention, the last around to feed_forward, one between them to cross.",
}
