"""Phrases against hand-computed scores, a dictionary of pairs, and gensim."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.errors import UserError
from seqloom.text import phrases as module
from seqloom.text.counts import count
from seqloom.text.phrases import Phrases, count_pairs, glue_once, learn_phrases, load_phrases, save_phrases


def test_scores_by_hand() -> None:
    text = [["new", "york", "is", "new"], ["new", "york"], ["york", "new"], ["x"]]  # 9 words: new 4, york 3
    learned = learn_phrases(lambda: text, threshold=0.7, discount=1)
    # (new, york) 2 times: (2 - 1) / (4 * 3) * 9; every other pair once: 0
    assert {pair: pytest.approx(value) for pair, value in learned.passes[0].items()} == {("new", "york"): 0.75}
    assert learned.glue(["in", "new", "york", "new"]) == ["in", "new_york", "new"]
    assert learn_phrases(lambda: text, threshold=0.75, discount=1).passes == ()
    assert learn_phrases(lambda: text, threshold=0.1, discount=9) == Phrases()


def test_a_word_goes_into_one_pair_a_pass() -> None:
    pairs = {("a", "b"): 1.0, ("b", "c"): 1.0, ("a", "a"): 1.0}
    assert glue_once(["a", "b", "c"], pairs) == ["a_b", "c"]
    assert glue_once(["a", "a", "a", "a", "b"], pairs) == ["a_a", "a_a", "b"]
    assert glue_once([], pairs) == []


def test_two_passes_find_three_words() -> None:
    lines = ["the new york times", "new york times", "the old times", "the a b"] * 3
    text = [line.split() for line in lines]
    # 39 words: (new, york) 4/36 * 39 = 4.3, (york, times) 2.9, (a, b) 4.3, others below 1.5; then 30 words:
    # (new_york, times) 4/54 * 30 = 2.2
    told: list[str] = []
    learned = learn_phrases(lambda: text, passes=2, threshold=2.0, discount=2, tell=told.append)
    assert learned.glue(["the", "new", "york", "times"]) == ["the", "new_york_times"]
    assert learned.passes[1] == {("new_york", "times"): pytest.approx(4 / 54 * 30)}
    assert len(told) == 2


@settings(max_examples=80, deadline=None)
@given(
    text=st.lists(st.lists(st.sampled_from("abcde"), max_size=9), min_size=1),
    at_a_time=st.integers(1, 9),
    min_count=st.integers(1, 3),
)
def test_pairs_are_counted_as_a_dictionary_would(text: list[list[str]], at_a_time: int, min_count: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PAIRS_AT_A_TIME", at_a_time)
        try:
            counts = count(text, min_count=min_count)
        except UserError:
            return
        keys, numbers = count_pairs(text, counts)
    expected = Counter(
        counts.index[a] * len(counts) + counts.index[b]
        for words in text
        for a, b in pairwise(words)
        if a in counts.index and b in counts.index
    )
    assert list(zip(keys.tolist(), numbers.tolist(), strict=True)) == sorted(expected.items())


def test_too_many_pairs_forget_the_rarest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAIRS_AT_A_TIME", 1)
    text = [["a", "b"], ["a", "b"], ["b", "c"], ["c", "a"]]
    counts = count(text)  # a 3, b 3, c 2
    keys, numbers = count_pairs(text, counts, most_pairs=2)
    assert (keys.tolist(), numbers.tolist()) == ([1], [2])


def random_text() -> list[list[str]]:
    numbers = random.Random(5)
    text = []
    for _ in range(300):
        words = numbers.choices("abcdefghijkl", weights=[1 / i for i in range(1, 13)], k=8)
        if numbers.random() < 0.4:
            words[3:3] = ["x", "y"]
        if numbers.random() < 0.2:
            words += ["p", "q", "r"]
        text.append(words)
    return text


def test_against_gensim() -> None:
    gensim = pytest.importorskip("gensim")
    text, discount, threshold = random_text(), 5, 1.05
    learned = learn_phrases(lambda: text, threshold=threshold, discount=discount)
    total = sum(map(len, text))
    # gensim's scorer multiplies by the number of entries in its table where the paper's program takes running words.
    theirs = gensim.models.Phrases(text, min_count=discount, threshold=1e-9, scoring="default", delimiter="_")
    entries = len(theirs.vocab)
    theirs = gensim.models.Phrases(text, min_count=discount, threshold=threshold * entries / total, delimiter="_")
    expected = {tuple(pair.split("_")): value * total / entries for pair, value in theirs.export_phrases().items()}
    assert len(expected) > 5
    assert dict(learned.passes[0]) == {pair: pytest.approx(value) for pair, value in expected.items()}
    assert [learned.glue(words) for words in text] == [theirs[words] for words in text]


def test_saved_and_loaded(tmp_path: Path) -> None:
    learned = learn_phrases(random_text, passes=2, threshold=1.05, discount=5)
    save_phrases(tmp_path / "phrases.json", learned)
    loaded = load_phrases(tmp_path / "phrases.json")
    assert [dict(pairs) for pairs in loaded.passes] == [dict(pairs) for pairs in learned.passes]
    for content in (
        "[]",
        "{",
        '{"format": 1}',
        '{"format": 1, "passes": [3]}',
        '{"format": 1, "passes": [[["a", 1.0]]]}',
    ):
        (tmp_path / "wrong.json").write_text(content)
        with pytest.raises(UserError, match=r"wrong\.json"):
            load_phrases(tmp_path / "wrong.json")
