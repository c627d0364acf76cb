"""Products of eight-bit numbers: as exact as the rounding allows, and only where a search asks for them."""

from __future__ import annotations

import gc
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from seqloom.batches.collate import collate_sources
from seqloom.cli.main import run
from seqloom.decoding.search import answer_sources
from seqloom.decoding.settings import DecodingSettings
from seqloom.decoding.steps import Steps
from seqloom.errors import UserError
from seqloom.model import load
from seqloom.models.encoder_decoder import (
    EncoderDecoder,
    RecurrentTranslatorSettings,
    TransformerTranslatorSettings,
)
from seqloom.nn import eight_bits
from seqloom.nn.cells import CELLS
from seqloom.nn.eight_bits import eight_bit_products, has_eight_bits, product

LEAST_STEP = 2.0**-14  # inputs are not rounded any finer than this, however small they are

pytestmark = pytest.mark.skipif(not has_eight_bits(), reason="this torch has no such products here")


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(1, 20),
    st.integers(1, 70),
    st.integers(1, 40),
    st.booleans(),
    st.sampled_from([1e-3, 1.0, 50.0]),
)
def test_no_product_is_farther_away_than_its_numbers_were_moved(
    seed: int, rows: int, size: int, width: int, biased: bool, scale: float
) -> None:
    """A number moves by half a step at most: a weight's is 1/127 of its row's largest, an input's 1/255 of all."""
    torch.manual_seed(seed)
    layer = nn.Linear(size, width, bias=biased)
    inputs = scale * torch.randn(rows, size)
    with torch.no_grad(), eight_bit_products(layer):
        found = product(inputs, layer.weight, layer.bias)
        expected = layer(inputs)
    of_weight = layer.weight.abs().amax(1) / 127  # (width,)
    of_inputs = ((inputs.amax().clamp(min=0) - inputs.amin().clamp(max=0)) / 255).clamp(min=LEAST_STEP)
    moved = inputs.abs().sum(1)[:, None] * of_weight / 2 + layer.weight.abs().sum(1) * of_inputs / 2
    moved = 1.02 * (moved + size * of_weight * of_inputs / 4) + 1e-6 * (1 + expected.abs())
    assert ((found - expected).abs() <= moved).all()
    assert found.dtype == torch.float32


def test_it_is_for_the_thread_that_asks_and_for_weights_only() -> None:
    layer, inputs = nn.Linear(64, 32), torch.randn(5, 64)
    elsewhere: list[Tensor] = []
    with torch.no_grad():
        exact = layer(inputs)
        with eight_bit_products(layer):
            assert not torch.equal(product(inputs, layer.weight, layer.bias), exact)
            assert torch.equal(product(inputs, layer.weight * 1.0, layer.bias), exact), "made for this product"
            other = threading.Thread(target=lambda: elsewhere.append(product(inputs, layer.weight, layer.bias)))
            other.start()
            other.join()
        torch.testing.assert_close(elsewhere[0], exact, atol=1e-6, rtol=1e-6)  # its sums may go in another order
        assert torch.equal(product(inputs, layer.weight, layer.bias), exact)


def test_a_weight_is_rounded_once_and_again_when_it_has_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, inputs, made = nn.Linear(64, 32), torch.randn(5, 64), []
    packed = eight_bits._packed
    monkeypatch.setattr(eight_bits, "_packed", lambda *of: made.append(1) or packed(*of))
    with torch.no_grad():
        bias = layer.bias.clone()
        for _ in range(3):
            with eight_bit_products(layer):
                first = product(inputs, layer.weight, layer.bias)
        assert len(made) == 1
        layer.weight.mul_(2)
        with eight_bit_products(layer):
            second = product(inputs, layer.weight, layer.bias)
        layer.bias.add_(1.0)
        with eight_bit_products(layer):
            third = product(inputs, layer.weight, layer.bias)
            assert torch.equal(product(inputs, layer.weight), product(inputs, layer.weight, None))
    assert len(made) == 4
    torch.testing.assert_close(second - bias, 2 * (first - bias))
    torch.testing.assert_close(third, second + 1)


def test_what_was_rounded_goes_with_the_model() -> None:
    layer = nn.Linear(8, 8)
    gc.collect()
    before = len(eight_bits._of_model)
    with eight_bit_products(layer), torch.no_grad():
        product(torch.randn(2, 8), layer.weight, layer.bias)
    assert len(eight_bits._of_model) == before + 1
    del layer
    gc.collect()
    assert len(eight_bits._of_model) == before


def test_where_there_are_none_an_error_names_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(eight_bits, "has_eight_bits", lambda: False)
    with pytest.raises(UserError, match=r"decoding.precision: int8 is not possible .* choose float32"):
        answer_sources(nn.Linear(2, 2), collate_sources([[5]]), DecodingSettings(precision="int8"))  # type: ignore[arg-type]


def translators() -> dict[str, nn.Module]:
    sizes = {"source_symbols": 60, "target_symbols": 60}
    cells = {
        f"recurrent, {cell}, {order}": EncoderDecoder(
            RecurrentTranslatorSettings(
                cell=cell, order=order, embedding_size=32, hidden_size=32, input_feeding=order == "luong"
            ),
            **sizes,
        )
        for cell in sorted(CELLS)
        for order in ("luong", "bahdanau")
    }
    small = TransformerTranslatorSettings(size=32, num_heads=2, encoder_layers=2, decoder_layers=2)
    return {**cells, "transformer": EncoderDecoder(small, **sizes)}


@pytest.mark.parametrize("name", sorted(translators()))
@torch.inference_mode()
def test_every_translator_predicts_nearly_the_same(name: str) -> None:
    torch.manual_seed(5)
    model = translators()[name].eval()
    batch = collate_sources([[5, 6, 7], [8, 9], [10, 11, 12, 13, 14]])
    tokens = torch.tensor([20, 30, 40])

    def predicted(precision: str) -> Tensor:
        with eight_bit_products(model) if precision == "int8" else nullcontext():
            steps = Steps(model, DecodingSettings())  # type: ignore[arg-type]
            state, found = model.start(batch), []
            for _ in range(3):
                scores, state, _ = steps.log_probabilities(tokens, state, attention=False)
                found.append(scores[:, 4:].clone())
        return torch.stack(found)

    exact, rounded = predicted("float32"), predicted("int8")
    assert not torch.equal(exact, rounded)
    assert (exact - rounded).abs().max() < 0.15
    assert (exact - rounded).abs().mean() < 0.03


def test_the_setting_reaches_the_search(tiny_run: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = load(tiny_run)
    source = model.task.source.batch(["the dogs did not sleep"])
    exact, rounded = (
        answer_sources(model.network, source, DecodingSettings(precision=precision))[0][0].log_probability
        for precision in ("float32", "int8")
    )
    assert exact != rounded
    assert exact == pytest.approx(rounded, abs=0.5)
    assert run(["predict", str(tiny_run), "the dogs did not sleep", "--set", "precision=int8"]) == 0
    assert capsys.readouterr().out.strip()
    assert run(["predict", str(tiny_run), "the dogs", "--set", "precision=int4"]) != 0
    assert "float32" in capsys.readouterr().err
