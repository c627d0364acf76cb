"""Words are cut as `split_words` cuts them, counted exactly, forgotten within the promised bound, saved and loaded."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.errors import DataError, UserError
from seqloom.text import counts as module
from seqloom.text.counts import WordCounts, count, count_words, load_counts, save_counts, words_of
from seqloom.text.words import split_words


def test_words_by_hand() -> None:
    line = "The cat's  hat, d'Arc’s __init__ (___) 3.5 e\u0301\u00a0– \u0301 किताब"
    assert words_of(line) == ["the", "cat", "'s", "hat", "d'", "arc", "’s", "__init__", "3", "5", "e\u0301", "किताब"]
    assert words_of("The  Cat!", split="spaces", lowercase=False) == ["The", "Cat!"]
    assert words_of(" \n") == []


@settings(max_examples=300, deadline=None)
@given(
    line=st.text(st.sampled_from("aLqU'’_-. \n\t\u0301\u0e31ΣσİIß1٣é\u2028\u001cक्") | st.characters(), max_size=30),
    lowercase=st.booleans(),
    remembered=st.sampled_from([3, 40]),
)
def test_the_fast_way_cuts_as_the_plain_one(line: str, lowercase: bool, remembered: int) -> None:
    text = line.lower() if lowercase else line
    expected = [word for word in split_words(text) if any(character.isalnum() for character in word)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "LONGEST_REMEMBERED", remembered)
        assert words_of(line, "words", lowercase) == expected


sentences = st.lists(
    st.lists(st.sampled_from(["a", "b", "c", "dd", "é", "ß"]) | st.text("xyz", min_size=1, max_size=3))
)


@settings(max_examples=100, deadline=None)
@given(
    text=sentences, min_count=st.integers(1, 3), max_words=st.none() | st.integers(1, 4), at_a_time=st.integers(1, 9)
)
def test_counts_are_exact_and_ordered(
    text: list[list[str]], min_count: int, max_words: int | None, at_a_time: int
) -> None:
    table = Counter(word for words in text for word in words)
    expected = sorted(((-n, word) for word, n in table.items() if n >= min_count))[:max_words]
    seen: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "WORDS_AT_A_TIME", at_a_time)
        if not expected:
            with pytest.raises(UserError, match="no word"):
                count(text, min_count=min_count, max_words=max_words)
            return
        found = count(text, min_count=min_count, max_words=max_words, progress=seen.append)
    assert list(zip((-found.counts).tolist(), found.words, strict=True)) == expected
    assert found.exact
    assert found.counts.dtype == np.int64
    assert (found.total, len(found)) == (-sum(n for n, _ in expected), len(expected))
    assert found.index == {word: place for place, (_, word) in enumerate(expected)}
    assert seen[-1] == sum(table.values())


@settings(max_examples=100, deadline=None)
@given(text=sentences, most_kept=st.integers(1, 6), at_a_time=st.integers(1, 9))
def test_forgetting_keeps_its_promise(text: list[list[str]], most_kept: int, at_a_time: int) -> None:
    table = Counter(word for words in text for word in words)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "WORDS_AT_A_TIME", at_a_time)
        try:
            found = count(text, most_kept=most_kept)
        except UserError:
            return  # all forgotten, or no word at all
    assert len(found) <= most_kept
    assert found.exact == (dict(zip(found.words, found.counts.tolist(), strict=True)) == dict(table))
    assert all(number <= table[word] for word, number in zip(found.words, found.counts.tolist(), strict=True))


def test_forgetting_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORDS_AT_A_TIME", 1)
    found = count([["a", "a", "a"], ["b"], ["c"], ["b", "b"], ["d"], ["a"]], most_kept=2)
    # c makes three: b and c, seen once, go. d makes three: b and d, seen up to twice, go.
    assert (found.words, found.counts.tolist(), found.exact) == (("a",), [4], False)


def test_nothing_to_count() -> None:
    with pytest.raises(UserError, match="there is no word in the text"):
        count_words(["", "…"])
    with pytest.raises(
        UserError, match=r"occurs 3 times: it has 3 words, the most frequent one 2 times; lower min_count"
    ):
        count_words(["a b a"], min_count=3)
    assert count_words(["A b", "a."], min_count=2).words == ("a",)


@settings(max_examples=60, deadline=None)
@given(
    text=st.lists(st.text(min_size=1, max_size=6).filter(lambda w: w.split() == [w] and w.isprintable()), min_size=1)
)
def test_saved_and_loaded(text: list[str]) -> None:
    original = count([text])
    with tempfile.TemporaryDirectory() as folder:
        save_counts(Path(folder, "counts.tsv"), original)
        loaded = load_counts(Path(folder, "counts.tsv"))
    assert (loaded.words, loaded.counts.tolist(), loaded.exact) == (original.words, original.counts.tolist(), True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\t3\n", "no file of word counts"),
        (b"", "no word in this file"),
        (b"HEAD\texact\n", "no word in this file"),
        (b"HEAD\texact\na\t3", ":2: the line is cut short"),
        (b"HEAD\texact\na\n", ":2: expected a word"),
        (b"HEAD\texact\na\t-3\n", ":2: expected a word"),
        (b"HEAD\texact\n\t3\n", ":2: expected a word"),
        (b"HEAD\texact\na b\t3\n", ":2: expected a word"),
        (b"HEAD\texact\na\t99999999999999999999\n", ":2: expected a word"),
        (b"HEAD\texact\na\t0\n", ":2: the words are not in the order"),
        (b"HEAD\texact\na\t3\nb\t4\n", ":3: the words are not in the order"),
        (b"HEAD\texact\nb\t3\na\t3\n", ":3: the words are not in the order"),
        (b"HEAD\texact\na\t4\na\t3\n", "a word is there twice"),
        (b"HEAD\texact\n\xff\t4\n", ":2: not UTF-8"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "counts.tsv"
    path.write_bytes(content.replace(b"HEAD", module.HEADER.encode()))
    with pytest.raises(DataError, match=message):
        load_counts(path)


def test_a_missing_file_and_too_many_words(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        load_counts(tmp_path / "none")
    save_counts(tmp_path / "two", WordCounts(("a", "b"), np.array([2, 1])))
    with pytest.raises(DataError, match="more than 1 words"):
        load_counts(tmp_path / "two", most_words=1)
    with pytest.raises(ValueError, match="no word"):
        save_counts(tmp_path / "space", WordCounts(("a b",), np.array([2])))
