"""Typed, frozen settings, and the road from a YAML file to them.

Every room keeps its own settings class beside the code it steers; `recipe.py` puts them together. A mistake is
reported with its full name, the value found and the remedy, and all mistakes of a recipe are reported together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self, Union, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from seqloom.errors import RecipeError, UserError, did_you_mean, one_of

MAX_RECIPE_BYTES = 1_000_000


class Settings(BaseModel):
    """Base of every settings class: immutable, and an unknown key is an error, never ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), validate_default=True)

    def overridden(self, values: Mapping[str, Any]) -> Self:
        """These settings with some changed."""
        return validated(type(self), {**self.model_dump(), **values}, "options")


class ModelSettings(Settings):
    """Base of every model's settings: `kind` says which model they are for."""

    kind: str = ""


def one_of_kinds(table: Mapping[str, tuple[type[ModelSettings], Any]]) -> Any:
    """The type of a section that holds the settings of any entry of a table; its `kind` says of which."""
    return Annotated[Union[tuple(settings for settings, _ in table.values())], Field(discriminator="kind")]  # noqa: UP007


@cache
def _loader() -> Any:
    """Safe YAML in which a key written twice is an error and `1e-3` is a number; imported when a file is read."""
    import yaml

    class Loader(yaml.SafeLoader):
        pass

    def no_duplicates(loader: Any, node: Any) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key, mark = loader.construct_object(key_node, deep=True), key_node.start_mark
            if isinstance(key, dict | list | set):
                raise yaml.constructor.ConstructorError(None, None, "a key must be a plain word", mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} is written twice", mark)
            seen.add(key)
        return yaml.SafeLoader.construct_mapping(loader, node, deep=True)

    Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, no_duplicates)
    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+0123456789.")
    )
    return Loader


def parse_yaml(text: str, origin: str) -> Any:
    """YAML text -> plain values; a syntax error becomes one line with file, line and column."""
    import yaml

    try:
        return yaml.load(text, _loader())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{origin}:{mark.line + 1}:{mark.column + 1}" if mark else origin
        raise UserError(f"{place}: not valid YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, RecursionError, ValueError, LookupError, AttributeError) as error:  # `!!bool x`: KeyError
        raise UserError(f"{origin}: not valid YAML: {error}") from None


def read_yaml(path: str | Path) -> dict[str, Any]:
    """A YAML file whose top level is a mapping."""
    path = Path(path)
    try:
        if path.stat().st_size > MAX_RECIPE_BYTES:
            raise UserError(f"{path}: a recipe is a short file; this one is over {MAX_RECIPE_BYTES:,} bytes")
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        near = did_you_mean(path.name, [p.name for p in path.parent.glob("*.y*ml")]) if path.parent.is_dir() else ""
        raise UserError(f"{path}: there is no such file{near}") from None
    except IsADirectoryError:
        raise UserError(f"{path}: this is a folder; a recipe is a YAML file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    values = parse_yaml(text, str(path))
    if values is None:
        raise UserError(f"{path}: the file is empty; 'seqloom list recipes' shows examples")
    if not isinstance(values, dict):
        raise UserError(f"{path}: a recipe is a mapping of 'key: value' lines; found a {type(values).__name__}")
    return values


def apply_overrides(values: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Set `a.b=value` pairs (the value is YAML) in a copy of nested mappings."""
    result = _copy(values)
    for override in overrides:
        name, equals, raw = override.partition("=")
        if not equals or not name.strip():
            raise UserError(f"--set takes NAME=VALUE, such as --set model.cell=gru; got {override!r}")
        parts = name.strip().split(".")
        node = result
        for part in parts[:-1]:
            if node.get(part) is None:  # absent, or a section without a line in it
                node[part] = {}
            child = node[part]
            if not isinstance(child, dict):
                raise UserError(f"--set {override}: {part!r} holds a value, not a section")
            node = child
        node[parts[-1]] = parse_yaml(raw, f"--set {override}")
    return result


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def problems_of(error: ValidationError, kind: type[BaseModel], section: str = "") -> list[str]:
    """Pydantic's findings as sentences that name place, value and remedy."""
    problems = []
    for item in error.errors():
        location, here, around = _place(kind, [str(part) for part in item["loc"]])
        name = ".".join([section, *location] if section else location)
        value, context = item.get("input"), item.get("ctx", {})
        match item["type"]:
            case "extra_forbidden":
                known = _fields(around)
                parent = ".".join(name.split(".")[:-1])
                where = f" in {parent}" if parent else ""
                listed = f"; the keys here are {', '.join(sorted(known))}" if known else ""
                problems.append(f"{name} is not a setting{did_you_mean(location[-1], known) or where + listed}")
            case "missing":
                problems.append(f"{name} is missing")
            case "union_tag_invalid":
                choices = re.findall(r"'([^']*)'", context["expected_tags"])
                problems.append(one_of(f"{name}.kind", context["tag"], choices))
            case "union_tag_not_found":
                kinds = ", ".join(sorted(one.model_fields["kind"].default for one in here))
                problems.append(f"{name}.kind is missing; it is one of {kinds}")
            case "literal_error":
                choices = re.findall(r"'([^']*)'", context["expected"])
                problems.append(one_of(name, value, choices))
            case "model_type":
                keys = ", ".join(_fields(here)[:3])
                such = f" with keys such as {keys}" if keys else ""
                problems.append(f"{name or 'this'} must be a section{such}; got {_short(value)}")
            case "value_error" | "assertion_error":
                message = str(context.get("error", item["msg"]))
                problems.append(f"{name}: {message}" if name else message)
            case _:
                message = item["msg"][0].lower() + item["msg"][1:]
                message = message.replace("input should be", "must be").replace("input should have", "must have")
                problems.append(f"{name}: {message}; got {_short(value)}")
    return problems


class _Place(NamedTuple):
    """Where a problem is, as the user wrote it, and which settings classes may stand there and around it."""

    location: list[str]
    here: list[type[BaseModel]]
    around: list[type[BaseModel]]


def _place(kind: type[BaseModel], raw: Sequence[str]) -> _Place:
    """Pydantic puts the kind of a section behind its name: that is left out, and only its class may stand there."""
    location, here, around = list[str](), [kind], list[type[BaseModel]]()
    for part in raw:
        of_kind = [one for one in here if part in (one.__name__, _kind(one))]
        if len(here) > 1 and of_kind:
            here = of_kind
            continue
        fields = [one.model_fields[part] for one in here if part in one.model_fields]
        location, around = [*location, part], here
        here = [found for field in fields for found in _classes(field.annotation)]
    return _Place(location, here, around)


def _classes(annotation: Any) -> list[type[BaseModel]]:
    """The settings classes that a type names, by itself or as one of several."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in get_args(annotation) for found in _classes(part)]


def _kind(settings: type[BaseModel]) -> Any:
    """The `kind` that a section of these settings has, where it has one."""
    return settings.model_fields["kind"].default if "kind" in settings.model_fields else None


def _fields(kinds: Sequence[type[BaseModel]]) -> list[str]:
    return list({name: None for kind in kinds for name in kind.model_fields})


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…"


def check(kind: type[Settings], values: Any, section: str = "") -> tuple[Any, list[str]]:
    """Validate plain values: `(settings, [])` or `(None, problems)`."""
    try:
        return kind.model_validate(values), []
    except ValidationError as error:
        return None, problems_of(error, kind, section)


def validated(kind: type[Settings], values: Any, origin: str = "settings") -> Any:
    """Validate plain values or raise one `RecipeError` that lists every problem."""
    settings, problems = check(kind, values)
    if problems:
        raise RecipeError(problems, origin)
    return settings
