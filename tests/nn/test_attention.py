"""Scores by hand, attention by explicit loops, parity with torch, and one contract for every entry of the table."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from seqloom.nn.attention import (
    LARGEST_KEY,
    SCORES,
    Additive,
    Dot,
    Multiplicative,
    additive_scores,
    attend,
    attention_weights,
    dot_scores,
    fast_additive_scores,
    scaled_dot_scores,
)
from seqloom.nn.masks import causal_mask, length_mask

BATCH, QUERIES, KEYS, SIZE, MEMORY = 3, 5, 7, 11, 13
LENGTHS = torch.tensor([7, 2, 5])


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(17)


def build(name: str, dtype: torch.dtype = torch.float64) -> tuple[torch.nn.Module, Tensor, Tensor]:
    kind = SCORES[name]
    memory_size = SIZE if issubclass(kind, Dot) else MEMORY
    score = kind(query_size=SIZE, memory_size=memory_size).to(dtype)
    return score, torch.randn(BATCH, QUERIES, SIZE, dtype=dtype), torch.randn(BATCH, KEYS, memory_size, dtype=dtype)


# -- formulas on numbers small enough for paper ----------------------------------------------------------------------


def test_dot_by_hand() -> None:
    query = torch.tensor([[[1.0, 2.0]]])
    keys = torch.tensor([[[3.0, 4.0], [-1.0, 0.5], [0.0, 0.0]]])
    assert dot_scores(query, keys).tolist() == [[[11.0, 0.0, 0.0]]]


def test_scaled_dot_by_hand() -> None:
    query, keys = torch.tensor([[[1.0, 2.0, 0.0, -1.0]]]), torch.tensor([[[3.0, 4.0, 9.0, 5.0]]])
    assert scaled_dot_scores(query, keys).tolist() == [[[3.0]]]  # (3 + 8 - 5) / sqrt(4)


def test_multiplicative_by_hand() -> None:
    score = Multiplicative(query_size=2, memory_size=3)
    score.weight.data = torch.tensor([[1.0, 0.0, 2.0], [0.0, -1.0, 1.0]])
    memory = torch.tensor([[[1.0, 2.0, 3.0]]])
    keys = score.prepare(memory)
    assert keys.tolist() == [[[7.0, 1.0]]]  # W k
    assert score(torch.tensor([[[10.0, 5.0]]]), keys).tolist() == [[[75.0]]]  # q · W k


def test_additive_by_hand() -> None:
    score = Additive(query_size=2, memory_size=1)
    score.weight_query.data = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
    score.weight_key.data = torch.tensor([[0.5], [-1.0]])
    score.direction.data = torch.tensor([3.0, -2.0])
    found = score(torch.tensor([[[0.25, 0.5]]]), score.prepare(torch.tensor([[[1.5]]])))
    expected = 3 * math.tanh(0.25 + 0.75) - 2 * math.tanh(1.0 - 1.5)
    assert found.item() == pytest.approx(expected, abs=1e-6)


def test_additive_equals_a_loop() -> None:
    score, query, memory = build("additive")
    found = score(query, score.prepare(memory))
    for b in range(BATCH):
        for q in range(QUERIES):
            for k in range(KEYS):
                inner = torch.tanh(score.weight_query @ query[b, q] + score.weight_key @ memory[b, k])
                torch.testing.assert_close(found[b, q, k], (score.direction * inner).sum())


def test_additive_scores_takes_projected_sides() -> None:
    left, right, direction = torch.tensor([[[0.5]]]), torch.tensor([[[0.5], [-0.5]]]), torch.tensor([2.0])
    torch.testing.assert_close(additive_scores(left, right, direction), torch.tensor([[[2 * math.tanh(1.0), 0.0]]]))


# -- scores to context -----------------------------------------------------------------------------------------------


def test_attend_by_hand() -> None:
    scores = torch.tensor([[[0.0, math.log(3.0)]]])
    values = torch.tensor([[[4.0, 0.0], [8.0, 1.0]]])
    context, weights = attend(scores, values, None)
    torch.testing.assert_close(weights, torch.tensor([[[0.25, 0.75]]]))
    torch.testing.assert_close(context, torch.tensor([[[7.0, 0.75]]]))


def test_attend_equals_explicit_loops() -> None:
    scores = torch.randn(BATCH, QUERIES, KEYS, dtype=torch.float64)
    values = torch.randn(BATCH, KEYS, SIZE, dtype=torch.float64)
    context, weights = attend(scores, values, length_mask(LENGTHS, KEYS)[:, None])
    for b, length in enumerate(LENGTHS.tolist()):
        for q in range(QUERIES):
            exps = [math.exp(scores[b, q, k]) for k in range(length)]
            total = torch.zeros(SIZE, dtype=torch.float64)
            for k in range(length):
                assert weights[b, q, k].item() == pytest.approx(exps[k] / sum(exps))
                total += exps[k] / sum(exps) * values[b, k]
            torch.testing.assert_close(context[b, q], total)
            assert weights[b, q, length:].tolist() == [0.0] * (KEYS - length)


def test_a_row_without_a_real_key_gives_zeros_and_finite_gradients() -> None:
    scores = torch.randn(BATCH, QUERIES, KEYS, requires_grad=True)
    values = torch.randn(BATCH, KEYS, SIZE, requires_grad=True)
    mask = length_mask(torch.tensor([7, 0, 5]), KEYS)[:, None]
    context, weights = attend(scores, values, mask)
    assert not weights[1].any()
    assert not context[1].any()
    context.square().sum().backward()
    for grad in (scores.grad, values.grad):
        assert grad is not None
        assert grad.isfinite().all()
        assert not grad[1].any()
        assert grad[0].any()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_extreme_scores_stay_finite(dtype: torch.dtype) -> None:
    scores = torch.tensor([[[-3e38, -3e38, 3e38]]]).to(dtype)
    weights = attention_weights(scores, torch.tensor([[[True, True, False]]]))
    assert weights.tolist() == [[[0.5, 0.5, 0.0]]]


def test_causal_mask_lets_each_position_see_its_past_only() -> None:
    weights = attention_weights(torch.zeros(1, KEYS, KEYS), causal_mask(KEYS))
    for row in range(KEYS):
        torch.testing.assert_close(weights[0, row, : row + 1], torch.full((row + 1,), 1 / (row + 1)))
        assert not weights[0, row, row + 1 :].any()


def test_scaled_dot_equals_torch() -> None:
    score, query, memory = build("scaled_dot")
    mask = length_mask(LENGTHS, KEYS)[:, None]
    found = attend(score(query, score.prepare(memory)), memory, mask).context
    expected = F.scaled_dot_product_attention(query, memory, memory, attn_mask=mask.expand(-1, QUERIES, -1))
    torch.testing.assert_close(found, expected)


# -- the contract of every entry -------------------------------------------------------------------------------------

every_score = pytest.mark.parametrize("name", sorted(SCORES))


@every_score
def test_weights_sum_to_one_and_padding_changes_nothing(name: str) -> None:
    score, query, memory = build(name)
    mask = length_mask(LENGTHS, KEYS)[:, None]
    context, weights = attend(score(query, score.prepare(memory)), memory, mask)
    torch.testing.assert_close(weights.sum(-1), torch.ones(BATCH, QUERIES, dtype=torch.float64))
    assert not weights.masked_select(~mask).any()
    longer = torch.cat([memory, torch.randn_like(memory)], 1)
    longer = torch.where(length_mask(LENGTHS, 2 * KEYS)[..., None], longer, 1e3 * torch.randn_like(longer))
    padded = attend(score(query, score.prepare(longer)), longer, length_mask(LENGTHS, 2 * KEYS)[:, None])
    torch.testing.assert_close(padded.context, context)
    torch.testing.assert_close(padded.weights[..., :KEYS], weights)


@every_score
def test_batched_equals_single(name: str) -> None:
    score, query, memory = build(name)
    keys = score.prepare(memory)
    together = score(query, keys)
    assert together.shape == (BATCH, QUERIES, KEYS)
    for b in range(BATCH):
        for q in range(QUERIES):
            one = score(query[b : b + 1, q : q + 1], score.prepare(memory[b : b + 1]))
            torch.testing.assert_close(one[0, 0], together[b, q])


@every_score
def test_gradients_flow_to_every_weight_and_to_both_sides(name: str) -> None:
    score, query, memory = build(name)
    query.requires_grad_()
    memory.requires_grad_()
    attend(score(query, score.prepare(memory)), memory, None).context.square().sum().backward()
    for label, tensor in [*score.named_parameters(), ("query", query), ("memory", memory)]:
        assert tensor.grad is not None, label
        assert tensor.grad.abs().sum() > 0, label


@every_score
def test_gradients_are_right(name: str) -> None:
    score, query, memory = build(name)
    query, memory = query[:2, :2].clone().requires_grad_(), memory[:2, :3].clone().requires_grad_()
    mask = torch.tensor([[[True, True, False]], [[False, False, False]]])

    def run(query: Tensor, memory: Tensor, *weights: Tensor) -> Tensor:
        return attend(score(query, score.prepare(memory)), memory, mask).context

    assert torch.autograd.gradcheck(run, (query, memory, *score.parameters()))


@every_score
def test_weights_depend_on_the_query(name: str) -> None:
    score, query, memory = build(name)
    weights = attend(score(query, score.prepare(memory)), memory, None).weights
    assert (weights[:, 0] - weights[:, 1]).abs().max() > 1e-3


# -- additive scores by powers ---------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(
    sizes=st.tuples(*[st.integers(1, 5)] * 4),
    spread=st.sampled_from([0.01, 1.0, 6.0, 30.0]),
    seed=st.integers(0, 2**31),
)
def test_fast_additive_scores_equal_the_formula(sizes: tuple[int, int, int, int], spread: float, seed: int) -> None:
    torch.manual_seed(seed)
    batch, queries, keys, size = sizes
    for dtype, tolerance in ((torch.float64, {}), (torch.float32, dict(atol=1e-4, rtol=1e-4))):
        given = [
            (spread * torch.randn(batch, queries, size, dtype=dtype)).requires_grad_(),
            (spread * torch.randn(batch, keys, size, dtype=dtype)).requires_grad_(),
            torch.randn(size, dtype=dtype, requires_grad=True),
        ]
        plain, fast = additive_scores(*given), fast_additive_scores(*given)
        torch.testing.assert_close(fast, plain, **tolerance)
        pull = torch.randn_like(plain)
        torch.testing.assert_close(
            torch.autograd.grad(fast, given, pull), torch.autograd.grad(plain, given, pull), **tolerance
        )


@pytest.mark.parametrize("query", [-1e30, -100.0, -41.0, -20.0, 0.0, 19.5, 41.0, 100.0, 1e30])
def test_powers_neither_overflow_nor_cancel_wrongly(query: float) -> None:
    keys = torch.tensor([-LARGEST_KEY, -19.0, -1.0, 0.0, 1.0, 20.0]).view(1, 6, 1)
    given = [torch.full((1, 1, 1), query, requires_grad=True), keys.requires_grad_(), torch.ones(1, requires_grad=True)]
    fast = fast_additive_scores(*given)
    torch.testing.assert_close(fast, additive_scores(*given))
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(fast.sum(), given))
