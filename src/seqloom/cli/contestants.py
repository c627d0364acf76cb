"""Who takes part in a comparison and what all are measured on, checked before anything takes time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seqloom.tasks.base import Task

# ---------------------------------------------------------------------------------------------------------------------
# Who takes part


@dataclass(frozen=True)
class Contestant:
    """A run folder, or a model folder by itself, which has no recipe. `to_train` names the recipe of a run to come."""

    place: Path
    name: str
    recipe: Any = None
    to_train: str | None = None

    @property
    def model(self) -> Path:
        """Its model folder, once it is finished."""
        return self.place if self.recipe is None else self.place / "model"

    @property
    def finished(self) -> bool:
        return (self.model / "config.json").is_file()

    @cached_property
    def task(self) -> type[Task]:
        from seqloom.folders import read_config
        from seqloom.tasks import find_task

        if self.recipe is not None:
            return find_task(self.recipe.task)
        return find_task(read_config(self.model).get("task"), f"{self.model}/config.json")

    @property
    def kind(self) -> str:
        """Of its model."""
        from seqloom.folders import read_config

        return str(self.recipe.model.kind if self.recipe is not None else read_config(self.model)["model"].get("kind"))


def find_contestants(given: Sequence[str], train: bool) -> list[Contestant]:
    """Every argument as a place to look at, under a name of its own."""
    from seqloom.errors import UserError
    from seqloom.evaluation.comparison import distinct_names

    found = [_contestant(argument) for argument in given]
    places: dict[Path, str] = {}
    for one, argument in zip(found, given, strict=True):
        place = one.place.expanduser().resolve()
        if place in places:
            raise UserError(f"{argument}: its folder {one.place} takes part already, as {places[place]}")
        places[place] = argument
    missing = [one.to_train for one in found if one.to_train is not None]
    if missing and not train:
        commands = "\n".join(f"  seqloom train {name}" for name in missing)
        raise UserError(f"not trained yet (--train does it first):\n{commands}")
    names = distinct_names([place.parts for place in places])
    return [replace(one, name=name) for one, name in zip(found, names, strict=True)]


def _contestant(argument: str) -> Contestant:
    from seqloom.errors import UserError, did_you_mean
    from seqloom.experiment import run_folder
    from seqloom.folders import find_model
    from seqloom.recipe import find_recipe, load_recipe, shipped_recipes

    path = Path(argument).expanduser()
    if path.is_dir():
        if (path / "recipe.yaml").is_file():
            return Contestant(path, "", load_recipe(path / "recipe.yaml"))
        model = find_model(path)  # or an error that says what the folder is instead
        if model == path and (path.resolve().parent / "recipe.yaml").is_file() and path.resolve().name == "model":
            run = path.resolve().parent
            return Contestant(run, "", load_recipe(run / "recipe.yaml"))
        return Contestant(model, "")
    short = argument.removeprefix("recipes/").removesuffix(".yaml")
    if not path.exists() and short not in shipped_recipes() and path.suffix not in (".yaml", ".yml"):
        beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        near = did_you_mean(path.name, beside) or did_you_mean(argument, shipped_recipes())
        raise UserError(f"{argument}: there is no such run folder or recipe{near}; 'seqloom list recipes' shows those")
    recipe, run = load_recipe(find_recipe(argument)), run_folder(argument, None)
    kept = run / "recipe.yaml"
    if not kept.is_file():
        return Contestant(run, "", recipe, to_train=argument)
    if changes := _differences(recipe.model_dump(mode="json"), load_recipe(kept).model_dump(mode="json")):
        raise UserError(
            f"{run}: holds a run of another recipe than {argument} ({changes[0]}); give the folder to compare what it "
            f"holds, or train the recipe elsewhere: seqloom train {argument} --run DIR"
        )
    one = Contestant(run, "", recipe)
    if not one.finished:
        raise UserError(
            f"{run}: holds an unfinished run of {argument}; go on with it: seqloom train {run} --resume; or give the "
            "folder to compare it as it is"
        )
    return one


def _differences(ours: Any, theirs: Any, where: str = "") -> list[str]:
    """Where a recipe differs from the one of a run; its description does not count."""
    if not isinstance(ours, Mapping) or not isinstance(theirs, Mapping):
        return [] if ours == theirs else [f"{where}: {theirs} in the run, {ours} in the recipe"]
    return [
        found
        for key in {**ours, **theirs}
        if where or key != "description"
        for found in _differences(ours.get(key), theirs.get(key), f"{where}.{key}" if where else key)
    ]


def common_task(contestants: Sequence[Contestant]) -> type[Task]:
    """The task of the first, if the others are measured like it: on data of the same kind, by the same figures."""
    from seqloom.errors import UserError

    first = contestants[0].task
    if not all(_measured_alike(first, one.task) for one in contestants):
        listed = "\n".join(f"  {one.name}: {one.task.name}" for one in contestants)
        raise UserError(f"only models that are measured in the same way can be compared:\n{listed}")
    return first


def _measured_alike(first: type[Task], second: type[Task]) -> bool:
    if first is second:
        return True
    same_data = first.Recipe.model_fields["data"].annotation is second.Recipe.model_fields["data"].annotation
    return same_data and not set(first.metrics).isdisjoint(second.metrics)


# ---------------------------------------------------------------------------------------------------------------------
# On what


@dataclass(frozen=True)
class Chosen:
    """What all are measured on: corpora by name. `description` names them in words."""

    corpora: dict[str, Any]
    description: str
    is_validation: bool = False


def choose_data(task: type[Task], contestants: Sequence[Contestant], data: tuple[str, ...], test: str | None) -> Chosen:
    """What --data names; else what the recipes name, if they mean the same."""
    if data:
        corpora = task.corpora(data)
        return Chosen(corpora, f"measured on {_described(task, corpora)}")
    from seqloom.errors import UserError

    found = [_own_data(one, test) for one in contestants]
    different = {
        tuple(sorted((name, task.fingerprint(corpus)) for name, corpus in corpora.items())) for corpora in found
    }
    if len(different) > 1:
        listed = "\n".join(
            f"  {one.name}: {_spelled(corpora)}" for one, corpora in zip(contestants, found, strict=True)
        )
        raise UserError(f"these are not measured on the same data (--data FILE measures all on one):\n{listed}")
    is_validation = test is None and _valid(contestants[0]) is not None
    what = "validation data" if is_validation else "test data" if test is None else f"test data '{test}'"
    return Chosen(found[0], f"measured on the {what}: {_described(task, found[0])}", is_validation)


def _own_data(one: Contestant, test: str | None) -> dict[str, Any]:
    """A test corpus of the recipe; else what it is validated on; else, if it is not validated, all its test data."""
    from seqloom.errors import UserError, one_of

    if one.recipe is None:
        raise UserError(f"{one.place}: a model folder has no data of its own; give --data FILE")
    named = one.recipe.data.test
    if test is not None and test not in named:
        raise UserError(f"{one.name}: " + (one_of("--test", test, named) if named else "its recipe has no test data"))
    if test is not None:
        return {test: named[test]}
    valid = _valid(one)
    if valid is None and not named:
        raise UserError(f"{one.name}: its recipe names nothing to measure it on; give --data FILE")
    return dict(named) if valid is None else {"valid": valid}


def _valid(one: Contestant) -> Any:
    return getattr(one.recipe.data, "valid", None)


def _spelled(corpora: Mapping[str, Any]) -> str:
    """All that a recipe says about its data."""
    values: dict[str, Any] = {}
    for name, corpus in corpora.items():
        values |= {name: corpus} if isinstance(corpus, str) else corpus.model_dump(mode="json", exclude_none=True)
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _described(task: type[Task], corpora: Mapping[str, Any]) -> str:
    return ", ".join(map(task.describe, corpora.values()))
