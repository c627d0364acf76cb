"""From YAML to typed settings: every mistake is named with its place, its value and a remedy, all of them at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, ValidationError, model_validator

from seqloom.errors import DataError, RecipeError, RunError, UserError, did_you_mean, one_of
from seqloom.settings import (
    MAX_RECIPE_BYTES,
    ModelSettings,
    Settings,
    apply_overrides,
    check,
    one_of_kinds,
    parse_yaml,
    read_yaml,
    validated,
)


class Inner(Settings):
    score: Literal["additive", "dot", "multiplicative"] = "dot"
    layers: int = Field(1, ge=1)
    size: int | None = None

    @model_validator(mode="after")
    def _fits(self) -> Inner:
        if self.size == self.layers:
            raise ValueError("size must differ from layers")
        return self


class Outer(Settings):
    name: str
    rate: float = Field(0.1, gt=0)
    inner: Inner = Inner()
    maybe: Inner | None = None
    many: dict[str, Inner] = Field(default_factory=dict)


def problems(values: Any, section: str = "") -> list[str]:
    settings, found = check(Outer, values, section)
    assert (settings is None) == bool(found)
    return found


# -- one sentence for each kind of mistake ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"nam": "x", "name": "x"}, "nam is not a setting (did you mean 'name'?)"),
        (
            {"name": "x", "zzz": 1},
            "zzz is not a setting; the keys here are inner, many, maybe, name, rate",
        ),
        ({"name": "x", "inner": {"layrs": 2}}, "inner.layrs is not a setting (did you mean 'layers'?)"),
        (
            {"name": "x", "inner": {"zzz": 2}},
            "inner.zzz is not a setting in inner; the keys here are layers, score, size",
        ),
        ({"name": "x", "maybe": {"layrs": 2}}, "maybe.layrs is not a setting (did you mean 'layers'?)"),
        (
            {"name": "x", "inner": {"score": "aditive"}},
            "inner.score must be one of additive, dot, multiplicative; got 'aditive' (did you mean 'additive'?)",
        ),
        ({"name": "x", "inner": {"score": 7}}, "inner.score must be one of additive, dot, multiplicative; got 7"),
        (
            {"name": "x", "inner": {"layers": "two"}},
            "inner.layers: must be a valid integer, unable to parse string as an integer; got 'two'",
        ),
        ({"name": "x", "inner": {"layers": 0}}, "inner.layers: must be greater than or equal to 1; got 0"),
        ({"name": "x", "rate": 0}, "rate: must be greater than 0; got 0"),
        ({"name": 7}, "name: must be a valid string; got 7"),
        ({}, "name is missing"),
        ({"name": "x", "inner": {"size": 1}}, "inner: size must differ from layers"),
        ({"name": "x", "many": {"a": {"layers": -3}}}, "many.a.layers: must be greater than or equal to 1; got -3"),
    ],
)
def test_one_mistake_one_sentence(values: dict[str, Any], problem: str) -> None:
    assert problems(values) == [problem]


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"name": "x", "inner": 3}, "inner must be a section with keys such as score, layers, size; got 3"),
        ({"name": "x", "many": {"a": "b"}}, "many.a must be a section; got 'b'"),
        (5, "this must be a section with keys such as name, rate, inner; got 5"),
    ],
)
def test_a_section_that_is_not_one(values: Any, problem: str) -> None:
    assert problems(values) == [problem]


def test_long_values_are_shortened() -> None:
    (found,) = problems({"name": "x", "rate": "y" * 500})
    assert len(found) < 150
    assert found.endswith("…")


class Small(ModelSettings):
    kind: Literal["small"] = "small"
    size: int = Field(1, ge=1)


class Large(ModelSettings):
    kind: Literal["large"] = "large"
    size: int = Field(9, ge=9)
    inner: Inner = Inner()


class Built(Settings):
    part: one_of_kinds({"small": (Small, None), "large": (Large, None)})  # type: ignore[valid-type]


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        ({"kind": "smal"}, "model.part.kind must be one of large, small; got 'smal' (did you mean 'small'?)"),
        ({"size": 3}, "model.part.kind is missing; it is one of large, small"),
        ({"kind": "large", "size": 3}, "model.part.size: must be greater than or equal to 9; got 3"),
        ({"kind": "small", "sise": 3}, "model.part.sise is not a setting (did you mean 'size'?)"),
        ({"kind": "large", "inner": {"layrs": 2}}, "model.part.inner.layrs is not a setting (did you mean 'layers'?)"),
        ({"kind": "large", "inner": {"size": 1}}, "model.part.inner: size must differ from layers"),
    ],
)
def test_a_section_of_several_kinds_is_named_as_it_was_written(part: Any, problem: str) -> None:
    settings, found = check(Built, {"part": part}, "model")
    assert settings is None
    assert found == [problem]


def test_a_section_of_several_kinds_is_the_one_it_names() -> None:
    built = validated(Built, {"part": {"kind": "large", "size": 10}})
    assert built.part == Large(size=10)
    assert validated(Built, built.model_dump()) == built


def test_some_settings_are_overridden() -> None:
    settings = Inner(layers=2)
    assert settings.overridden({"size": 5}) == Inner(layers=2, size=5)
    assert settings.size is None
    with pytest.raises(RecipeError, match="options: 1 problem\n  - layrs is not a setting"):
        settings.overridden({"layrs": 1})
    with pytest.raises(RecipeError, match="size must differ from layers"):
        settings.overridden({"size": 2})


def test_the_section_goes_before_the_name() -> None:
    assert problems({"nam": 1, "name": "x"}, "model") == ["model.nam is not a setting (did you mean 'name'?)"]
    assert problems({"name": "x", "zzz": 1}, "model") == [
        "model.zzz is not a setting in model; the keys here are inner, many, maybe, name, rate"
    ]
    assert check(Inner, {"size": 1}, "model")[1] == ["model: size must differ from layers"]
    assert check(Inner, {"size": 1})[1] == ["size must differ from layers"]


def test_all_problems_are_reported_together() -> None:
    with pytest.raises(RecipeError) as caught:
        validated(Outer, {"rate": -1, "inner": {"score": "dott", "layrs": 1}}, "a.yaml")
    assert caught.value.problems == [
        "name is missing",
        "rate: must be greater than 0; got -1",
        "inner.score must be one of additive, dot, multiplicative; got 'dott' (did you mean 'dot'?)",
        "inner.layrs is not a setting (did you mean 'layers'?)",
    ]
    first, *rest = str(caught.value).splitlines()
    assert first == "a.yaml: 4 problems"
    assert rest == [f"  - {problem}" for problem in caught.value.problems]
    assert str(RecipeError(["x"], "b.yaml")).startswith("b.yaml: 1 problem\n")


def test_settings_are_frozen_and_complete() -> None:
    settings = validated(Outer, {"name": "x", "inner": {"layers": 3}})
    assert settings == Outer(name="x", inner=Inner(layers=3))
    with pytest.raises(ValidationError):
        settings.name = "y"


def test_exit_codes() -> None:
    assert (UserError.exit_code, RecipeError.exit_code, DataError.exit_code, RunError.exit_code) == (2, 2, 2, 1)
    assert str(DataError("expected 2 columns, found 1", "pairs.tsv", 41)) == "pairs.tsv:41: expected 2 columns, found 1"
    assert str(DataError("empty", Path("pairs.tsv"))) == "pairs.tsv: empty"
    assert did_you_mean("zzz", ["dot"]) == ""
    assert one_of("x", None, ["b", "a"]) == "x must be one of a, b; got None"


# -- YAML ------------------------------------------------------------------------------------------------------------


def test_numbers_as_people_write_them() -> None:
    text = "[1e-3, 1E5, 1.5e+3, .5e1, -2e-2, +3e0, 1.e2, 7, 0.25, 1e, e3, 1e-3x]"
    found = parse_yaml(text, "x")
    assert found == [0.001, 1e5, 1500.0, 5.0, -0.02, 3.0, 100.0, 7, 0.25, "1e", "e3", "1e-3x"]
    assert [type(value) for value in found[:7]] == [float] * 7
    assert type(found[7]) is int


@settings(deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_any_float_comes_back(number: float) -> None:
    assert parse_yaml(f"a: {number!r}", "x") == {"a": number}
    assert float(parse_yaml(f"a: {number:e}", "x")["a"]) == float(f"{number:e}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3", "r.yaml:3:1: not valid YAML: the key 'a' is written twice"),
        ("a:\n  b: 1\n  b: 2", "r.yaml:3:3: not valid YAML: the key 'b' is written twice"),
        ("a: [1, 2", "r.yaml:1:9: not valid YAML: expected ',' or ']', but got '<stream end>'"),
        ("a: b: c", "r.yaml:1:5: not valid YAML: mapping values are not allowed here"),
        ("x:\n\ty: 1", "r.yaml:2:1: not valid YAML: found character '\\t' that cannot start any token"),
        ("? [a]\n: 1", "r.yaml:1:3: not valid YAML: a key must be a plain word"),
        ("? !!set {a}\n: 1", "r.yaml:1:3: not valid YAML: a key must be a plain word"),
        ("a: &a [*a]", "r.yaml:1:4: not valid YAML: found unconstructable recursive node"),
        ("a: 2001-99-99", "r.yaml: not valid YAML: month must be in 1..12"),
        (
            "a: !!python/object/apply:os.system [true]",
            "r.yaml:1:4: not valid YAML: could not determine a constructor for the tag "
            "'tag:yaml.org,2002:python/object/apply:os.system'",
        ),
    ],
)
def test_yaml_that_is_not(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_yaml(text, "r.yaml")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "text", ["a: !!timestamp x", "a: !!bool x", "a: !!int x", "a: !!int ''", "a: !!binary x", "a: \x01", "[" * 5_000]
)
def test_no_yaml_escapes_as_a_traceback(text: str) -> None:
    with pytest.raises(UserError, match=r"r\.yaml.*not valid YAML"):
        parse_yaml(text, "r.yaml")


def test_merge_keys_are_yaml_too() -> None:
    text = "base: &base {a: 1, b: 2}\nmore: {<<: *base, b: 3}"
    assert parse_yaml(text, "x") == {"base": {"a": 1, "b": 2}, "more": {"a": 1, "b": 3}}


def test_reading_a_file(tmp_path: Path) -> None:
    path = tmp_path / "demo.yaml"
    path.write_bytes("\ufeffname: señal\nrate: 1e-3\n".encode())
    assert read_yaml(path) == {"name": "señal", "rate": 0.001}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty; 'seqloom list recipes' shows examples"),
        (b"# only a comment\n", "the file is empty; 'seqloom list recipes' shows examples"),
        (b"- a\n", "a recipe is a mapping of 'key: value' lines; found a list"),
        (b"word", "a recipe is a mapping of 'key: value' lines; found a str"),
        (b"a: caf\xe9", "not UTF-8 text (byte 6)"),
        (b"#" * (MAX_RECIPE_BYTES + 1), "a recipe is a short file; this one is over 1,000,000 bytes"),
    ],
)
def test_files_that_are_no_recipe(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "demo.yaml"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_yaml(path)
    assert str(caught.value) == f"{path}: {message}"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "demo.yaml").write_text("a: 1")
    with pytest.raises(UserError) as caught:
        read_yaml(tmp_path / "dmo.yaml")
    assert str(caught.value) == f"{tmp_path / 'dmo.yaml'}: there is no such file (did you mean 'demo.yaml'?)"
    with pytest.raises(UserError, match=r"there is no such file$"):
        read_yaml(tmp_path / "nowhere" / "demo.yaml")
    with pytest.raises(UserError, match=r"this is a folder; a recipe is a YAML file$"):
        read_yaml(tmp_path)


# -- overrides -------------------------------------------------------------------------------------------------------


def test_overrides_set_replace_and_create() -> None:
    before = {"a": {"b": 1, "c": [1, 2]}, "d": "x", "empty": None}
    found = apply_overrides(
        before, ["a.b=2", "a.e=1e-3", "d=null", "new.deep.er={x: [1]}", "f=a=b", " g =7", "empty.h=true", "i="]
    )
    assert found == {
        "a": {"b": 2, "c": [1, 2], "e": 0.001},
        "d": None,
        "new": {"deep": {"er": {"x": [1]}}},
        "f": "a=b",
        "g": 7,
        "empty": {"h": True},
        "i": None,
    }
    assert before == {"a": {"b": 1, "c": [1, 2]}, "d": "x", "empty": None}
    found["a"]["c"].append(3)
    assert before["a"]["c"] == [1, 2]


def test_a_later_override_wins() -> None:
    assert apply_overrides({}, ["a.b=1", "a.b=2", "a.c=3"]) == {"a": {"b": 2, "c": 3}}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("a.b", "--set takes NAME=VALUE, such as --set model.cell=gru; got 'a.b'"),
        ("=3", "--set takes NAME=VALUE, such as --set model.cell=gru; got '=3'"),
        (" =3", "--set takes NAME=VALUE, such as --set model.cell=gru; got ' =3'"),
        ("d.x=1", "--set d.x=1: 'd' holds a value, not a section"),
        ("a=[1", "--set a=[1:1:3: not valid YAML: expected ',' or ']', but got '<stream end>'"),
    ],
)
def test_overrides_that_are_wrong(override: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        apply_overrides({"d": "x"}, [override])
    assert str(caught.value) == message
