"""Files of vectors: what we write we read, what gensim writes we read and the other way round, damage is named."""

from __future__ import annotations

import gzip
import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import UserError
from seqloom.kernels.numbers import POWERS, parse_lines
from seqloom.vectors import fasttext_format, finishing, text_format
from seqloom.vectors.formats import WRITTEN, detect, read_vectors, write_vectors
from seqloom.vectors.settings import SubwordSettings
from seqloom.vectors.table import WordVectors

sizes = st.integers(1, 6)
odd_words = st.text(st.characters(blacklist_characters=" \n", blacklist_categories=["Cs"]), min_size=1, max_size=6)
finite = st.floats(width=32, allow_nan=False, allow_infinity=False)


@st.composite
def tables(draw: st.DrawFn) -> WordVectors:
    words = draw(st.lists(odd_words, unique=True, min_size=1, max_size=8))
    size = draw(sizes)
    numbers = draw(st.lists(finite, min_size=len(words) * size, max_size=len(words) * size))
    return WordVectors(words, np.array(numbers, np.float32).reshape(len(words), size))


def same(ours: WordVectors, theirs: WordVectors) -> None:
    assert ours.words == theirs.words
    np.testing.assert_array_equal(ours.matrix, theirs.matrix)


def small(words: int = 5, size: int = 3, seed: int = 0) -> WordVectors:
    generator = np.random.default_rng(seed)
    names = ["the", "München", "naïve", "东京", "i\u0307\u00a0x", "a\u2028b", "-", "3.5", "…"][:words]
    names += [f"w{i}" for i in range(words - len(names))]
    return WordVectors(names, generator.normal(size=(words, size)).astype(np.float32))


# -- ours to ours -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("format", WRITTEN)
@given(vectors=tables(), block=st.integers(1, 60))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, format: str, compiled: bool, vectors: WordVectors, block: int
) -> None:
    path = tmp_path_factory.mktemp("formats") / "vectors"
    write_vectors(vectors, path, format)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("seqloom.vectors.text_format.BLOCK", block)  # lines cut anywhere
        patch.setattr("seqloom.vectors.binary_format.BLOCK", block)
        patch.setattr("seqloom.vectors.text_format.LINES_AT_ONCE", 3)
        if not compiled:
            patch.setattr("seqloom.vectors.text_format.can_compile", lambda: False)
        same(read_vectors(path, format), vectors)


@pytest.mark.parametrize("format", WRITTEN)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_the_format_is_told_from_the_content(tmp_path: Path, format: str, ending: str) -> None:
    vectors = small(9, 4)
    write_vectors(vectors, tmp_path / "plain", format)
    path = tmp_path / f"vectors.txt{ending}"
    data = (tmp_path / "plain").read_bytes()
    path.write_bytes(gzip.compress(data) if ending else data)
    assert detect(path) == ("word2vec" if format == "fasttext" else format)
    same(read_vectors(path), vectors)
    first = read_vectors(path, limit=2)
    assert first.words == vectors.words[:2]
    np.testing.assert_array_equal(first.matrix, vectors.matrix[:2])
    same(read_vectors(path, limit=100), vectors)


def test_a_binary_number_that_begins_like_a_line_break_is_no_damaged_text(tmp_path: Path) -> None:
    number = np.frombuffer(b"\n\x8cR>", "<f4")[0]
    vectors = WordVectors(["the", "cat"], np.full((2, 50), number, np.float32))
    path = tmp_path / "vectors"
    write_vectors(vectors, path, "word2vec-binary")
    assert detect(path) == "word2vec-binary"
    assert (read_vectors(path).matrix == vectors.matrix).all()


def test_a_file_appears_complete_or_not_at_all(tmp_path: Path) -> None:
    for word in ("new york", "a\nb", ""):
        with pytest.raises(UserError, match=r"word 2 .* which glove files cannot hold"):
            write_vectors(WordVectors(["a", word], np.ones((2, 2), np.float32)), tmp_path / "x", "glove")
    with pytest.raises(UserError, match="format must be one of"):
        write_vectors(small(), tmp_path / "x", "fasttext-binary")
    assert not list(tmp_path.iterdir())


