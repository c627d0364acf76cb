"""N-gram models in folders: what is saved is loaded, and no damage leads further than to a clear error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqloom.errors import UserError
from seqloom.ngrams.building import build_ngrams
from seqloom.ngrams.keeping import FILE
from seqloom.ngrams.model import NGramModel
from seqloom.ngrams.settings import NGramSettings

TEXT = np.array([4, 5, 6, 3, 4, 5, 7, 3, 3, 6, 5, 4, 4, 1, 3])
NUM_SYMBOLS = 8


def small(order: int = 3, smoothing: str = "kneser_ney", text: np.ndarray = TEXT) -> NGramModel:
    values = NGramSettings.model_validate({"kind": "ngram_lm", "order": order, "smoothing": smoothing, "k": 0.25})
    return build_ngrams(text, values, NUM_SYMBOLS)


@pytest.mark.parametrize("smoothing", ["kneser_ney", "add_k"])
@pytest.mark.parametrize("order", [1, 2, 6])
def test_what_is_saved_is_loaded(tmp_path: Path, order: int, smoothing: str) -> None:
    for text in (TEXT, np.array([3])):  # nothing but an end: longer orders have no n-gram
        model = small(order, smoothing, text)
        model.save(tmp_path)
        found = NGramModel.load(tmp_path)
        assert (found.settings, found.num_symbols, found.order) == (model.settings, NUM_SYMBOLS, order)
        assert found.degenerate_orders == model.degenerate_orders
        np.testing.assert_array_equal(found.score(TEXT), model.score(TEXT))


def test_the_library_reads_and_writes_the_same_arrays(tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    model = small()
    model.save(tmp_path)
    arrays = load_file(tmp_path / FILE)
    assert arrays.keys() == model.tensors().keys()
    save_file(model.tensors(), tmp_path / "theirs.safetensors")
    found = NGramModel.from_tensors(load_file(tmp_path / "theirs.safetensors"), model.settings, NUM_SYMBOLS)
    np.testing.assert_array_equal(found.score(TEXT), model.score(TEXT))


def changed(name: str, place: int, value: float) -> dict[str, np.ndarray]:
    arrays = {key: array.copy() for key, array in small().tensors().items()}
    arrays[name].flat[place] = value
    return arrays


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (changed("2.keys", -1, 8 * NUM_SYMBOLS + 4), "context that is not there"),
        (changed("2.keys", 0, -5), "context that is not there"),
        (changed("3.keys", 1, 0), "not in order"),
        (changed("2.keys", 0, 2 * NUM_SYMBOLS), "cannot be predicted"),
        (changed("2.log_probabilities", 0, np.nan), "probability"),
        (changed("1.log_probabilities", 4, 0.1), "probability"),
        (changed("1.log_probabilities", 0, -1.0), "padding"),
        (changed("1.backoffs", 4, np.inf), "back-off"),
        (changed("1.backoffs", 4, -1) | {"2.keys": np.arange(3)}, "as many numbers"),
        (changed("1.backoffs", 4, -1) | {"2.keys": np.arange(3.0)}, "'2.keys' is not as seqloom writes it"),
        (changed("1.backoffs", 4, -1) | {"1.log_probabilities": np.zeros((2, 4))}, "shape"),
        (changed("1.backoffs", 4, -1) | {"discounts": np.zeros(3)}, "discounts"),
        (changed("1.backoffs", 4, -1) | {"4.keys": np.arange(3)}, "'4.keys' is no part"),
        ({}, "holds no '1.log_probabilities'"),
    ],
)
def test_damage_is_named(arrays: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(UserError, match=message):
        NGramModel.from_tensors(arrays, small().settings, NUM_SYMBOLS)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_bytes_are_a_model_or_a_clear_error(tmp_path: Path, data: st.DataObject) -> None:
    small().save(tmp_path)
    content = bytearray((tmp_path / FILE).read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / FILE).write_bytes(content[: data.draw(st.sampled_from([len(content), len(content) // 2, 3]))])
    try:
        model = NGramModel.load(tmp_path)
    except UserError:
        return  # anything else is a fault of ours
    assert model.score(TEXT % model.num_symbols).shape == TEXT.shape
    assert model.next(TEXT[:, None] % model.num_symbols).shape == (len(TEXT), model.num_symbols)


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no such file"):
        NGramModel.load(tmp_path)
    from safetensors.numpy import save_file

    good = {"settings": small().settings.model_dump_json(), "num_symbols": "8"}
    for about, message in (
        ({}, "settings of an n-gram model are missing"),
        (good | {"settings": "{"}, "settings of an n-gram model are missing"),
        (good | {"settings": '{"kind": "ngram_lm", "order": 9}'}, "settings.order"),
        (good | {"num_symbols": "-8"}, "no number of symbols"),
        (good | {"num_symbols": "999999999"}, "damaged"),
    ):
        save_file(small().tensors(), tmp_path / FILE, about)
        with pytest.raises(UserError, match=message):
            NGramModel.load(tmp_path)
