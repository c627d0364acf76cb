"""Word vectors looked up, compared and kept: against values by hand, plain loops and gensim."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import UserError
from seqloom.vectors.settings import SubwordSettings
from seqloom.vectors.subwords import bucket, pieces
from seqloom.vectors.table import WordVectors


def random_vectors(words: int = 60, size: int = 11, seed: int = 0, **more: object) -> WordVectors:
    generator = np.random.default_rng(seed)
    names = [f"w{number}" for number in range(words)]
    return WordVectors(names, generator.normal(size=(words, size)).astype(np.float32), **more)  # type: ignore[arg-type]


def with_pieces(words: list[str], size: int = 7, buckets: int = 50, seed: int = 0) -> WordVectors:
    """fastText: a word is the mean of its own row and its pieces' rows."""
    generator = np.random.default_rng(seed)
    s = SubwordSettings(shortest=3, longest=4, buckets=buckets)
    own = generator.normal(size=(len(words), size)).astype(np.float32)
    rows = generator.normal(size=(buckets, size)).astype(np.float32)
    finished = [
        np.mean([own[i], *(rows[bucket(piece, buckets)] for piece in pieces(word, s))], 0)
        for i, word in enumerate(words)
    ]
    return WordVectors(list(words), np.array(finished, np.float32), subwords=s, buckets=rows, own=own)


# (1, 0), (0, 2), (3, 3), (-1, 0), and a zero vector: cosines known by hand.
BY_HAND = WordVectors(
    ["east", "north", "northeast", "west", "nowhere"],
    np.array([[1, 0], [0, 2], [3, 3], [-1, 0], [0, 0]], np.float32),
)


def test_similarities_by_hand() -> None:
    assert BY_HAND.similarity("east", "north") == 0.0
    assert BY_HAND.similarity("east", "northeast") == pytest.approx(0.5**0.5)
    assert BY_HAND.similarity("east", "west") == -1.0
    assert BY_HAND.similarity("east", "nowhere") == 0.0
    assert [n.word for n in BY_HAND.neighbours("east")] == ["northeast", "north", "nowhere", "west"]
    assert BY_HAND.neighbours(np.array([0.0, 5.0]), 2) == [("north", 1.0), ("northeast", pytest.approx(0.5**0.5))]
    assert [n.word for n in BY_HAND.neighbours("east", 2, exclude=["northeast"])] == ["east", "north"]


def test_unit_is_computed_once_and_keeps_zero_rows() -> None:
    assert BY_HAND.unit is BY_HAND.unit
    np.testing.assert_allclose(np.linalg.norm(BY_HAND.unit, axis=1), [1, 1, 1, 1, 0], rtol=1e-6)


def test_analogies_by_hand() -> None:
    # west is to east as north is to: north - west + east = (2, 1) -> northeast alone is left beside the zero vector.
    assert BY_HAND.analogy("west", "east", "north", 1)[0] == ("northeast", pytest.approx(3 / 10**0.5))
    # Shifted cosines of northeast: to east (1 + √½)/2, to north the same, to west (1 - √½)/2.
    high, low = (1 + 0.5**0.5) / 2, (1 - 0.5**0.5) / 2
    best = BY_HAND.analogy("west", "east", "north", 1, "multiply")[0]
    assert best == ("northeast", pytest.approx(high * high / (low + 0.001)))


def slow_answer(v: WordVectors, a: int, b: int, c: int, method: str, first: int) -> int:
    cosine = lambda i, j: v.matrix[i] @ v.matrix[j] / np.linalg.norm(v.matrix[i]) / np.linalg.norm(v.matrix[j])  # noqa: E731
    scores = {}
    for row in range(first):
        if row not in (a, b, c):
            to_a, to_b, to_c = (cosine(row, other) for other in (a, b, c))
            if method == "add":
                scores[row] = to_b - to_a + to_c
            else:
                scores[row] = (1 + to_b) / 2 * (1 + to_c) / 2 / ((1 + to_a) / 2 + 0.001)
    return max(scores, key=lambda row: scores[row])