def test_glove_grows_as_words_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqloom.vectors.sources.FIRST_ROWS", 2)
    monkeypatch.setattr("seqloom.vectors.text_format.LINES_AT_ONCE", 5)
    vectors = small(57, 3)
    write_vectors(vectors, tmp_path / "x", "glove")
    same(read_vectors(tmp_path / "x"), vectors)


# -- reading numbers --------------------------------------------------------------------------------------------------

plain_numbers = st.one_of(
    finite.map(repr),
    st.floats(-1e6, 1e6).map(lambda value: f"{value:.6f}"),
    st.from_regex(r"[+-]?([0-9]{1,20}\.?[0-9]{0,20}|\.[0-9]{1,20})([eE][+-]?[0-9]{1,2})?", fullmatch=True),
)


@given(st.lists(plain_numbers, min_size=1, max_size=5), st.sampled_from(["", " ", "\r", " \r"]))
def test_numbers_are_rounded_as_python_rounds_them(texts: list[str], ending: str) -> None:
    with np.errstate(over="ignore"):
        expected = np.array([np.float32(float(text)) for text in texts])
    line = f"word {' '.join(texts)}{ending}\n".encode()
    out, starts, ends = np.empty((1, len(texts)), np.float32), np.empty(1, np.int64), np.empty(1, np.int64)
    done, position = parse_lines(np.frombuffer(line, np.uint8), 0, POWERS, out, starts, ends)
    assert (done, position) in ((1, len(line)), (0, 0))
    if done:
        np.testing.assert_array_equal(out[0], expected)
        assert (starts[0], ends[0]) == (0, 4)
    short = all(sum(c.isdigit() for c in text.lower().partition("e")[0]) <= 15 for text in texts)
    if short and all(
        1e-9 < abs(value) < 1e9 and "e" not in text.lower() for value, text in zip(expected, texts, strict=True)
    ):
        assert done == 1, "ordinary numbers take the fast way"
    if np.isfinite(expected).all():
        vector, word = text_format.parse_line(line[:-1], len(texts), Path("x"), 1)
        np.testing.assert_array_equal(vector, expected)
        assert word == b"word"


@given(st.binary(max_size=300), st.booleans())
def test_any_bytes_are_vectors_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, headed: bool
) -> None:
    path = tmp_path_factory.mktemp("any") / "x"
    path.write_bytes(b"2 3\n" + data if headed else data)
    for format in (None, "word2vec", "word2vec-binary", "glove"):
        with suppress(UserError):
            assert np.isfinite(read_vectors(path, format).matrix).all()


@given(st.binary(max_size=200), st.integers(0, 200))
def test_any_damage_to_a_fasttext_model_is_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, noise: bytes, place: int
) -> None:
    path = tmp_path_factory.mktemp("any") / "x.bin"
    whole = fasttext_file(["where", "there"], 3, 11)
    path.write_bytes(whole[:place] + noise + whole[place + len(noise) :])
    with suppress(UserError):
        assert np.isfinite(read_vectors(path, "fasttext-binary").matrix).all()
    path.write_bytes(whole[:place])
    if place < len(whole):
        with pytest.raises(UserError, match=r"cut|too short|not a fastText model"):
            read_vectors(path, "fasttext-binary")


