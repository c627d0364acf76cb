"""Word vectors measured: against values by hand, gensim and scipy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import UserError
from seqloom.evaluation.word_files import Judged, Question, asks_analogies, read_judgements, read_questions
from seqloom.evaluation.words import compare_pairs, evaluate_file, solve_analogies, spearman
from seqloom.vectors.settings import SubwordSettings
from seqloom.vectors.table import WordVectors

GOOGLE = """: family
boy girl king queen
boy girl man dragon
: gram1-plural
One Ones two twos
: empty of us
here there be dragons
"""


def grid() -> WordVectors:
    """Two features each: what is asked for is where it should be."""
    words = {
        "boy": (1, 0, 0, 0),
        "girl": (1, 1, 0, 0),
        "king": (0, 0, 1, 0.1),
        "queen": (0, 1, 1, 0.1),
        "man": (0.5, 0, 0.5, 0),
        "dragon": (-1, -1, -1, -1),
        "one": (0, 0, 0.5, 1),
        "ones": (0, -1, 0.5, 1),
        "two": (0.3, 0, 0.4, 1),
        "twos": (0.3, -1, 0.4, 1),
    }
    return WordVectors(list(words), np.array(list(words.values()), np.float32))


def test_google_questions_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "google.txt"
    path.write_text(GOOGLE)
    report = evaluate_file(grid(), path)
    assert report.to_dict() == {
        "name": "google",
        "kind": "analogies",
        "count": 4,
        "asked": 3,
        "coverage": 75.0,
        "add": pytest.approx(200 / 3),
        "multiply": pytest.approx(200 / 3),
        "semantic": {"name": "semantic", "count": 3, "asked": 2, "add": 50.0, "multiply": 50.0},
        "syntactic": {"name": "syntactic", "count": 1, "asked": 1, "add": 100.0, "multiply": 100.0},
        "sections": [
            {"name": "family", "count": 2, "asked": 2, "add": 50.0, "multiply": 50.0},
            {"name": "gram1-plural", "count": 1, "asked": 1, "add": 100.0, "multiply": 100.0},
            {"name": "empty of us", "count": 1, "asked": 0, "add": None, "multiply": None},
        ],
    }
    lines = report.render().splitlines()
    assert lines[0] == "google: 3 of 4 questions asked (75.0 %)"
    assert lines[2].split() == ["section", "questions", "asked", "3CosAdd", "3CosMul"]
    assert lines[-1].split() == ["all", "4", "3", "66.67", "66.67"]
    assert lines[-3].split() == ["semantic", "3", "2", "50.00", "50.00"]
    assert any(line.split() == ["empty", "of", "us", "1", "0", "–", "–"] for line in lines)


def test_capital_letters_count_where_the_vectors_have_some() -> None:
    v = grid()
    cased = WordVectors([word.title() if word in ("one", "ones") else word for word in v.words], v.matrix)
    question = {"x": [Question("One", "Ones", "two", "twos")], "y": [Question("Boy", "Girl", "king", "queen")]}
    report = solve_analogies(cased, question)
    assert [section.asked for section in report.sections] == [1, 0]


def test_only_the_most_frequent_words() -> None:
    v = grid()
    questions = {"family": [Question("boy", "girl", "king", "queen"), Question("boy", "girl", "king", "twos")]}
    report = solve_analogies(v, questions, most_frequent=5)
    assert (report.all.asked, report.all.right) == (1, {"add": 1, "multiply": 1})
    assert report.to_dict()["most_frequent"] == 5
    assert "among the 5 most frequent words" in report.render()


def test_a_table_of_questions(tmp_path: Path) -> None:
    path = tmp_path / "msr.csv"
    path.write_text(",type,word1,word2,word3,target\n0,NN_NNS,one,ones,two,twos\n1,NNS_NN,ones,one,twos,two\n")
    assert asks_analogies(path)
    assert read_questions(path) == {
        "NN_NNS": [Question("one", "ones", "two", "twos")],
        "NNS_NN": [Question("ones", "one", "twos", "two")],
    }
    report = evaluate_file(grid(), path, ["add"])
    assert report.to_dict()["syntactic"]["add"] == 100.0
    assert "semantic" not in report.to_dict()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (",word1,word2,similarity\n0,car,automobile,3.92\n1,gem,jewel,3.84\n", [("car", "automobile", 3.92)]),
        (",similarity,word1,word2,relation\n0,6.81,take,remove,synonyms\n", [("take", "remove", 6.81)]),
        ("# The title\n# Word 1\tWord 2\tHuman (mean)\nold\tnew\t1.58\n", [("old", "new", 1.58)]),
        ("Word 1,Word 2,Human (mean)\nlove,sex,6.77\n", [("love", "sex", 6.77)]),
        ("word1\tword2\tPOS\tSimLex999\tconc(w1)\nold\tnew\tA\t1.58\t2.72\n", [("old", "new", 1.58)]),
        ("sun-n sunlight-n 50.0\nrun-v go-v 20\n", [("sun", "sunlight", 50.0), ("run", "go", 20.0)]),
        ("sun-n sunlight 50.0\n", [("sun-n", "sunlight", 50.0)]),
        (",word1,word2,similarity\n0,Promised Land,Baku,0.42\n1,,,\n", [("Promised Land", "Baku", 0.42)]),
        ("gem;jewel;3\n", [("gem", "jewel", 3.0)]),
    ],
)
def test_pairs_in_their_many_forms(tmp_path: Path, text: str, expected: list[tuple[str, str, float]]) -> None:
    (tmp_path / "x").write_text(text)
    assert not asks_analogies(tmp_path / "x")
    assert read_judgements(tmp_path / "x")[: len(expected)] == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        ("# only a comment\n", "is empty"),
        ("a b c d\ne f g\n", "x:2: expected two words and a score"),
        (": s\na b c\n", "x:2: expected four words, found 3"),
        (": s\n", "no question"),
        ("a\tb\t1\nc\td\tx\n", r"x:2: the score 'x' is not a number"),
        ("a\tb\t1\nc\td\n", r"x:2: expected 3 columns, found 2"),
        ("a\tb\n", "x:1: expected two words and a score"),
        (",word1,word2,word3,target\n0,a,b\n", "x:2: expected 5 columns, found 3"),
        (",word1,word2,similarity\n0,,,\n", "no pair"),
    ],
)
def test_faults_in_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x").write_text(text)
    with pytest.raises(UserError, match=message):
        evaluate_file(grid(), tmp_path / "x")


# -- Spearman ---------------------------------------------------------------------------------------------------------


def test_spearman_by_hand() -> None:
    assert spearman([1, 2, 3], [10, 20, 40]) == 1.0
    assert spearman([1, 2, 3], [3, 2, 1]) == -1.0
    # 1 - 6 * (0 + 1 + 1 + 0) / (4 * 15)
    assert spearman([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(0.8)
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: 4.5 / sqrt(4.5 * 5).
    assert spearman([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(4.5 / (4.5 * 5) ** 0.5)
    assert spearman([1, 1, 1], [1, 2, 3]) is None
    assert spearman([], []) is None
    assert spearman([1], [1]) is None


@given(st.lists(st.tuples(st.integers(-4, 4), st.floats(-9, 9)), min_size=2, max_size=30))
def test_spearman_as_scipy_computes_it(pairs: list[tuple[float, float]]) -> None:
    stats = pytest.importorskip("scipy.stats")
    first, second = zip(*pairs, strict=True)
    found = spearman(first, second)
    if len(set(first)) > 1 and len(set(second)) > 1:
        assert found == pytest.approx(stats.spearmanr(first, second).statistic, abs=1e-9)
    else:
        assert found is None


@given(st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=2, max_size=20), st.randoms())
def test_spearman_depends_on_ranks_alone(pairs: list[tuple[int, int]], random: object) -> None:
    first, second = zip(*pairs, strict=True)
    found = spearman(first, second)
    assert spearman(second, first) == (None if found is None else pytest.approx(found))
    assert spearman([value**3 for value in first], [2.0**value for value in second]) == (
        None if found is None else pytest.approx(found)
    )


def test_pairs_by_hand() -> None:
    v = WordVectors(
        ["east", "north", "northeast", "new_york"], np.array([[1, 0], [0, 1], [1, 1], [-1, 0.5]], np.float32)
    )
    pairs = [
        Judged("East", "northeast", 9.0),
        Judged("east", "north", 3.0),
        Judged("east", "New York", 1.0),
        Judged("east", "south", 5.0),
    ]
    report = compare_pairs(v, pairs, "compass")
    assert report.to_dict() == {
        "name": "compass",
        "kind": "similarity",
        "count": 4,
        "compared": 3,
        "by_pieces": 0,
        "coverage": 75.0,
        "spearman": 1.0,
    }
    assert report.render() == "compass: 3 of 4 pairs compared (75.0 %)\n\nSpearman  1.0000"


def test_unknown_words_are_compared_by_their_pieces() -> None:
    s = SubwordSettings(shortest=3, longest=3, buckets=9)
    buckets = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    v = WordVectors(["where", "there"], np.ones((2, 4), np.float32), subwords=s, buckets=buckets)
    report = compare_pairs(v, [Judged("where", "there", 1.0), Judged("where", "somewhere", 2.0), Judged("", "x", 0.0)])
    assert (report.compared, report.by_pieces) == (2, 1)
    assert "1 by their pieces" in report.render()


# -- gensim on the other side -----------------------------------------------------------------------------------------


def random_words(count: int, size: int) -> WordVectors:
    generator = np.random.default_rng(5)
    return WordVectors([f"w{i}" for i in range(count)], generator.normal(size=(count, size)).astype(np.float32))


@pytest.mark.parametrize("most_frequent", [300, 120])
def test_analogies_as_gensim_counts_them(tmp_path: Path, most_frequent: int) -> None:
    models = pytest.importorskip("gensim.models")
    v = random_words(300, 5)
    theirs = models.KeyedVectors(5)
    theirs.add_vectors(v.words, v.matrix)
    # Half of the questions are asked for what the vectors themselves say, so that some are right.
    generator, lines = np.random.default_rng(1), []
    for number in range(80):
        if number % 20 == 0:
            lines.append(f": {'gram' if number > 30 else 'part'}{number}")
        a, b, c, d = generator.choice(330, 4, replace=False)
        if number % 2 and max(a, b, c) < 300:
            d = int(theirs.most_similar([f"w{b}", f"w{c}"], [f"w{a}"], topn=1)[0][0][1:])
        lines.append(f"w{a} W{b} w{c} w{d}")
    path = tmp_path / "questions.txt"
    path.write_text("\n".join(lines) + "\n")
    score, sections = theirs.evaluate_word_analogies(str(path), restrict_vocab=most_frequent)
    report = evaluate_file(v, path, ["add"], most_frequent)
    assert report.to_dict()["add"] == pytest.approx(100 * score)
    assert 0 < score < 1
    for ours, other in zip(report.sections, sections[:-1], strict=True):
        assert ours.name == other["section"]
        assert ours.right["add"] == len(other["correct"])
        assert ours.asked == len(other["correct"]) + len(other["incorrect"])


def test_pairs_as_gensim_compares_them(tmp_path: Path) -> None:
    models = pytest.importorskip("gensim.models")
    v = random_words(60, 5)
    theirs = models.KeyedVectors(5)
    theirs.add_vectors(v.words, v.matrix)
    generator = np.random.default_rng(2)
    rows = [f"w{a}\tw{b}\t{score / 4}" for a, b, score in generator.integers(0, 70, (200, 3))]
    path = tmp_path / "pairs.tsv"
    path.write_text("# a comment\n" + "\n".join(rows) + "\n")
    _, other, unknown = theirs.evaluate_word_pairs(str(path))
    report = evaluate_file(v, path)
    assert report.to_dict()["spearman"] == pytest.approx(other.statistic, abs=1e-9)
    assert report.to_dict()["coverage"] == pytest.approx(100 - unknown)


# -- the well-known files ---------------------------------------------------------------------------------------------

DATA = Path(os.environ.get("SEQLOOM_DATA", "../shared/data"))
COUNTS = {
    "gensim_simlex999.txt": 999,
    "gensim_wordsim353.tsv": 353,
    "mc-30.csv": 30,
    "men.csv": 3000,
    "mturk-287.csv": 287,
    "mturk-771.csv": 771,
    "rg-65.csv": 65,
    "rw.csv": 2034,
    "simlex999.csv": 999,
    "simverb-3500.csv": 3500,
    "wordsim353-rel.csv": 252,
    "wordsim353-sim.csv": 203,
    "yp-130.csv": 130,
}


@pytest.mark.parametrize("name", COUNTS)
def test_the_published_numbers_of_pairs_are_read(name: str) -> None:
    path = DATA / "word_similarity" / name
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    found = read_judgements(path)
    assert len(found) == COUNTS[name]
    if name == "men.csv":
        assert found[0] == ("sun", "sunlight", 50.0)


@pytest.mark.parametrize(
    ("name", "sections", "counts"), [("questions-words.txt", 14, (8869, 10675)), ("msr.csv", 16, (0, 8000))]
)
def test_the_published_numbers_of_questions_are_read(name: str, sections: int, counts: Sequence[int]) -> None:
    path = DATA / "analogies" / name
    if not path.is_file():
        pytest.skip(f"{path} is not here")
    assert asks_analogies(path)
    report = solve_analogies(grid(), read_questions(path))
    assert len(report.sections) == sections
    semantic = report.semantic.count if report.semantic else 0
    assert (semantic, report.syntactic.count if report.syntactic else 0) == tuple(counts)
