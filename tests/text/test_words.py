"""Where words begin and end, by hand-made examples and against the other regular-expression engine."""

from __future__ import annotations

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, normalizers

from seqloom.text import tokenizers
from seqloom.text.words import split_words, word_spans


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("il m'a dit", ["il", "m'", "a", "dit"]),
        ("Qu'est-ce que c’est ?", ["Qu'", "est", "-", "ce", "que", "c’", "est", "?"]),
        ("L'homme", ["L'", "homme"]),
        ("the cat's tail", ["the", "cat", "'s", "tail"]),
        ("dogs' 'tis", ["dogs", "'", "'", "tis"]),
        ("¿Dónde está?", ["¿", "Dónde", "está", "?"]),
        ("Straßenbahn, 3.5 m²", ["Straßenbahn", ",", "3", ".", "5", "m²"]),
        ("snake_case", ["snake_case"]),
        ("e\u0301te\u0301", ["e\u0301te\u0301"]),
        ("हिन्दी है।", ["हिन्दी", "है", "।"]),
        ("", []),
        (" \n\t ", []),
    ],
)
def test_words_by_hand(text: str, words: list[str]) -> None:
    assert split_words(text) == words


@given(st.text())
def test_words_and_whitespace_make_up_the_whole_text(text: str) -> None:
    spans = word_spans(text)
    assert [text[start:end] for start, end in spans] == split_words(text)
    covered = {index for start, end in spans for index in range(start, end)}
    assert sum(end - start for start, end in spans) == len(covered)
    assert all((index in covered) != character.isspace() for index, character in enumerate(text))


def test_both_engines_agree_on_every_assigned_character() -> None:
    def members(pattern: str, text: str) -> set[str]:
        return set(text) - set(normalizers.Replace(Regex(pattern), "").normalize_str(text))

    assigned = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) not in ("Cn", "Cs")]
    text = "".join(assigned)
    words = members(f"[{tokenizers._WORD}]", text)
    # A word character between two letters leaves one word; anything else makes more, or is a space.
    joined = {character for character in assigned if split_words(f"a{character}a") == [f"a{character}a"]}
    assert joined == words
    assert members(rf"\s|{tokenizers._SEPARATORS}", text) == {
        character for character in assigned if character.isspace()
    }
