"""Beam search against the enumeration of every possible answer; batches against single sentences."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from seqloom.batches.collate import Tokens, collate_sources
from seqloom.decoding.beam import coverage_bonus
from seqloom.decoding.lengths import length_normaliser
from seqloom.decoding.search import answer_sources
from seqloom.decoding.settings import DecodingSettings
from seqloom.decoding.steps import Hypothesis
from seqloom.models.encoder_decoder import EncoderDecoder, RecurrentTranslatorSettings
from seqloom.text.special import BOS_ID, EOS_ID, PAD_ID, UNK_ID

SYMBOLS = 7  # the four reserved ones and three words
SOURCES = [[4, 5, 6], [6], [5, 4, 4, 6, 5]]


def build(seed: int = 37, **given: Any) -> EncoderDecoder:
    """A random translator with opinions strong enough that answers differ."""
    torch.manual_seed(seed)
    chosen = RecurrentTranslatorSettings(
        **{"cell": "gru", "embedding_size": 5, "hidden_size": 6, "dropout": 0.4} | given
    )
    model = EncoderDecoder(chosen, source_symbols=SYMBOLS, target_symbols=SYMBOLS)
    for weight in model.parameters():
        weight.data += 0.7 * torch.randn_like(weight)
    return model.eval()


@torch.no_grad()
def enumerated(model: EncoderDecoder, source: list[int], settings: DecodingSettings) -> list[Hypothesis]:
    """Every answer within the limit, scored one by one along its own path, best first."""
    words = [UNK_ID, 4, 5, 6] if _may_be_unknown(model, settings) else [4, 5, 6]
    limit = settings.limit(len(source) + 1)
    answers = []
    for length in range(limit):
        for tokens in itertools.product(words, repeat=length):
            log_probs, looked = forced(model, source, list(tokens), settings)
            total = sum(log_probs)
            score = total / ((5 + length + 1) / 6) ** settings.length_penalty
            if settings.coverage_penalty:
                for column in range(len(source) + 1):
                    received = sum(float(row[column]) for row in looked)
                    score += settings.coverage_penalty * math.log(min(received, 1.0))
            answers.append(Hypothesis(list(tokens), total, score, log_probs))
    return sorted(answers, key=lambda h: -h.score)


def _may_be_unknown(model: EncoderDecoder, settings: DecodingSettings) -> bool:
    return settings.unknown == "keep" or (settings.unknown == "replace" and model.attends)


@torch.no_grad()
def forced(
    model: EncoderDecoder, source: list[int], tokens: list[int], settings: DecodingSettings
) -> tuple[list[float], list[Tensor]]:
    """Log probability of each symbol of an answer, EOS too, among those that may come; and where it looked."""
    state = model.start(collate_sources([source]))
    allowed = [EOS_ID, 4, 5, 6] + ([UNK_ID] if _may_be_unknown(model, settings) else [])
    log_probs, looked = [], []
    for before, after in zip([BOS_ID, *tokens], [*tokens, EOS_ID], strict=True):
        features, state, weights = model.advance(torch.tensor([before]), state)
        logits = model.output(features)[0].double()
        log_probs.append(float(logits[after] - logits[allowed].logsumexp(0)))
        if weights is not None:
            looked.append(weights[0])
    return log_probs, looked


def assert_same(found: list[Hypothesis], expected: list[Hypothesis], attention: bool = False) -> None:
    assert [h.tokens for h in found] == [h.tokens for h in expected]
    for one, two in zip(found, expected, strict=True):
        assert one.score == pytest.approx(two.score, abs=1e-4)
        assert one.log_probability == pytest.approx(two.log_probability, abs=1e-4)
        assert one.token_log_probabilities == pytest.approx(two.token_log_probabilities, abs=1e-4)
        if attention:
            assert one.finished == two.finished
            if two.attention is None:
                assert one.attention is None
            else:
                torch.testing.assert_close(one.attention, two.attention, atol=1e-5, rtol=1e-5)


# -- the penalties, by hand ------------------------------------------------------------------------------------------


def test_length_normaliser_by_hand() -> None:
    assert length_normaliser(1, 0.6) == 1
    assert length_normaliser(13, 0.0) == 1
    assert length_normaliser(7, 1.0) == 2
    assert length_normaliser(19, 0.5) == 2


def test_coverage_bonus_by_hand() -> None:
    coverage = torch.tensor([[0.5, 2.0, 1.0], [1.0, 1.0, 1.5]])
    torch.testing.assert_close(coverage_bonus(coverage, 0.3), torch.tensor([0.3 * math.log(0.5), 0.0]))
    assert coverage_bonus(torch.zeros(3), 1.0).isfinite()


# -- exhaustive ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length_penalty", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("coverage_penalty", [0.0, 0.3])
def test_a_wide_beam_finds_what_enumeration_finds(length_penalty: float, coverage_penalty: float) -> None:
    model = build(attention="dot")
    chosen = DecodingSettings(
        beam_size=257,
        n_best=19,
        length_penalty=length_penalty,
        coverage_penalty=coverage_penalty,
        early_stop=False,
        max_length=4,
    )
    found = answer_sources(model, collate_sources(SOURCES), chosen)
    for source, answers in zip(SOURCES, found, strict=True):
        assert_same(answers, enumerated(model, source, chosen)[:19])


@pytest.mark.parametrize("kind", [dict(decoder="state"), dict(cell="lstm", order="bahdanau", input_feeding=True)])
@pytest.mark.parametrize("unknown", ["keep", "forbid"])
def test_exhaustive_for_other_decoders(kind: dict[str, Any], unknown: str) -> None:
    model = build(43, **kind)
    chosen = DecodingSettings(beam_size=101, n_best=101, early_stop=False, max_length=3, unknown=unknown)
    found = answer_sources(model, collate_sources(SOURCES), chosen)
    for source, answers in zip(SOURCES, found, strict=True):
        expected = enumerated(model, source, chosen)
        assert len(answers) == len(expected) == (21 if unknown == "keep" else 13)  # all that can be said
        assert_same(answers, expected)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.6, 1.0]), st.integers(1, 3))
def test_without_early_stop_more_time_would_not_have_helped(seed: int, penalty: float, n_best: int) -> None:
    """Stopping when none could still win equals searching to the limit, for any width."""
    model = build(seed)
    given_ = dict(beam_size=3, n_best=n_best, length_penalty=penalty, early_stop=False, max_length=7)
    found = answer_sources(model, collate_sources(SOURCES), DecodingSettings(**given_))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seqloom.decoding.beam._done", lambda answers, rows, totals, time: answers.limit[rows] <= time)
        to_the_end = answer_sources(model, collate_sources(SOURCES), DecodingSettings(**given_))
    for one, two in zip(found, to_the_end, strict=True):
        assert_same(one, two)


class Rows(NamedTuple):
    """A state with one number a hypothesis, and nothing of the source."""

    values: Tensor

    def follow(self, rows: Tensor, sentences: Tensor | None = None) -> Rows:
        return Rows(self.values[rows])


class Script:
    """A model that knows two symbols, 4 and EOS, and how likely EOS is at each step."""

    attends = False

    def __init__(self, *ends: float) -> None:
        self.output = nn.Linear(SYMBOLS, SYMBOLS, bias=False)
        self.output.weight.data = torch.eye(SYMBOLS)
        self.ends = torch.tensor(ends)

    def start(self, batch: Tokens) -> Rows:
        return Rows(torch.zeros(len(batch), dtype=torch.long))

    def advance(self, tokens: Tensor, state: Rows, *, attention: bool = True) -> tuple[Tensor, Rows, None]:
        logits = torch.full((len(tokens), SYMBOLS), -1e9)
        ends = self.ends[state.values]
        logits[:, EOS_ID], logits[:, 4] = ends.log(), (1 - ends).log()
        return logits, Rows(state.values + 1), None


@pytest.mark.parametrize(("early_stop", "length"), [(True, 0), (False, 6)])
def test_a_longer_answer_may_still_win(early_stop: bool, length: int) -> None:
    """An empty answer has log 0.51; six symbols have less, but divided by (5 + 7) / 6 = 2 they win."""
    model = Script(0.51, *[0.01] * 5, 0.99, *[0.5] * 5)
    chosen = DecodingSettings(beam_size=1, length_penalty=1.0, early_stop=early_stop, max_length=12)
    ((found,),) = answer_sources(model, collate_sources([[4]]), chosen)
    assert found.tokens == [4] * length
    total = math.log(0.49) + 5 * math.log(0.99) + math.log(0.99) if length else math.log(0.51)
    assert found.log_probability == pytest.approx(total, abs=1e-5)
    assert found.score == pytest.approx(total / (2 if length else 1), abs=1e-5)


# -- against the other searches, and against itself ------------------------------------------------------------------


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.booleans())
def test_a_beam_of_one_is_greedy(seed: int, early_stop: bool) -> None:
    model, batch = build(seed), collate_sources(SOURCES)
    beam = DecodingSettings(beam_size=1, length_penalty=0, early_stop=early_stop, max_length=11)
    greedy = DecodingSettings(method="greedy", max_length=11)
    for one, two in zip(answer_sources(model, batch, beam), answer_sources(model, batch, greedy), strict=True):
        assert_same(one, two)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.3]), st.sampled_from(["attention", "state"]))
def test_batched_equals_one_by_one(seed: int, coverage: float, decoder: str) -> None:
    model = build(seed, decoder=decoder)
    chosen = DecodingSettings(beam_size=3, n_best=2, coverage_penalty=coverage, max_length=9)
    together = answer_sources(model, collate_sources(SOURCES), chosen, keep_attention=True)
    for source, answers in zip(SOURCES, together, strict=True):
        assert_same(
            answers, answer_sources(model, collate_sources([source]), chosen, keep_attention=True)[0], attention=True
        )


@pytest.mark.parametrize("beam_size", [1, 2, 5])
def test_numbers_are_consistent_with_the_model(beam_size: int) -> None:
    model = build()
    chosen = DecodingSettings(beam_size=beam_size, n_best=2, max_length=9, length_penalty=0.6)
    for source, answers in zip(SOURCES, answer_sources(model, collate_sources(SOURCES), chosen), strict=True):
        assert [h.score for h in answers] == sorted((h.score for h in answers), reverse=True)
        for hypothesis in answers:
            log_probs, _ = forced(model, source, hypothesis.tokens, chosen)
            assert hypothesis.token_log_probabilities == pytest.approx(log_probs, abs=1e-4)
            assert hypothesis.log_probability == pytest.approx(sum(log_probs), abs=1e-4)
            normaliser = ((6 + len(hypothesis.tokens)) / 6) ** 0.6
            assert hypothesis.score == pytest.approx(sum(log_probs) / normaliser, abs=1e-4)


def test_answers_of_a_sentence_are_all_different() -> None:
    found = answer_sources(build(), collate_sources(SOURCES), DecodingSettings(beam_size=11, n_best=11, max_length=6))
    for answers in found:
        assert len(answers) == 11
        assert len({tuple(h.tokens) for h in answers}) == 11


@pytest.mark.parametrize("source", SOURCES)
def test_attention_is_one_row_a_symbol_and_the_end(source: list[int]) -> None:
    model = build()
    chosen = DecodingSettings(beam_size=3, n_best=3, max_length=8)
    batch = collate_sources([*SOURCES, source])
    for hypothesis in answer_sources(model, batch, chosen, keep_attention=True)[-1]:
        _, looked = forced(model, source, hypothesis.tokens, chosen)
        assert hypothesis.attention.shape == (len(hypothesis.tokens) + 1, len(source) + 1)
        torch.testing.assert_close(hypothesis.attention.sum(-1), torch.ones(len(hypothesis.tokens) + 1))
        torch.testing.assert_close(hypothesis.attention, torch.stack(looked), atol=1e-5, rtol=1e-5)


def test_no_attention_where_there_is_none() -> None:
    chosen = DecodingSettings(beam_size=3, max_length=8, coverage_penalty=0.3)
    for (hypothesis,) in answer_sources(build(decoder="state"), collate_sources(SOURCES), chosen, keep_attention=True):
        assert hypothesis.attention is None


# -- limits and symbols ----------------------------------------------------------------------------------------------


def biased(*symbols: int, **given: Any) -> EncoderDecoder:
    """A model that very much prefers certain symbols."""
    model = build(**given)
    model.output.bias.data[list(symbols)] += 50.0
    return model


@pytest.mark.parametrize("method", ["beam", "greedy", "sample"])
@pytest.mark.parametrize("max_length", [1, 2, 5])
def test_the_limit_holds_end_symbol_included(method: str, max_length: int) -> None:
    chosen = DecodingSettings(method=method, max_length=max_length, n_best=1)
    for (hypothesis,) in answer_sources(biased(4), collate_sources(SOURCES), chosen):
        assert hypothesis.tokens == [4] * (max_length - 1)
        assert not hypothesis.finished
        assert len(hypothesis.token_log_probabilities) == max_length


@pytest.mark.parametrize("method", ["beam", "greedy", "sample"])
def test_the_limit_grows_with_the_source(method: str) -> None:
    chosen = DecodingSettings(method=method, max_ratio=2.0, early_stop=False)
    assert chosen.limit(7) == 24
    assert DecodingSettings(max_length=13).limit(7) == 13
    for source, (hypothesis,) in zip(SOURCES, answer_sources(biased(4), collate_sources(SOURCES), chosen), strict=True):
        assert len(hypothesis.tokens) + 1 == 2 * (len(source) + 1) + 10


@pytest.mark.parametrize("method", ["beam", "greedy", "sample"])
@pytest.mark.parametrize(
    ("unknown", "decoder", "comes"),
    [
        ("keep", "attention", True),
        ("keep", "state", True),
        ("replace", "attention", True),
        ("replace", "state", False),
        ("forbid", "attention", False),
        ("forbid", "state", False),
    ],
)
def test_which_symbols_never_come(method: str, unknown: str, decoder: str, comes: bool) -> None:
    model = biased(PAD_ID, BOS_ID, UNK_ID, decoder=decoder)
    chosen = DecodingSettings(method=method, unknown=unknown, max_length=5, beam_size=3)
    for (hypothesis,) in answer_sources(model, collate_sources(SOURCES), chosen):
        assert not {PAD_ID, BOS_ID, EOS_ID} & set(hypothesis.tokens)
        assert (UNK_ID in hypothesis.tokens) == comes
        assert math.isfinite(hypothesis.score)


@pytest.mark.parametrize("method", ["beam", "greedy", "sample"])
def test_an_answer_may_be_empty(method: str) -> None:
    for (hypothesis,) in answer_sources(biased(EOS_ID), collate_sources(SOURCES), DecodingSettings(method=method)):
        assert hypothesis.tokens == []
        assert hypothesis.finished
        assert hypothesis.log_probability == pytest.approx(0, abs=1e-4)


@pytest.mark.parametrize("method", ["beam", "greedy", "sample"])
def test_nothing_asked_nothing_answered(method: str) -> None:
    empty = Tokens(torch.empty(0, 3, dtype=torch.long), torch.empty(0, dtype=torch.long))
    assert answer_sources(build(cell="lstm_coupled"), empty, DecodingSettings(method=method)) == []
