"""What tables of the code say, read from their source text: to import them would load torch, which takes seconds."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path


@cache
def _tree(module: str) -> ast.Module:
    path = Path(__file__).parents[1].joinpath(*module.split(".")[1:])
    return ast.parse((path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8"))


def table(module: str, name: str) -> dict[str, str]:
    """A table of classes (`{"lstm": LSTM, …}`) -> what each is, in one line.

    Of a table of settings and modules, the module says it; the settings do where several share a module, or there is
    none.
    """
    entries = _entries(module, name)
    shared = Counter(names[-1] for names in entries.values())
    return {
        key: first_line(module, names[-1] if shared[names[-1]] == 1 else names[0]) for key, names in entries.items()
    }


def tables(module: str, annotation: str) -> list[str]:
    """The names of all tables that are annotated in this way and written out."""
    return [
        node.target.id
        for node in _tree(module).body
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.target, ast.Name)
        and ast.unparse(node.annotation) == annotation
        and isinstance(node.value, ast.Dict)
        and all(node.value.keys)  # `{**ONE, **OTHER}` repeats others
    ]


def _entries(module: str, name: str) -> dict[str, list[str]]:
    for node in _tree(module).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            assert isinstance(node.value, ast.Dict), name
            return {
                ast.literal_eval(key): [part.id for part in ast.walk(value) if isinstance(part, ast.Name)]
                for key, value in zip(node.value.keys, node.value.values, strict=True)
                if key is not None
            }
    raise AssertionError(f"{module} has no table {name}")


def first_line(module: str, name: str) -> str:
    """Of the docstring of a class, which may come from elsewhere."""
    found = _class(module, name)
    line = (ast.get_docstring(found) or "").partition("\n")[0].removeprefix("Settings of ")
    return line[:1].upper() + line[1:]


def attribute(module: str, name: str, wanted: str) -> list[str]:
    """The words that a class attribute holds: of a text itself, of a call its arguments."""
    for node in _class(module, name).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name) and target.id == wanted:
                constants = [part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
                return [value for value in constants if isinstance(value, str)]
    return []


def _class(module: str, name: str) -> ast.ClassDef:
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and node.module and any(alias.name == name for alias in node.names):
            return _class(node.module, name)
    raise AssertionError(f"{module} has no class {name}")
