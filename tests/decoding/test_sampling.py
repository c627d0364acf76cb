"""Greedy and sampled answers: the filter by hand, frequencies by counting, draws that belong to a sentence."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from seqloom.batches.collate import Tokens, collate_pairs, collate_sources
from seqloom.decoding.sampling import keep_likely
from seqloom.decoding.search import answer_sources
from seqloom.decoding.settings import DecodingSettings
from seqloom.decoding.steps import Hypothesis
from seqloom.models.encoder_decoder import EncoderDecoder, RecurrentTranslatorSettings
from seqloom.text.special import BOS_ID, EOS_ID, PAD_ID

SYMBOLS = 7
SOURCES = [[4, 5, 6], [6], [5, 4, 4, 6, 5]]


def build(seed: int = 41, **given: Any) -> EncoderDecoder:
    torch.manual_seed(seed)
    chosen = RecurrentTranslatorSettings(**{"cell": "lstm", "embedding_size": 5, "hidden_size": 6} | given)
    model = EncoderDecoder(chosen, source_symbols=SYMBOLS, target_symbols=SYMBOLS)
    for weight in model.parameters():
        weight.data += 0.7 * torch.randn_like(weight)
    return model.eval()


class Dice:
    """A model whose every step is one given distribution, whatever it reads: its features are the logits."""

    attends = False

    def __init__(self, probabilities: dict[int, float]) -> None:
        self.output = nn.Linear(SYMBOLS, SYMBOLS, bias=False)
        self.output.weight.data = torch.eye(SYMBOLS)
        self.logits = torch.full((SYMBOLS,), -1e9)
        for symbol, probability in probabilities.items():
            self.logits[symbol] = math.log(probability)

    def start(self, batch: Tokens) -> Dice:
        return self

    def follow(self, rows: Tensor, sentences: Tensor | None = None) -> Dice:
        return self

    def advance(self, tokens: Tensor, state: Dice, *, attention: bool = True) -> tuple[Tensor, Dice, None]:
        return self.logits.expand(len(tokens), -1).clone(), state, None


def assert_same(found: list[Hypothesis], expected: list[Hypothesis]) -> None:
    assert [h.tokens for h in found] == [h.tokens for h in expected]
    for one, two in zip(found, expected, strict=True):
        assert one.score == pytest.approx(two.score, abs=1e-4)
        assert one.token_log_probabilities == pytest.approx(two.token_log_probabilities, abs=1e-4)
        assert one.finished == two.finished
        torch.testing.assert_close(one.attention, two.attention, atol=1e-5, rtol=1e-5)


# -- the filter, by hand ---------------------------------------------------------------------------------------------

HALF = torch.tensor([[0.1, 0.4, 0.2, 0.3]]).log()


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "expected"),
    [
        (1.0, 0, 1.0, [0.1, 0.4, 0.2, 0.3]),
        (1.0, 9, 1.0, [0.1, 0.4, 0.2, 0.3]),
        (1.0, 1, 1.0, [0, 1, 0, 0]),
        (1.0, 3, 1.0, [0, 4 / 9, 2 / 9, 3 / 9]),
        (1.0, 0, 0.39, [0, 1, 0, 0]),
        (1.0, 0, 0.5, [0, 4 / 7, 0, 3 / 7]),  # 0.4 is not enough, 0.7 is
        (1.0, 0, 0.75, [0, 4 / 9, 2 / 9, 3 / 9]),
        (1.0, 0, 1e-9, [0, 1, 0, 0]),
        (1.0, 2, 0.5, [0, 1, 0, 0]),  # of the two kept, the first has 4/7 already
        (0.5, 0, 1.0, [1 / 30, 16 / 30, 4 / 30, 9 / 30]),
        (0.5, 2, 1.0, [0, 16 / 25, 0, 9 / 25]),
        (0.5, 0, 0.6, [0, 16 / 25, 0, 9 / 25]),
    ],
)
def test_keep_likely_by_hand(temperature: float, top_k: int, top_p: float, expected: list[float]) -> None:
    found = keep_likely(HALF, temperature, top_k, top_p).exp()
    torch.testing.assert_close(found, torch.tensor([expected], dtype=torch.float32))


def test_keep_likely_rows_are_independent() -> None:
    torch.manual_seed(47)
    rows = torch.randn(5, 11).log_softmax(-1)
    together = keep_likely(rows, 0.7, 5, 0.8)
    for row in range(5):
        torch.testing.assert_close(keep_likely(rows[row : row + 1], 0.7, 5, 0.8)[0], together[row])
    torch.testing.assert_close(together.exp().sum(-1), torch.ones(5))


def test_what_is_forbidden_stays_forbidden() -> None:
    scores = torch.tensor([[float("-inf"), 0.0, -1.0, float("-inf")]]).log_softmax(-1)
    for top_k, top_p in [(0, 1.0), (3, 1.0), (0, 0.99), (1, 0.5)]:
        found = keep_likely(scores, 2.0, top_k, top_p).exp()
        assert found[0, 0] == found[0, 3] == 0
        assert not found.isnan().any()


# -- drawing ---------------------------------------------------------------------------------------------------------


def first_symbols(chosen: DecodingSettings, draws: int) -> Counter[int]:
    """What a die shows, over many sentences of one symbol each."""
    model = Dice({4: 0.5, 5: 0.2, 6: 0.1, EOS_ID: 0.2})
    batch = Tokens(torch.full((draws, 1), EOS_ID), torch.ones(draws, dtype=torch.long))
    return Counter(h.tokens[0] if h.tokens else EOS_ID for (h,) in answer_sources(model, batch, chosen))


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, {4: 0.5, 5: 0.2, 6: 0.1, EOS_ID: 0.2}),
        (dict(top_k=1), {4: 1.0}),
        (dict(top_p=0.45), {4: 1.0}),
        (dict(temperature=0.5), {4: 25 / 34, 5: 4 / 34, 6: 1 / 34, EOS_ID: 4 / 34}),
    ],
)
def test_frequencies_match_probabilities(more: dict[str, Any], expected: dict[int, float]) -> None:
    draws = 3_001
    seen = first_symbols(DecodingSettings(method="sample", max_length=2, seed=11, **more), draws)
    assert set(seen) == set(expected)
    chi_square = sum((seen[s] - draws * p) ** 2 / (draws * p) for s, p in expected.items())
    assert chi_square < 20  # 3 degrees of freedom: exceeded once in 6,000 tries, and the seed is fixed


def test_draws_of_one_sentence_match_probabilities_too() -> None:
    """One sentence asked for many answers: the draws must be independent of each other."""
    model, draws = Dice({4: 0.5, 5: 0.3, EOS_ID: 0.2}), 499
    batch = collate_sources([[4]])
    (answers,) = answer_sources(model, batch, DecodingSettings(method="sample", n_best=draws, max_length=3, seed=3))
    seen = Counter(h.tokens[0] if h.tokens else EOS_ID for h in answers)
    second = Counter(h.tokens[1] if len(h.tokens) > 1 else EOS_ID for h in answers if h.tokens)
    for counts in (seen, second):
        total = sum(counts.values())
        assert sum((counts[s] - total * p) ** 2 / (total * p) for s, p in {4: 0.5, 5: 0.3, EOS_ID: 0.2}.items()) < 18


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000), st.permutations(range(3)), st.integers(-5, 2**62))
def test_a_sentence_keeps_its_draws_whatever_shares_its_batch(model_seed: int, order: list[int], seed: int) -> None:
    model = build(model_seed)
    chosen = DecodingSettings(method="sample", n_best=2, max_length=9, seed=seed)
    together = answer_sources(model, collate_sources(SOURCES), chosen, keep_attention=True)
    shuffled = answer_sources(
        model, collate_sources([SOURCES[i] for i in order]), chosen, keep_attention=True, numbers=order
    )
    for place, number in enumerate(order):
        alone = answer_sources(model, collate_sources([SOURCES[number]]), chosen, keep_attention=True, numbers=[number])
        assert_same(alone[0], together[number])
        assert_same(shuffled[place], together[number])


def test_seeds_sentences_and_draws_differ() -> None:
    model, batch = build(), collate_sources([SOURCES[2]] * 5)

    def answers(seed: int) -> list[list[list[int]]]:
        chosen = DecodingSettings(method="sample", seed=seed, n_best=3, max_length=13, temperature=2.0)
        return [[h.tokens for h in found] for found in answer_sources(model, batch, chosen)]

    assert answers(1) == answers(1)
    assert answers(1) != answers(2)
    assert len({tuple(tokens) for found in answers(1) for tokens in found}) > 7  # of fifteen


def test_sampling_leaves_the_global_generator_alone() -> None:
    model = build()
    torch.manual_seed(53)
    before = torch.get_rng_state()
    answer_sources(model, collate_sources(SOURCES), DecodingSettings(method="sample", max_length=5))
    assert torch.equal(torch.get_rng_state(), before)


def test_top_k_of_one_is_greedy() -> None:
    model, batch = build(), collate_sources(SOURCES)
    greedy = answer_sources(model, batch, DecodingSettings(method="greedy", max_length=9), keep_attention=True)
    sharp = DecodingSettings(method="sample", top_k=1, max_length=9)
    for one, two in zip(answer_sources(model, batch, sharp, keep_attention=True), greedy, strict=True):
        assert_same(one, two)


# -- greedy ----------------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000))
def test_greedy_batched_equals_one_by_one(seed: int) -> None:
    model, chosen = build(seed), DecodingSettings(method="greedy", max_length=9)
    together = answer_sources(model, collate_sources(SOURCES), chosen, keep_attention=True)
    for source, answers in zip(SOURCES, together, strict=True):
        assert_same(answer_sources(model, collate_sources([source]), chosen, keep_attention=True)[0], answers)


@pytest.mark.parametrize("method", ["greedy", "sample"])
def test_numbers_agree_with_a_forced_pass(method: str) -> None:
    """The likelihoods an answer carries are the model's own, before temperature and filters."""
    model = build()
    chosen = DecodingSettings(method=method, max_length=9, temperature=0.8, top_k=3)
    found = [h for (h,) in answer_sources(model, collate_sources(SOURCES), chosen, keep_attention=True)]
    batch = collate_pairs(SOURCES, [h.tokens for h in found])
    with torch.no_grad():
        logits = model.output(model(batch))
        logits[..., [PAD_ID, BOS_ID]] = float("-inf")
        scores, weights = logits.log_softmax(-1), model.align(batch)
    for row, (source, hypothesis) in enumerate(zip(SOURCES, found, strict=True)):
        steps = len(hypothesis.tokens) + 1
        expected = scores[row, range(steps), [*hypothesis.tokens, EOS_ID]]
        assert hypothesis.token_log_probabilities == pytest.approx(expected.tolist(), abs=1e-4)
        assert hypothesis.log_probability == pytest.approx(float(expected.sum()), abs=1e-4)
        assert hypothesis.score == hypothesis.log_probability
        assert hypothesis.attention.shape == (steps, len(source) + 1)
        torch.testing.assert_close(hypothesis.attention.sum(-1), torch.ones(steps))
        torch.testing.assert_close(hypothesis.attention, weights[row, :steps, : len(source) + 1], atol=1e-5, rtol=1e-5)
        if method == "greedy" and hypothesis.finished:
            assert scores[row, :steps].argmax(-1).tolist() == [*hypothesis.tokens, EOS_ID]


def test_attention_is_kept_only_when_asked_for() -> None:
    for method in ("greedy", "sample", "beam"):
        chosen = DecodingSettings(method=method, max_length=5)
        assert all(h.attention is None for (h,) in answer_sources(build(), collate_sources(SOURCES), chosen))
