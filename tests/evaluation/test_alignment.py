"""Alignments against values computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import UserError
from seqloom.evaluation.alignment import alignment_error_rate, links_from_attention, words_from_pieces

LINKS = st.sets(st.tuples(st.integers(0, 4), st.integers(0, 6)), max_size=8)


def test_aer_by_hand() -> None:
    # |A|=3, |S|=2, |A∩S|=1, |A∩P|=2 (P always includes S): 1 - (1 + 2) / (3 + 2)
    predicted, sure, possible = [{(0, 0), (1, 1), (2, 2)}], [{(0, 0), (1, 2)}], [{(1, 1)}]
    assert alignment_error_rate(predicted, sure, possible) == pytest.approx(1 - 3 / 5)
    # Without possible links: 1 - (1 + 1) / 5
    assert alignment_error_rate(predicted, sure) == pytest.approx(1 - 2 / 5)


def test_aer_sums_over_the_corpus_before_dividing() -> None:
    predicted = [{(0, 0)}, {(0, 0), (1, 1), (2, 2)}]
    gold = [{(0, 1)}, {(0, 0), (1, 1), (2, 2)}]
    # (0 + 0 + 3 + 3) / (1 + 1 + 3 + 3); the mean over sentences would be 0.5
    assert alignment_error_rate(predicted, gold) == pytest.approx(0.25)


def test_aer_without_any_link() -> None:
    assert alignment_error_rate([set()], [set()]) == 0.0
    assert alignment_error_rate([set()], [{(0, 0)}]) == 1.0


@given(st.lists(st.tuples(LINKS, LINKS, LINKS), min_size=1, max_size=4))
def test_aer_is_a_fraction_and_perfect_on_itself(corpus: list[tuple[set, set, set]]) -> None:
    predicted, gold, possible = (list(column) for column in zip(*corpus, strict=True))
    assert -1e-12 <= alignment_error_rate(predicted, gold, possible) <= alignment_error_rate(predicted, gold) <= 1
    assert alignment_error_rate(gold, gold, possible) == 0.0


def test_aer_needs_one_gold_alignment_per_sentence() -> None:
    with pytest.raises(AssertionError, match="2 predicted alignments, 1 gold"):
        alignment_error_rate([set(), set()], [set()])


WEIGHTS = np.array([[0.1, 0.7, 0.2], [0.45, 0.1, 0.45], [0.0, 0.0, 0.0], [0.2, 0.3, 0.5]])


def test_argmax_links() -> None:
    # (source, target); row 1 ties and takes the first, row 2 looked at nothing.
    assert links_from_attention(WEIGHTS) == {(1, 0), (0, 1), (2, 3)}
    assert links_from_attention(WEIGHTS, threshold=0.5) == {(1, 0), (2, 3)}


def test_threshold_links() -> None:
    found = links_from_attention(WEIGHTS, method="threshold", threshold=0.3)
    assert found == {(1, 0), (0, 1), (2, 1), (1, 3), (2, 3)}
    assert links_from_attention(WEIGHTS, method="threshold", threshold=0.0) >= found
    assert all(target != 2 for _, target in links_from_attention(WEIGHTS, method="threshold", threshold=0.0))


def test_links_are_plain_integers_and_empty_input_is_fine() -> None:
    assert all(type(part) is int for link in links_from_attention(WEIGHTS) for part in link)
    assert links_from_attention(np.zeros((0, 3))) == set()
    assert links_from_attention(np.zeros((3, 0))) == set()


def test_link_options_are_checked() -> None:
    with pytest.raises(UserError, match="needs a threshold"):
        links_from_attention(WEIGHTS, method="threshold")
    with pytest.raises(UserError, match="method must be one of argmax, threshold"):
        links_from_attention(WEIGHTS, method="argmin")  # type: ignore[arg-type]
    with pytest.raises(AssertionError, match="3 axes"):
        links_from_attention(WEIGHTS[None])


def test_words_from_pieces_by_hand() -> None:
    # source: word 0 = pieces 0, 1; word 1 = piece 2; the end mark is dropped. target: word 0 = pieces 0, 1; word 1.
    weights = [
        [0.5, 0.3, 0.1, 0.1],
        [0.1, 0.1, 0.6, 0.2],
        [0.2, 0.1, 0.3, 0.4],
        [0.0, 0.0, 0.0, 1.0],
    ]
    found = words_from_pieces(weights, [0, 0, 1, -1], [0, 0, 1, -1])
    np.testing.assert_allclose(found, [[(0.8 + 0.2) / 2, (0.1 + 0.6) / 2], [0.3, 0.3]])


def test_words_without_pieces_get_zeros() -> None:
    found = words_from_pieces([[0.4, 0.6]], [1], [0, 2])
    np.testing.assert_allclose(found, [[0, 0, 0], [0.4, 0, 0.6]])
    assert words_from_pieces([[1.0]], [-1], [0]).shape == (0, 1)


def test_words_from_pieces_checks_sizes() -> None:
    with pytest.raises(AssertionError, match="1 target and 3 source pieces"):
        words_from_pieces([[0.4, 0.6]], [0], [0, 1, 2])


def test_a_tensor_is_welcome() -> None:
    torch = pytest.importorskip("torch")
    weights = torch.tensor(WEIGHTS, requires_grad=True)
    assert links_from_attention(weights) == links_from_attention(WEIGHTS)
