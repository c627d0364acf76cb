"""What was checked when it was written is taken as it is, and anything else is checked."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import seqloom
from seqloom.decoding.known import FIELDS, KnownDecoding, is_sound
from seqloom.decoding.settings import DecodingSettings
from seqloom.errors import SeqloomError, UserError
from seqloom.export.checked import is_as_written
from seqloom.export.ctranslate2 import export
from seqloom.model import load
from seqloom.text.tokenizers import Tokenizer


@pytest.fixture(scope="module")
def written(tiny_transformer_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(load(tiny_transformer_run), tmp_path_factory.mktemp("checked") / "exported", verify=False)[0]


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "exported"))


def described(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "seqloom.json").read_text())
    return found


def describe(folder: Path, description: dict[str, Any]) -> None:
    (folder / "seqloom.json").write_text(json.dumps(description))


def test_what_the_exporter_wrote_is_taken_as_it_is(folder: Path) -> None:
    assert is_as_written(folder, described(folder))
    known = load(folder)
    assert isinstance(known.options, KnownDecoding)
    describe(folder, described(folder) | {"checksum": "00000000"})
    checked = load(folder)
    assert isinstance(checked.options, DecodingSettings)
    assert vars(known.options) == checked.options.model_dump()
    texts = ["the green witch arrived", "a cat", "zebras", ""]
    for side in ("source", "target"):
        left, right = (getattr(model.network, side) for model in (known, checked))
        assert left.settings == right.settings
        assert left.encode_many(texts) == right.encode_many(texts)
    assert [a.text for a in known.predict(texts)] == [a.text for a in checked.predict(texts)]


def other_tokenizer(folder: Path, about: dict[str, Any]) -> None:
    path = folder / "tokenizer.target.json"
    path.write_bytes(path.read_bytes().replace(b'"seqloom"', b'"seqlooM"'))


def other_decoding(folder: Path, about: dict[str, Any]) -> None:
    about["decoding"]["beam_size"] = 0


def missing_decoding(folder: Path, about: dict[str, Any]) -> None:
    del about["decoding"]["seed"]


def no_decoding(folder: Path, about: dict[str, Any]) -> None:
    about["decoding"] = 5


def other_text(folder: Path, about: dict[str, Any]) -> None:
    about["text"]["tokenizer.target.json"]["tokenizer"] = "bpe"


def no_text(folder: Path, about: dict[str, Any]) -> None:
    about["text"] = []


def other_version(folder: Path, about: dict[str, Any]) -> None:
    about["seqloom"] = seqloom.__version__ + "1"


def missing_file(folder: Path, about: dict[str, Any]) -> None:
    (folder / "tokenizer.target.json").unlink()


def without_checksum(folder: Path, about: dict[str, Any]) -> None:
    del about["checksum"]


CHANGES: dict[Callable[[Path, dict[str, Any]], None], str | None] = {
    other_tokenizer: "not a tokenizer that seqloom wrote",
    other_decoding: r"decoding: 1 problem\n.*beam_size: must be greater than or equal to 1; got 0",
    missing_decoding: None,  # has a default
    no_decoding: "this must be a section with keys such as method, beam_size, n_best; got 5",
    other_text: None,  # the file itself says what it is
    no_text: None,
    other_version: None,
    missing_file: "tokenizer.target.json",
    without_checksum: None,
}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_was_changed_is_checked(change: Callable[[Path, dict[str, Any]], None], folder: Path) -> None:
    about = described(folder)
    change(folder, about)
    describe(folder, about)
    assert not is_as_written(folder, about)
    message = CHANGES[change]
    if message is None:
        model = load(folder)
        assert isinstance(model.options, DecodingSettings)
        assert model.network.target.settings.tokenizer == "word"
    else:
        with pytest.raises(SeqloomError, match=message):
            load(folder)


# -- decoding settings without the library that checks them ------------------------------------------------------------


def test_the_names_are_those_of_the_settings() -> None:
    assert DecodingSettings.model_fields.keys() == FIELDS.keys()
    assert is_sound(DecodingSettings().model_dump(mode="json"))


@given(st.integers(1, 500), st.floats(0.01, 20.0), st.integers(0, 2000))
def test_the_length_limit_is_the_same(max_length: int, max_ratio: float, length: int) -> None:
    settings = DecodingSettings(max_length=max_length, max_ratio=max_ratio)
    assert KnownDecoding(settings.model_dump()).limit(length) == settings.limit(length)


ODD = (
    st.none()
    | st.booleans()
    | st.floats()
    | st.floats(0.0, 12.0)
    | st.integers(-5, 2000)
    | st.integers()
    | st.sampled_from(["greedy", "beam", "sample", "3", "best", "keep", "int8", [], {}])
)
BASES = [DecodingSettings(), DecodingSettings(method="greedy"), DecodingSettings(beam_size=2, n_best=2)]
NAMES = st.sampled_from([*sorted(FIELDS), "beam", "method", "beam_size"])


@given(st.sampled_from(BASES), st.dictionaries(NAMES, ODD))
def test_what_is_plainly_sound_is_what_the_settings_would_take_as_it_is(
    base: DecodingSettings, values: dict[str, Any]
) -> None:
    changed = base.model_dump() | values
    if is_sound(changed):
        assert repr(DecodingSettings(**changed).overridden({}).model_dump()) == repr(changed)  # repr: 1 is not 1.0


@given(st.sampled_from(BASES), st.dictionaries(NAMES, ODD))
def test_changed_settings_are_the_same_or_refused_with_the_same_words(
    base: DecodingSettings, values: dict[str, Any]
) -> None:
    try:
        expected = base.overridden(values)
    except UserError as error:
        with pytest.raises(UserError, match=f"^{re.escape(str(error))}$"):
            KnownDecoding(base.model_dump()).overridden(values)
    else:
        found = KnownDecoding(base.model_dump()).overridden(values)
        same = vars(found) if isinstance(found, KnownDecoding) else found.model_dump()
        assert repr(same) == repr(expected.model_dump())  # repr: NaN equals itself, 1 is not 1.0


def test_a_tokenizer_that_is_known_is_the_one_that_was_saved(tmp_path: Path) -> None:
    from seqloom.text.settings import TextSettings

    settings = TextSettings(tokenizer="bpe", vocabulary_size=60)
    saved = Tokenizer.train(["the green witch", "thé wîtch arrived"], settings)
    saved.save(tmp_path / "tokenizer.json")
    content = (tmp_path / "tokenizer.json").read_bytes()
    known, loaded = (
        Tokenizer.as_saved(content, settings.model_dump(mode="json")),
        Tokenizer.load(tmp_path / "tokenizer.json"),
    )
    texts = ["the witch", "thé", "unseen  words", ""]
    assert known.encode_many(texts) == loaded.encode_many(texts) == saved.encode_many(texts)
    assert known.settings == loaded.settings == settings
    assert len(known) == len(loaded)
