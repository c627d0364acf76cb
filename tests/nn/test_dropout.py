"""Dropout: the rate that was asked for in every byte of a draw, an exact mean, and torch's own as the plain twin."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from seqloom.kernels.dropping import kept_units
from seqloom.nn.drawing import drawing_from
from seqloom.nn.dropout import (
    DROPOUTS,
    LEVELS,
    Dropout,
    SharedDropout,
    SymbolDropout,
    WordDropout,
    dropout_mask,
    dropped_levels,
    masked,
)
from seqloom.nn.plain import use_plain_paths

RATES = [0.01, 0.3, 0.5, 0.9]
EXTREMES = [1e-6, 0.999_999]
SEED = 23
BYTES_A_DRAW = 8
every_rate = pytest.mark.parametrize("rate", RATES)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(SEED)


def training(rate: float) -> Dropout:
    return Dropout(rate).train()


def from_seed(act: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    """What is done to the values by a generator that was just seeded."""
    torch.manual_seed(SEED)
    return act(values)


def mask_from_seed(values: Tensor, rate: float) -> Tensor:
    """The mask that a module draws right after seeding."""
    return from_seed(lambda v: dropout_mask(v.shape, rate, int(torch.randint(2**62, ()))), values)


def near(found: Tensor, expected: float, count: int) -> bool:
    """Within six standard deviations of a mean of `count` draws of 0 and 1: missed once in 500 million."""
    return bool((found - expected).abs().max() < 6 * math.sqrt(expected * (1 - expected) / count))


# -- the rate and the scale ------------------------------------------------------------------------------------------


def test_rates_are_rounded_but_never_to_nothing_or_everything() -> None:
    assert [dropped_levels(rate) for rate in (0.0, 0.01, 0.1, 0.3, 0.5, 0.9)] == [0, 3, 26, 77, 128, 230]
    assert [dropped_levels(rate) for rate in EXTREMES] == [1, 255]
    for rate in RATES:
        assert abs(dropped_levels(rate) / LEVELS - rate) <= 0.5 / LEVELS


@every_rate
def test_units_are_kept_at_the_rate(rate: float) -> None:
    mask = dropout_mask(torch.Size([101, 1009]), rate, SEED)
    assert near((mask > 0).double().mean(), 1 - dropped_levels(rate) / LEVELS, mask.numel())


@pytest.mark.parametrize("rate", RATES + EXTREMES)
def test_over_all_bytes_the_mean_is_exactly_one(rate: float) -> None:
    """Were each value of a byte to come once: so many levels drop, what is left is scaled up by their exact share."""
    levels, scale = dropped_levels(rate), dropout_mask(torch.Size([100_003]), rate, SEED).max()
    assert float(scale) == pytest.approx(256 / (256 - levels), rel=1e-7)
    assert (LEVELS - levels) * float(scale) / LEVELS == pytest.approx(1.0, abs=1e-7)


def test_the_bits_are_split_mix_64s() -> None:
    """The first outputs of the published generator for the seed 1234567."""
    published = np.array([6457827717110365317, 3203168211198807973, 9817491932198370423], "<u8").view(np.uint8)
    for levels in range(1, LEVELS):
        assert np.array_equal(kept_units(24, 1234567, levels), published >= levels)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 70), st.integers(0, 2**62 - 1), st.sampled_from(RATES))
def test_the_kernel_is_the_product_with_the_mask(count: int, seed: int, rate: float) -> None:
    values = torch.randn(count)
    assert torch.equal(masked(values, rate, seed), values * dropout_mask(values.shape, rate, seed))


def test_without_numba_the_same_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    values = torch.randn(31, 7)
    compiled = from_seed(training(0.3), values)
    monkeypatch.setattr("seqloom.nn.dropout.can_compile", lambda: False)
    assert torch.equal(from_seed(training(0.3), values), compiled)


@every_rate
def test_a_mask_has_two_values(rate: float) -> None:
    found = dropout_mask(torch.Size([10_007]), rate, SEED).unique()
    assert torch.equal(found, torch.tensor([0.0, 256 / (256 - dropped_levels(rate))]))


@pytest.mark.parametrize("rate", [0.01, 0.25, 0.5, 0.75, 0.9])
def test_every_byte_of_a_draw_is_unbiased(rate: float) -> None:
    draws = 20_011
    lanes = (dropout_mask(torch.Size([draws, BYTES_A_DRAW]), rate, SEED) > 0).double()
    assert near(lanes.mean(0), 1 - dropped_levels(rate) / LEVELS, draws)


def test_bytes_of_a_draw_and_neighbouring_draws_know_nothing_of_each_other() -> None:
    draws = 20_011
    lanes = (dropout_mask(torch.Size([draws, BYTES_A_DRAW]), 0.5, SEED) > 0).double()
    seen = torch.cat([lanes[1:], lanes[:-1]], 1)
    correlations = torch.corrcoef(seen.T) - torch.eye(2 * BYTES_A_DRAW, dtype=torch.float64)
    assert correlations.abs().max() < 6 / math.sqrt(draws)


# -- chance, gradients, and when nothing happens ---------------------------------------------------------------------


@every_rate
def test_the_seed_decides(rate: float) -> None:
    dropout, values = training(rate), torch.ones(11, 307)
    first, second = from_seed(dropout, values), dropout(values)
    assert not torch.equal(first, second)
    assert torch.equal(from_seed(dropout, values), first)
    state = torch.get_rng_state()  # what a checkpoint holds
    again = dropout(values)
    assert torch.equal(again, second)
    torch.set_rng_state(state)
    assert torch.equal(dropout(values), second)


@every_rate
def test_the_fast_path_is_the_product_with_its_mask_and_so_is_its_gradient(rate: float) -> None:
    values = torch.randn(7, 13, 31, requires_grad=True)
    output, mask = from_seed(training(rate), values), mask_from_seed(values, rate)
    assert torch.equal(output, values * mask)
    factor = torch.randn_like(values)
    assert torch.equal(torch.autograd.grad((output * factor).sum(), values)[0], factor * mask)


@pytest.mark.parametrize("plain", [False, True])
def test_nothing_happens_without_training_or_without_a_rate(plain: bool) -> None:
    values, before = torch.randn(5, 17), torch.get_rng_state()
    for dropout in (Dropout(0.5).eval(), training(0.0)):
        use_plain_paths(dropout, plain)
        assert dropout(values) is values
    assert torch.equal(torch.get_rng_state(), before)


@every_rate
@pytest.mark.parametrize(("dtype", "plain"), [(torch.float32, True), (torch.float64, False), (torch.bfloat16, False)])
def test_the_plain_path_and_other_types_draw_a_number_a_unit(rate: float, dtype: torch.dtype, plain: bool) -> None:
    """What is kept is scaled up so that the mean stays; the numbers come from the thread's own generator."""
    values, dropout = torch.randn(530, 170, dtype=dtype), training(rate)
    use_plain_paths(dropout, plain)
    own = torch.Generator()
    with drawing_from(own):
        own.manual_seed(5)
        found = dropout(values)
        own.manual_seed(5)
        assert torch.equal(dropout(values), found)
        assert not torch.equal(dropout(values), found)
    kept = found != 0
    assert float((~kept).float().mean()) == pytest.approx(rate, abs=0.01)
    torch.testing.assert_close(found[kept], (values / (1 - rate))[kept])


