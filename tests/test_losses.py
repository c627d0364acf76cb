"""The projected loss equals the plain one, in value and in every gradient, wherever the rows are cut."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from seqloom import losses
from seqloom.batches.running import count_symbols
from seqloom.losses import (
    ROWS_AT_A_TIME,
    SampledCrossEntropy,
    agreement_in_place,
    consistent_cross_entropy,
    plain_agreement,
    plain_consistent_cross_entropy,
    plain_cross_entropy,
    projected_cross_entropy,
)

SYMBOLS, SIZE = 13, 5


def case(
    rows: int, bias: bool = True, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    torch.manual_seed(31)
    features = torch.randn(rows, SIZE, dtype=dtype, requires_grad=True)
    weight = torch.randn(SYMBOLS, SIZE, dtype=dtype, requires_grad=True)
    offset = torch.randn(SYMBOLS, dtype=dtype, requires_grad=True) if bias else None
    return features, weight, offset, torch.randint(SYMBOLS, (rows,))


def test_plain_by_hand() -> None:
    """Two symbols, logits 0 and log 3: probabilities 1/4 and 3/4."""
    features, weight = torch.ones(1, 1), torch.tensor([[0.0], [math.log(3)]])
    for smoothing in (0.0, 0.2):
        for loss_of in (plain_cross_entropy, projected_cross_entropy):
            loss, nll = loss_of(features, weight, None, torch.tensor([1]), smoothing)
            likely, unlikely = -math.log(0.75), -math.log(0.25)
            assert nll.item() == pytest.approx(likely)
            assert loss.item() == pytest.approx((1 - smoothing / 2) * likely + smoothing / 2 * unlikely)


@pytest.mark.parametrize("rows", [0, 1, ROWS_AT_A_TIME - 1, ROWS_AT_A_TIME, ROWS_AT_A_TIME + 1, 2 * ROWS_AT_A_TIME + 3])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [True, False])
def test_projected_equals_plain(rows: int, smoothing: float, bias: bool) -> None:
    features, weight, offset, targets = case(rows, bias)
    leaves = [features, weight] if offset is None else [features, weight, offset]
    plain = plain_cross_entropy(features, weight, offset, targets, smoothing)
    projected = projected_cross_entropy(features, weight, offset, targets, smoothing)
    torch.testing.assert_close(tuple(projected), tuple(plain))
    factor = 0.7  # backward must scale what forward kept
    torch.testing.assert_close(
        torch.autograd.grad(factor * projected.loss, leaves), torch.autograd.grad(factor * plain.loss, leaves)
    )


@settings(deadline=None, max_examples=30)
@given(rows=st.integers(0, 23), chunk=st.integers(1, 11), smoothing=st.floats(0, 0.9))
def test_wherever_rows_are_cut(rows: int, chunk: int, smoothing: float) -> None:
    features, weight, offset, targets = case(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(losses, "ROWS_AT_A_TIME", chunk)
        projected = projected_cross_entropy(features, weight, offset, targets, smoothing)
    plain = plain_cross_entropy(features, weight, offset, targets, smoothing)
    torch.testing.assert_close(tuple(projected), tuple(plain))
    leaves = (features, weight, offset)
    torch.testing.assert_close(torch.autograd.grad(projected.loss, leaves), torch.autograd.grad(plain.loss, leaves))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_gradients_by_differences(smoothing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "ROWS_AT_A_TIME", 2)
    features, weight, offset, targets = case(3)

    def loss(features: Tensor, weight: Tensor, offset: Tensor) -> Tensor:
        return projected_cross_entropy(features, weight, offset, targets, smoothing).loss

    assert torch.autograd.gradcheck(loss, (features, weight, offset))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_tied_weight_gathers_both_gradients(smoothing: float) -> None:
    """The output layer's weight is also the embedding the features are made of."""
    _, weight, offset, targets = case(7)
    symbols = torch.tensor([1, 2, 3, 1, 5, 8, 1])

    def grads(loss_of) -> tuple[Tensor, ...]:  # type: ignore[no-untyped-def]
        features = F.embedding(symbols, weight).tanh()
        return torch.autograd.grad(loss_of(features, weight, offset, targets, smoothing).loss, (weight, offset))

    torch.testing.assert_close(grads(projected_cross_entropy), grads(plain_cross_entropy))


