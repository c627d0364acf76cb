"""The compiled softmax pass against torch in double precision, and the loss through it against the plain one."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.losses import plain_cross_entropy, powers_in_place, projected_cross_entropy

pytestmark = pytest.mark.usefixtures("one_thread")


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(0, 5),
    symbols=st.sampled_from([1, 2, 7, 1023, 1024, 1025, 3000]),
    spread=st.sampled_from([0.0, 0.1, 3.0, 30.0]),
    offset=st.sampled_from([0.0, -500.0, 1e4]),
    biased=st.booleans(),
)
def test_against_double_precision(rows: int, symbols: int, spread: float, offset: float, biased: bool) -> None:
    torch.manual_seed(rows * 10_007 + symbols)
    logits, bias = torch.randn(rows, symbols) * spread + offset, torch.randn(symbols) if biased else None
    exact = logits.double() if bias is None else logits.double() + bias.double()
    rounded = 0.0 if bias is None else 2e-7 * (abs(offset) + 5 * spread)  # sums of large numbers are
    expected = (exact - exact.amax(-1, keepdim=True)).exp() if rows else exact
    raised, largest, sums = powers_in_place(logits.clone(), bias)
    if rows:
        torch.testing.assert_close(
            largest.double(), exact.amax(-1, keepdim=True), rtol=2e-7 * biased, atol=1e-7 * biased
        )
    torch.testing.assert_close(raised.double(), expected, rtol=1e-5 + rounded, atol=1e-12)
    torch.testing.assert_close(sums.double(), expected.sum(-1, keepdim=True), rtol=5e-6 + rounded, atol=0.0)


def test_a_logit_that_is_minus_infinity_counts_for_nothing() -> None:
    raised, largest, sums = powers_in_place(torch.tensor([[0.0, float("-inf"), 0.0]]))
    assert raised[0].tolist() == pytest.approx([1.0, 0.0, 1.0], rel=1e-6, abs=1e-30)
    assert (float(largest), float(sums)) == (0.0, pytest.approx(2.0))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_loss_and_gradients_through_it(smoothing: float) -> None:
    torch.manual_seed(3)
    features, weight = torch.randn(300, 16, requires_grad=True), torch.randn(2_017, 16, requires_grad=True)
    bias, targets = torch.randn(2_017, requires_grad=True), torch.randint(2_017, (300,))
    leaves = (features, weight, bias)
    fast = projected_cross_entropy(*leaves, targets, smoothing)
    plain = plain_cross_entropy(*leaves, targets, smoothing)
    torch.testing.assert_close(tuple(fast), tuple(plain), rtol=2e-6, atol=0.0)
    torch.testing.assert_close(
        torch.autograd.grad(fast.loss, leaves), torch.autograd.grad(plain.loss, leaves), rtol=1e-4, atol=2e-5
    )


def test_numbers_that_are_none_are_not_hidden() -> None:
    features = torch.full((1, 2), float("nan"))
    assert projected_cross_entropy(features, torch.ones(5, 2), None, torch.tensor([1])).nll.isnan()
