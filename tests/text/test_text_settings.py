"""How each side of a pair is cut, and what stays whole among characters."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.settings import check
from seqloom.text.settings import PairTextSettings, TextSettings
from seqloom.text.special import SPECIAL, UNK_ID
from seqloom.text.tokenizers import SPACE, Tokenizer

# -- one tokenizer or two ---------------------------------------------------------------------------------------------


def sides(**values: Any) -> tuple[PairTextSettings, TextSettings, TextSettings]:
    settings, problems = check(PairTextSettings, values, "text")
    assert not problems, problems
    return settings, settings.side("source"), settings.side("target")


def problems_of(**values: Any) -> list[str]:
    settings, problems = check(PairTextSettings, values, "text")
    assert settings is None
    return problems


def test_without_sides_there_is_one_tokenizer_for_both() -> None:
    settings, source, target = sides(tokenizer="word", vocabulary_size=None)
    assert settings.joint
    assert source == target == TextSettings(tokenizer="word", vocabulary_size=None)
    assert not sides(tokenizer="word", joint=False)[0].joint


def test_a_side_changes_what_differs() -> None:
    common = {"lowercase": True, "vocabulary_size": None, "tokenizer": "spaces"}
    settings, source, target = sides(**common, source={"tokenizer": "word"})
    assert not settings.joint, "nobody must say so"
    assert source == TextSettings(lowercase=True, vocabulary_size=None, tokenizer="word")
    assert target == TextSettings(lowercase=True, vocabulary_size=None, tokenizer="spaces")


def test_what_is_common_to_two_sides_need_not_make_sense_by_itself() -> None:
    """No vocabulary size is for BPE, which is the default kind of neither side here."""
    _, source, target = sides(vocabulary_size=None, source={"tokenizer": "character"}, target={"tokenizer": "spaces"})
    assert source == TextSettings(tokenizer="character", vocabulary_size=None)
    assert target == TextSettings(tokenizer="spaces", vocabulary_size=None)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"joint": False, "tokenizer": "spaces"},
        {"source": {"tokenizer": "character", "vocabulary_size": None}},
        {"vocabulary_size": None, "source": {"tokenizer": "character"}, "target": {"tokenizer": "spaces"}},
    ],
)
def test_settings_are_written_and_read_back(values: dict[str, Any]) -> None:
    """A run keeps its recipe complete, and resumes from it."""
    settings = PairTextSettings(**values)
    assert PairTextSettings.model_validate(settings.model_dump()) == settings
    assert PairTextSettings.model_validate_json(settings.model_dump_json()) == settings


def test_mistakes_of_a_side_are_named_with_their_side() -> None:
    assert problems_of(source={"tokenizer": "charcter"}) == [
        "text.source.tokenizer must be one of bpe, character, spaces, unigram, verbatim, word; got 'charcter' "
        "(did you mean 'character'?)"
    ]
    assert problems_of(target={"lowercas": True}) == [
        "text.target.lowercas is not a setting (did you mean 'lowercase'?)"
    ]
    assert problems_of(joint=True, source={"tokenizer": "character"}) == [
        "text: joint: true gives both sides one tokenizer, but their settings differ: leave joint out"
    ]


# -- what stays whole -------------------------------------------------------------------------------------------------

EXPRESSIONS = ["[A-Z0-9]+(?:;[A-Z0-9]+)*", ".+", r"\S+", "[aeiou]+", "ab|abc", "(?i)v;pst"]
words = st.text("abuiVPST3;ɒː", min_size=1, max_size=8)
texts = st.lists(words, min_size=1, max_size=4).map(" ".join)


def trained(whole: str | None, *given: str) -> Tokenizer:
    return Tokenizer.train(given, TextSettings(tokenizer="character", vocabulary_size=None, whole=whole))


def test_features_beside_letters() -> None:
    """A lemma in letters, its features one symbol each bundle: what a model of inflection reads."""
    tokenizer = trained("[A-Z0-9]+(?:;[A-Z0-9]+)*", "run V;PST", "see V;3;SG")
    assert tokenizer.pieces(tokenizer.encode("see V;PST")) == [SPACE, "s", "e", "e", SPACE, "V;PST"]
    assert tokenizer.labels(tokenizer.encode("run V;PST")) == ["␣", "r", "u", "n", "␣", "V;PST"]
    assert tokenizer.encode("see V;3;PL")[-1] == UNK_ID, "a bundle that training never met"
    assert len(tokenizer) == len(SPECIAL) + len({SPACE, *"runse", "V;PST", "V;3;SG"})


@pytest.mark.parametrize("whole", EXPRESSIONS)
@given(text=texts)
def test_no_piece_reaches_across_a_space_and_texts_come_back(whole: str, text: str) -> None:
    tokenizer = trained(whole, text)
    ids = tokenizer.encode(text)
    pieces = tokenizer.pieces(ids)
    assert UNK_ID not in ids
    assert tokenizer.decode(ids) == text
    assert "".join(pieces) == SPACE + text.replace(" ", SPACE)
    for piece in pieces:
        assert len(piece) == 1 or (SPACE not in piece and re.fullmatch(whole, piece))
    assert tokenizer.encode_many([text, "", text]) == [ids, [], ids]
    spans = tokenizer.encode_detailed(text).spans
    assert [text[start:end] for start, end in spans] == ["", *(" " if p == SPACE else p for p in pieces[1:])]


def test_it_is_kept_in_the_file(tmp_path: Path) -> None:
    tokenizer = trained("[A-Z;]+", "run V;PST")
    tokenizer.save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert again.settings == tokenizer.settings
    assert again.encode("nur V;PST") == tokenizer.encode("nur V;PST")


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"tokenizer": "word", "whole": "a+"}, "whole is for tokenizer character and does nothing for word; remove it"),
        ({"whole": "a*"}, "whole must match at least one character; got 'a*'"),
        ({"whole": "(a"}, "whole must be a regular expression; got '(a': "),
        ({"whole": "(?P<name>a)"}, "whole must be a regular expression; got '(?P<name>a)': "),
        ({"whole": ""}, "whole: string should have at least 1 character; got ''"),
    ],
)
def test_expressions_that_are_none(values: dict[str, Any], problem: str) -> None:
    settings, problems = check(TextSettings, {"tokenizer": "character", "vocabulary_size": None, **values})
    assert settings is None
    assert len(problems) == 1
    assert problems[0].startswith(problem)
