"""BPE dropout: without a chance it is the tokenizer; with one, other pieces of the same text."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import RecipeError
from seqloom.settings import validated
from seqloom.text.recutting import CUTS_KEPT, Recutter
from seqloom.text.settings import TextSettings
from seqloom.text.tokenizers import Tokenizer

TEXTS = ["low lower lowest", "new newer newest", "wide wider widest", "slow slower slowest"] * 5
TOKENIZER = Tokenizer.train(TEXTS, TextSettings(tokenizer="bpe", vocabulary_size=60))


@given(st.text(alphabet="lowernstid abz", max_size=40))
def test_without_a_chance_it_is_the_tokenizer(text: str) -> None:
    assert Recutter(TOKENIZER, 0.0, seed=1).encode_many([text]) == [TOKENIZER.encode(text)]


@given(st.text(alphabet="lowernstid ", max_size=40), st.floats(0.0, 0.99), st.integers(0, 2**32))
def test_every_cut_is_the_same_text(text: str, rate: float, seed: int) -> None:
    [ids] = Recutter(TOKENIZER, rate, seed).encode_many([text])
    assert TOKENIZER.decode(ids) == TOKENIZER.normalise(text)


def test_the_chance_of_one_merge() -> None:
    """Of a word of two characters whose one merge is passed over with chance p, the share p stays apart."""
    tokenizer = Tokenizer.train(["a a a a"], TextSettings(tokenizer="bpe", vocabulary_size=8))
    assert tokenizer.merges() == [("▁", "a")]
    recutter = Recutter(tokenizer, 0.3, seed=5)
    cuts = Counter(len(recutter.pieces("▁a")) for _ in range(20_000))
    assert cuts[2] / 20_000 == pytest.approx(0.3, abs=0.015)  # 4.6 standard deviations


def test_the_cuts_follow_from_the_seed() -> None:
    first, same, other = (Recutter(TOKENIZER, 0.5, seed).encode_many(TEXTS) for seed in (1, 1, 2))
    assert first == same
    assert first != other


def test_a_word_met_often_keeps_many_cuts() -> None:
    recutter = Recutter(TOKENIZER, 0.5, seed=1)
    drawn = {tuple(ids) for ids in recutter.encode_many(["slowest"] * 2000)}
    assert 5 < len(drawn) <= CUTS_KEPT


def test_other_tokenizers_have_nothing_to_leave_out() -> None:
    with pytest.raises(RecipeError, match="dropout is for tokenizer bpe and does nothing for word"):
        validated(TextSettings, {"tokenizer": "word", "dropout": 0.1}, "recipe")
