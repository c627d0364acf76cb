"""Who takes part in a comparison and what all are measured on, checked before anything takes time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

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
    """What a recipe says otherwise than the one of a run; its description does not count."""
    if not isinstance(ours, Mapping) or not isinstance(theirs, Mapping):
        return [] if ours == theirs else [f"{where}: {theirs} in the run, {ours} in the recipe"]
    return [
        found
        for key in {**ours, **theirs}
        if where or key != "description"
        for found in _differences(ours.get(key), theirs.get(key), f"{where}.{key}" if where else key)
    ]


def common_task(contestants: Sequence[Contestant]) -> str:
    from seqloom.errors import UserError
    from seqloom.folders import task_of

    tasks = {one.name: one.recipe.task if one.recipe is not None else task_of(one.model) for one in contestants}
    if len(set(tasks.values())) > 1:
        listed = "\n".join(f"  {name}: {task or 'unknown'}" for name, task in tasks.items())
        raise UserError(f"only models of one task can be compared:\n{listed}")
    return next(iter(tasks.values()))


# ---------------------------------------------------------------------------------------------------------------------
# On what


@dataclass(frozen=True)
class Chosen:
    """What all are measured on: a corpus, or for word vectors files by name. `told` says it in words."""

    corpus: Any
    told: str
    is_validation: bool


def choose_data(task: str, contestants: Sequence[Contestant], data: tuple[str, ...], test: str | None) -> Chosen:
    """What --data says; else what the recipes say, if they mean the same."""
    if data:
        corpus, told = _given_data(task, data)
        return Chosen(corpus, f"measured on {told}", False)
    from seqloom.errors import UserError

    found = [_own_data(task, one, test) for one in contestants]
    different = {_fingerprint(task, corpus): None for corpus in found}
    if len(different) > 1:
        listed = "\n".join(f"  {one.name}: {_told(corpus)}" for one, corpus in zip(contestants, found, strict=True))
        raise UserError(f"these are not measured on the same data (--data FILE measures all on one):\n{listed}")
    if task == "embed":
        return Chosen(found[0], f"measured on {', '.join(found[0])}", False)
    what = "validation data" if test is None else f"test data '{test}'"
    return Chosen(found[0], f"measured on the {what}: {_described(found[0])}", test is None)


def _given_data(task: str, data: tuple[str, ...]) -> tuple[Any, str]:
    from seqloom.cli.evaluate import corpus_from
    from seqloom.corpus.plain import PlainTextSettings
    from seqloom.errors import UserError
    from seqloom.settings import validated

    if task == "embed":
        files = {Path(path).stem: path for path in data}
        return files, ", ".join(files)
    if task != "model_language":
        corpus = corpus_from(data)
    elif len(data) == 1:
        corpus = validated(PlainTextSettings, {"text": data[0]}, "--data")
    else:
        raise UserError(f"--data takes one text file or folder to compare language models on; got {len(data)}")
    return corpus, _described(corpus)


def _own_data(task: str, one: Contestant, test: str | None) -> Any:
    from seqloom.errors import UserError, one_of

    if one.recipe is None:
        raise UserError(f"{one.place}: a model folder has no data of its own; give --data FILE")
    named = one.recipe.data.test
    if test is not None and test not in named:
        raise UserError(f"{one.name}: " + (one_of("--test", test, named) if named else "its recipe has no test data"))
    if task != "embed":
        return one.recipe.data.valid if test is None else named[test]
    if not named:
        raise UserError(f"{one.name}: its recipe has no file to measure vectors on; give --data FILE")
    return named if test is None else {test: named[test]}


def _fingerprint(task: str, corpus: Any) -> object:
    from seqloom.corpus import lines, plain, readers

    if task == "embed":
        files = {name: lines.content_digest(lines.expand_path(path)) for name, path in corpus.items()}
        return tuple(sorted(files.items()))
    return plain.fingerprint(corpus) if task == "model_language" else readers.fingerprint(corpus)


def _told(corpus: Any) -> str:
    """All that a recipe says about its data."""
    values = corpus if isinstance(corpus, Mapping) else corpus.model_dump(mode="json", exclude_none=True)
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _described(corpus: Any) -> str:
    from seqloom.corpus import plain, readers

    return plain.describe(corpus) if isinstance(corpus, plain.PlainTextSettings) else readers.describe(corpus)