@pytest.mark.parametrize("wanted", [(True, False, False), (False, True, False), (False, False, True)])
def test_only_the_asked_for_gradient(wanted: tuple[bool, bool, bool]) -> None:
    *leaves, targets = case(7)
    leaves = [leaf.detach().requires_grad_(want) for leaf, want in zip(leaves, wanted, strict=True)]
    asked = [leaf for leaf in leaves if leaf.requires_grad]
    torch.testing.assert_close(
        torch.autograd.grad(projected_cross_entropy(*leaves, targets, 0.1).loss, asked),
        torch.autograd.grad(plain_cross_entropy(*leaves, targets, 0.1).loss, asked),
    )


def test_without_gradients_and_with_rows_that_are_not_contiguous() -> None:
    features, weight, offset, targets = case(7)
    with torch.no_grad():
        loss, _ = projected_cross_entropy(features, weight, offset, targets)
        assert not loss.requires_grad
    turned = features.detach().T.contiguous().T.requires_grad_()
    other = projected_cross_entropy(turned, weight, offset, targets)
    torch.testing.assert_close(other.loss.detach(), loss)
    torch.testing.assert_close(
        torch.autograd.grad(other.loss, turned),
        torch.autograd.grad(plain_cross_entropy(features, weight, offset, targets).loss, features),
    )


@pytest.mark.parametrize("loss_of", [plain_cross_entropy, projected_cross_entropy])
def test_nll_knows_no_smoothing_and_no_gradient(loss_of) -> None:  # type: ignore[no-untyped-def]
    features, weight, offset, targets = case(7)
    smooth, sharp = (loss_of(features, weight, offset, targets, smoothing) for smoothing in (0.1, 0.0))
    torch.testing.assert_close(smooth.nll, sharp.nll)
    torch.testing.assert_close(sharp.nll, sharp.loss.detach())
    assert abs(smooth.loss - smooth.nll) > 1e-3
    assert not smooth.nll.requires_grad


