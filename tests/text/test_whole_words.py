"""Whole words: their forms, their letters, where raw text is cut, and their file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import UserError
from seqloom.text.special import SPECIAL, UNK_ID
from seqloom.text.whole_words import LONGEST, WholeWords, WholeWordsSettings
from seqloom.text.words import split_words

SENTENCES = [["The", "cat", "the", "1984"], ["the", "Čat", "2024", "New York"]]


def learned(spelled: bool = True, **settings: object) -> WholeWords:
    return WholeWords.learn(SENTENCES, WholeWordsSettings(**settings), spelled=spelled)  # type: ignore[arg-type]


def test_words_share_a_number_by_their_form() -> None:
    words = learned()
    assert words.pieces(range(len(words))) == [*SPECIAL, "the", "0000", "cat", "new york", "čat"]
    assert words.encode(["THE", "1999", "C\u030cat", "dog"]) == [4, 5, 8, UNK_ID], "also what is composed otherwise"
    exact = learned(lowercase=False, digits=False)
    assert exact.encode(["the", "THE", "1984", "1999"]) == [
        exact.encode(["the"])[0],
        UNK_ID,
        *exact.encode(["1984"]),
        1,
    ]


def test_rare_words_are_unknown() -> None:
    assert learned(min_frequency=2).words == ("the", "0000")
    assert learned(vocabulary_size=8).words == ("the", "0000", "cat", "new york")
    with pytest.raises(UserError, match=r"there is no word to learn.* or lower text\.min_frequency"):
        learned(min_frequency=9)


def test_letters_keep_their_case() -> None:
    words = learned()
    assert words.letters == tuple(sorted({"a", "t", "4", "h", "e"})), "each in two different words or more"
    assert words.spell(["ath", "A"]) == [[words.letters.index(letter) + 2 for letter in "ath"], [1]]
    assert len(words.spell(["a" * 99])[0]) == LONGEST
    assert words.num_letters == 2 + len(words.letters)
    assert learned(spelled=False).letters == ()


@given(st.text(max_size=40))
def test_text_is_cut_where_its_spans_say(text: str) -> None:
    for split in ("words", "spaces"):
        words, spans = WholeWords(WholeWordsSettings(split=split), ("a",), ()).cut(text)
        assert words == tuple(text[start:end] for start, end in spans)
        assert words == tuple(split_words(text) if split == "words" else text.split())


@given(st.lists(st.text(min_size=1, max_size=5).filter(str.strip), max_size=6))
def test_lists_stay_as_they_are(given_words: list[str]) -> None:
    words, spans = learned().cut(given_words)
    assert words == tuple(given_words)
    joined = " ".join(given_words)
    assert [joined[start:end] for start, end in spans] == given_words


@pytest.mark.parametrize("wrong", [["a", ""], ["a", 3], 7, None])
def test_what_is_no_list_of_words(wrong: object) -> None:
    with pytest.raises(UserError, match="give a text or a tuple of words"):
        learned().cut(wrong)


def test_saved_and_loaded(tmp_path: Path) -> None:
    words = learned(min_frequency=2, split="spaces")
    words.save(tmp_path)
    assert WholeWords.load(tmp_path) == words
    assert WholeWords.load(tmp_path).key() == words.key()
    good = json.loads((tmp_path / "words.json").read_text())
    for wrong in (
        [],
        {**good, "more": 1},
        {**good, "words": []},
        {**good, "words": ["a", "a"]},
        {**good, "words": ["a", 1]},
        {**good, "letters": "aa"},
        {**good, "letters": ["a"]},
        {**good, "settings": {"split": "letters"}},
    ):
        (tmp_path / "words.json").write_text(json.dumps(wrong))
        with pytest.raises(UserError, match=r"words\.json: not a list of words that seqloom wrote"):
            WholeWords.load(tmp_path)
