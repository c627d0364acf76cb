"""The best symbols by raw logits against the plain way: log-softmax of everything, then the largest."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.decoding.beam import candidates
from seqloom.decoding.steps import GROUPS, best_of, largest
from seqloom.text.special import EOS_ID


@pytest.mark.parametrize("width", [7, 4 * GROUPS - 1, 4 * GROUPS, 4 * GROUPS + 1, 10_007])
@pytest.mark.parametrize("count", [1, 5, 10, 100])
def test_largest_is_topk(width: int, count: int) -> None:
    torch.manual_seed(width)
    values, count = torch.randn(11, width), min(count, width)
    found, columns = largest(values, count)
    expected, where = values.topk(count, -1)
    assert torch.equal(found, expected)
    assert torch.equal(columns, where)


@pytest.mark.parametrize("order", ["rising", "falling", "equal"])
def test_largest_where_neighbours_are_large(order: str) -> None:
    """All of the largest in one place, in every group, or no difference at all."""
    values = {"rising": torch.arange(5003.0), "falling": -torch.arange(5003.0), "equal": torch.zeros(5003)}[order]
    found, columns = largest(values[None].clone(), 13)
    assert torch.equal(found, values.topk(13).values[None])
    assert torch.equal(values[columns], found)
    assert len(set(columns[0].tolist())) == 13


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.sampled_from([9, 700, 5003]), st.integers(1, 7), st.integers(1, 5), st.booleans())
def test_candidates_are_those_of_the_plain_way(seed: int, symbols: int, sentences: int, width: int, full: bool) -> None:
    """The plain twin: every symbol's log probability, added to every sum, and the largest of all."""
    torch.manual_seed(seed)
    logits, totals = 3 * torch.randn(sentences * width, symbols), -5 * torch.rand(sentences, width)
    logits[:, [0, 2]] = float("-inf")
    totals[torch.rand(sentences, width) < 0.2] = float("-inf")
    at_limit = torch.rand(sentences) < 0.5 if full else torch.zeros(sentences, dtype=torch.bool)

    plain = logits.log_softmax(-1).view(sentences, width, symbols)
    others = torch.arange(symbols) != EOS_ID
    plain = plain.masked_fill(at_limit[:, None, None] & others, float("-inf"))
    expected, where = (totals[:, :, None] + plain).flatten(1).topk(2 * width, -1)

    found = candidates(totals, best_of(logits.clone(), 2 * width), at_limit, 2 * width)
    possible = ~expected.isneginf()
    assert torch.equal(possible, ~found[0].isneginf())
    torch.testing.assert_close(found[0], expected, atol=1e-5, rtol=1e-5)
    for one, two in zip(found[1:3], (where // symbols, where % symbols), strict=True):
        assert torch.equal(one[possible], two[possible])
    torch.testing.assert_close(found[3][possible], plain.flatten(1).gather(1, where)[possible], atol=1e-5, rtol=1e-5)


def test_best_of_by_hand() -> None:
    """Probabilities 1/2, 1/4, 1/8, 1/8 of four symbols, whatever is added to all logits."""
    logits = torch.tensor([[0.125, 0.5, 0.125, 0.25]]).log() + 17
    best = best_of(logits, 2)
    torch.testing.assert_close(best.log_probs.exp(), torch.tensor([[0.5, 0.25]]))
    assert best.symbols.tolist() == [[1, 3]]
    torch.testing.assert_close(best.end.exp(), torch.tensor([0.25]))  # EOS is 3
    assert EOS_ID == 3