def test_huge_logits_stay_finite() -> None:
    features, weight = torch.tensor([[1e4]], requires_grad=True), torch.tensor([[1.0], [-1.0]])
    loss, nll = projected_cross_entropy(features, weight, None, torch.tensor([1]), 0.1)
    assert nll.item() == pytest.approx(2e4)
    assert torch.autograd.grad(loss, features)[0].isfinite().all()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("size", [1e2, 1e4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_projected_equals_plain_for_extreme_logits(
    smoothing: float, bias: bool, size: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Softmaxes that are all but certain, rightly and wrongly; an exponential without its maximum would overflow."""
    monkeypatch.setattr(losses, "ROWS_AT_A_TIME", 3)
    features, weight, offset, targets = case(11, bias, dtype)
    features = (size * features.detach()).requires_grad_()
    leaves = [features, weight] if offset is None else [features, weight, offset]
    plain = plain_cross_entropy(features, weight, offset, targets, smoothing)
    projected = projected_cross_entropy(features, weight, offset, targets, smoothing)
    assert plain.nll > 10 * size  # some rows are far off
    near = dict(rtol=1e-10, atol=1e-10) if dtype == torch.float64 else dict(rtol=1e-5, atol=1e-5 * size)
    torch.testing.assert_close(tuple(projected), tuple(plain), **near)
    torch.testing.assert_close(
        torch.autograd.grad(projected.loss, leaves), torch.autograd.grad(plain.loss, leaves), **near
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_shift_of_all_logits_changes_nothing(smoothing: float, dtype: torch.dtype) -> None:
    """Smoothing subtracts a sum of all logits from a sum of all normalisers: what they share must cancel."""
    features, weight, offset, targets = case(2 * ROWS_AT_A_TIME + 3, dtype=dtype)
    assert offset is not None
    shifted = (offset.detach() + 1e3).requires_grad_()
    low, high = (projected_cross_entropy(features, weight, b, targets, smoothing) for b in (offset, shifted))
    near = dict(rtol=1e-9, atol=1e-9) if dtype == torch.float64 else dict(rtol=1e-4, atol=1e-2)
    torch.testing.assert_close(tuple(high), tuple(low), **near)
    torch.testing.assert_close(
        torch.autograd.grad(high.loss, (features, weight, shifted)),
        torch.autograd.grad(low.loss, (features, weight, offset)),
        **near,
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("rows", [1, 5])
def test_gradients_by_differences_without_a_bias(smoothing: float, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "ROWS_AT_A_TIME", 2)
    features, weight, _, targets = case(rows, bias=False)

    def loss(features: Tensor, weight: Tensor) -> Tensor:
        return projected_cross_entropy(features, weight, None, targets, smoothing).loss

    assert torch.autograd.gradcheck(loss, (features, weight))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_single_precision_is_as_exact_as_it_can_be(smoothing: float) -> None:
    """Sums over several chunks of a vocabulary of some size, against double precision."""
    torch.manual_seed(43)
    rows, symbols, size = 2 * ROWS_AT_A_TIME + 3, 1009, 17
    exact = [torch.randn(rows, size), torch.randn(symbols, size), torch.randn(symbols)]
    targets, found = torch.randint(symbols, (rows,)), []
    for loss_of, dtype in ((projected_cross_entropy, torch.float32), (plain_cross_entropy, torch.float64)):
        leaves = [leaf.to(dtype).requires_grad_() for leaf in exact]
        loss, nll = loss_of(*leaves, targets, smoothing)
        found.append([t.double() for t in (loss.detach(), nll, *torch.autograd.grad(loss, leaves))])
    torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-4)


# -- two passes that should agree ------------------------------------------------------------------------------------


def test_disagreement_by_hand() -> None:
    """1/4 and 3/4 against halves: KL both ways by the definition."""
    first, second = torch.tensor([[0.0, math.log(3)]]), torch.zeros(1, 2)
    there = 0.25 * math.log(0.25 / 0.5) + 0.75 * math.log(0.75 / 0.5)
    back = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert plain_agreement(first, second).item() == pytest.approx(there + back)
    assert plain_agreement(first, first + 7).item() == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("rows", [0, 1, ROWS_AT_A_TIME // 2 - 1, ROWS_AT_A_TIME // 2, ROWS_AT_A_TIME + 1])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_consistent_equals_plain(rows: int, smoothing: float, bias: bool, dtype: torch.dtype) -> None:
    features, weight, offset, targets = case(2 * rows, bias, dtype)
    leaves = [features, weight] if offset is None else [features, weight, offset]
    plain = plain_consistent_cross_entropy(features, weight, offset, targets[:rows], smoothing, 5.0)
    fast = consistent_cross_entropy(features, weight, offset, targets[:rows], smoothing, 5.0)
    exact = {"rtol": 2e-4, "atol": 2e-4} if dtype == torch.float32 else {}
    torch.testing.assert_close(tuple(fast), tuple(plain), **exact)
    torch.testing.assert_close(
        torch.autograd.grad(0.7 * fast.loss, leaves), torch.autograd.grad(0.7 * plain.loss, leaves), **exact
    )


def test_equal_passes_cost_what_one_pass_costs() -> None:
    features, weight, offset, targets = case(4)
    twice = consistent_cross_entropy(features.repeat(2, 1), weight, offset, targets, 0.1, 5.0)
    once = projected_cross_entropy(features, weight, offset, targets, 0.1)
    torch.testing.assert_close(tuple(twice), tuple(once))


def test_the_compiled_gradient_is_the_plain_one(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(2)
    first, second = 3 * torch.randn(2, 7, 5003)
    compiled, plain = (first.clone(), second.clone()), (first.clone(), second.clone())
    found = agreement_in_place(*compiled, 2.5)
    monkeypatch.setattr(losses, "can_compile", lambda: False)
    expected = agreement_in_place(*plain, 2.5)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(compiled, plain, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("symbols", [1, 15, 16, 17, 10_002])
@pytest.mark.parametrize("bias", [True, False])
def test_projected_rows_are_aligned_and_right(symbols: int, bias: bool) -> None:
    torch.manual_seed(3)
    features, weight = torch.randn(5, 7), torch.randn(symbols, 7)
    offset = torch.randn(symbols) if bias else None
    logits = losses.project(features, weight, offset)
    torch.testing.assert_close(logits, F.linear(features, weight, offset))
    assert logits.shape == (5, symbols)
    assert logits.stride(0) * logits.element_size() % losses.ALIGNED == 0
    assert torch.equal(logits, logits.contiguous())
    raised, largest, sums = losses.powers_in_place(logits.clone(memory_format=torch.preserve_format))
    padded = losses.powers_in_place(logits)
    torch.testing.assert_close(padded, (raised, largest, sums))


# -- few candidates ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_candidates_by_hand(smoothing: float) -> None:
    """Three symbols, all candidates: each stands for 1 / p of its kind, the gold one for itself."""
    features, weight = torch.ones(2, 1), torch.tensor([[1.0], [2.0], [0.5]])
    targets = torch.tensor([1, 0])
    for plain in (False, True):
        entropy = SampledCrossEntropy(torch.tensor([4, 1, 2]), 500, plain)  # counts with one more: shares 5, 2, 3 of 10
        entropy.num_drawn = 2
        entropy.draw = lambda: torch.tensor([2, 2])  # type: ignore[method-assign]
        roots = [math.sqrt(n) for n in (5, 2, 3)]
        chance = [1 - (1 - n / 10) * (1 - root / sum(roots)) ** 2 for n, root in zip((5, 2, 3), roots, strict=True)]
        rest = math.exp(0.5) / chance[2]
        first = math.log(math.exp(2) + math.exp(1) / chance[0] + rest)
        second = math.log(math.exp(1) + math.exp(2) / chance[1] + rest)
        means = (1 / chance[0] + 2 + 0.5 / chance[2]) / 3 + (1 + 2 / chance[1] + 0.5 / chance[2]) / 3
        smoothed = (1 - smoothing) * (first - 2 + second - 1) + smoothing * (first + second - means)
        loss, nll = entropy(features, weight, None, targets, smoothing)
        assert loss.item() == pytest.approx(smoothed, rel=1e-5)
        assert nll.item() == pytest.approx(first - 2 + second - 1, rel=1e-5)


def test_symbols_that_are_no_candidates_are_left_alone() -> None:
    """Only the gold symbol is a candidate: the estimate of the sum is its own power, that of the mean its own third."""
    features, weight, bias = torch.ones(1, 1), torch.tensor([[1.0], [2.0], [0.5]]), torch.tensor([0.1, 0.2, 0.6])
    for plain in (False, True):
        entropy = SampledCrossEntropy(torch.ones(3), 1, plain)
        entropy.draw = lambda: torch.tensor([1])  # type: ignore[method-assign]
        loss, nll = entropy(features, weight, bias, torch.tensor([1]), 0.2)
        assert nll.item() == pytest.approx(0.0, abs=1e-6)
        assert loss.item() == pytest.approx(0.2 * (2.2 - 2.2 / 3), rel=1e-5)


def test_candidates_of_two_passes_by_hand() -> None:
    """One word said, two symbols: the other one stands for 1 / p of its kind in both passes, which differ by logits."""
    features, weight = torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [0.5]])
    for plain in (False, True):
        entropy = SampledCrossEntropy(torch.zeros(2), 1, plain)  # drawn once, with a chance of a half
        entropy.draw = lambda: torch.tensor([1])  # type: ignore[method-assign]
        first, second = math.exp(1) + math.exp(0.5) / 0.5, math.exp(2) + math.exp(1) / 0.5
        said, also_said = math.exp(1) / first, math.exp(2) / second
        apart = (said - also_said) * math.log(said / also_said)
        apart += (also_said - said) * math.log((1 - said) / (1 - also_said))
        log_sums = math.log(first) + math.log(second)
        smoothed = 0.9 * (log_sums - 3) + 0.1 * (log_sums - (1 + 0.5 / 0.5) / 2 - (2 + 1 / 0.5) / 2)
        loss, nll = entropy(features, weight, None, torch.tensor([0]), 0.1, 5.0)
        assert nll.item() == pytest.approx((log_sums - 3) / 2, rel=1e-5)
        assert loss.item() == pytest.approx(smoothed / 2 + 5 / 4 * apart, rel=1e-5)


@pytest.mark.parametrize("rows", [0, 1, ROWS_AT_A_TIME // 2 + 1, ROWS_AT_A_TIME + 1])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("consistency", [0.0, 5.0])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fast_candidates_equal_plain_ones(
    rows: int, smoothing: float, consistency: float, bias: bool, dtype: torch.dtype
) -> None:
    features, weight, offset, targets = case(2 * rows if consistency else rows, bias, dtype)
    leaves = [features, weight] if offset is None else [features, weight, offset]
    counts, found = torch.arange(SYMBOLS), []
    for plain in (False, True):
        torch.manual_seed(4)
        entropy = SampledCrossEntropy(counts, 6, plain)
        loss, nll = entropy(features, weight, offset, targets[:rows], smoothing, consistency)
        assert not nll.requires_grad
        found.append((loss, nll, *torch.autograd.grad(0.7 * loss, leaves)))
    exact = {"rtol": 2e-4, "atol": 2e-4} if dtype == torch.float32 else {}
    torch.testing.assert_close(found[0], found[1], **exact)


@pytest.mark.parametrize("consistency", [0.0, 5.0])
def test_gradients_over_candidates_by_differences(consistency: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "ROWS_AT_A_TIME", 4)
    features, weight, offset, targets = case(6)
    entropy = SampledCrossEntropy(torch.arange(SYMBOLS), 3)

    def loss(features: Tensor, weight: Tensor, offset: Tensor) -> Tensor:
        torch.manual_seed(7)  # the same candidates at every call
        return entropy(features, weight, offset, targets[:3].repeat(1 if consistency else 2), 0.3, consistency).loss

    assert torch.autograd.gradcheck(loss, (features, weight, offset))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("plain", [True, False])
def test_all_symbols_as_candidates_are_no_estimate(smoothing: float, bias: bool, plain: bool) -> None:
    """So many are drawn that all symbols are candidates, and that none could have been missed."""
    features, weight, offset, targets = case(8, bias)
    leaves = [features, weight] if offset is None else [features, weight, offset]
    entropy = SampledCrossEntropy(torch.ones(SYMBOLS), 5000, plain)
    found = entropy(features, weight, offset, targets, smoothing)
    expected = plain_cross_entropy(features, weight, offset, targets, smoothing)
    agreeing = entropy(features, weight, offset, targets[:4], smoothing, 5.0)
    expected_agreeing = plain_consistent_cross_entropy(features, weight, offset, targets[:4], smoothing, 5.0)
    for one, other in ((found, expected), (agreeing, expected_agreeing)):
        torch.testing.assert_close(tuple(one), tuple(other))
        torch.testing.assert_close(torch.autograd.grad(one.loss, leaves), torch.autograd.grad(other.loss, leaves))


@pytest.mark.parametrize("plain", [True, False])
def test_two_equal_passes_over_candidates_cost_what_one_costs(plain: bool) -> None:
    """The second reading of a sentence says nothing new: it changes neither the candidates nor their chances."""
    features, weight, offset, targets = case(4)
    entropy, found = SampledCrossEntropy(torch.arange(SYMBOLS), 3, plain), []
    for rows, consistency in ((features, 0.0), (features.repeat(2, 1), 5.0)):
        torch.manual_seed(8)
        found.append(tuple(entropy(rows, weight, offset, targets, 0.1, consistency)))
    torch.testing.assert_close(found[0], found[1])


def test_the_estimated_sum_over_all_symbols_is_right_on_average() -> None:
    """Rows drawn by the counts, as the chances suppose: exp(loss) estimates sum / exp(gold) without bias."""
    torch.manual_seed(5)
    counts = torch.tensor([900, 300, 100, 50, 20, 9, 4, 2, 1, 0, 0, 0, 0])
    entropy = SampledCrossEntropy(counts, 3)
    features, weight = torch.randn(1, SIZE), torch.randn(SYMBOLS, SIZE)
    exact = (features @ weight.T).logsumexp(-1).exp().item()
    sums = []
    for _ in range(20_000):
        said = torch.multinomial(entropy.shares, 4, replacement=True)
        gold, others = said[0], said[1:]
        symbols = torch.unique(torch.cat([said, entropy.draw()]))
        weights = torch.exp(-entropy.log_probabilities(symbols, len(others))).float()
        weights[symbols == gold] = 1.0
        sums.append((weights * (features @ weight[symbols].T).exp()).sum().item())
    spread = torch.tensor(sums).std().item() / math.sqrt(len(sums))
    assert abs(sum(sums) / len(sums) - exact) < 4 * spread
    assert spread < 0.03 * exact


def test_the_mean_within_a_smoothed_loss_is_right_on_average() -> None:
    """A row by itself: smoothing adds a share of the gold logit less the mean one, whatever was drawn."""
    torch.manual_seed(9)
    entropy = SampledCrossEntropy(torch.tensor([900, 300, 100, 50, 20, 9, 4, 2, 1, 0, 0, 0, 0]), 5)
    features, weight, bias = torch.randn(1, SIZE), torch.randn(SYMBOLS, SIZE), torch.randn(SYMBOLS)
    logits = F.linear(features, weight, bias)
    means = []
    for seed in range(6_000):
        losses_of = []
        for smoothing in (0.0, 0.3):
            torch.manual_seed(seed)
            losses_of.append(entropy(features, weight, bias, torch.tensor([2]), smoothing).loss)
        means.append(logits[0, 2] - (losses_of[1] - losses_of[0]) / 0.3)
    found = torch.stack(means)
    spread = found.std().item() / math.sqrt(len(found))
    assert abs(found.mean().item() - logits.mean().item()) < 4 * spread
    assert 0 < spread < 0.05


@pytest.mark.parametrize("consistency", [0.0, 5.0])
def test_the_estimate_comes_closer_with_more_candidates(consistency: float) -> None:
    features, weight, offset, targets = case(8)
    said, errors = targets[:4] if consistency else targets, []
    if consistency:
        exact = plain_consistent_cross_entropy(features, weight, offset, said, 0.1, consistency).loss
    else:
        exact = plain_cross_entropy(features, weight, offset, said, 0.1).loss
    for num_drawn in (2, 20, 200):
        torch.manual_seed(10)
        entropy = SampledCrossEntropy(torch.ones(SYMBOLS), num_drawn)
        drawn = [entropy(features, weight, offset, said, 0.1, consistency).loss for _ in range(300)]
        errors.append(float((torch.stack(drawn).mean() - exact).abs().detach()))
    assert errors[0] > errors[1] > errors[2]
    assert errors[2] < 1e-3 * float(exact.detach())


def test_symbols_are_counted_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqloom.batches.running.COUNTED_AT_A_TIME", 3)
    tokens = np.array([4, 1, 1, 0, 4, 4, 1], np.uint16)
    assert count_symbols(tokens, 6).tolist() == [1, 3, 0, 0, 3, 0]
    assert count_symbols(tokens[:0], 2).tolist() == [0, 0]


def test_draws_follow_the_flattened_counts() -> None:
    torch.manual_seed(6)
    entropy = SampledCrossEntropy(torch.tensor([99, 24, 3, 0]), 40_000)
    shares = torch.bincount(entropy.draw(), minlength=4) / 40_000
    torch.testing.assert_close(shares, torch.tensor([10, 5, 2, 1]) / 18, atol=0.01, rtol=0)
