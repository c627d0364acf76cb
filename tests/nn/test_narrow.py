"""Products of narrow numbers: as exact as eight bits allow, only where asked for, and nothing else is rounded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from seqloom.losses import (
    SampledCrossEntropy,
    consistent_cross_entropy,
    powers_in_place,
    projected_cross_entropy,
)
from seqloom.nn import narrow as narrowing
from seqloom.nn.attention import SCORES
from seqloom.nn.cells import CELLS
from seqloom.nn.fused_decoder import decode
from seqloom.nn.narrow import add_product, linear, narrow, narrow_products, put_product
from seqloom.nn.recurrent import run_fused
from seqloom.nn.transformer import TransformerStack

EIGHT_BITS = 2.0**-8

threads = pytest.mark.parametrize("num_threads", [1, 2])


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(31)


@pytest.fixture(name="num_threads")
def fixture_num_threads(request: pytest.FixtureRequest) -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def apart(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def both_ways(compute: Callable[[], Tensor], leaves: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """A result and the gradients of its sum with random weights, by float32 products and by narrow ones."""
    found, weights = [], None
    for wanted in (False, True):
        with narrow_products(wanted):
            result = compute()
        weights = torch.randn_like(result) if weights is None else weights
        found.append([result.detach(), *torch.autograd.grad((result * weights).sum(), leaves)])
    return found[0], found[1]


def assert_close_but_rounded(exact: list[Tensor], rounded: list[Tensor], errors: float) -> None:
    """Within a few roundings of each other, and not the same: something was rounded."""
    for one, other in zip(exact, rounded, strict=True):
        assert other.dtype == torch.float32
        assert apart(other, one) < errors * EIGHT_BITS
    assert any(not torch.equal(one, other) for one, other in zip(exact, rounded, strict=True))


def test_numbers_are_narrow_only_where_it_is_asked_for() -> None:
    values, seen = torch.randn(3, 3), []
    assert narrow(values) is values
    with narrow_products():
        assert narrow(values).dtype == torch.bfloat16
        assert narrow(values.double()).dtype == torch.float64
        other = threading.Thread(target=lambda: seen.append(narrow(values).dtype))
        other.start()
        other.join()
        with narrow_products(False):
            assert narrow(values) is values
        assert narrow(values).dtype == torch.bfloat16
    assert narrow(values) is values
    assert seen == [torch.float32]


def test_sums_of_products_are_not_narrow() -> None:
    """A thousand in bfloat16 does not change when one is added to it."""
    into = torch.full((2, 2), 1000.0)
    add_product(into, torch.ones(2, 1, dtype=torch.bfloat16), torch.ones(1, 2, dtype=torch.bfloat16))
    assert into.tolist() == [[1001.0] * 2] * 2
    put_product(into, torch.full((2, 1), 3.0, dtype=torch.bfloat16), torch.ones(1, 2, dtype=torch.bfloat16))
    assert into.tolist() == [[3.0] * 2] * 2


def test_a_linear_layer() -> None:
    layer, inputs = nn.Linear(37, 23), torch.randn(5, 7, 37, requires_grad=True)
    exact, rounded = both_ways(lambda: linear(inputs, layer), [inputs, layer.weight, layer.bias])
    assert_close_but_rounded(exact, rounded, 3)
    torch.testing.assert_close(rounded[3], exact[3], rtol=1e-6, atol=1e-6)  # a sum, no product


@pytest.mark.parametrize("name", ["additive", "multiplicative"])
def test_a_score_with_weights(name: str) -> None:
    score = SCORES[name](query_size=32, memory_size=24)
    query, memory = torch.randn(3, 5, 32, requires_grad=True), torch.randn(3, 7, 24, requires_grad=True)
    exact, rounded = both_ways(lambda: score(query, score.prepare(memory)), [query, memory, *score.parameters()])
    assert_close_but_rounded(exact, rounded, 4)


@threads
@pytest.mark.parametrize("feed_forward", ["relu", "gelu", "swiglu"])
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary", "relative"])
def test_a_decoder_of_a_transformer(feed_forward: str, positions: str, num_threads: int) -> None:
    stack = TransformerStack(
        size=32,
        num_layers=2,
        num_heads=4,
        feed_forward_size=48,
        feed_forward=feed_forward,
        positions=positions,
        causal=True,
        cross=True,
    )
    inputs, memory = torch.randn(3, 9, 32, requires_grad=True), torch.randn(3, 6, 32, requires_grad=True)
    leaves = [inputs, memory, *stack.parameters()]
    exact, rounded = both_ways(lambda: stack(inputs, memory=stack.prepare(memory))[0], leaves)
    assert apart(rounded[0], exact[0]) < 4 * EIGHT_BITS
    for one, other, leaf in zip(exact[1:], rounded[1:], leaves, strict=True):
        scale = max(float(one.norm()), 1e-3 * float(exact[1].norm()))  # a bias of keys changes nothing: only noise
        assert float((other - one).norm()) < 32 * EIGHT_BITS * scale, tuple(leaf.shape)
    assert not torch.equal(rounded[0], exact[0])


@pytest.mark.parametrize("name", sorted(CELLS))
def test_every_cell(name: str) -> None:
    cells = [CELLS[name](input_size=13, hidden_size=17) for _ in range(2)]
    inputs, lengths = torch.randn(4, 8, 13, requires_grad=True), torch.tensor([8, 3, 5, 1])
    states = [cell.start(inputs[:, 0]) for cell in cells]
    leaves = [inputs, *(weight for cell in cells for weight in cell.parameters())]
    exact, rounded = both_ways(lambda: run_fused(cells, inputs, states, lengths)[0], leaves)
    assert_close_but_rounded(exact, rounded, 8)


@pytest.mark.parametrize("name", sorted(SCORES))
@pytest.mark.parametrize(("context_first", "feeds"), [(True, True), (True, False), (False, True)])
def test_every_decoder_that_waits(name: str, context_first: bool, feeds: bool) -> None:
    rows, time, size, embedding, width = 3, 5, 8, 6, 7
    inner = embedding + (size if context_first else 0) + (width if feeds else 0)
    cell = CELLS["lstm"](input_size=inner, hidden_size=size)
    score: Any = SCORES[name](query_size=size, memory_size=size)
    readout = nn.Linear(2 * size + (embedding if context_first else 0), width) if feeds else None
    embedded, values = torch.randn(rows, time, embedding, requires_grad=True), torch.randn(rows, 4, size)
    lengths, mask = torch.tensor([5, 2, 3]), torch.ones(rows, 4, dtype=torch.bool)
    leaves = [embedded, *cell.parameters(), *score.parameters(), *(readout.parameters() if readout else ())]

    def compute() -> Tensor:
        keys, state = score.prepare(values), cell.start(embedded[:, 0])
        decoded = decode(
            cell, score, embedded, lengths, state, values, keys, mask, context_first=context_first, readout=readout
        )
        return decoded.features if decoded.features is not None else torch.cat([decoded.hidden, decoded.context], -1)  # type: ignore[list-item]

    exact, rounded = both_ways(compute, leaves)
    assert apart(rounded[0], exact[0]) < 4 * EIGHT_BITS
    for one, other in zip(exact[1:], rounded[1:], strict=True):
        assert float((other - one).norm()) < 16 * EIGHT_BITS * max(float(one.norm()), 1e-2 * float(exact[1].norm()))
    assert not torch.equal(rounded[0], exact[0])


# -- the loss ----------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(0, 5),
    symbols=st.sampled_from([1, 2, 7, 1023, 1024, 1025, 3000]),
    spread=st.sampled_from([0.0, 0.1, 3.0, 30.0]),
    offset=st.sampled_from([0.0, -500.0, 1e4]),
    num_threads=st.sampled_from([1, 2]),
)
def test_powers_of_narrow_numbers(rows: int, symbols: int, spread: float, offset: float, num_threads: int) -> None:
    """Compiled or not: every power is the exact one, rounded once; the sums are of powers that are not."""
    before = torch.get_num_threads()
    torch.set_num_threads(num_threads)
    try:
        torch.manual_seed(rows * 10_007 + symbols)
        logits, bias = (torch.randn(rows, symbols) * spread + offset).bfloat16(), torch.randn(symbols)
        exact = logits.double() + bias.double()
        rounded = 2e-7 * (abs(offset) + 5 * spread)
        expected = (exact - exact.amax(-1, keepdim=True)).exp() if rows else exact
        raised, _, sums = powers_in_place(logits.clone(), bias)
        assert raised.dtype == torch.bfloat16
        torch.testing.assert_close(raised.double(), expected, rtol=EIGHT_BITS * 1.01 + rounded, atol=1e-12)
        torch.testing.assert_close(sums.double(), expected.sum(-1, keepdim=True), rtol=5e-6 + rounded, atol=0.0)
    finally:
        torch.set_num_threads(before)


def leaves_of_an_output_layer(rows: int, bias: bool) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    features = torch.randn(rows, 24, requires_grad=True)
    weight = (torch.randn(517, 24) / 5).requires_grad_()
    return features, weight, torch.randn(517, requires_grad=True) if bias else None, torch.randint(517, (rows,))


@threads
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("kind", ["all", "two passes", "few", "few, two passes"])
def test_every_loss(kind: str, bias: bool, num_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqloom.losses.NARROW_ROWS", 100)
    features, weight, offset, targets = leaves_of_an_output_layer(260, bias)
    twice = "two passes" in kind
    gold = targets[:130] if twice else targets
    found = []
    for wanted in (False, True):
        torch.manual_seed(7)  # the same candidates
        with narrow_products(wanted):
            if kind.startswith("few"):
                sampled = SampledCrossEntropy(torch.ones(517), 200)
                loss = sampled(features, weight, offset, gold, 0.1, 2.0 if twice else 0.0)
            elif twice:
                loss = consistent_cross_entropy(features, weight, offset, gold, 0.1, 2.0)
            else:
                loss = projected_cross_entropy(features, weight, offset, gold, 0.1)
        leaves = [features, weight, *([] if offset is None else [offset])]
        found.append(([loss.loss.detach(), loss.nll], torch.autograd.grad(loss.loss, leaves)))
    (exact, pulls), (rounded, narrow_pulls) = found
    for one, other in zip(exact, rounded, strict=True):
        assert float(other) == pytest.approx(float(one), rel=EIGHT_BITS / 8)
        assert float(other) != float(one)
    for one, other in zip(pulls, narrow_pulls, strict=True):
        assert other.dtype == torch.float32
        assert apart(other, one) < 3 * EIGHT_BITS


def test_what_the_gold_symbol_got_is_not_rounded() -> None:
    """A logit of 300 in bfloat16 could be one off, and the loss of a sure answer far from 0."""
    features, weight = torch.tensor([[300.0 + 1 / 3]]), torch.tensor([[1.0], [-1.0]])
    with narrow_products():
        assert float(projected_cross_entropy(features, weight, None, torch.tensor([0])).nll) == pytest.approx(0, abs=1)
    assert float(features.bfloat16()[0, 0]) == 300.0


def test_a_processor_without_the_instructions_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from seqloom.training.loop import multiplies_narrow
    from seqloom.training.settings import LanguageTrainingSettings, TrainingSettings

    for has in (True, False):
        monkeypatch.setattr("seqloom.training.loop.has_narrow_products", lambda has=has: has)
        assert multiplies_narrow(TrainingSettings(steps=1), 10**6) is has
        assert not multiplies_narrow(TrainingSettings(steps=1), 10**6 - 1)
        assert not multiplies_narrow(TrainingSettings(steps=1, plain=True), 10**6)
        assert not multiplies_narrow(TrainingSettings(steps=1, precision="float32"), 10**6)
        assert multiplies_narrow(TrainingSettings(steps=1, precision="bfloat16"), 1)
        assert not multiplies_narrow(LanguageTrainingSettings(steps=1), 10**6)
        assert multiplies_narrow(LanguageTrainingSettings(steps=1, precision="bfloat16"), 1)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    assert not narrowing.has_narrow_products()


def test_plain_and_bfloat16_are_refused_together() -> None:
    from seqloom.training.settings import TrainingSettings

    with pytest.raises(ValueError, match="plain: true computes in float32"):
        TrainingSettings(steps=1, plain=True, precision="bfloat16")