@pytest.mark.parametrize("method", ["add", "multiply"])
@pytest.mark.parametrize("first", [60, 31])
def test_many_analogies_equal_a_plain_loop(method: str, first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqloom.vectors.table.QUESTIONS_AT_ONCE", 7)  # several chunks, the last one short
    monkeypatch.setattr("seqloom.vectors.table.WORDS_AT_ONCE", 13)
    v = random_vectors()
    questions = np.random.default_rng(1).integers(0, 60, (40, 3))
    found = v.answer_analogies(questions, [method], first)[method]  # type: ignore[list-item]
    assert found.tolist() == [slow_answer(v, *question, method, first) for question in questions.tolist()]
    if first == 60:
        single = [v.analogy(*(f"w{i}" for i in question), 1, method)[0].word for question in questions.tolist()]  # type: ignore[arg-type,misc]
        assert [f"w{row}" for row in found] == single


def test_what_gensim_users_try_gives_what_gensim_gives() -> None:
    models = pytest.importorskip("gensim.models")
    v = random_vectors(200, 13)
    theirs = models.KeyedVectors(13)
    theirs.add_vectors(v.words, v.matrix)
    np.testing.assert_array_equal(v["w7"], theirs["w7"])
    np.testing.assert_array_equal(v[["w7", "w3"]], theirs[["w7", "w3"]])
    assert (v.key_to_index, v.index_to_key, len(v)) == (theirs.key_to_index, theirs.index_to_key, len(theirs))
    assert ("w7" in v, "x" in v) == ("w7" in theirs, "x" in theirs) == (True, False)
    assert v.similarity("w1", "w2") == pytest.approx(theirs.similarity("w1", "w2"), rel=1e-5)
    asked: list[dict[str, object]] = [
        {"positive": "w3"},
        {"positive": ["w3", "w9"], "negative": ["w5"], "topn": 7},
        {"positive": ["w3", "w9", "w11"], "negative": "w5", "topn": 3},
        {"negative": ["w5"], "topn": 4},
        {"positive": [v["w3"], "w9"], "topn": 5},
    ]
    for how in asked:
        ours, other = v.most_similar(**how), theirs.most_similar(**how)  # type: ignore[arg-type]
        assert [n.word for n in ours] == [word for word, _ in other]
        np.testing.assert_allclose([n.similarity for n in ours], [score for _, score in other], rtol=1e-4)
    generator = np.random.default_rng(3)
    for _ in range(20):
        words = [f"w{i}" for i in generator.choice(200, 5, replace=False)]
        assert v.doesnt_match(words) == theirs.doesnt_match(words)


def test_what_gensim_users_try_wrongly() -> None:
    assert repr(BY_HAND) == f"<word vectors: {len(BY_HAND)} words, 2 numbers each>"
    with pytest.raises(KeyError, match=r"'wset' is not among the .* words that have a vector"):
        BY_HAND["wset"]
    with pytest.raises(UserError, match=r"^'wset' is not among"):  # in plain words, without the quotes of a KeyError
        BY_HAND.most_similar("wset")
    with pytest.raises(UserError, match="most_similar takes words"):
        BY_HAND.most_similar()
    with pytest.raises(UserError, match="doesnt_match takes a list of words, two or more; got 'west'"):
        BY_HAND.doesnt_match("west")


def test_where_no_word_is_left_there_is_no_answer() -> None:
    found = random_vectors(3).answer_analogies(np.array([[0, 1, 2], [0, 0, 1]]), ["add", "multiply"])
    assert {method: rows.tolist() for method, rows in found.items()} == {"add": [-1, 2], "multiply": [-1, 2]}


def test_neighbours_and_analogies_as_gensim_finds_them() -> None:
    models = pytest.importorskip("gensim.models")
    v = random_vectors(200, 13)
    theirs = models.KeyedVectors(13)
    theirs.add_vectors(v.words, v.matrix)
    for word in ("w0", "w7"):
        ours, other = v.neighbours(word, 12), theirs.most_similar(word, topn=12)
        assert [n.word for n in ours] == [word for word, _ in other]
        np.testing.assert_allclose([n.similarity for n in ours], [score for _, score in other], rtol=1e-5)
    other = theirs.most_similar(positive=["w3", "w9"], negative=["w5"], topn=9)
    ours = v.analogy("w5", "w3", "w9", 9)
    assert [n.word for n in ours] == [word for word, _ in other]
    np.testing.assert_allclose([n.similarity for n in ours], [score for _, score in other], rtol=1e-5)
    # gensim keeps another, smaller number in 3CosMul's denominator.
    other = theirs.most_similar_cosmul(positive=["w3", "w9"], negative=["w5"], topn=3)
    ours = v.analogy("w5", "w3", "w9", 3, "multiply")
    assert [n.word for n in ours] == [word for word, _ in other]
    np.testing.assert_allclose([n.similarity for n in ours], [score for _, score in other], rtol=0.02)


@given(st.integers(1, 40), st.integers(0, 45), st.integers(0, 2**32 - 1))
def test_neighbours_are_sorted_complete_and_without_the_word(words: int, count: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    matrix = generator.integers(-1, 2, (words, 2)).astype(np.float32)  # many equal vectors
    v = WordVectors([f"w{i}" for i in range(words)], matrix)
    if count == 0:
        with pytest.raises(UserError, match="count must be at least 1"):
            v.neighbours("w0", count)
        return
    found = v.neighbours("w0", count)
    cosines = v.unit @ v.unit[0]
    order = sorted(range(1, words), key=lambda row: (-cosines[row], row))
    assert [n.word for n in found] == [f"w{row}" for row in order[:count]]


def test_unknown_words() -> None:
    v = WordVectors(["witch", "which", "Paris", "green"], np.eye(4, dtype=np.float32))
    with pytest.raises(UserError, match=r"'wich' is not among the 4 words .* \(did you mean 'witch' or 'which'\?\)"):
        v.vector("wich")
    with pytest.raises(UserError, match="did you mean 'Paris'"):
        v.neighbours("paris")
    with pytest.raises(UserError, match=r"have a vector$"):
        v.vector("xylophone")
    assert not v.knows("wich")
    assert v.knows("witch")
    with pytest.raises(UserError, match="method must be one of add, multiply"):
        v.analogy("witch", "which", "green", method="subtract")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="have 4 numbers"):
        v.neighbours(np.zeros(3))


def test_unknown_words_are_made_of_their_pieces() -> None:
    v = with_pieces(["where", "there"])
    assert v.subwords is not None
    assert v.buckets is not None
    assert v.knows("here")
    rows = [v.buckets[bucket(piece, 50)] for piece in pieces("here", v.subwords)]
    np.testing.assert_allclose(v.vector("here"), np.mean(rows, 0), rtol=1e-6)
    np.testing.assert_array_equal(v.vector("where"), v.matrix[0])
    assert len(v.neighbours("here", 5)) == 2
    assert not v.knows("")  # `<>` has no piece of three characters
    with pytest.raises(UserError, match="is not among"):
        v.vector("")


def test_lowercase_is_told_from_the_words() -> None:
    assert BY_HAND.lowercase
    assert not WordVectors(["the", "Paris"], np.eye(2, dtype=np.float32)).lowercase


# -- keeping ----------------------------------------------------------------------------------------------------------

words_without_breaks = st.text(st.characters(blacklist_characters="\n", blacklist_categories=["Cs"]), max_size=8)


@given(st.lists(words_without_breaks, unique=True, max_size=12), st.integers(1, 5), st.booleans(), st.booleans())
def test_what_is_saved_is_what_is_loaded(
    tmp_path_factory: pytest.TempPathFactory, words: list[str], size: int, pieced: bool, counted: bool
) -> None:
    folder = tmp_path_factory.mktemp("kept")
    v = with_pieces(words, size) if pieced and words else random_vectors(len(words), size)
    counts = np.arange(len(words))[::-1] if counted else None
    output = v.matrix + 1
    v = WordVectors(words, v.matrix, counts, v.subwords, v.buckets, v.own, output)
    v.save(folder)
    back = WordVectors.load(folder)
    assert back.words == v.words
    assert back.subwords == v.subwords
    for name in ("matrix", "counts", "buckets", "own", "output"):
        before, after = getattr(v, name), getattr(back, name)
        assert (before is None) == (after is None)
        if before is not None:
            np.testing.assert_array_equal(before, after)


def test_the_file_is_a_safetensors_file_to_others(tmp_path: Path) -> None:
    numpy = pytest.importorskip("safetensors.numpy")
    v = with_pieces(["where", "there"])
    v.save(tmp_path)
    found = numpy.load_file(tmp_path / "vectors.safetensors")
    assert set(found) == {"vectors", "own", "buckets"}
    np.testing.assert_array_equal(found["buckets"], v.buckets)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.99])
