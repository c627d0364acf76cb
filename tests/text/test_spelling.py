"""Symbols spelled out, and two cuts of one text laid over each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.text.settings import TextSettings
from seqloom.text.spans import pieces_of_words
from seqloom.text.special import PAD_ID, SPECIAL
from seqloom.text.spelling import spell
from seqloom.text.tokenizers import Tokenizer
from seqloom.text.words import word_spans


def test_spelled_by_hand() -> None:
    letters, count = spell([*SPECIAL, "▁ab", "b", "▁bab"], most=3)
    assert count == 6 + len("ab▁")
    a, b, space = 6, 7, 8  # in the order of their code points
    assert letters.tolist() == [
        [0, 0, 0, 0, 0],
        [1, 3, 2, 0, 0],
        [1, 4, 2, 0, 0],
        [1, 5, 2, 0, 0],
        [1, space, a, b, 2],
        [1, b, 2, 0, 0],
        [1, space, b, a, 2],  # the fourth letter is left out
    ]


@given(st.lists(st.text(min_size=1, max_size=12), max_size=20, unique=True), st.integers(1, 8))
def test_every_symbol_is_between_its_marks(pieces: list[str], most: int) -> None:
    letters, count = spell([*SPECIAL, *pieces], most)
    assert letters.min() >= 0
    assert letters.max() < count
    assert not letters[PAD_ID].any()
    for row, piece in zip(letters[len(SPECIAL) :], pieces, strict=True):
        size = min(most, len(piece))
        assert row[0] == 1
        assert row[size + 1] == 2
        assert (row[1 : size + 1] > 5).all()
        assert not row[size + 2 :].any()
    different = {tuple(row) for row in letters.tolist()}
    assert len(different) == len({piece[:most] for piece in pieces}) + len(SPECIAL)


TEXTS = ["the cats sat on the mat .", "cats' mats, and (other) things!", "it's the cat"]
SETTINGS = {
    "word": TextSettings(tokenizer="word", vocabulary_size=None),
    "spaces": TextSettings(tokenizer="spaces", vocabulary_size=None),
    "character": TextSettings(tokenizer="character", vocabulary_size=None),
    "bpe": TextSettings(tokenizer="bpe", vocabulary_size=40),
}


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return {name: Tokenizer.train(TEXTS, settings) for name, settings in SETTINGS.items()}


def test_words_find_their_pieces(tokenizers: dict[str, Tokenizer]) -> None:
    text = "the cat's hat."
    words = tokenizers["word"].encode_detailed(text)
    assert words.words == [0, 1, 2, 3, 4]  # the cat 's hat .
    spaces = tokenizers["spaces"].encode_detailed(text)
    assert pieces_of_words(text, words, spaces) == [(0, 1), (1, 2), (1, 2), (2, 3), (2, 3)]
    assert pieces_of_words(text, spaces, words) == [(0, 1), (1, 2), (3, 4)]  # of several words, the first
    letters = tokenizers["character"].encode_detailed(text)
    assert letters.pieces == list("▁the▁cat's▁hat.")
    assert pieces_of_words(text, words, letters) == [(1, 4), (5, 8), (8, 10), (11, 14), (14, 15)]
    assert pieces_of_words(text, letters, words)[4:8] == [(1, 2)] * 4  # the space before a word belongs to it


@given(
    st.text(alphabet="abcthe' .,(é\u0301\t", max_size=40),
    st.sampled_from(sorted(SETTINGS)),
    st.sampled_from(sorted(SETTINGS)),
)
def test_ranges_touch_the_word_and_nothing_else(
    tokenizers: dict[str, Tokenizer], text: str, one: str, other: str
) -> None:
    pieces, others = tokenizers[one].encode_detailed(text), tokenizers[other].encode_detailed(text)
    words = word_spans(text)
    found = pieces_of_words(text, pieces, others)
    assert len(found) == len(pieces.ids)
    for word, (first, last) in zip(pieces.words, found, strict=True):
        start, end = words[word]
        touching = [i for i, (a, b) in enumerate(others.spans) if a < end and b > start]
        assert list(range(first, last)) == touching
    assert np.all(np.diff([last for first, last in found if last]) >= 0), "from left to right"
