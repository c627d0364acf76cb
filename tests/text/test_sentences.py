"""Documents cut into sentences: by hand, and nothing is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.text.sentences import split_sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("He left. She didn't! (Why?) We ask.", ["He left.", "She didn't!", "(Why?)", "We ask."]),
        ('"Stop!" he said. It cost 3.50 euros…  Then', ['"Stop!"', "he said.", "It cost 3.50 euros…", "Then"]),
        ("no end<br /><br />another\n\nthird\nstill third", ["no end", "another", "third\nstill third"]),
        ("天気がいい。散歩する！", ["天気がいい。", "散歩する！"]),
        ("Wait... what?! no", ["Wait...", "what?!", "no"]),
        ("  ", []),
        ("", []),
    ],
)
def test_sentences_by_hand(text: str, expected: list[str]) -> None:
    assert split_sentences(text) == expected


def test_lines_by_hand() -> None:
    assert split_sentences("One. Two\n\n three <br/>four", "lines") == ["One. Two", "three", "four"]


@given(st.text(st.sampled_from("ab .!?\n\"')…。<br/>")), st.sampled_from(["punctuation", "lines"]))
def test_nothing_but_spaces_and_breaks_is_lost(text: str, split: str) -> None:
    found = split_sentences(text, split)
    assert all(part and part == part.strip() for part in found)

    def letters(part: str) -> str:
        return "".join(part.replace("<br/>", "").replace("<br />", "").replace("<br>", "").split())

    joined = "".join("".join(part.split()) for part in found)
    if "<" not in text:
        assert joined == letters(text)
    assert [letter for letter in joined if letter == "a"] == [letter for letter in text if letter == "a"]
