"""A checksum is no signature: a folder whose description was changed, and the checksum with it, works or is refused."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqloom.corpus.examples import Pair
from seqloom.errors import UserError
from seqloom.export.checked import checksum, is_as_written
from seqloom.export.ctranslate2 import MAX_POSITIONS, export
from seqloom.model import Model, load

TEXTS = ["the green witch arrived", "", "zebras sing"]
PAIRS = [Pair("the dog slept", "el perro durmió"), Pair("a cat", "un gato")]


@pytest.fixture(scope="module")
def folder(tiny_transformer_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(load(tiny_transformer_run), tmp_path_factory.mktemp("forged") / "exported", verify=False)[0]


@pytest.fixture(scope="module")
def forged(folder: Path) -> Path:
    """A copy that is changed over and over."""
    return Path(shutil.copytree(folder, folder.with_name("copy")))


def described(folder: Path) -> Any:
    return json.loads((folder / "seqloom.json").read_text())


def forge(folder: Path, about: Any) -> None:
    """Write a description with the checksum it should have, if it can have one."""
    if isinstance(about, dict) and isinstance(about.get("text"), dict):
        with suppress(OSError, ValueError):  # it names no file
            about["checksum"] = checksum(folder, about.get("decoding"), about["text"])
    (folder / "seqloom.json").write_text(json.dumps(about))


def use(folder: Path) -> Model:
    """Everything that an exported model does."""
    model = load(folder)
    for answer in model.predict(TEXTS):
        assert isinstance(answer.to_dict()["score"], float)
    assert len(model.evaluate(PAIRS).answers) == 2
    assert model.size()
    return model


def places(values: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The keys that lead to each value of a description."""
    yield before
    inside = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for key, value in inside:
        yield from places(value, (*before, key))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-2, 12)
    | st.floats()
    | st.floats(0.0, 2.0)
    | st.text(max_size=5)
    | st.sampled_from(
        ["x", "greedy", "sample", "beam", "int8", "float16", "bpe", "verbatim", "loss", "../config.json"]
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


@st.composite
def changes(draw: st.DrawFn) -> list[tuple[int, Any]]:
    """Which of a description's places are changed, counted from any of them, and to what; ... removes one."""
    return draw(st.lists(st.tuples(st.integers(0, 10_000), JSON | st.just(...)), min_size=1, max_size=3))


def changed(about: Any, wanted: list[tuple[int, Any]]) -> Any:
    about = copy.deepcopy(about)
    for number, value in wanted:
        found = list(places(about))
        *way, last = ("whole", *found[number % len(found)])
        holder: Any = {"whole": about}
        outside = holder
        for key in way:
            holder = holder[key]
        if value is not ...:
            holder[last] = copy.deepcopy(value)
        elif last != "whole":
            del holder[last]
        about = outside["whole"]
    return about


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(changes())
def test_any_description_works_or_gets_one_sentence(folder: Path, forged: Path, wanted: list[tuple[int, Any]]) -> None:
    forge(forged, changed(described(folder), wanted))
    with suppress(UserError):
        use(forged)


def set_to(*way: Any, value: Any) -> Callable[[Any], Any]:
    def change(about: Any) -> Any:
        *before, last = way
        holder = about
        for key in before:
            holder = holder[key]
        holder[last] = value
        return about

    change.__name__ = ".".join(map(str, way)) + f" {value!r:.20}"
    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda about: [about], "export format 2"),
        (lambda about: "x", "export format 2"),
        (set_to("decoding", value=[]), "decoding: 1 problem"),
        (set_to("decoding", "beam_size", value="x"), "beam_size: must be a valid integer"),
        (set_to("decoding", "beam_size", value=True), None),  # pydantic takes it as 1
        (set_to("decoding", "n_best", value=10**6), "n_best: must be less than or equal to 1000"),
        (set_to("decoding", "method", value=["beam"]), "method must be one of beam, greedy, sample"),
        (set_to("decoding", "length_penalty", value=1e300), "length_penalty: must be less than or equal to 10"),
        (set_to("decoding", "max_ratio", value=float("inf")), "max_ratio: must be less than or equal to 1000"),
        (set_to("decoding", "max_length", value=10**30), "max_length: must be less than or equal to 1000000"),
        (set_to("decoding", "seed", value=-(10**30)), None),
        (set_to("decoding", "temperature", value=1e-300), None),
        (set_to("text", value=[]), None),
        (set_to("text", value={}), None),
        (set_to("text", value={"../seqloom.json": {}}), None),  # no other file is read
        (set_to("text", "tokenizer.source.json", value=5), None),
        (set_to("text", "tokenizer.source.json", "tokenizer", value=["word"]), None),
        (set_to("text", "tokenizer.source.json", "vocabulary_size", value="x"), None),
        (set_to("task", value="sing"), "not the description of an exported model"),
        (set_to("parameters", value="many"), "not the description of an exported model"),
        (set_to("positions", value=-5), "decoding.max_length: the exported model has positions for -5 symbols"),
        (set_to("metrics", value="bleu"), "not the description of an exported model"),
        (set_to("metrics", value=[]), "not the description of an exported model"),
        (set_to("metrics", value=["bleu", "blue"]), r"metrics must be one of .* \(did you mean 'bleu'\?\)"),
        (set_to("metrics", value=["loss"]), "metrics must be one of"),
        (set_to("symbols", value={"source": 1}), "the tokenizers are not those it was exported with"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_senseless_values_get_one_sentence(
    change: Callable[[Any], Any], message: str | None, folder: Path, forged: Path
) -> None:
    forge(forged, change(described(folder)))
    if message is None:  # there is a sound way to read it
        use(forged)
    else:
        with pytest.raises(UserError, match=message):
            use(forged)


def other_content(name: str, content: bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_bytes(content)

    change.__name__ = f"{name} {content!r:.12}"
    return change


def other_words(folder: Path) -> None:
    """As many symbols, and another word among them."""
    path = folder / "tokenizer.target.json"
    tokenizer = json.loads(path.read_text())
    words = tokenizer["model"]["vocab"]
    tokenizer["model"]["vocab"] = {(f"{word}x" if number > 3 else word): number for word, number in words.items()}
    path.write_text(json.dumps(tokenizer, ensure_ascii=False))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (other_content("tokenizer.target.json", b"{}"), "not a tokenizer that seqloom wrote"),
        (other_content("tokenizer.target.json", b"\xff"), "not UTF-8"),
        (other_content("tokenizer.json", b"[]"), "not a tokenizer that seqloom wrote"),
        (other_words, "its vocabulary is not the tokenizer's beside it"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_forged_tokenizers_get_one_sentence(
    change: Callable[[Path], None], message: str, folder: Path, tmp_path: Path
) -> None:
    copied = Path(shutil.copytree(folder, tmp_path / "copy"))
    change(copied)
    forge(copied, described(copied))
    with pytest.raises(UserError, match=message):
        use(copied)


def test_what_the_engine_refuses_gets_one_sentence(folder: Path, forged: Path) -> None:
    forge(forged, described(folder) | {"positions": 10 * MAX_POSITIONS})
    assert is_as_written(forged, described(forged))
    model = load(forged)
    with pytest.raises(UserError, match="CTranslate2 cannot answer: No position encodings are defined for positions"):
        model.predict(["dog " * (2 * MAX_POSITIONS)])
    with pytest.raises(UserError, match="CTranslate2 cannot answer: The sampling_topp parameter"):
        model.predict(["a cat"], method="sample", top_p=1e-300)
