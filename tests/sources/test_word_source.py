"""Words with their letters as tensors."""

from __future__ import annotations

import torch

from seqloom.sources.words import WordSource
from seqloom.text.whole_words import WholeWords, WholeWordsSettings

SENTENCES = [["a", "cat"], ["a", "tac", "at", "cactac"]]
SOURCE = WordSource(WholeWords.learn(SENTENCES, WholeWordsSettings()))


def test_words_letters_and_an_end() -> None:
    batch = SOURCE.batch(SENTENCES)
    assert batch.ids.shape == (2, 5)
    assert batch.lengths.tolist() == [3, 5]
    assert batch.letters is not None
    assert batch.letters.shape == (2, 5, 6)
    assert (batch.letters[0] != 0).sum(-1).tolist() == [1, 3, 0, 0, 0], "neither the end nor padding has letters"
    assert batch.letters[1, 3].tolist() == SOURCE.words.spell(["cactac"])[0]
    assert batch.count == 8


def test_parts_lose_the_padding_of_others() -> None:
    batch = SOURCE.batch(SENTENCES)
    first, alone = batch.part(slice(0, 1)), SOURCE.batch(SENTENCES[:1])
    for ours, theirs in ((first.ids, alone.ids), (first.lengths, alone.lengths), (first.letters, alone.letters)):
        assert ours is not None
        assert theirs is not None
        assert torch.equal(ours, theirs)
    assert len(batch.part(slice(2, None))) == 0
    twice = batch.doubled()
    assert len(twice) == 4
    assert twice.letters is not None
    assert torch.equal(twice.letters[2:], twice.letters[:2])


def test_without_letters() -> None:
    plain = WordSource(WholeWords.learn(SENTENCES, WholeWordsSettings(), spelled=False))
    assert plain.fields().keys() == {"ids"}
    assert plain.batch(SENTENCES).letters is None
    assert plain.batch(SENTENCES).part(slice(0, 1)).letters is None
    assert plain.key() != SOURCE.key()


def test_texts_are_cut_and_counted() -> None:
    assert SOURCE.labels("a cat") == ["a", "cat", "<eos>"]
    assert SOURCE.is_empty("  ")
    assert SOURCE.is_empty([])
    assert SOURCE.unknown_rate(["a dog", ["tac"]]) == (1, 3)
