"""N-grams hashed to rows: which are there, which share a row, and what they add to the vectors of symbols."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from seqloom.batches.collate import Subwords, Tokens, collate_sources, collate_subwords
from seqloom.models.text_reader import TextReader
from seqloom.nn.embeddings import SymbolEmbedding
from seqloom.nn.hashing import HashedTable, ngram_rows

MANY = 1 << 40
texts = st.lists(st.lists(st.integers(1, 6), max_size=7), min_size=1, max_size=4)


@given(texts, st.integers(2, 4))
def test_equal_ngrams_have_equal_rows_and_others_have_not(given_texts: list[list[int]], longest: int) -> None:
    """With room for all, a row is an n-gram; none reaches into padding or beyond the beginning."""
    batch = collate_sources(given_texts)
    found = ngram_rows(batch.ids, longest, MANY)
    assert found.shape == (*batch.ids.shape, longest - 1)
    owner: dict[tuple[int, ...], int] = {}
    for row, text in enumerate(batch.ids.tolist()):
        for end in range(len(text)):
            for length in range(2, longest + 1):
                ngram, hashed = tuple(text[max(0, end - length + 1) : end + 1]), int(found[row, end, length - 2])
                if len(ngram) < length or 0 in ngram:
                    assert hashed == 0
                else:
                    assert 1 <= hashed <= MANY
                    assert owner.setdefault(ngram, hashed) == hashed
    assert len(set(owner.values())) == len(owner)


@given(st.integers(1, 50))
def test_rows_stay_within_the_table(buckets: int) -> None:
    found = ngram_rows(torch.arange(1, 400)[None], 3, buckets)
    assert 0 <= int(found.min()) <= int(found.max()) <= buckets
    assert len(found.unique()) > buckets / 2, "and use all of it"


def test_the_order_of_two_symbols_matters() -> None:
    assert ngram_rows(torch.tensor([[4, 5]]), 2, MANY)[0, 1] != ngram_rows(torch.tensor([[5, 4]]), 2, MANY)[0, 1]


def test_a_table_is_silent_about_what_it_never_met_and_its_gradient_is_sparse() -> None:
    table = HashedTable(11, 4)
    rows = torch.tensor([[3, 0, 3], [7, 0, 0]])
    vectors = table(rows)
    assert not vectors.any()
    (vectors * torch.arange(1.0, 7.0).view(2, 3, 1)).sum().backward()
    assert table.weight.grad is not None
    assert table.weight.grad.is_sparse
    dense = table.weight.grad.to_dense()
    assert dense[3].tolist() == [2.0 * (1 + 3)] * 4  # scaled by the root of the size
    assert dense[7].tolist() == [2.0 * 4] * 4
    assert not dense[[0, 1, 2, 4, 5, 6, 8, 9, 10, 11]].any()


def read(reader: TextReader, batch: Tokens) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = reader(batch)
    return found


def reader_of(longest: int, subword_buckets: int) -> TextReader:
    reader = TextReader(SymbolEmbedding(13, 3))
    reader.read_ngrams(longest, 101, subword_buckets)
    for weight in reader.parameters():
        weight.data.normal_()
        weight.data[0] = 0.0
    assert isinstance(reader, TextReader)
    return reader


def test_a_symbol_has_its_vector_those_of_ngrams_that_end_there_and_of_its_pieces() -> None:
    torch.manual_seed(1)
    reader = reader_of(3, 7)
    batch = collate_sources([[4, 5, 6]], None, collate_subwords([[2, 3, 3]], [[2, 0, 1]]))
    rows = ngram_rows(batch.ids, 3, 101)[0]
    assert reader.word_ngrams is not None
    assert reader.subwords is not None
    words, ngrams, pieces = (part.weight.detach() for part in (reader.embedding, reader.word_ngrams, reader.subwords))
    expected = [
        words[4] + pieces[2] + pieces[3],
        words[5] + ngrams[rows[1, 0]],
        words[6] + ngrams[rows[2, 0]] + ngrams[rows[2, 1]] + pieces[3],
        words[3] + ngrams[rows[3, 0]] + ngrams[rows[3, 1]],
    ]
    torch.testing.assert_close(read(reader, batch)[0], torch.stack(expected) * 3**0.5)


pieces = st.lists(st.lists(st.integers(1, 7), max_size=3), max_size=5)


@given(st.lists(pieces, min_size=1, max_size=5), st.integers(0, 4), st.integers(1, 3))
def test_pieces_stay_with_their_words(found: list[list[list[int]]], first: int, step: int) -> None:
    """Of some rows of a batch, doubled, padded: always those that each text has alone."""
    torch.manual_seed(2)
    reader = reader_of(1, 7)

    def batch_of(some: list[list[list[int]]]) -> Tokens:
        rows = [[piece for word in text for piece in word] for text in some]
        subwords = collate_subwords(rows, [[len(word) for word in text] for text in some])
        return collate_sources([[4 + number for number in range(len(text))] for text in some], None, subwords)

    alone = [read(reader, batch_of([text]))[0] for text in found]
    kept = slice(first, None, step)
    for batch, some in (
        (batch_of(found), alone),
        (batch_of(found).doubled(), alone + alone),
        (batch_of(found).part(kept), alone[kept]),
    ):
        together = read(reader, batch)
        for row, expected in enumerate(some):
            torch.testing.assert_close(together[row, : len(expected)], expected)


def test_no_piece_at_all() -> None:
    empty = Subwords(torch.empty(0, dtype=torch.long), torch.zeros(2, 3, dtype=torch.long))
    assert empty.places(5).tolist() == []
    assert empty.part(slice(5, None, 2), 0).rows.tolist() == []
