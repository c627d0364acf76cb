"""`seqloom list`: what there is to choose from, and what a model is made of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from seqloom.cli.output import Format, emit, width
from seqloom.errors import UserError
from seqloom.layout import described, hanging, shortened

if TYPE_CHECKING:
    from seqloom.model import Model

TABLES = {
    "attention": "scores that compare a query with the keys of a memory",
    "cells": "one step of a recurrent network",
    "connections": "ways around a layer",
    "decoders": "what makes a text, of an encoder_decoder",
    "encoders": "what reads a text",
    "models": "architectures: model.kind of a recipe",
    "parameters": "how many each part of a model has: list parameters RUN or RECIPE",
    "positions": "ways to tell attention the order of symbols",
    "recipes": "recipes that come with seqloom",
    "tasks": "what can be learned, and how it is measured",
    "views": "ways to look inside a model: seqloom look MODEL VIEW",
}

if TYPE_CHECKING:
    What: TypeAlias = str
else:
    What = Literal[tuple(TABLES)]


def list_choices(what: What | None = None, model: Path | None = None, /, *, format: Format = "text") -> None:
    """Show what there is to choose from, or (parameters) what a model is made of.

    seqloom list cells

    seqloom list parameters runs/demo

    Parameters
    ----------
    what
        Which table; without it, the tables are named.
    model
        parameters: a run folder, a model folder or a recipe, whose parameters are counted part by part. For a recipe
        its vocabularies are learned from the data first, as training would do it.
    format
        text: for people. json: one object.
    """
    if what == "parameters":
        counted = describe(_loaded(model))
        emit(counted) if format == "json" else print(render(counted, width()))
        return
    if model is not None:
        raise UserError(f"list {what} takes no model; a model goes with 'seqloom list parameters {model}'")
    found = TABLES if what is None else choices(what)
    if format == "json":
        emit({"tables": list(found)} if what is None else found)
        return
    if what is None:
        print("seqloom list TABLE, which is one of\n")
    print(described(found, width()))


def choices(what: What) -> dict[str, str]:
    """Name -> one line about it."""
    if what == "recipes":
        from seqloom.recipe import shipped_recipes
        from seqloom.settings import read_yaml

        return {name: str(read_yaml(path).get("description", "")) for name, path in shipped_recipes().items()}
    if what == "views":
        from seqloom.inspection.views import VIEWS

        return {name: view.about for name, view in VIEWS.items()}
    from seqloom.cli.stated import table, tables

    if what == "tasks":
        return dict(_tasks())
    if what == "models":
        kinds = [("seqloom.models", name) for name in tables("seqloom.models", "Models")]
        kinds.append(("seqloom.vectors.settings", "VECTOR_MODELS"))
        return {name: about for place in kinds for name, about in table(*place).items()}
    return table(*PLACES[what])


PLACES = {
    "attention": ("seqloom.nn.attention", "SCORES"),
    "cells": ("seqloom.nn.cells", "CELLS"),
    "connections": ("seqloom.nn.connections", "CONNECTIONS"),
    "decoders": ("seqloom.models.encoder_decoder", "DECODERS"),
    "encoders": ("seqloom.models.encoders", "ENCODERS"),
    "positions": ("seqloom.nn.positions", "POSITIONS"),
}
"""Where tables are: module and name."""


def _tasks() -> Iterator[tuple[str, str]]:
    from seqloom.cli.stated import attribute
    from seqloom.evaluation.figures import METRICS
    from seqloom.tasks import TASKS

    for name, place in TASKS.items():
        module, _, kind = place.partition(":")
        titles = [METRICS[metric].title for metric in attribute(module, kind, "metrics")]
        yield name, f"{''.join(attribute(module, kind, 'about'))}; {', '.join(titles)}"


def _loaded(path: Path | None) -> Model:
    from seqloom.model import load
    from seqloom.recipe import shipped_recipes

    if path is None:
        raise UserError("list parameters needs a model or a recipe, such as 'seqloom list parameters runs/demo'")
    if path.suffix in (".yaml", ".yml") or (not path.exists() and str(path) in shipped_recipes()):
        return _untrained(path)
    return load(path)


def _untrained(path: Path) -> Model:
    """The model that a recipe would train, for its parameters to be counted."""
    from seqloom.cli.output import note
    from seqloom.model import Model
    from seqloom.recipe import load_recipe
    from seqloom.tasks import find_task

    recipe = load_recipe(path)
    kind = find_task(recipe.task)
    note(f"learning the vocabulary of {kind.describe(recipe.data.train)}, which says how many symbols there are …")
    task = kind.learn(recipe, note)
    return Model(path, task, task.untrained(recipe), recipe.options(), {"model": recipe.model.model_dump(mode="json")})


def describe(model: Model) -> dict[str, Any]:
    """What `list parameters` knows of a model, as JSON has it."""
    network = model.network
    about = {"folder": str(model.folder), "model": model.config.get("model", {}).get("kind", model.task.kind)}
    if hasattr(network, "named_parameters"):
        return about | describe_parameters(network)
    if hasattr(network, "num_ngrams"):
        return about | {"ngrams": list(network.num_ngrams())}
    return about | model.task.amounts(network) | {"size": model.size()}


def render(counted: dict[str, Any], most: int | None = None) -> str:
    """The same for people."""
    if "parts" in counted:
        return render_parameters(counted, most)
    if "ngrams" in counted:
        return render_ngrams(counted)
    return f"{counted['folder']}: {counted['model']}, {counted['size']}"


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


def render_parameters(counted: dict[str, Any], most: int | None = None) -> str:
    """A table that fits 100 columns, and what its letters mean; in fewer without the columns of the middle."""
    rows, last = [["part", "formula", "with numbers", "parameters", "share"]], ""
    for part in counted["parts"]:
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
    rows.append(["total", "", "", f"{counted['parameters']:,}", "100.0%"])
    for shown in ((1, 2), (1,), (2,), ()):  # columns of the middle
        lines = _parameter_lines(rows, shown)
        if most is None or max(map(len, lines)) <= most:
            break
    bar = "-" * len(lines[0])
    size = f"In float32, 4 bytes each, that is {counted['bytes']:,} bytes ({counted['bytes'] / 1e6:.1f} MB)."
    letters = [f"{letter}  {about}" for letter, about in counted["letters"].items() if 1 in shown]
    notes = [note for key, note in NOTES.items() if any(key in part["name"] for part in counted["parts"])]
    title = f"{counted['folder']}: {counted['model']}, {counted['parameters']:,} parameters"
    around = ["\n".join(block) for block in ([size], letters, notes) if block]
    body = "\n".join([lines[0], bar, *lines[1:-1], bar, lines[-1]])
    return "\n\n".join([hanging(title, most), body, *(hanging(block, most) for block in around)])


def _parameter_lines(rows: list[list[str]], shown: tuple[int, ...]) -> list[str]:
    widths = [max(len(row[i]) for row in rows if i != 1 or not row[1].startswith("=")) for i in range(5)]
    both = sum(widths[i] for i in shown) + 2 * (len(shown) - 1)  # where a tie may spread
    lines = []
    for name, *middle, count, share in rows:
        told = "  ".join(f"{middle[i - 1]:<{widths[i]}}" for i in shown)
        if shown and middle[0].startswith("="):
            told = shortened(middle[0], both) if len(shown) < 2 else middle[0]
        told = f"  {told:<{both}}" if shown else ""
        lines.append(f"{name:<{widths[0]}}{told}  {count:>{widths[3]}}  {share:>{widths[4]}}".rstrip())
    return lines


NOTES = {  # by what a part's name holds
    ".cells.1": "cells.0 reads forward, cells.1 backward.",
    ".around.1": "around.0 belongs to self-attention, the last around to feed_forward, one between them to cross.",
}
