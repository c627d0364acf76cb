"""`seqloom list`: what there is to choose from."""

from __future__ import annotations

from typing import Literal, get_args

What = Literal["attention", "cells", "connections", "models", "recipes", "tasks", "views"]


def list_choices(what: What | None = None, /) -> None:
    """Show what there is to choose from.

    Parameters
    ----------
    what
        Which table; without it, the tables are named.
    """
    if what is None:
        print("seqloom list " + "|".join(get_args(What)))
        return
    found = choices(what)
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
    if what == "attention":
        from seqloom.nn.attention import SCORES

        return {name: _first_line(kind) for name, kind in SCORES.items()}
    if what == "models":
        from seqloom.models import MODELS

        return {name: _first_line(module) for name, (_, module) in MODELS.items()}
    from seqloom.tasks import TASKS

    return {name: _first_line(task) for name, (task, _) in TASKS.items()}


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0] if kind.__doc__ else ""
