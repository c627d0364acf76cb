"""Text as a source: raw values become what an encoder reads, one by one or together, from disk or from memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seqloom.batches.shards import write_shard
from seqloom.sources.text import TextSource
from seqloom.text.settings import TextSettings
from seqloom.text.special import EOS_ID, PAD_ID
from seqloom.text.tokenizers import Tokenizer

TEXTS = ["the green witch", "", "a cat sees the witch", "   "]


def source_of(tokenizer: str = "word", **settings: Any) -> TextSource:
    values = {"tokenizer": tokenizer, "vocabulary_size": None, **settings}
    return TextSource(Tokenizer.train(TEXTS, TextSettings(**values)))


words = st.lists(st.sampled_from(["the", "green", "witch", "a", "cat", "sees"]), max_size=6)


@given(st.lists(words.map(" ".join), max_size=5))
def test_a_batch_is_its_texts_with_an_end_each(texts: list[str]) -> None:
    source = source_of()
    batch = source.batch(texts)
    assert len(batch) == len(texts)
    assert batch.lengths.tolist() == [len(source.tokenizer.encode(text)) + source.ends for text in texts]
    assert batch.count == sum(batch.lengths)
    for row, text in zip(batch.ids.tolist(), texts, strict=True):
        ids = [*source.tokenizer.encode(text), EOS_ID]
        assert row[: len(ids)] == ids
        assert set(row[len(ids) :]) <= {PAD_ID}
        assert len(source.labels(text)) == len(ids)
        assert source.is_empty(text) == (len(ids) == 1)


def test_what_is_kept_on_disk_is_what_encoding_gives(tmp_path: Any) -> None:
    source = source_of("character")
    shard = write_shard(([text] for text in TEXTS), source.fields(), source.key(), folder=tmp_path)
    encoded = source.encode(TEXTS)
    assert shard.keys() == encoded.keys()
    for name, rows in encoded.items():
        assert [shard[name][number].tolist() for number in range(len(TEXTS))] == [list(row) for row in rows]
    kept = source.collate({name: [shard[name][i] for i in range(len(TEXTS))] for name in shard})
    assert torch.equal(kept.ids, source.batch(TEXTS).ids)


def test_the_key_follows_the_way_of_cutting() -> None:
    """Or a shard would be mistaken for another."""
    kinds = [source_of(), source_of("character"), source_of(lowercase=True), source_of(normalise="none")]
    assert len({source.key() for source in kinds}) == len(kinds)
    assert source_of().key() == source_of().key()


def test_words_are_cut_in_other_pieces_each_time() -> None:
    """Each text still reads the same; several times over, no two texts of a long corpus need be cut alike."""
    source = source_of("bpe", vocabulary_size=60, dropout=0.5)
    encode = source.fields(recut=3)["ids"].encode
    text = "the green witch sees the green cat"
    cuts = [encode([text])[0] for _ in range(8)]
    assert len({tuple(ids) for ids in cuts}) > 1
    assert {source.tokenizer.decode(list(ids)) for ids in cuts} == {text}
    again = source.fields(recut=3)["ids"].encode
    assert [list(again([text])[0]) for _ in range(8)] == [list(ids) for ids in cuts], "the seed decides"


def test_some_rows_lose_the_padding_of_others() -> None:
    source = source_of()
    part = source.batch(TEXTS).part(slice(0, 2))
    alone = source.batch(TEXTS[:2])
    assert torch.equal(part.ids, alone.ids)
    assert part.lengths.tolist() == alone.lengths.tolist()
    assert source.batch(TEXTS).part(slice(9, None)).ids.shape == (0, 0)


@pytest.mark.parametrize("raw", [[], TEXTS])
def test_encoded_values_come_by_field(raw: list[str]) -> None:
    source = source_of()
    assert source.encode(raw).keys() == source.fields().keys()
    assert all(len(rows) == len(raw) for rows in source.encode(raw).values())
    assert all(np.asarray(row).dtype != object for row in source.encode(raw)["ids"])
