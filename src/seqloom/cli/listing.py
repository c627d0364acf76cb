"""`seqloom list`: what there is to choose from, and what a model is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

from seqloom.cli.output import Format, emit
from seqloom.errors import UserError

What = Literal["attention", "cells", "connections", "models", "parameters", "positions", "recipes", "tasks", "views"]


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
        loaded, folder = _loaded(model)
        if hasattr(loaded, "ngrams"):
            counted = {"folder": str(folder), "model": loaded.settings.kind, "ngrams": loaded.ngrams.num_ngrams()}
            emit(counted) if format == "json" else print(render_ngrams(counted))
            return
        described = describe_parameters(loaded, folder)
        emit(described) if format == "json" else print(render_parameters(described))
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
        from seqloom.cli.look import VIEWS

        return dict(VIEWS)
    if what == "cells":
        from seqloom.nn.cells import CELLS

        return {name: _first_line(kind) for name, kind in CELLS.items()}
    if what == "connections":
        from seqloom.nn.connections import CONNECTIONS

        return {name: _first_line(kind) for name, kind in CONNECTIONS.items()}
    if what == "positions":
        from seqloom.nn.positions import POSITIONS

        return {name: _first_line(kind) for name, kind in POSITIONS.items()}
    if what == "attention":
        from seqloom.nn.attention import SCORES

        return {name: _first_line(kind) for name, kind in SCORES.items()}
    if what == "models":
        from seqloom.models import LANGUAGE_MODELS, MODELS
        from seqloom.vectors.settings import VECTOR_MODELS

        found = {name: _first_line(module) for name, (_, module) in {**MODELS, **LANGUAGE_MODELS}.items()}
        return found | {name: _first_line(kind) for name, kind in VECTOR_MODELS.items()}
    from seqloom.recipe import RECIPES

    return {name: _first_line(kind) for name, (kind, _) in RECIPES.items()}


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0] if kind.__doc__ else ""


def _loaded(path: Path | None) -> tuple[Any, Path]:
    from seqloom.recipe import shipped_recipes

    if path is None:
        raise UserError("list parameters needs a model, such as 'seqloom list parameters runs/demo'")
    if path.suffix in (".yaml", ".yml") or (not path.exists() and str(path) in shipped_recipes()):
        raise UserError(f"{path}: a recipe's vocabularies get their size in training; give a run folder")
    from seqloom.folders import find_model, task_of
    from seqloom.language import LanguageModel
    from seqloom.predictor import Predictor

    kind: Any = LanguageModel if task_of(find_model(path)) == "model_language" else Predictor
    predictor = kind.load(path)
    return predictor.model, predictor.folder


def describe_parameters(model: Any, folder: Path) -> dict[str, Any]:
    """What `list parameters` knows, as JSON has it."""
    from seqloom.nn.counting import LEGEND, count_parameters

    parts = count_parameters(model)
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
        "folder": str(folder),
        "model": model.settings.kind,
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
    rows = [["part", "formula", "with numbers", "parameters", "share"]]
    for part in described["parts"]:
        if part["tied_to"] is None:
            count, share = f"{part['parameters']:,}", f"{part['share']:.1%}" if part["share"] > 0.0005 else "<0.1%"
            rows.append([part["name"], part["formula"], part["numbers"], count, share])
        else:
            rows.append([part["name"], f"= {part['tied_to']}", "", "–", "–"])
    rows.append(["total", "", "", f"{described['parameters']:,}", "100.0%"])
    widths = [max(len(row[i]) for row in rows if i != 1 or not row[1].startswith("=")) for i in range(5)]
    both = sum(widths[1:3]) + 2  # where a tie may spread
    lines = []
    for name, formula, numbers, count, share in rows:
        middle = f"{formula:<{widths[1]}}  {numbers}"
        lines.append(f"{name:<{widths[0]}}  {middle:<{both}}  {count:>{widths[3]}}  {share:>{widths[4]}}")
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
