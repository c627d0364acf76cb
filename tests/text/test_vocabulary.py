"""The token table: order, size, reserved symbols."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import UserError
from seqloom.text.special import EOS, PAD, SPECIAL, UNK, UNK_ID
from seqloom.text.vocabulary import Vocabulary

COUNTS = {"b": 2, "a": 2, "the": 7, "é": 1, "z": 1}
counts_of_anything = st.dictionaries(st.text(max_size=4) | st.sampled_from(SPECIAL), st.integers(1, 20), max_size=20)


def test_order_is_by_count_then_by_character() -> None:
    assert list(Vocabulary.build(COUNTS)) == [*SPECIAL, "the", "a", "b", "z", "é"]


def test_size_counts_the_reserved_symbols() -> None:
    assert list(Vocabulary.build(COUNTS, size=6)) == [*SPECIAL, "the", "a"]
    assert len(Vocabulary.build(COUNTS, size=100)) == 9


def test_min_frequency() -> None:
    assert list(Vocabulary.build(COUNTS, min_frequency=2)) == [*SPECIAL, "the", "a", "b"]


def test_ids_and_unknown() -> None:
    vocabulary = Vocabulary.build(COUNTS)
    assert vocabulary.ids(["a", "nothing", "the"]) == [5, UNK_ID, 4]
    assert vocabulary["the"] == 4
    assert vocabulary["nothing"] == UNK_ID
    assert "the" in vocabulary
    assert "nothing" not in vocabulary
    assert vocabulary.tokens([0, 4, 1]) == [PAD, "the", UNK]


def test_a_reserved_symbol_in_the_data_is_an_unknown_word() -> None:
    vocabulary = Vocabulary.build({EOS: 50, "a": 1})
    assert list(vocabulary) == [*SPECIAL, "a"]
    assert vocabulary.ids([EOS, PAD, "a"]) == [UNK_ID, UNK_ID, 4]
    assert EOS not in vocabulary


def test_unknown_share_counts_occurrences() -> None:
    vocabulary = Vocabulary.build(COUNTS, size=5)
    assert vocabulary.unknown_share({"the": 3, "a": 1}) == 0.25
    assert vocabulary.unknown_share({}) == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"counts": COUNTS, "size": 4}, "make the size 5 or more"),
        ({"counts": COUNTS, "min_frequency": 0}, "min_frequency must be 1 or more; got 0"),
        ({"counts": COUNTS, "min_frequency": 8}, "lower min_frequency"),
        ({"counts": {}}, "the data is empty"),
    ],
)
def test_errors_name_the_remedy(arguments: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Vocabulary.build(**arguments)


def test_no_token_twice_and_no_reserved_symbol() -> None:
    with pytest.raises(UserError, match="'b' is there twice"):
        Vocabulary(["a", "b", "b"])
    with pytest.raises(UserError, match="reserved"):
        Vocabulary(["a", EOS])


@pytest.mark.parametrize("index", [-1, 9])
def test_an_id_outside_the_table(index: int) -> None:
    with pytest.raises(UserError, match=f"no token {index}; this vocabulary has ids 0 to 8"):
        Vocabulary.build(COUNTS).tokens([index])


@given(counts_of_anything, st.integers(5, 30), st.integers(1, 5))
def test_properties(counts: dict[str, int], size: int, min_frequency: int) -> None:
    eligible = {token for token, count in counts.items() if count >= min_frequency and token not in SPECIAL}
    if not eligible:
        with pytest.raises(UserError):
            Vocabulary.build(counts, size=size, min_frequency=min_frequency)
        return
    vocabulary = Vocabulary.build(counts, size=size, min_frequency=min_frequency)
    kept = list(vocabulary)[4:]
    assert len(kept) == min(len(eligible), size - 4)
    assert set(kept) <= eligible
    assert vocabulary.ids(kept) == list(range(4, len(vocabulary)))
    assert vocabulary.tokens(range(len(vocabulary))) == list(vocabulary)
    left_out = eligible - set(kept)
    assert all((-counts[last], last) <= (-counts[out], out) for last in kept[-1:] for out in left_out)
    shuffled = dict(sorted(counts.items(), reverse=True))
    assert Vocabulary.build(shuffled, size=size, min_frequency=min_frequency) == vocabulary
