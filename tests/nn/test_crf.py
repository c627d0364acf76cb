"""Linear-chain CRFs beside every sequence written out, masks of several lengths included."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from seqloom.nn.crf import Chain, LinearChain, log_partition, marginals, sequence_scores, viterbi
from seqloom.nn.masks import length_mask

BATCH, TIME, TAGS = 3, 5, 4
LENGTHS = [5, 1, 3]


@pytest.fixture
def given() -> tuple[Tensor, Tensor, Chain]:
    torch.manual_seed(3)
    emissions = torch.randn(BATCH, TIME, TAGS, dtype=torch.float64)
    chain = Chain(*(torch.randn(*shape, dtype=torch.float64) for shape in ((TAGS, TAGS), (TAGS,), (TAGS,))))
    return emissions, length_mask(torch.tensor(LENGTHS), TIME), chain


def score_by_hand(emissions: Tensor, tags: tuple[int, ...], chain: Chain) -> float:
    total = float(chain.start[tags[0]]) + float(chain.end[tags[-1]])
    total += sum(float(emissions[time, tag]) for time, tag in enumerate(tags))
    return total + sum(float(chain.transitions[a, b]) for a, b in itertools.pairwise(tags))


def every(length: int) -> list[tuple[int, ...]]:
    return list(itertools.product(range(TAGS), repeat=length))


def test_everything_equals_all_sequences_written_out(given: tuple[Tensor, Tensor, Chain]) -> None:
    emissions, mask, chain = given
    tags = torch.randint(TAGS, (BATCH, TIME))
    scores, totals = sequence_scores(emissions, tags, mask, chain), log_partition(emissions, mask, chain)
    shares, best = marginals(emissions, mask, chain), viterbi(emissions, mask, chain)
    for row, length in enumerate(LENGTHS):
        known = tuple(tags[row, :length].tolist())
        assert float(scores[row]) == pytest.approx(score_by_hand(emissions[row], known, chain))
        by_hand = {one: score_by_hand(emissions[row], one, chain) for one in every(length)}
        total = math.log(sum(math.exp(score) for score in by_hand.values()))
        assert float(totals[row]) == pytest.approx(total)
        likeliest = max(by_hand, key=by_hand.__getitem__)
        assert tuple(best.tags[row, :length].tolist()) == likeliest
        assert float(best.scores[row]) == pytest.approx(by_hand[likeliest])
        for time in range(length):
            for tag in range(TAGS):
                share = sum(math.exp(score - total) for one, score in by_hand.items() if one[time] == tag)
                assert float(shares[row, time, tag]) == pytest.approx(share)
        assert shares[row, length:].eq(0).all()
        assert best.tags[row, length:].eq(0).all()


def test_padding_changes_nothing(given: tuple[Tensor, Tensor, Chain]) -> None:
    emissions, mask, chain = given
    noise = torch.where(mask[..., None], emissions, torch.full_like(emissions, 99.0))
    tags = torch.randint(TAGS, (BATCH, TIME))
    others = torch.where(mask, tags, (tags + 1) % TAGS)
    assert torch.equal(log_partition(emissions, mask, chain), log_partition(noise, mask, chain))
    assert torch.equal(sequence_scores(emissions, tags, mask, chain), sequence_scores(noise, others, mask, chain))
    assert torch.equal(marginals(emissions, mask, chain), marginals(noise, mask, chain))
    assert torch.equal(viterbi(emissions, mask, chain).tags, viterbi(noise, mask, chain).tags)


def test_without_transitions_it_is_a_softmax_at_each_step(given: tuple[Tensor, Tensor, Chain]) -> None:
    emissions, mask, chain = given
    none = Chain(*(torch.zeros_like(part) for part in chain))
    torch.testing.assert_close(marginals(emissions, mask, none), emissions.softmax(-1) * mask[..., None])
    torch.testing.assert_close(log_partition(emissions, mask, none), (emissions.logsumexp(-1) * mask).sum(1))


def test_gradients(given: tuple[Tensor, Tensor, Chain]) -> None:
    """By finite differences; and the gradient of log Z by the emissions are the marginals."""
    emissions, mask, chain = given
    tags = torch.randint(TAGS, (BATCH, TIME))
    parts = [part.clone().requires_grad_() for part in (emissions, *chain)]
    assert torch.autograd.gradcheck(lambda e, t, s, n: log_partition(e, mask, Chain(t, s, n)), parts)
    assert torch.autograd.gradcheck(lambda e, t, s, n: sequence_scores(e, tags, mask, Chain(t, s, n)), parts)
    (slope,) = torch.autograd.grad(log_partition(parts[0], mask, Chain(*parts[1:])).sum(), parts[0])
    torch.testing.assert_close(slope, marginals(emissions, mask, chain))


def test_narrow_emissions_are_summed_wide(given: tuple[Tensor, Tensor, Chain]) -> None:
    """bfloat16 has 8 bits: the sum over hundreds of steps would be off by whole units."""
    narrow = torch.randn(1, 300, TAGS).bfloat16()
    mask, chain = torch.ones(1, 300, dtype=torch.bool), LinearChain(TAGS).chain()
    found = log_partition(narrow, mask, chain)
    assert found.dtype == torch.float32
    exact = log_partition(narrow.double(), mask, chain)
    assert float(found) == pytest.approx(float(exact), abs=1e-2)
    assert marginals(narrow, mask, chain).sum(-1).sub(1).abs().max() < 1e-5


def test_a_forbidden_move_is_never_taken(given: tuple[Tensor, Tensor, Chain]) -> None:
    emissions, mask, chain = given
    penalty = torch.zeros(TAGS, TAGS)
    penalty[0, 1] = penalty[2] = -1e4
    tags = viterbi(emissions, mask, chain._replace(transitions=chain.transitions + penalty)).tags
    for row, length in enumerate(LENGTHS):
        for a, b in itertools.pairwise(tags[row, :length].tolist()):
            assert (a, b) != (0, 1)
            assert a != 2


def test_the_module_owns_what_neighbours_add() -> None:
    module = LinearChain(TAGS)
    assert {name: tuple(one.shape) for name, one in module.named_parameters()} == {
        "transitions": (TAGS, TAGS),
        "start": (TAGS,),
        "end": (TAGS,),
    }
