"""Recall texts: every line ends as it began, with the number of symbols between that was asked for."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.corpus.plain import PlainTextSettings, describe, fingerprint, read_lines, read_parts, text_files
from seqloom.corpus.recall import KEYS, LINES, MOST, NOISE, SPLITS, Recall, parse_recall, recall_line, recall_lines
from seqloom.errors import RecipeError
from seqloom.settings import validated

spans = st.tuples(st.integers(1, 300), st.integers(0, 300)).map(lambda pair: (pair[0], pair[0] + pair[1]))


def text(spelling: str, **more: object) -> PlainTextSettings:
    return validated(PlainTextSettings, {"text": spelling, **more})


@given(spans, st.sampled_from(SPLITS), st.integers(0, 10**12))
def test_a_line_ends_as_it_began(span: tuple[int, int], split: str, number: int) -> None:
    words = recall_line(Recall(*span, split), number).split(" ")
    assert words[0] == words[-1]
    assert words[0] in KEYS
    assert words[-2] == "?"
    assert set(words[1:-2]) <= set(NOISE)
    assert span[0] <= len(words) - 3 <= span[1]
    assert recall_line(Recall(*span, split), number).split(" ") == words


@given(spans, st.sampled_from(SPLITS))
def test_what_is_spelt_is_what_is_meant(span: tuple[int, int], split: str) -> None:
    assert parse_recall(f"recall:{span[0]}-{span[1]}/{split}") == Recall(*span, split)
    assert parse_recall(f"recall:{span[0]}/{split}") == Recall(span[0], span[0], split)


@given(st.text("recall:/-0123456789trainvd ", max_size=30))
def test_any_other_spelling_is_refused_in_words(spelling: str) -> None:
    found, told = None, ""
    try:
        found = parse_recall(spelling)
    except ValueError as error:
        told = str(error)
    assert (repr(spelling) in told) if found is None else (1 <= found.least <= found.most <= MOST)


def test_keys_lags_and_noise_are_drawn_evenly_and_splits_differ() -> None:
    lines = [line.split(" ") for line in recall_lines(Recall(1, 4, "train"), 8000)]
    for counts, kinds in (
        (Counter(words[0] for words in lines), len(KEYS)),
        (Counter(len(words) - 3 for words in lines), 4),
        (Counter(word for words in lines for word in words[1:-2]), len(NOISE)),
    ):
        expected = counts.total() / kinds
        assert len(counts) == kinds
        assert all(abs(found - expected) < 6 * expected**0.5 for found in counts.values())
    firsts = [recall_line(Recall(50, 50, split), 0) for split in SPLITS]
    assert len(set(firsts)) == len(SPLITS)


def test_it_is_a_text_like_others() -> None:
    settings = text("recall:3-9/valid", limit=7)
    lines = list(read_lines(settings))
    assert lines == list(recall_lines(Recall(3, 9, "valid"), 7))
    assert "".join(read_parts(settings)) == "".join(line + "\n" for line in lines)
    assert sum(1 for _ in read_lines(text("recall:1/train"))) == LINES
    assert text_files(settings) == []
    assert describe(settings) == "recall:3-9/valid"
    half = list(read_lines(text("recall:1/train", share=(0.5, 1.0))))
    assert half[1:] == list(read_lines(text("recall:1/train")))[-len(half) + 1 :]
    prints = {fingerprint(text(spelling)) for spelling in ("recall:3/train", "recall:3/valid", "recall:1-3/train")}
    assert len(prints) == 3
    assert fingerprint(text("recall:3/train", limit=5)) not in prints
    assert fingerprint(text("recall:3/train")) in prints


@pytest.mark.parametrize(
    ("spelling", "told"),
    [
        ("recall:30", "such as recall:30/train"),
        ("recall:0/train", "1 to 10,000"),
        ("recall:9-3/train", "the smaller one first"),
        ("recall:99999/train", "1 to 10,000"),
        ("recall:3/dev", "one of train, valid, test; got 'dev'"),
    ],
)
def test_a_wrong_spelling_is_told_with_its_place(spelling: str, told: str) -> None:
    with pytest.raises(RecipeError, match="text") as caught:
        text(spelling)
    assert told in str(caught.value)


def test_lines_that_stand_by_themselves_are_not_joined() -> None:
    with pytest.raises(RecipeError, match="running drops line breaks"):
        text("recall:3/train", sentences="running")
