"""Tokenizers for texts that others have prepared: words between spaces, and every character as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import UserError
from seqloom.text.settings import TextSettings
from seqloom.text.special import EOS_ID, PAD_ID, SPECIAL, UNK_ID
from seqloom.text.tokenizers import Tokenizer

LINES = [" mr. <unk> is n't chairman of N n.v. ", "the u.s. 's <eos> N"]


def spaces(lines: list[str] = LINES, **settings: object) -> Tokenizer:
    return Tokenizer.train(lines, TextSettings(tokenizer="spaces", vocabulary_size=None, **settings))


def verbatim(text: str, **settings: object) -> Tokenizer:
    return Tokenizer.train([text], TextSettings(tokenizer="verbatim", vocabulary_size=None, **settings))


def test_words_between_spaces_stay_whole() -> None:
    tokenizer = spaces()
    assert tokenizer.labels(tokenizer.encode(LINES[0])) == ["mr.", "<unk>", "is", "n't", "chairman", "of", "N", "n.v."]
    assert len(tokenizer) == len(SPECIAL) + len({*LINES[0].split(), *LINES[1].split()} - {"<unk>"})


def test_a_written_unknown_is_the_unknown_symbol_and_other_reserved_words_are_words() -> None:
    tokenizer = spaces()
    ids = tokenizer.encode("mr. <unk> <eos> never")
    assert ids[1] == ids[3] == UNK_ID
    assert ids[2] not in (EOS_ID, PAD_ID)
    assert tokenizer.decode(ids) == "mr. <unk> <eos> <unk>"


def test_ids_have_no_gap_where_the_unknown_was_and_survive_a_file(tmp_path: Path) -> None:
    tokenizer = spaces(["<unk> <unk> <unk> a b"])
    assert tokenizer.pieces(range(len(tokenizer))) == [*SPECIAL, "▁a", "▁b"]
    tokenizer.save(tmp_path / "tokenizer.json")
    assert Tokenizer.load(tmp_path / "tokenizer.json").encode("b <unk> a") == [5, UNK_ID, 4]


@given(st.lists(st.text(st.characters(exclude_categories=("Cs",)), min_size=1).filter(str.strip), max_size=8))
def test_the_words_of_any_text_come_back(words: list[str]) -> None:
    text = " ".join(words)
    tokenizer = spaces([text, "a"], normalise="none")
    found = tokenizer.encode(text)
    assert tokenizer.decode(found).split() == text.replace("▁", "_").split()
    assert len(found) == len(text.split())


@given(st.text(st.characters(exclude_categories=("Cs",)), min_size=1))
def test_every_character_of_any_text_comes_back(text: str) -> None:
    tokenizer = verbatim(text, normalise="none")
    ids = tokenizer.encode(text)
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text == tokenizer.normalise(text)
    assert min(ids) >= len(SPECIAL)


def test_spaces_and_line_breaks_are_characters_and_can_be_seen() -> None:
    text = "  To be,\n\n\tor ▁"
    tokenizer = verbatim(text)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.labels(tokenizer.encode(" \n\t▁")) == ["␣", "↵", "⇥", "▁"]
    assert tokenizer.decode([*tokenizer.encode("or"), UNK_ID, EOS_ID]) == "or<unk>"
    assert Tokenizer.from_json(tokenizer.to_json()).encode(text) == tokenizer.encode(text)


def test_verbatim_still_follows_its_settings() -> None:
    tokenizer = verbatim("Ab\n", lowercase=True, normalise="nfkc")
    assert tokenizer.normalise("AB ﬁ\n") == "ab fi\n"
    assert tokenizer.encode("aB\n") == tokenizer.encode("Ab\n")


@pytest.mark.parametrize("kind", ["spaces", "verbatim"])
def test_nothing_to_learn_from(kind: str) -> None:
    with pytest.raises(UserError, match="nothing to learn a vocabulary from"):
        Tokenizer.train([""], TextSettings(tokenizer=kind))
