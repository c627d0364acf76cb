"""A text of which nothing is known is told from one of which something is."""

from __future__ import annotations

import pytest

from seqloom.text.settings import TextSettings
from seqloom.text.tokenizers import Tokenizer
from seqloom.text.unknown import warnings_about

TEXTS = ["the cat slept .", "the green witch didn't arrive .", "Paris is it's cat"]


def tokenizer(kind: str, **more: object) -> Tokenizer:
    size = 60 if kind in ("bpe", "unigram") else None
    return Tokenizer.train(TEXTS, TextSettings(tokenizer=kind, vocabulary_size=size, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("the cat slept", []),
        ("the dog", []),
        ("", []),
        (".", []),
        ("zyx", ["the model does not know the word 'zyx'"]),
        ("zyx quux .", ["the model knows none of the words 'zyx', 'quux'"]),
        (
            "THE CAT SLEPT",
            ["the model knows none of the words 'THE', 'CAT', 'SLEPT'; in lower case it knows all of them"],
        ),
        ("THE DOG !", ["the model knows none of the words 'THE', 'DOG'; in lower case it knows 1 of them"]),
        ("CAT", ["the model does not know the word 'CAT'; in lower case it knows it"]),
        ("PARIS", ["the model does not know the word 'PARIS'"]),
        ("!", ["the model does not know the word '!'"]),
        (
            " ".join(f"w{i}" for i in range(20)),
            ["the model knows none of the words 'w0', 'w1', 'w2', 'w3', 'w4', 'w5', 'w6', 'w7' …"],
        ),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert warnings_about(text, tokenizer("word")) == expected
    if "." not in text and "!" not in text:
        assert warnings_about(text, tokenizer("spaces")) == expected


def test_what_ignores_case_knows_capitals() -> None:
    assert warnings_about("THE CAT", tokenizer("word", lowercase=True)) == []


@pytest.mark.parametrize("kind", ["bpe", "unigram", "character"])
def test_pieces_know_every_word_of_their_letters_and_none_of_others(kind: str) -> None:
    one = tokenizer(kind)
    assert warnings_about("tac sletp", one) == []
    assert warnings_about("кот спал", one) == ["the model knows none of the words 'кот', 'спал'"]
    assert warnings_about("кот cat", one) == []