def test_a_cut_file_is_refused(tmp_path: Path, share: float) -> None:
    random_vectors().save(tmp_path)
    path = tmp_path / "vectors.safetensors"
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(UserError, match=r"vectors\.safetensors: damaged"):
        WordVectors.load(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\nb\n", "holds 2 words, but vectors.safetensors has 3 vectors"),
        (b"a\nb\na\n", r"words\.txt:3: the word 'a' comes twice"),
        (b"a\nb\nc", "ends in the middle"),
        (b"a\nb\xff\nc\n", r"words\.txt:2: not UTF-8 text \(byte 0xff\)"),
        (b"a" * 50_000, "far too large"),
    ],
)
def test_damaged_words_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    random_vectors(3).save(tmp_path)
    (tmp_path / "words.txt").write_bytes(content)
    with pytest.raises(UserError, match=message):
        WordVectors.load(tmp_path)


def write_safetensors(path: Path, arrays: dict[str, np.ndarray], about: dict[str, str] | None = None) -> None:
    save_file = pytest.importorskip("safetensors.numpy").save_file
    save_file(arrays, path, about)


@pytest.mark.parametrize(
    ("arrays", "about", "message"),
    [
        ({"weights": np.zeros((3, 2), np.float32)}, None, "'weights' is no part of word vectors"),
        ({"own": np.zeros((3, 2), np.float32)}, None, "holds no 'vectors'"),
        ({"vectors": np.zeros((3, 2), np.float64)}, None, "'vectors' is not as seqloom writes it"),
        ({"vectors": np.zeros(6, np.float32)}, None, "'vectors' is not as seqloom writes it"),
        ({"vectors": np.full((3, 2), np.nan, np.float32)}, None, "row 0 of 'vectors' holds a number that is not"),
        ({"vectors": np.zeros((3, 2), np.float32), "own": np.zeros((2, 2), np.float32)}, None, "'own' has the shape"),
        ({"vectors": np.zeros((3, 2), np.float32)}, {"subwords": json.dumps({})}, "do not come together"),
        ({"vectors": np.zeros((3, 2), np.float32)}, {"subwords": "{"}, "not valid JSON"),
        ({"vectors": np.zeros((3, 2), np.float32)}, {"subwords": '{"longest": 99}'}, "subwords.longest"),
    ],
)
def test_strange_arrays_are_refused(
    tmp_path: Path, arrays: dict[str, np.ndarray], about: dict[str, str] | None, message: str
) -> None:
    random_vectors(3).save(tmp_path)
    write_safetensors(tmp_path / "vectors.safetensors", arrays, about)
    with pytest.raises(UserError, match=message):
        WordVectors.load(tmp_path)


def test_a_word_with_a_line_break_cannot_be_kept(tmp_path: Path) -> None:
    v = WordVectors(["a\nb"], np.ones((1, 2), np.float32))
    with pytest.raises(UserError, match="holds a line break"):
        v.save(tmp_path)
    assert not list(tmp_path.iterdir())
