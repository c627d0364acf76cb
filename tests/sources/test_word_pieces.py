"""Pieces of words, of unknown ones too, in step with the tokenizer's symbols."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.sources.text import TextSource
from seqloom.sources.word_pieces import CUT_INTO_WORDS, WordPieces
from seqloom.text.settings import TextSettings
from seqloom.text.tokenizers import Tokenizer
from seqloom.vectors.settings import SubwordSettings
from seqloom.vectors.subwords import buckets_of

SETTINGS = SubwordSettings(shortest=3, longest=4, buckets=50)
TOKENIZERS = {
    kind: Tokenizer.train(["the green witch isn't here ."], TextSettings(tokenizer=kind, vocabulary_size=None))
    for kind in CUT_INTO_WORDS
}
any_text = st.text(max_size=30) | st.lists(st.sampled_from(["the", "witch", "isn't", "", "·", "▁", "naïve."])).map(
    " ".join
)


@pytest.mark.parametrize("kind", CUT_INTO_WORDS)
@given(texts=st.lists(any_text, max_size=4))
def test_there_is_a_count_for_every_symbol(kind: str, texts: list[str]) -> None:
    tokenizer = TOKENIZERS[kind]
    pieces = WordPieces(tokenizer, SETTINGS)
    counts, rows = pieces.counts(texts), pieces.rows(texts)
    assert [len(each) for each in counts] == [len(ids) for ids in tokenizer.encode_many(texts)]
    assert [sum(each) for each in counts] == [len(each) for each in rows]
    for each in rows:
        assert each.dtype == np.int64
        assert ((each >= 1) & (each <= SETTINGS.buckets)).all()


def test_an_unknown_word_has_the_pieces_that_fasttext_gives_it() -> None:
    tokenizer = TOKENIZERS["word"]
    [ids] = tokenizer.encode_many(["the greener"])
    assert ids[1] == 1, "unknown"
    [counts], [rows] = (
        ask(["the greener"]) for ask in (WordPieces(tokenizer, SETTINGS).counts, WordPieces(tokenizer, SETTINGS).rows)
    )
    expected = buckets_of("greener", SETTINGS) + 1
    assert counts == [len(buckets_of("the", SETTINGS)), len(expected)]
    assert rows[counts[0] :].tolist() == expected.tolist()


def test_the_source_brings_them_along() -> None:
    source = TextSource(TOKENIZERS["word"], subwords=SETTINGS)
    batch = source.batch(["the greener", ""])
    assert batch.subwords is not None
    assert batch.subwords.counts.shape == batch.ids.shape
    assert batch.subwords.counts[1].tolist() == [0, 0, 0]
    assert source.key() != TextSource(TOKENIZERS["word"]).key()
    assert source.key() != TextSource(TOKENIZERS["word"], subwords=SubwordSettings(buckets=51)).key()
