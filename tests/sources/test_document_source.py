"""Documents as a source: sentences of words, in parts, doubled, on disk."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from seqloom.batches.shards import write_shard
from seqloom.sources.document import DocumentSource
from seqloom.text.sentences import SentenceSettings
from seqloom.text.settings import TextSettings
from seqloom.text.special import EOS, EOS_ID
from seqloom.text.tokenizers import Tokenizer

TOKENIZER = Tokenizer.train(["the green witch . a cat sees !"], TextSettings(tokenizer="word", vocabulary_size=None))
documents = st.lists(
    st.lists(st.sampled_from(["the", "green", "witch", ". ", "cat", "! "]), max_size=8).map(" ".join),
    min_size=1,
    max_size=5,
)


def source_of(**settings: Any) -> DocumentSource:
    return DocumentSource(TOKENIZER, SentenceSettings(**settings))


@given(documents, st.integers(0, 3), st.integers(1, 3))
def test_a_batch_is_its_documents_one_by_one(texts: list[str], first: int, step: int) -> None:
    source = source_of(longest=4, most=3)
    batch = source.batch(texts)
    assert batch.count == sum(map(len, map(source.labels, texts)))

    def rows(found: Any) -> list[list[list[int]]]:
        sentences = [row[:length].tolist() for row, length in zip(found.ids, found.lengths, strict=True)]
        ends = found.counts.cumsum(0).tolist()
        return [sentences[end - count : end] for end, count in zip(ends, found.counts.tolist(), strict=True)]

    alone = [rows(source.batch([text]))[0] for text in texts]
    assert rows(batch) == alone
    assert rows(batch.doubled()) == alone + alone
    part = batch.part(slice(first, None, step))
    assert len(part) == len(alone[first::step])
    assert rows(part) == alone[first::step]
    assert part.ids.shape[1] == max((len(row) for document in alone[first::step] for row in document), default=0)


def test_long_sentences_and_documents_are_cut() -> None:
    source = source_of(longest=3, most=2)
    assert source.parts("the green witch sees . a cat !") == [["the", "green", EOS], ["witch", "sees", EOS]]
    assert source.parts("a cat !") == [["a", "cat", EOS], ["!", EOS]]


def test_a_document_without_words_only_ends() -> None:
    source = source_of()
    assert source.sentences(["", " \n "]) == [[[EOS_ID]], [[EOS_ID]]]
    assert source.is_empty(" ")
    assert not source.is_empty(".")


def test_what_is_kept_on_disk_is_what_encoding_gives(tmp_path: Any) -> None:
    source, texts = source_of(longest=4), ["the cat . a witch !", "", "green green green green green"]
    shard = write_shard(([text] for text in texts), source.fields(), source.key(), folder=tmp_path)
    kept = source.collate({"sentences": [shard["sentences"][i] for i in range(len(texts))]})
    direct = source.batch(texts)
    assert torch.equal(kept.ids, direct.ids)
    assert torch.equal(kept.lengths, direct.lengths)
    assert torch.equal(kept.counts, direct.counts)
    assert source.key() != source_of(longest=5).key()
    assert source.kept() == {"sentences": {"split": "punctuation", "longest": 4, "most": 200}}