# -- shapes ----------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(shape=st.lists(st.integers(0, 9), max_size=4), rate=st.sampled_from(RATES))
@example(shape=[], rate=0.5)
@example(shape=[0], rate=0.5)
@example(shape=[3, 0, 5], rate=0.5)
@example(shape=[7], rate=0.5)
@example(shape=[8], rate=0.5)
@example(shape=[9], rate=0.5)
def test_every_shape(shape: list[int], rate: float) -> None:
    values = torch.full(shape, 3.0, requires_grad=True)
    output = training(rate)(values)
    assert output.shape == values.shape
    kept = torch.tensor(3.0) * torch.tensor(256 / (256 - dropped_levels(rate)))
    assert ((output == 0) | (output == kept)).all()
    (gradient,) = torch.autograd.grad(output.sum(), values)
    assert torch.equal(gradient * 3, output)


def test_values_that_are_not_contiguous() -> None:
    """The mask belongs to places, not to storage: a view gives what its copy gives."""
    whole = torch.randn(19, 5, 11)
    for view in (whole.transpose(0, 2), whole[::2, 1:, ::3], whole[:, :1].expand(-1, 7, -1)):
        assert not view.is_contiguous()
        leaf = view.detach().requires_grad_()
        output = from_seed(training(0.3), leaf)
        assert torch.equal(output, from_seed(training(0.3), view.contiguous()))
        factor = torch.randn_like(output)
        expected = factor * mask_from_seed(view, 0.3)
        assert torch.equal(torch.autograd.grad((output * factor).sum(), leaf)[0], expected)


