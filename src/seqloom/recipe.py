"""The recipe: one YAML file that says everything a run needs. Each room owns its section's settings class."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, SerializeAsAny, model_validator

from seqloom.corpus.plain import PlainTextSettings
from seqloom.corpus.readers import CorpusSettings
from seqloom.decoding.settings import DecodingSettings
from seqloom.errors import RecipeError, UserError, one_of
from seqloom.folders import refuse_exported
from seqloom.settings import ModelSettings, Settings, apply_overrides, check, read_yaml
from seqloom.text.settings import TextSettings
from seqloom.training.settings import FittingSettings, LanguageTrainingSettings, TrainingSettings
from seqloom.vectors.settings import VECTOR_MODELS, VectorTrainingSettings, WordsSettings


class DataSettings(Settings):
    """Where examples come from. `test` is one corpus or several by name."""

    train: CorpusSettings
    valid: CorpusSettings
    test: dict[str, CorpusSettings] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _one_or_many(cls, values: Any) -> Any:
        test = values.get("test") if isinstance(values, Mapping) else None
        if (
            isinstance(test, Mapping)
            and test
            and not all(isinstance(v, Mapping | CorpusSettings) for v in test.values())
        ):
            return {**values, "test": {"test": test}}
        return values

    def corpora(self) -> dict[str, CorpusSettings]:
        return {"train": self.train, "valid": self.valid, **self.test}


class VectorDataSettings(Settings):
    """The text that words are met in, and the files that tell how good their vectors are."""

    train: PlainTextSettings
    test: dict[str, str] = Field(default_factory=dict)


class TextDataSettings(Settings):
    """Running text to learn from, and to be measured on. `test` is one text or several by name."""

    train: PlainTextSettings
    valid: PlainTextSettings
    test: dict[str, PlainTextSettings] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _one_or_many(cls, values: Any) -> Any:
        test = values.get("test") if isinstance(values, Mapping) else None
        if isinstance(test, Mapping) and isinstance(test.get("text"), str):
            return {**values, "test": {"test": test}}
        return values


class Recipe(Settings):
    """Everything a run needs. What its sections say depends on the task."""

    description: str = ""
    task: str = "translate"
    seed: int = Field(1, ge=0, lt=2**63)
    data: Any
    text: Any = None
    model: SerializeAsAny[ModelSettings]
    training: Any


class FittedRecipe(Recipe):
    """Whatever is trained by the loop, with text that is cut by a tokenizer."""

    text: TextSettings = TextSettings()
    training: FittingSettings
    decoding: DecodingSettings = DecodingSettings()


class TranslationRecipe(FittedRecipe):
    """Text to text: translation, summarising, spelling to sound, inflection."""

    data: DataSettings
    training: TrainingSettings


class LanguageRecipe(FittedRecipe):
    """What comes next in a text."""

    data: TextDataSettings
    training: LanguageTrainingSettings
    decoding: DecodingSettings = DecodingSettings(method="sample", unknown="forbid")


class EmbeddingRecipe(Recipe):
    """Words to vectors, learned from running text."""

    data: VectorDataSettings
    text: WordsSettings = WordsSettings()
    training: VectorTrainingSettings = VectorTrainingSettings()


class NGramRecipe(Recipe):
    """What comes next in a text, from counts: there is nothing to train."""

    data: TextDataSettings
    text: TextSettings = TextSettings()
    training: None = None
    decoding: DecodingSettings = DecodingSettings(method="sample", unknown="forbid")


def _translators() -> dict[str, type[ModelSettings]]:
    from seqloom.models import MODELS  # with torch, which words as vectors do without

    return {kind: settings for kind, (settings, _) in MODELS.items()}


def _language_models() -> dict[str, type[ModelSettings]]:
    from seqloom.models import LANGUAGE_MODELS

    return {kind: settings for kind, (settings, _) in LANGUAGE_MODELS.items()}


RECIPES: dict[str, tuple[type[Recipe], Callable[[], dict[str, type[ModelSettings]]]]] = {
    "translate": (TranslationRecipe, _translators),
    "embed": (EmbeddingRecipe, lambda: VECTOR_MODELS),
    "model_language": (LanguageRecipe, _language_models),
}


def recipe_from(values: Mapping[str, Any], origin: str = "recipe") -> Recipe:
    """Plain values -> a checked recipe, or one error with every problem in it."""
    task = values.get("task", "translate")
    if task not in RECIPES:
        raise RecipeError([one_of("task", task, RECIPES)], origin)
    recipe_kind, kinds = RECIPES[task][0], RECIPES[task][1]()
    given = values.get("model", {})
    if task == "model_language" and isinstance(given, Mapping) and given.get("kind") == "ngram_lm":
        recipe_kind = NGramRecipe
    problems: list[str] = []
    model = ModelSettings()
    if not isinstance(given, Mapping):
        problems.append(f"model: must be a section with a kind; got {given!r}")
    elif "kind" not in given:
        problems.append(f"model.kind is missing; it is one of {', '.join(sorted(kinds))}")
    elif given["kind"] not in kinds:
        problems.append(one_of("model.kind", given["kind"], kinds))
    else:
        model, problems = check(kinds[given["kind"]], given, "model")
    recipe, others = check(recipe_kind, {**values, "model": model or ModelSettings()})
    problems = others + problems
    if not problems:
        problems = _contradictions(recipe)
    if problems:
        raise RecipeError(problems, origin)
    return recipe


def _contradictions(recipe: Recipe) -> list[str]:
    """What no section can see by itself."""
    problems = []
    if getattr(recipe.model, "share_embeddings", False) and not recipe.text.joint:
        problems.append("one table for both sides (model.share_embeddings, model.tie: source) needs text.joint")
    if getattr(recipe.training, "metric", "") == "aer" and getattr(recipe.model, "decoder", "attention") != "attention":
        problems.append("training.metric: aer needs model.decoder: attention")
    if getattr(recipe.model, "contextual", None) is not None and recipe.text.dropout:
        problems.append("text.dropout cuts words anew; model.contextual needs to know where they are: leave one out")
    if isinstance(recipe, LanguageRecipe):
        problems += _language_contradictions(recipe)
    return problems


def _language_contradictions(recipe: LanguageRecipe) -> list[str]:
    s, context = recipe.training, getattr(recipe.model, "context", None)
    problems = []
    if recipe.text.dropout:
        problems.append("text.dropout is for translation; a language model must read a text in one way")
    if recipe.model.kind == "bidirectional_lm" and s.batching != "sentences":
        problems.append(
            f"training.batching: {s.batching} has no end to read back from; a bidirectional_lm needs sentences"
        )
    if recipe.model.kind in ("bidirectional_lm", "masked_lm") and s.predict == "last":
        problems.append(
            f"training.predict: last is for models that say the next symbol; a {recipe.model.kind} does not"
        )
    if recipe.model.kind == "masked_lm" and s.metric != "loss":
        problems.append(
            f"training.metric: {s.metric} is of models that say the next symbol; a masked_lm has only a loss: set loss"
        )
    if context is not None and s.batching == "stream":
        problems.append(f"training.batching: stream carries a state on; a {recipe.model.kind} has none: use windows")
    if context is not None and s.batching == "windows" and s.length > context:
        problems.append(f"training.length {s.length} is longer than model.context {context}, which it looks back at")
    if recipe.text.tokenizer == "verbatim":
        if s.batching == "sentences":
            problems.append("text.tokenizer: verbatim has no ends of lines; training.batching: sentences needs them")
        texts = {"train": recipe.data.train, "valid": recipe.data.valid, **recipe.data.test}
        for name, text in texts.items():
            if text.sentences == "running":
                problems.append(
                    f"data.{name}.sentences: running drops line breaks; text.tokenizer: verbatim keeps them"
                )
    if s.batching != "sentences" and s.processes is not None and s.processes > s.rows:
        problems.append(f"training.processes {s.processes} is more than training.rows {s.rows}: each needs a row")
    return problems


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
    raise UserError(one_of("the recipe", str(name), shipped) + "; or give the path of a YAML file")


def recipe_text(recipe: Recipe) -> str:
    """The recipe as YAML, complete."""
    values = recipe.model_dump(mode="json")
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
