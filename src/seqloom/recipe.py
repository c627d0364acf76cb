"""Recipes: one YAML file that says everything a run needs. The task owns the class of its recipe."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from seqloom.errors import RecipeError, UserError, did_you_mean, one_of
from seqloom.folders import refuse_exported
from seqloom.settings import ModelSettings, apply_overrides, check, read_yaml
from seqloom.tasks import TASKS, find_task
from seqloom.tasks.base import DEFAULT_TASK, Recipe


def recipe_from(values: Mapping[str, Any], origin: str = "recipe") -> Recipe:
    """Plain values -> a checked recipe, or one error with every problem in it."""
    task = values.get("task", DEFAULT_TASK)
    if not isinstance(task, str) or task not in TASKS:
        raise RecipeError([one_of("task", task, TASKS)], origin)
    kind = find_task(task)
    model, problems = _model(kind.models, values.get("model", {}))
    recipe, others = check(kind.Recipe, {**values, "model": model or ModelSettings()})
    problems = others + problems or recipe.contradictions()
    if problems:
        raise RecipeError(problems, origin)
    return recipe


def _model(kinds: Mapping[str, tuple[type[ModelSettings], Any]], given: Any) -> tuple[ModelSettings | None, list[str]]:
    """The section `model`, whose `kind` says which settings it has."""
    if not isinstance(given, Mapping):
        return None, [f"model: must be a section with a kind; got {given!r}"]
    if "kind" not in given:
        return None, [f"model.kind is missing; it is one of {', '.join(sorted(kinds))}"]
    kind = given["kind"]
    if not isinstance(kind, str) or kind not in kinds:
        others = [name for name in TASKS if isinstance(kind, str) and kind in find_task(name).models]
        return None, [one_of("model.kind", kind, kinds) + (f"; it is of task {others[0]}" if others else "")]
    return check(kinds[kind][0], given, "model")


def load_recipe(source: str | Path | Mapping[str, Any] | Recipe, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe by path, or by the name of one that ships with seqloom, with `a.b=value` overrides."""
    if isinstance(source, Recipe):
        source = source.model_dump(mode="json")
    if isinstance(source, Mapping):
        return recipe_from(apply_overrides(source, overrides))
    path = find_recipe(source)
    return recipe_from(apply_overrides(read_extended(path), overrides), origin=str(path))


def read_extended(path: Path, seen: tuple[Path, ...] = ()) -> dict[str, Any]:
    """A recipe's values; `extends: other.yaml` starts from another recipe beside it and changes what differs."""
    if path.resolve() in seen:
        raise UserError(f"{path}: the recipe extends itself")
    values = read_yaml(path)
    base = values.pop("extends", None)
    if base is None:
        return values
    if not isinstance(base, str):
        raise UserError(f"{path}: extends names a recipe file; got {base!r}")
    beside = path.parent / base
    return _merged(read_extended(beside if beside.exists() else find_recipe(base), (*seen, path.resolve())), values)


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Sections are merged setting by setting, with two exceptions, because half of either means nothing.

    A corpus of `data` is replaced whole, and so is a `model` whose kind changes.
    """
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        if not isinstance(old, Mapping) or not isinstance(value, Mapping):
            result[key] = value
        elif key == "data":
            result[key] = {**old, **value}
        elif key == "model" and value.get("kind", old.get("kind")) != old.get("kind"):
            result[key] = value
        else:
            result[key] = _merged(old, value)
    return result


def recipes_folder() -> Path:
    """The recipes that ship with seqloom: beside the package in a checkout, inside it when installed."""
    inside = Path(__file__).parent / "recipes"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "recipes"


def shipped_recipes() -> dict[str, Path]:
    folder = recipes_folder()
    return {str(path.relative_to(folder).with_suffix("")): path for path in sorted(folder.rglob("*.yaml"))}


def find_recipe(name: str | Path) -> Path:
    """A path as it is; else the shipped recipe of that name (`demo`, `demo.yaml`, `recipes/demo.yaml`)."""
    path = Path(os.path.expanduser(name))
    refuse_exported(path, "training starts from a recipe")
    if path.exists():
        return path
    short = str(name).removeprefix("recipes/").removesuffix(".yaml")
    shipped = shipped_recipes()
    if short in shipped:
        return shipped[short]
    if path.suffix in (".yaml", ".yml"):
        return path  # reading it gives the right error
    near = did_you_mean(name, shipped) or did_you_mean(Path(name).name, shipped)
    raise UserError(
        f"{name}: there is no such recipe or YAML file{near}; 'seqloom list recipes' shows those that come with seqloom"
    )


def recipe_text(recipe: Recipe) -> str:
    """The recipe as YAML, complete."""
    values = recipe.model_dump(mode="json")
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