def test_words_with_spaces_are_read_from_glove(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_bytes(b"the 1 2 3\n. . . 4 5 6\nat name@x.org 7 8 9\nend -1 .5 +2e-1\n")
    found = read_vectors(path)
    assert found.words == ["the", ". . .", "at name@x.org", "end"]
    np.testing.assert_array_equal(found.matrix[3], np.array([-1, 0.5, 0.2], np.float32))


def test_fasttext_lines_end_with_a_space_and_windows_lines_with_a_return(tmp_path: Path) -> None:
    (tmp_path / "x.vec").write_bytes(b"2 2\n</s> 1 2 \nthe 3 4 \n")
    (tmp_path / "y.vec").write_bytes(b"2 2\r\n</s> 1 2\r\nthe 3 4\r\n\r\n")
    for name in ("x.vec", "y.vec"):
        found = read_vectors(tmp_path / name)
        assert found.words == ["</s>", "the"]
        np.testing.assert_array_equal(found.matrix, [[1, 2], [3, 4]])


@pytest.mark.parametrize(
    ("content", "format", "message"),
    [
        (b"", None, "x: the file is empty"),
        (b"3 2\na 1.0 2.0\nb 3.0 4.0\n", None, r"x:4: the first line promises 3 words, but the file ends after 2"),
        (b"1 2\na 1 2\nb 3 4\n", None, r"x:3: the first line promises 1 words, but there are more"),
        (b"2 2\na 1 2\nb 3\n", None, r"x:3: expected a word and 2 numbers, found 1"),
        (b"2 2\na 1 2\n\nb 3 4\n", None, r"x:3: expected a word and 2 numbers"),
        (b"2 2\na 1 2\nb 3 four\n", None, r"x:3: number 2 of the word 'b' is 'four', not a number"),
        (b"2 2\na 1 2\nb 3 nan\n", None, r"x:3: number 2 of the word 'b' is nan, not finite"),
        (b"2 2\na 1 2\nb -inf 2\n", None, r"x:3: number 1 of the word 'b' is -inf, not finite"),
        (b"2 2\na 1 2\nb 1e39 2\n", None, r"x:3: number 1 of the word 'b' is 1e39, not finite"),
        (b"2 2\na 1 2\n 1 2\n", None, r"x:3: expected a word and 2 numbers"),
        (b"99999999999 300\na 1 2\n", "word2vec", "the file is too short"),
        (b"2 0\na\nb\n", "word2vec", "vectors must have 1 to"),
        (b"two words\na 1 2\n", "word2vec", r"x:1: expected a first line with the numbers"),
        (b"a 1 2\nb 1 2\nc 1\n", None, r"x:3: expected a word and 2 numbers, found 1"),
        (b"a 1 2\nb 1 x\n", None, r"x:2: number 2 of the word 'b' is 'x'"),
        (b"just text\nin lines\n", None, r"x:1: number 1 of the word 'just' is 'text', not a number"),
        (b"\x89PNG\r\n\x1a\n\0\0\0", None, "not vectors of a known format"),
        (b"2 2\na " + struct.pack("<2f", 1, 2) + b"b ", "word2vec-binary", "too short"),
        (b"2 2\na  \n\0" + struct.pack("<2f", 1, 2) + b"bcdefg", "word2vec-binary", r"within number 2 \(byte 14\)"),
        (b"1 2\n" + b"a " + struct.pack("<2f", 1, 2) + b"more", "word2vec-binary", "there is more after them"),
        (b"1 2\n" + b"a " + struct.pack("<2f", 1, np.nan), "word2vec-binary", r"the vector of 'a' \(word 1\) holds"),
        (b"2 1\n" + b"a    1  b    ", "word2vec-binary", "there is no word"),
    ],
)
def test_damage_is_named(tmp_path: Path, content: bytes, format: str | None, message: str) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_vectors(tmp_path / "x", format)


def test_more_damage(tmp_path: Path) -> None:
    (tmp_path / "x.gz").write_bytes(gzip.compress(b"2 2\na 1 2\nb 3 4\n")[:-9])
    with pytest.raises(UserError, match="cannot be unpacked"):
        read_vectors(tmp_path / "x.gz")
    (tmp_path / "glove.txt").write_bytes(b"a 1\n")
    with pytest.raises(UserError, match=r"no such file \(did you mean 'glove.txt'"):
        read_vectors(tmp_path / "glov.txt")
    with pytest.raises(UserError, match="this is a folder"):
        read_vectors(tmp_path)
    with pytest.raises(UserError, match="format must be one of"):
        read_vectors(tmp_path / "glove.txt", "tsv")
    with pytest.raises(UserError, match="limit must be at least 1"):
        read_vectors(tmp_path / "glove.txt", limit=0)


def test_words_twice_or_not_utf8_are_told(tmp_path: Path) -> None:
    heard: list[str] = []
    (tmp_path / "x").write_bytes(b"4 1\na 1\nb 2\na 3\ncaf\xc3 4\n")
    found = read_vectors(tmp_path / "x", told=heard.append)
    assert found.words == ["a", "b", "caf\\xc3"]
    assert found.matrix[:, 0].tolist() == [1, 2, 4]
    assert [line.partition(": ")[2] for line in heard] == [
        "1 words are not UTF-8; their bytes are shown as \\x…",
        "1 words come more than once; the first vector of each is kept",
    ]


# -- fastText's models ------------------------------------------------------------------------------------------------


def fasttext_file(
    words: list[str],
    size: int,
    buckets: int,
    *,
    model: int = 2,
    quantised: bool = False,
    version: int = 12,
    longest: int = 4,
    labels: int = 0,
) -> bytes:
    """A model as fastText's source describes it (Args::save, Dictionary::save, DenseMatrix::save)."""
    generator = np.random.default_rng(0)
    rows = len(words) + (buckets if longest else 0)
    data = struct.pack("<2i", 793712314, version)
    data += struct.pack("<12id", size, 5, 5, 1, 5, 1, 1, model, buckets, 3, longest, 100, 1e-4)
    data += struct.pack("<3i2q", len(words), len(words) - labels, labels, 1000, -1)
    for number, word in enumerate(words):
        data += word.encode() + b"\0" + struct.pack("<qb", 1000 - number, 0)
    data += struct.pack("<?2q", quantised, rows, size)
    data += generator.normal(size=(rows, size)).astype("<f4").tobytes()
    return data + struct.pack("<?2q", False, len(words), size) + bytes(4 * size * len(words))


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("packed", [True, False])
def test_a_fasttext_model_by_hand(
    tmp_path: Path, compiled: bool, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqloom.vectors.finishing.can_compile", lambda: compiled)
    words = ["</s>", "where", "是", "naïve"]
    path = tmp_path / ("x.bin.gz" if packed else "x.bin")
    path.write_bytes(gzip.compress(fasttext_file(words, 5, 13)) if packed else fasttext_file(words, 5, 13))
    found = read_vectors(path)
    rows = np.random.default_rng(0).normal(size=(17, 5)).astype(np.float32)
    assert found.words == words
    assert found.subwords == SubwordSettings(shortest=3, longest=4, buckets=13)
    assert found.counts is not None
    assert found.counts.tolist() == [1000, 999, 998, 997]
    np.testing.assert_array_equal(found.own, rows[:4])
    np.testing.assert_array_equal(found.buckets, rows[4:])
    np.testing.assert_array_equal(found.matrix[0], rows[0])  # the end of a line has no pieces
    from seqloom.vectors.subwords import buckets_of

    for row in (1, 2, 3):
        pieces = rows[4:][buckets_of(words[row], found.subwords)]
        assert len(pieces)
        np.testing.assert_allclose(found.matrix[row], np.mean([rows[row], *pieces], 0), rtol=1e-5)
    first = read_vectors(path, limit=2)
    assert first.words == words[:2]
    np.testing.assert_array_equal(first.matrix, found.matrix[:2])
    np.testing.assert_array_equal(first.vector("unseen"), found.vector("unseen"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": 3}, "a supervised fastText model"),
        ({"labels": 1}, "1 labels among 2 entries"),
        ({"quantised": True}, "a quantised fastText model"),
        ({"version": 99}, "of version 99"),
        ({"longest": 21}, "are more than seqloom reads"),
    ],
)
def test_other_fasttext_models_are_refused(tmp_path: Path, change: dict[str, int], message: str) -> None:
    (tmp_path / "x.bin").write_bytes(fasttext_file(["a", "b"], 2, 7, **change))  # type: ignore[arg-type]
    with pytest.raises(UserError, match=message):
        read_vectors(tmp_path / "x.bin")


def test_a_fasttext_model_without_pieces(tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(fasttext_file(["a", "b"], 2, 7, longest=0))
    found = read_vectors(tmp_path / "x.bin")
    assert found.subwords is None
    np.testing.assert_array_equal(found.matrix, np.random.default_rng(0).normal(size=(2, 2)).astype(np.float32))


@given(st.lists(odd_words, min_size=1, max_size=5), st.integers(1, 4), st.integers(0, 3), st.integers(1, 40))
def test_compiled_pieces_equal_plain_ones(words: list[str], shortest: int, more: int, buckets: int) -> None:
    s = SubwordSettings(shortest=shortest, longest=shortest + more, buckets=buckets)
    generator = np.random.default_rng(0)
    own = generator.normal(size=(len(words), 3)).astype(np.float32)
    rows = generator.normal(size=(buckets, 3)).astype(np.float32)
    raw = [word.encode() for word in words]
    plain = finishing.plain_finished_vectors(raw, own, rows, s)
    np.testing.assert_allclose(finishing.finished_vectors(raw, own, rows, s), plain, rtol=1e-4, atol=1e-5)


# -- gensim on the other side -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("binary", [True, False])
def test_gensim_reads_what_we_write(tmp_path: Path, binary: bool) -> None:
    keyed = pytest.importorskip("gensim.models").KeyedVectors
    vectors = small(9, 4)
    path = tmp_path / "x"
    write_vectors(vectors, path, "word2vec-binary" if binary else "word2vec")
    theirs = keyed.load_word2vec_format(path, binary=binary)
    assert theirs.index_to_key == vectors.words
    np.testing.assert_array_equal(theirs.vectors, vectors.matrix)
    write_vectors(vectors, path, "glove")
    theirs = keyed.load_word2vec_format(path, binary=False, no_header=True)
    assert theirs.index_to_key == vectors.words
    np.testing.assert_array_equal(theirs.vectors, vectors.matrix)


@pytest.mark.parametrize(("binary", "header"), [(True, True), (False, True), (False, False)])
def test_we_read_what_gensim_writes(tmp_path: Path, binary: bool, header: bool) -> None:
    keyed = pytest.importorskip("gensim.models").KeyedVectors
    vectors = small(9, 4)
    theirs = keyed(4)
    theirs.add_vectors(vectors.words, vectors.matrix)
    theirs.save_word2vec_format(tmp_path / "x", binary=binary, write_header=header)
    same(read_vectors(tmp_path / "x"), vectors)


def test_we_read_a_fasttext_model_that_gensim_writes(tmp_path: Path) -> None:
    gensim_fasttext = pytest.importorskip("gensim.models.fasttext")
    sentences = [["where", "naïve", "there"], ["是", "here", "where"], ["there", "where", "it"]] * 3
    model = gensim_fasttext.FastText(
        sentences, vector_size=6, min_count=1, min_n=2, max_n=4, bucket=50, epochs=2, sg=1, workers=1
    )
    gensim_fasttext.save_facebook_model(model, str(tmp_path / "x.bin"))
    found = read_vectors(tmp_path / "x.bin")
    assert found.words == model.wv.index_to_key
    assert found.counts is not None
    assert found.counts.tolist() == [model.wv.get_vecattr(word, "count") for word in found.words]
    for word in [*found.words, "somewhere", "naïveté", "是的"]:
        np.testing.assert_allclose(found.vector(word), model.wv.get_vector(word), rtol=1e-4, atol=1e-6)
    assert (tmp_path / "x.bin").read_bytes()[:4] == fasttext_format.MAGIC
