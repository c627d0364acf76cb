"""ARPA files: what is written is read, by us and by kenlm; what is wrong is named with its line."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqloom.errors import DataError, UserError
from seqloom.ngrams.arpa import read_arpa, write_arpa
from seqloom.ngrams.building import build_ngrams
from seqloom.ngrams.model import NGramModel
from seqloom.ngrams.settings import NGramSettings
from seqloom.text.special import SPECIAL

WORDS = [*SPECIAL, "a", "bé", "c\u00a0c", "never"]
TEXT = np.array([4, 5, 6, 3, 4, 5, 6, 3, 3, 6, 5, 4, 4, 1, 3, 4, 5, 3, 4, 6, 5, 3])

SMALL = r"""\data\
ngram 1=5
ngram 2=4

\1-grams:
-1	<unk>
-99	<s>	-0.5
-0.5	</s>
-0.4	a	-0.2
-0.7	b	0.1

\2-grams:
-0.1	<s> a
-0.3	a b
-0.6	a </s>
-0.2	b </s>

\end\
"""


def small(**values: object) -> NGramModel:
    return build_ngrams(TEXT, NGramSettings.model_validate({"kind": "ngram_lm", **values}), len(WORDS))


def file_of(folder: Path, content: str | bytes) -> Path:
    path = folder / "model.arpa"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("ending", ["arpa", "arpa.gz"])
@pytest.mark.parametrize("smoothing", ["kneser_ney", "add_k"])
@pytest.mark.parametrize("order", [1, 2, 4, 6])
def test_what_is_written_is_read(tmp_path: Path, order: int, smoothing: str, ending: str) -> None:
    model = small(order=order, smoothing=smoothing, k=0.1, min_counts=[1, 1, 2][:order])
    path = tmp_path / f"model.{ending}"
    write_arpa(model, WORDS, path)
    found, words = read_arpa(path)
    assert words == WORDS
    assert (found.order, found.num_ngrams(), found.num_symbols) == (order, model.num_ngrams(), len(WORDS))
    np.testing.assert_allclose(found.score(TEXT), model.score(TEXT), rtol=1e-8)
    contexts = np.random.default_rng(3).integers(-1, len(WORDS), (50, 5))
    np.testing.assert_allclose(found.next(contexts), model.next(contexts), rtol=1e-8)
    opened = gzip.open if ending.endswith("gz") else open
    with opened(path, "rb") as file:
        lines = file.read().split(b"\n")
    assert lines[0] == b"\\data\\"
    assert any(line.startswith(b"-99\t<s>") for line in lines)


def test_a_file_by_hand(tmp_path: Path) -> None:
    for text in (SMALL, SMALL.replace("\t", "  "), SMALL.replace("\n", "\r\n"), "about\n\n" + SMALL):
        model, words = read_arpa(file_of(tmp_path, text))
        assert words == [*SPECIAL, "a", "b"]
        # <s> a, a b, b </s>; then b after <s>, </s> after b; then an unknown word, a after it, </s> after a
        scores = model.score(np.array([4, 5, 3, 5, 3, 1, 4, 3])) / math.log(10)
        np.testing.assert_allclose(scores, [-0.1, -0.3, -0.2, -0.5 - 0.7, -0.2, -0.5 - 1, -0.4, -0.6])
        assert np.isneginf(model.next(np.array([[2]]))[0, [0, 2]]).all()
    without = SMALL.replace("-1\t<unk>\n", "").replace("1=5", "1=4")
    model, _ = read_arpa(file_of(tmp_path, without))
    assert np.isneginf(model.score(np.array([1, 3]))[0])


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("\\data\\", "data", None, "there is no line \\data\\"),
        ("ngram 2=4", "ngram 3=4", 3, "expected the count of order 2"),
        ("ngram 2=4", "ngram two", 3, "expected 'ngram 1=' and a count"),
        ("1=5", "1=6", 11, "promises more 1-grams than there are"),
        ("1=5", "1=4", 10, "expected \\2-grams:"),
        ("2=4", "2=99999999999999", 17, "promises more 2-grams than there are"),
        ("2=4", "2=3", 16, "expected \\end\\"),
        ("-0.3\ta b", "-0.3\ta b c", 14, "expected a number and 2 words"),
        ("-0.3\ta b", "-0.3\ta", 14, "expected a number and 2 words"),
        ("-0.3\ta b", "0,3\ta b", 14, "expected a number"),
        ("-0.3\ta b", "0.3\ta b", 14, "at most 0"),
        ("-0.3\ta b", "nan\ta b", 14, "at most 0"),
        ("a\t-0.2", "a\tinf", 9, "back-off factor"),
        ("-0.3\ta b", "-0.3\ta x", 14, "'x' is not among the 1-grams"),
        ("-0.3\ta b", "-0.3\ta <s>", 14, "<s> can only be the first"),
        ("-0.3\ta b", "-0.3\t<s> a", 14, "comes twice"),
        ("-0.7\tb", "-0.7\ta", 10, "'a' comes twice"),
        ("-0.7\tb", "-0.7\t</s>", 10, "'</s>' comes twice"),
        ("-0.7\tb", "-0.7\t<pad>", 10, "reserved"),
        ("\\end\\", "", 18, "ends before \\end\\"),
        ("\\end\\", "\\3-grams:", 18, "expected \\end\\"),
    ],
)
def test_a_malformed_file_is_named_with_its_line(
    tmp_path: Path, old: str, new: str, line: int | None, message: str
) -> None:
    assert old in SMALL
    with pytest.raises(DataError) as caught:
        read_arpa(file_of(tmp_path, SMALL.replace(old, new, 1)))
    assert message in str(caught.value)
    assert caught.value.line == line


def test_longer_ngrams_need_their_contexts(tmp_path: Path) -> None:
    text = SMALL.replace("2=4\n", "2=4\nngram 3=1\n").replace("\\end\\", "\\3-grams:\n-0.1\tb a b\n\n\\end\\")
    with pytest.raises(DataError, match=r":20: the first 2 words of this n-gram are no n-gram"):
        read_arpa(file_of(tmp_path, text))
    many = "".join(f"ngram {order}=1\n" for order in range(1, 8))
    with pytest.raises(DataError, match="longer than 6 words"):
        read_arpa(file_of(tmp_path, f"\\data\\\n{many}"))


def test_other_files(tmp_path: Path) -> None:
    file_of(tmp_path, SMALL)
    with pytest.raises(UserError, match=r"no such file \(did you mean 'model.arpa'"):
        read_arpa(tmp_path / "modle.arpa")
    with pytest.raises(UserError, match="this is a folder"):
        read_arpa(tmp_path)
    with pytest.raises(DataError, match="not UTF-8"):
        read_arpa(file_of(tmp_path, SMALL.encode().replace(b"\tb\t", b"\t\xff\t")))
    packed = tmp_path / "cut.arpa.gz"
    packed.write_bytes(gzip.compress(SMALL.encode())[:-20])
    with pytest.raises(DataError, match="cannot be unpacked"):
        read_arpa(packed)
    with pytest.raises(DataError, match="no line of an ARPA file is so long"):
        read_arpa(file_of(tmp_path, b"x" * (5 << 20)))


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("", "is empty"),
        ("new york", "space"),
        ("a\tb", "space"),
        ("<s>", "reserved"),
        ("a", "two ids"),
        ("\ud800", "UTF-8"),
    ],
)
def test_words_that_cannot_be_written(tmp_path: Path, word: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        write_arpa(small(order=2), [*WORDS[:-1], word], tmp_path / "x.arpa")
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_text_is_a_model_or_a_clear_error(tmp_path: Path, data: st.DataObject) -> None:
    content = bytearray(SMALL.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place : place + data.draw(st.integers(0, 4))] = data.draw(st.sampled_from(list(PIECES)))
    try:
        model, words = read_arpa(file_of(tmp_path, bytes(content)))
    except UserError:
        return  # anything else is a fault of ours
    assert len(words) == len(set(words)) == model.num_symbols
    # What could be read is as sound as what was saved by us.
    NGramModel.from_tensors(model.tensors(), model.settings, model.num_symbols)
    model.next(np.arange(model.num_symbols)[:, None])


PIECES = (
    b"",
    b"\n",
    b"\t",
    b" ",
    b"a",
    b"b",
    b"</s>",
    b"<s>",
    b"-",
    b"9",
    b".",
    b"\\",
    b"\xff",
    b"1e999",
    b"\x0b",
    b"=3",
)


def test_kenlm_scores_our_files_as_we_do(tmp_path: Path) -> None:
    kenlm = pytest.importorskip("kenlm")
    generator = np.random.default_rng(5)
    sentences = [(4 + generator.geometric(0.3, generator.integers(0, 12)) % 20).tolist() for _ in range(300)]
    words = [*SPECIAL, *(f"w{number}" for number in range(4, 24))]
    text = np.array([word for sentence in sentences[:250] for word in [*sentence, 3]])
    for order, smoothing, min_counts in ((5, "kneser_ney", []), (3, "kneser_ney", [1, 1, 2]), (3, "add_k", [])):
        values = {"order": order, "smoothing": smoothing, "k": 0.1, "min_counts": min_counts}
        model = build_ngrams(text, NGramSettings.model_validate({"kind": "ngram_lm", **values}), len(words))
        write_arpa(model, words, tmp_path / "model.arpa")
        theirs = kenlm.Model(str(tmp_path / "model.arpa"))
        judged = [[*sentence, 1] for sentence in sentences[200:]]
        found = [step[0] for s in judged for step in theirs.full_scores(" ".join(words[word] for word in s))]
        ours = model.score(np.array([word for sentence in judged for word in [*sentence, 3]])) / math.log(10)
        np.testing.assert_allclose(found, ours, atol=2e-6)
