"""Turns of conversations as tensors."""

from __future__ import annotations

import pytest
import torch

from seqloom.errors import UserError
from seqloom.sources.turns import TurnSource
from seqloom.text.special import EOS_ID, UNK_ID
from seqloom.text.whole_words import WholeWords, WholeWordsSettings

TALKS = [("do you cook ?", "no"), ("no", "you do", "no no no no")]
SETTINGS = WholeWordsSettings()
WORDS = WholeWords.learn((SETTINGS.cut(turn) for talk in TALKS for turn in talk), SETTINGS, spelled=False)
SOURCE = TurnSource(WORDS)


def test_turns_words_and_an_end() -> None:
    batch = SOURCE.batch(TALKS)
    assert batch.ids.shape == (2, 4, 5)
    assert batch.lengths.tolist() == [3, 4], "turns, and an end"
    assert batch.sizes.tolist() == [[5, 2, 1, 0], [2, 3, 5, 1]]
    [no] = WORDS.encode(["no"])
    assert batch.ids[0, 1].tolist() == [no, EOS_ID, 0, 0, 0]
    assert batch.ids[0, 2].tolist() == [EOS_ID, 0, 0, 0, 0]
    assert batch.ids[0, 3].tolist() == [0] * 5
    assert batch.count == 7


def test_parts_lose_the_padding_of_others() -> None:
    batch = SOURCE.batch([TALKS[0], ("no",)])
    second, alone = batch.part(slice(1, 2)), SOURCE.batch([("no",)])
    for ours, theirs in zip(
        (second.ids, second.sizes, second.lengths), (alone.ids, alone.sizes, alone.lengths), strict=True
    ):
        assert torch.equal(ours, theirs)
    assert len(batch.part(slice(2, None))) == 0
    assert len(batch.doubled()) == 4


def test_a_text_is_a_list_of_its_lines() -> None:
    assert SOURCE.cut("do you cook ?\tno").words == SOURCE.cut("do you cook ?\n\nno\n").words == TALKS[0]
    assert SOURCE.labels(TALKS[0]) == [*TALKS[0], "<eos>"]
    assert SOURCE.is_empty("  ")
    assert SOURCE.unknown_rate([("you sing", "no")]) == (1, 3)
    assert SOURCE.encode([("you sing",)])["ids"][0][0][1] == UNK_ID
    with pytest.raises(UserError, match="give a list of turns, none of them empty"):
        SOURCE.cut(["no", " "])