def test_a_gradient_that_is_not_contiguous() -> None:
    values = torch.ones(13, 29, requires_grad=True)
    output = training(0.5)(values)
    (gradient,) = torch.autograd.grad(output, values, torch.ones(29, 13).T)
    assert torch.equal(gradient, output)


# -- larger pieces ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plain", [False, True])
@every_rate
def test_a_shared_mask_is_constant_over_time_and_differs_between_rows_and_calls(rate: float, plain: bool) -> None:
    dropout, values = SharedDropout(rate).train(), torch.ones(5, 7, 1009)
    use_plain_paths(dropout, plain)
    first, second = dropout(values), dropout(values)
    assert torch.equal(first, first[:, :1].expand_as(first))
    assert not torch.equal(first[:, 0], second[:, 0])
    assert not any(torch.equal(first[0], other) for other in first[1:])
    levels = 256 * rate if plain else dropped_levels(rate)
    assert torch.allclose(first[first != 0], torch.tensor(256 / (256 - levels)))
    share = (first == 0).float().mean().item()
    assert abs(share - levels / 256) < 5 * math.sqrt(rate * (1 - rate) / (5 * 1009))


@every_rate
def test_masks_keep_the_mean_exactly(rate: float) -> None:
    """What a unit is worth on average over all 256 bytes it may draw is what it was worth."""
    levels = dropped_levels(rate)
    kept = SharedDropout(rate).train()(torch.ones(1, 1, 4096)).amax().item()
    torch.testing.assert_close(kept * (LEVELS - levels) / LEVELS, 1.0)


def test_a_shared_mask_serves_steps_and_sequences_of_any_rank() -> None:
    dropout = SharedDropout(0.5).train()
    for shape in ((3, 11), (3, 5, 11), (3, 2, 5, 11)):
        values = torch.randn(shape, requires_grad=True)
        output = dropout(values)
        mask = output.detach() / values.detach()
        assert torch.allclose(mask, mask.view(3, -1, 11)[:, 0].view(3, *[1] * (len(shape) - 2), 11).expand(shape))
        (gradient,) = torch.autograd.grad(output.sum(), values)
        torch.testing.assert_close(gradient, mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_dropped_symbol_is_dropped_wherever_it_stands(dtype: torch.dtype) -> None:
    dropout, symbols = SymbolDropout(0.5).train(), torch.arange(64).repeat(3, 2)
    embedded = torch.ones(3, 128, 5, dtype=dtype, requires_grad=True)
    output = dropout(embedded, symbols, 64)
    assert output.dtype == dtype
    by_symbol = output.view(3, 2, 64, 5)
    assert torch.equal(by_symbol, by_symbol[:1, :1, :, :1].expand_as(by_symbol))
    assert set(by_symbol.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(torch.autograd.grad(output.sum(), embedded)[0], output)
    assert not torch.equal(dropout(embedded, symbols, 64), output)


@pytest.mark.parametrize("plain", [False, True])
def test_a_word_that_is_not_seen_is_read_as_padding_where_it_stands(plain: bool) -> None:
    dropout, symbols = WordDropout(0.25).train(), torch.arange(5, 40_005).view(400, 100)
    dropout.plain = plain
    output = dropout(symbols)
    assert output.dtype == symbols.dtype
    missed = output == 0
    assert torch.equal(output[~missed], symbols[~missed])
    assert abs(missed.float().mean().item() - 0.25) < 5 * (0.25 * 0.75 / 40_000) ** 0.5
    assert missed.any(0).all()  # everywhere
    assert missed.any(1).all()
    assert not torch.equal(dropout(symbols), output)
    assert set(dropout(symbols, padding_id=3)[missed].tolist()) - set(symbols[missed].tolist()) == {3}


def test_larger_pieces_do_nothing_without_training_or_without_a_rate() -> None:
    values, symbols, before = torch.randn(3, 5, 7), torch.zeros(3, 5, dtype=torch.long), torch.get_rng_state()
    for rate, trains in ((0.5, False), (0.0, True)):
        assert SharedDropout(rate).train(trains)(values) is values
        assert SymbolDropout(rate).train(trains)(values, symbols, 4) is values
        assert WordDropout(rate).train(trains)(symbols) is symbols
    assert torch.equal(torch.get_rng_state(), before)
    assert {name: kind.__name__ for name, kind in DROPOUTS.items()} == {
        "independent": "Dropout",
        "variational": "SharedDropout",
    }
