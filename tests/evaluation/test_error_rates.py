"""Error rates by hand, by the laws of a distance, and against jiwer."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from seqloom.evaluation.error_rates import (
    character_error_rate,
    edit_distance,
    phone_error_rate,
    sequence_error_rate,
    word_error_rate,
)
from seqloom.evaluation.metrics import exact_match

SYMBOLS = st.lists(st.sampled_from("abc"), max_size=12)
TEXT = st.lists(st.sampled_from(["a", "A", "bc", "été", "d"]), max_size=6).map(" ".join)
CORPUS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("ours", "theirs", "distance"),
    [
        ("kitten", "sitting", 3),
        ("intention", "execution", 5),
        ("", "", 0),
        ("", "abc", 3),
        ("abc", "", 3),
        ("ab", "ba", 2),  # two neighbours in the wrong order are two edits
        ("aXbYc", "abc", 2),
        ("aaaa", "aa", 2),
        (["the", "cat"], ["the", "black", "cat"], 1),
        ([1, 2, 3], (2, 3, 4), 2),
    ],
)
def test_distances_by_hand(ours: Sequence[str], theirs: Sequence[str], distance: int) -> None:
    assert edit_distance(ours, theirs) == distance


@given(SYMBOLS, SYMBOLS, SYMBOLS)
def test_the_laws_of_a_distance(first: list[str], second: list[str], third: list[str]) -> None:
    distance = edit_distance(first, second)
    assert distance == edit_distance(second, first)
    assert (distance == 0) == (first == second)
    assert distance <= edit_distance(first, third) + edit_distance(third, second)
    assert abs(len(first) - len(second)) <= distance <= max(len(first), len(second))
    assert distance == edit_distance(first[::-1], second[::-1])


@given(SYMBOLS, SYMBOLS)
def test_the_textbook_recursion_gives_the_same(first: list[str], second: list[str]) -> None:
    table = [[max(i, j) for j in range(len(second) + 1)] for i in range(len(first) + 1)]
    for i, ours in enumerate(first, 1):
        for j, theirs in enumerate(second, 1):
            table[i][j] = min(table[i - 1][j] + 1, table[i][j - 1] + 1, table[i - 1][j - 1] + (ours != theirs))
    assert edit_distance(first, second) == table[-1][-1]


def test_long_sequences_against_rapidfuzz() -> None:
    levenshtein = pytest.importorskip("rapidfuzz.distance").Levenshtein
    numbers = random.Random(5)
    for _ in range(20):
        first, second = (numbers.choices(range(40), k=numbers.randrange(600)) for _ in range(2))
        assert edit_distance(first, second) == levenshtein.distance(first, second)


def test_rates_by_hand() -> None:
    references = ["the cat sat on the mat", "a dog"]
    hypotheses = ["the cat sit on mat", "a big dog"]  # substitution and deletion; insertion
    assert word_error_rate(hypotheses, references) == pytest.approx(100 * 3 / 8)
    assert word_error_rate(["ab"], ["ab cd"]) == 50.0
    assert word_error_rate(["x y z w"], ["x"]) == 300.0
    assert character_error_rate(["abd"], ["abc"]) == pytest.approx(100 / 3)
    assert character_error_rate(["ab"], ["a b"]) == pytest.approx(100 / 3)  # the space is one of three characters
    assert phone_error_rate(["k ae t"], ["k a t"]) == pytest.approx(100 / 3)
    assert phone_error_rate(["s"], ["S"]) == 100.0
    assert sequence_error_rate(["k ae t", "d o g", "a"], ["k a t", "d o g", "b"]) == pytest.approx(200 / 3)


def test_white_space_and_case() -> None:
    assert word_error_rate(["  a \t b "], ["a b"]) == 0.0
    assert character_error_rate(["  a \t b "], ["a b"]) == 0.0
    assert sequence_error_rate(["  a \t b "], ["a b"]) == 0.0
    for rate in (word_error_rate, character_error_rate, phone_error_rate, sequence_error_rate):
        assert rate(["É"], ["é"]) == 100.0
        assert rate(["É"], ["é"], lowercase=True) == 0.0


@pytest.mark.parametrize("rate", [word_error_rate, character_error_rate, phone_error_rate])
def test_references_that_say_nothing(rate: Callable[[Sequence[str], Sequence[str]], float]) -> None:
    assert rate(["", "  "], ["", ""]) == 0.0
    assert rate(["", "a b"], ["", " "]) == 100.0
    assert rate(["a", "b"], ["", "b"]) == 100.0  # one insertion for one symbol
    assert rate(["", ""], ["a", "b"]) == 100.0


@given(CORPUS)
def test_rates_stay_within_their_bounds(corpus: list[tuple[str, str]]) -> None:
    hypotheses, references = [ours for ours, _ in corpus], [theirs for _, theirs in corpus]
    for rate in (word_error_rate, character_error_rate, phone_error_rate, sequence_error_rate):
        assert rate(references, references) == 0.0
        found = rate(hypotheses, references)
        assert found >= 0.0
        assert (found == 0.0) == (hypotheses == references)
    assert sequence_error_rate(hypotheses, references) == pytest.approx(100 - exact_match(hypotheses, references))
    assert phone_error_rate(hypotheses, references) == word_error_rate(hypotheses, references)
    assert word_error_rate(hypotheses, references, lowercase=True) <= word_error_rate(hypotheses, references)
    if any(references):
        assert word_error_rate([""] * len(references), references) == 100.0


@given(CORPUS)
def test_equal_to_jiwer(corpus: list[tuple[str, str]]) -> None:
    jiwer = pytest.importorskip("jiwer")
    hypotheses, references = [ours for ours, _ in corpus], [theirs for _, theirs in corpus]
    assume(any(references))
    assert word_error_rate(hypotheses, references) == pytest.approx(100 * jiwer.wer(references, hypotheses))
    assert character_error_rate(hypotheses, references) == pytest.approx(100 * jiwer.cer(references, hypotheses))


@pytest.mark.parametrize("rate", [word_error_rate, character_error_rate, phone_error_rate, sequence_error_rate])
def test_our_own_mistakes_fail_at_once(rate: Callable[[Sequence[str], Sequence[str]], float]) -> None:
    with pytest.raises(AssertionError, match="1 hypotheses, 2 references"):
        rate(["a"], ["a", "b"])
    with pytest.raises(AssertionError, match="empty"):
        rate([], [])
