"""N-gram models against hand-computed values, a plain reference, NLTK, and what must hold for any text."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.errors import UserError
from seqloom.ngrams import model as model_module
from seqloom.ngrams.building import build_ngrams
from seqloom.ngrams.model import NGramModel
from seqloom.ngrams.settings import NGramSettings
from seqloom.ngrams.smoothing import FALLBACK, estimate_discounts
from seqloom.settings import check
from seqloom.text.special import BOS_ID, EOS_ID, PAD_ID, UNK_ID

A, B, C = 4, 5, 6
NUM_SYMBOLS = 9
PREDICTED = [UNK_ID, EOS_ID, *range(4, NUM_SYMBOLS)]
Sentences = list[list[int]]


def running(sentences: Sentences) -> np.ndarray:
    return np.array([word for sentence in sentences for word in [*sentence, EOS_ID]], np.int32)


def settings_of(**values: object) -> NGramSettings:
    return NGramSettings.model_validate({"kind": "ngram_lm", **values})


def chance(model: NGramModel, word: int, *context: int) -> float:
    return math.exp(model.next(np.array([[-1, *context]]))[0, word])


class Reference:
    """The formulas of Chen and Goodman 1998 on tables of tuples, as slow as they are plain."""

    def __init__(self, sentences: Sentences, values: NGramSettings) -> None:
        self.values, self.num_words = values, len(PREDICTED)
        self.raw: list[Counter[tuple[int, ...]]] = [Counter() for _ in range(values.order + 1)]
        for sentence in sentences:
            text = (BOS_ID, *sentence, EOS_ID)
            for length in range(1, values.order + 1):
                self.raw[length].update(text[i : i + length] for i in range(len(text) - length + 1))
        del self.raw[1][(BOS_ID,)]
        self.adjusted = [Counter[tuple[int, ...]]() for _ in range(values.order + 1)]
        for length in range(1, values.order + 1):
            for ngram, count in self.raw[length].items():
                if length < values.order and ngram[0] != BOS_ID:
                    count = len({longer for longer in self.raw[length + 1] if longer[1:] == ngram})
                self.adjusted[length][ngram] = count

    def discount(self, length: int, count: int) -> float:
        n = Counter(self.adjusted[length].values())
        found = FALLBACK
        if n[1] and n[2] and n[3]:
            y = n[1] / (n[1] + 2 * n[2])
            estimated = (1 - 2 * y * n[2] / n[1], 2 - 3 * y * n[3] / n[2], 3 - 4 * y * n[4] / n[3])
            found = estimated if min(estimated) > 0 else FALLBACK
        return found[min(count, 3) - 1]

    def kneser_ney(self, context: tuple[int, ...], word: int) -> float:
        shorter = self.kneser_ney(context[1:], word) if context else 1 / self.num_words
        length = len(context) + 1
        followers = {ngram: c for ngram, c in self.adjusted[length].items() if ngram[:-1] == context}
        if not followers:
            return shorter
        kept = {ngram for ngram in followers if self.raw[length][ngram] >= self.values.min_count(length)}
        seen = {ngram: followers[ngram] - self.discount(length, followers[ngram]) for ngram in kept}
        total = sum(followers.values())
        return seen.get((*context, word), 0.0) / total + (1 - sum(seen.values()) / total) * shorter

    def add_k(self, context: tuple[int, ...], word: int) -> float:
        length = len(context) + 1
        if length < self.values.order and context[:1] != (BOS_ID,):
            return 1 / self.num_words
        followers = {ngram: c for ngram, c in self.raw[length].items() if ngram[:-1] == context}
        count = self.raw[length][(*context, word)]
        total, k = sum(followers.values()), self.values.k
        dropped = sum(c for c in followers.values() if c < self.values.min_count(length))
        count = count if count >= self.values.min_count(length) else 0
        return (count + k + dropped / self.num_words) / (total + k * self.num_words)

    def chances(self, context: tuple[int, ...]) -> list[float]:
        rule = self.kneser_ney if self.values.smoothing == "kneser_ney" else self.add_k
        context = context[len(context) - self.values.order + 1 :] if len(context) >= self.values.order else context
        return [rule(context, word) for word in PREDICTED]


texts = st.lists(st.lists(st.sampled_from([UNK_ID, A, B, C, 7]), max_size=7), min_size=1, max_size=8)


@st.composite
def choices(draw: st.DrawFn) -> NGramSettings:
    order = draw(st.integers(1, 6))
    smoothing = draw(st.sampled_from(["kneser_ney", "add_k"]))
    min_counts = sorted(draw(st.lists(st.integers(1, 3), max_size=order)))
    return settings_of(order=order, smoothing=smoothing, k=draw(st.floats(1e-3, 10)), min_counts=min_counts)


def histories(sentences: Sentences) -> list[tuple[int, ...]]:
    """What is before every token of a text, from the begin of its sentence on."""
    return [(BOS_ID, *sentence[:end]) for sentence in sentences for end in range(len(sentence) + 1)]


def aligned(contexts: list[tuple[int, ...]]) -> np.ndarray:
    width = max(map(len, contexts))
    return np.array([[-1] * (width - len(context)) + list(context) for context in contexts])


def test_kneser_ney_by_hand() -> None:
    # BOS a, a b, a c, b EOS, c EOS. Before a, b, c stands 1 word, before EOS 2: 5 in all; 0.5 0.5 0.5 and 1 are taken.
    model = build_ngrams(running([[A, B], [A, C]]), settings_of(order=2), 7)
    assert model.degenerate_orders == (1, 2)
    assert chance(model, A) == pytest.approx(0.5 / 5 + 0.5 / 5)
    assert chance(model, EOS_ID) == pytest.approx(1 / 5 + 0.5 / 5)
    assert chance(model, UNK_ID) == pytest.approx(0.5 / 5)
    assert chance(model, A, BOS_ID) == pytest.approx((2 - 1) / 2 + 0.5 * 0.2)
    assert chance(model, B, A) == pytest.approx((1 - 0.5) / 2 + 0.5 * 0.2)
    assert chance(model, EOS_ID, A) == pytest.approx(0.5 * 0.3)
    assert chance(model, EOS_ID, B) == pytest.approx(0.5 + 0.5 * 0.3)
    assert chance(model, B, UNK_ID) == chance(model, B)
    assert model.num_ngrams() == [6, 5]
    assert np.exp(model.score(running([[A, B]]))) == pytest.approx([0.6, 0.35, 0.65])


def test_add_k_by_hand() -> None:
    model = build_ngrams(running([[A, B], [A, C]]), settings_of(order=3, smoothing="add_k", k=0.5), 7)
    assert model.discounts is None
    assert chance(model, A, BOS_ID) == pytest.approx(2.5 / 4.5)
    assert chance(model, B, BOS_ID, A) == pytest.approx(1.5 / 4.5)
    assert chance(model, UNK_ID, BOS_ID, A) == pytest.approx(0.5 / 4.5)
    assert chance(model, EOS_ID, A, B) == pytest.approx(1.5 / 3.5)
    assert chance(model, EOS_ID, C, B) == pytest.approx(1 / 5)


def test_discounts_by_hand() -> None:
    # n = 4, 2, 1, 1 and Y = 4 / 8
    assert estimate_discounts(np.array([1, 1, 1, 1, 2, 2, 3, 4, 9])) == pytest.approx([0.5, 1.25, 1.0])
    assert estimate_discounts(np.array([1, 1, 2])) == pytest.approx(FALLBACK)
    assert estimate_discounts(np.array([1] * 5 + [2] + [3] * 9)) == pytest.approx(FALLBACK)  # D2 would be negative


@settings(max_examples=40, deadline=None)
@given(texts, choices(), st.lists(st.lists(st.integers(4, 8), max_size=6).map(tuple), max_size=4))
def test_every_distribution_is_that_of_the_plain_reference(
    sentences: Sentences, values: NGramSettings, others: list[tuple[int, ...]]
) -> None:
    model = build_ngrams(running(sentences), values, NUM_SYMBOLS)
    reference = Reference(sentences, values)
    contexts = [(), *others, *((BOS_ID, *other) for other in others), *histories(sentences)[:12]]
    found = np.exp(model.next(aligned(contexts)))
    np.testing.assert_allclose(found[:, PREDICTED], [reference.chances(c) for c in contexts], rtol=1e-9, atol=0)


@pytest.mark.parametrize("min_counts", [[], [1, 1, 2]])
def test_a_text_whose_discounts_can_be_estimated(min_counts: list[int]) -> None:
    generator = np.random.default_rng(2)
    sentences = [(3 + generator.geometric(0.4, generator.integers(0, 9)) % 6).tolist() for _ in range(60)]
    sentences = [[word for word in sentence if word != EOS_ID] for sentence in sentences]
    values = settings_of(order=3, min_counts=min_counts)
    model = build_ngrams(running(sentences), values, NUM_SYMBOLS)
    assert 3 not in model.degenerate_orders
    assert 2 not in model.degenerate_orders
    contexts = [(BOS_ID,), (BOS_ID, A), (A, B), (B, B), (C,), (8, 7)]
    expected = [Reference(sentences, values).chances(context) for context in contexts]
    np.testing.assert_allclose(np.exp(model.next(aligned(contexts)))[:, PREDICTED], expected, rtol=1e-9)


@settings(max_examples=80, deadline=None)
@given(texts, texts, choices(), st.integers(1, 9))
def test_scores_are_what_next_says_and_sum_to_one(
    sentences: Sentences, judged: Sentences, values: NGramSettings, block: int
) -> None:
    model = build_ngrams(running(sentences), values, NUM_SYMBOLS)
    judged += sentences
    tokens = running(judged)
    distributions = model.next(aligned(histories(judged)))
    np.testing.assert_allclose(np.exp(distributions).sum(1), 1.0, rtol=1e-12)
    assert np.isneginf(distributions[:, [PAD_ID, BOS_ID]]).all()
    assert np.isfinite(distributions[:, PREDICTED]).all()
    with mock.patch.object(model_module, "TOKENS_AT_ONCE", block):
        scores = model.score(tokens)
    np.testing.assert_allclose(scores, distributions[np.arange(len(tokens)), tokens], rtol=1e-12)
    # An end is a begin: the context may be a window of the running text.
    window = np.concatenate([[EOS_ID], tokens])
    rows = np.array([window[max(0, i - 6) : i] for i in range(7, len(window))], np.int64).reshape(-1, 6)
    np.testing.assert_array_equal(model.next(rows), distributions[6 : len(tokens)])


@settings(max_examples=30, deadline=None)
@given(texts, choices(), st.lists(st.integers(0, 8), max_size=3))
def test_blocks_and_the_whole_text_give_one_model(sentences: Sentences, values: NGramSettings, cuts: list[int]) -> None:
    whole = build_ngrams(running(sentences), values, NUM_SYMBOLS).tensors()
    edges = [0, *sorted(cuts), len(sentences)]
    blocks = (running(sentences[a:b]).astype(np.int64) for a, b in itertools.pairwise(edges))
    parts = build_ngrams(blocks, values, NUM_SYMBOLS).tensors()
    assert whole.keys() == parts.keys()
    for name in whole:
        np.testing.assert_array_equal(whole[name], parts[name])


def test_rare_ngrams_are_dropped_and_their_share_goes_to_shorter_contexts() -> None:
    text = running([[A, B, C], [A, B, 7], [A, B, C]])
    full = build_ngrams(text, settings_of(order=3), NUM_SYMBOLS)
    # kept: BOS A, A B, B C, C EOS; BOS A B, A B C, B C EOS
    small = build_ngrams(text, settings_of(order=3, min_counts=[1, 2]), NUM_SYMBOLS)
    assert full.num_ngrams() == [8, 6, 5]
    assert small.num_ngrams() == [8, 4, 3]
    assert chance(small, 7, A, B) < chance(full, 7, A, B)
    # 3-grams: two occur once, two twice, one thrice, so Y = 1/3 and D2 = 1.5; that and the dropped 1, of 3 in all
    assert chance(small, 7, A, B) == pytest.approx((1.5 + 1) / 3 * chance(small, 7, B))


def test_lidstone_of_nltk_is_add_k() -> None:
    lm = pytest.importorskip("nltk.lm")
    from nltk.lm.preprocessing import padded_everygram_pipeline

    sentences = [[A, B, C], [A, B], [], [C, B, A, A, B], [UNK_ID, B]]
    for order in (2, 3, 4):
        theirs = lm.Lidstone(0.3, order)
        theirs.fit(*padded_everygram_pipeline(order, [list(map(str, sentence)) for sentence in sentences]))
        # theirs counts <s> among the words that may come: 1 more than ours, so one symbol here never occurs
        assert len(theirs.vocab) == 7
        model = build_ngrams(running(sentences), settings_of(order=order, smoothing="add_k", k=0.3), 9)
        names = {EOS_ID: "</s>", 7: "<UNK>", **{word: str(word) for word in (UNK_ID, A, B, C)}}
        for history in [*histories(sentences), (BOS_ID, B, B, B)]:
            padded = ["<s>"] * order + [names[word] for word in history[1:]]
            before = padded[len(padded) - order + 1 :]
            for word, name in names.items():
                assert chance(model, word, *history) == pytest.approx(theirs.score(name, before), rel=1e-12)


def test_progress_is_told_and_poor_discounts_too() -> None:
    told: list[tuple[float, str]] = []
    build_ngrams(running([[A]]), settings_of(order=3), NUM_SYMBOLS, lambda share, text: told.append((share, text)))
    shares = [share for share, _ in told]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert "discounts of order 1, 2, 3" in told[-1][1]


def test_what_cannot_be_text_is_refused() -> None:
    for wrong in (
        [A, B],
        [A, BOS_ID, EOS_ID],
        [PAD_ID, EOS_ID],
        [NUM_SYMBOLS, EOS_ID],
        [-1, EOS_ID],
        [[EOS_ID]],
        [0.5],
    ):
        with pytest.raises(ValueError):
            build_ngrams(np.array(wrong), settings_of(), NUM_SYMBOLS)
    with pytest.raises(UserError, match="no text"):
        build_ngrams(np.empty(0, np.int32), settings_of(), NUM_SYMBOLS)
    model = build_ngrams(running([[A]]), settings_of(), NUM_SYMBOLS)
    for ids in ([NUM_SYMBOLS], [-1], [[A]]):
        with pytest.raises(ValueError):
            model.score(np.array(ids))
    with pytest.raises(ValueError, match="-1 to 8"):
        model.next(np.array([[-2]]))
    assert model.score(np.empty(0, np.int32)).shape == (0,)
    assert model.next(np.empty((0, 3), np.int32)).shape == (0, NUM_SYMBOLS)
    np.testing.assert_array_equal(model.next(np.empty((1, 0), np.int32)), model.next(np.array([[-1]])))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"order": 7}, "order"),
        ({"k": 0}, "k"),
        ({"min_counts": [2, 1]}, "longer n-gram"),
        ({"min_counts": [0]}, "at least 1"),
        ({"order": 2, "min_counts": [1, 1, 1]}, "3 numbers for 2 orders"),
        ({"smoothing": "none"}, "smoothing must be one of add_k, kneser_ney"),
    ],
)
def test_settings_that_cannot_be(values: dict[str, object], message: str) -> None:
    found, problems = check(NGramSettings, {"kind": "ngram_lm", **values}, "model")
    assert found is None
    assert message in problems[0]
