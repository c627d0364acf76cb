"""Words and tags of files: what was written is read back, and every fault has its file and line."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.corpus.doctor import examine
from seqloom.corpus.readers import CorpusSettings, corpus_of, fingerprint, read_located, read_pairs
from seqloom.corpus.tagged import TaggedCorpusSettings
from seqloom.errors import DataError, UserError
from seqloom.settings import check

CELL = st.text(st.characters(blacklist_categories=("Cs", "Cc", "Zs", "Zl", "Zp")), min_size=1, max_size=6)
SENTENCES = st.lists(st.lists(st.tuples(CELL, CELL), min_size=1, max_size=5), min_size=1, max_size=5)
Sentences = list[list[tuple[str, str]]]


def read(path: Path, **settings: object) -> Sentences:
    corpus = TaggedCorpusSettings(file=str(path), **settings)
    return [list(zip(pair.source, pair.target, strict=True)) for pair in read_pairs(corpus)]


def usual(sentences: Sentences) -> bool:
    """No word is a mark of the format, no line reads "# key =", and some line tells how many columns there are."""
    words = [word for sentence in sentences for word, _ in sentence]
    keyed = any(word.startswith("#") and "=" in word + tag for sentence in sentences for word, tag in sentence)
    return "-DOCSTART-" not in words and not keyed and any(not word.startswith("#") for word in words)


@pytest.mark.parametrize("between", [" ", "\t"])
@given(sentences=SENTENCES.filter(usual), blank=st.integers(1, 3), comment=st.booleans())
def test_columns_round_trip(
    tmp_path_factory: pytest.TempPathFactory, between: str, sentences: Sentences, blank: int, comment: bool
) -> None:
    """Also words that begin with #, and comments before a sentence."""
    blocks = [
        "# a comment of five words\n" * comment + "".join(f"{word}{between}x{between}{tag}\n" for word, tag in sentence)
        for sentence in sentences
    ]
    path = tmp_path_factory.mktemp("columns") / "a.conll"
    path.write_text(("\n" * blank).join(blocks), encoding="utf-8")
    expected = [list(sentence) for sentence in sentences]
    assert read(path) == expected
    assert read(path, source=0, target=2) == expected
    assert read(path, source=2, target=0) == [[(tag, word) for word, tag in sentence] for sentence in expected]


@given(sentences=SENTENCES)
def test_lists_round_trip(tmp_path_factory: pytest.TempPathFactory, sentences: Sentences) -> None:
    path = tmp_path_factory.mktemp("lists") / "a.jsonl"
    rows = [{"tokens": [word for word, _ in one], "tags": [tag for _, tag in one]} for one in sentences]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read(path) == sentences


@given(sentences=SENTENCES)
def test_parallel_lines_and_tables_round_trip(tmp_path_factory: pytest.TempPathFactory, sentences: Sentences) -> None:
    folder = tmp_path_factory.mktemp("lines")
    words = [" ".join(word for word, _ in one) for one in sentences]
    tags = [" ".join(tag for _, tag in one) for one in sentences]
    for name, lines in (("in", words), ("out", tags)):
        (folder / name).write_text("".join(line + " \n" for line in lines), encoding="utf-8")
    corpus = TaggedCorpusSettings(source=str(folder / "in"), target=str(folder / "out"))
    assert [list(zip(*pair[:2], strict=True)) for pair in read_pairs(corpus)] == sentences
    rows = zip(words, tags, strict=True)
    (folder / "a.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows), encoding="utf-8")
    assert read(folder / "a.tsv") == sentences


UNIVERSAL = """\
# sent_id = 1
# text = vámonos al mar
1-2\tvámonos\t_\t_
1\tvamos\tir\tVERB
2\tnos\tnosotros\tPRON
3-4\tal\t_\t_
3\ta\ta\tADP
4\tel\tel\tDET
4.1\tnada\tnada\tNOUN
5\tmar\tmar\tNOUN

# sent_id = 2
1\t#\t#\tSYM
"""


def test_universal_dependencies(tmp_path: Path) -> None:
    """Words that are several and words that are not there are skipped."""
    path = tmp_path / "es.conllu.xz"
    path.write_bytes(lzma.compress(UNIVERSAL.encode()))
    first, second = read(path)
    assert first == [("vamos", "VERB"), ("nos", "PRON"), ("a", "ADP"), ("el", "DET"), ("mar", "NOUN")]
    assert second == [("#", "SYM")]
    assert [word for word, _ in read(path, source=2)[0]] == ["ir", "nosotros", "a", "el", "mar"]


def test_documents_and_comments(tmp_path: Path) -> None:
    path = tmp_path / "a.conll"
    path.write_text("# made by hand\n\n-DOCSTART- -X- O\n\n# one\nEU NNP B\n#tag NN O\n\n#alone NN O\n\n\n\n")
    assert read(path) == [[("EU", "B"), ("#tag", "O")], [("#alone", "O")]]
    path.write_text("a\tO\nNew York\tB\n")
    assert read(path) == [[("a", "O"), ("New York", "B")]], "between tabs a word may have a space"


FAULTS = [
    ("a.conll", "a O\nb\n\nc O\n", {}, "a.conll:2: expected 2 columns, found 1"),
    ("a.conll", "a x O\nb O\n", {}, "a.conll:2: expected 3 columns, found 2"),
    ("a.conll", "a O\n\n\tO\n", {}, "a.conll:3: a word or a tag is empty"),
    ("a.conll", "\n\n", {}, "a.conll: there is no sentence in the file"),
    ("a.conll", "a O\n", {"target": 2}, "there is no column 2; the first row has 2, counted from 0"),
    ("a.conll", "a O\n", {"target": "tag"}, "columns of this format have numbers, from 0; got 'tag'"),
    ("a.conllu", "1-2\tal\t_\t_\n", {}, "a.conllu:1: there is no word in it"),
    ("a.jsonl", '{"tokens": [], "tags": []}\n', {}, "a.jsonl:1: there is no word in it"),
    ("a.jsonl", '{"tokens": ["a"], "tags": []}\n', {}, "a.jsonl:1: expected a tag for each of 1 word, found 0"),
    ("a.jsonl", '{"tokens": ["a", "b"], "tags": ["O"]}\n', {}, "expected a tag for each of 2 words, found 1"),
    ("a.jsonl", '{"tokens": ["a", 3], "tags": ["O", "O"]}\n', {}, "its entry 1, counted from 0, is a number"),
    ("a.jsonl", '{"tokens": ["a", " "], "tags": ["O", "O"]}\n', {}, "its entry 1, counted from 0, is an empty text"),
    ("a.jsonl", '{"tokens": "a b", "tags": ["O"]}\n', {}, "the key 'tokens' must hold a list of texts; found text"),
    ("a.jsonl", '{"words": ["a"], "tags": ["O"]}\n', {}, "the key 'tokens' is missing; the keys here are words, tags"),
    ("a.tsv", "a b\tO\n", {}, "a.tsv:1: expected a tag for each of 2 words, found 1"),
    ("a.tsv", "\t\n", {}, "a.tsv:1: there is no word in it"),
]


@pytest.mark.parametrize(("name", "text", "settings", "message"), FAULTS)
def test_faults_name_file_and_line(
    tmp_path: Path, name: str, text: str, settings: dict[str, object], message: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError) as caught:
        read(tmp_path / name, **settings)
    assert message in str(caught.value)


def test_sound_sentences_around_a_fault_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("a O\n\nb\n\nc O\n")
    complaints: list[tuple[str, int | None]] = []
    corpus = TaggedCorpusSettings(file=str(tmp_path / "a.conll"))
    found = list(read_located(corpus, lambda check, error: complaints.append((check, error.line))))
    assert [(one.line, one.pair.source) for one in found] == [(1, ("a",)), (5, ("c",))]
    assert complaints == [("columns", 3)]


def test_the_doctor_examines_them(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"tokens": ["the", "cat"], "tags": ["D", "N"]}\n{"tokens": ["a"], "tags": []}\n'
        '{"tokens": ["the", "cat"], "tags": ["D", "N"]}\n'
    )
    asked: list[tuple[str, list[object]]] = []

    def unknown(side: str, values: object) -> tuple[int, int]:
        asked.append((side, list(values)))  # type: ignore[call-overload]
        return 0, 1

    report = examine({"train": TaggedCorpusSettings(file=str(tmp_path / "a.jsonl"))}, unknown_rate=unknown)
    assert [(finding.check, finding.line) for finding in report.findings] == [("tags", 2), ("duplicate", 3)]
    assert report.counts["train"]["source_words"] == 4
    assert report.counts["train"]["faulty"] == 1
    assert dict(asked)["source"] == [("the", "cat"), ("the", "cat")], "words stay whole"


def test_settings() -> None:
    kind, problems = check(TaggedCorpusSettings, {"grammar": "en-es"})
    assert kind is None
    assert "the embedded grammar has no tags; name a file" in problems[0]
    _, [problem] = check(TaggedCorpusSettings, {"file": "train.txt"})
    assert problem == "the name 'train.txt' does not tell the format; add format: conll, conllu, jsonl, tsv or csv"
    _, [problem] = check(CorpusSettings, {"file": "train.conll"})
    assert problem == "the name 'train.conll' does not tell the format; add format: tsv, csv, jsonl or labelled"
    assert TaggedCorpusSettings.format_of("a.conllu.gz") == "conllu"


def test_named_data_is_read_as_the_recipe_says(tmp_path: Path) -> None:
    like = TaggedCorpusSettings(file="train.txt", format="conll", source=0, target=2, skip_every=10)
    other = corpus_of(["test.txt"], like, TaggedCorpusSettings)
    assert other == TaggedCorpusSettings(file="test.txt", format="conll", source=0, target=2)
    assert corpus_of(["a.conllu"], None, TaggedCorpusSettings).format_of("a.conllu") == "conllu"
    with pytest.raises(UserError, match="does not tell the format"):
        corpus_of(["test.txt"], None, TaggedCorpusSettings)
    path = tmp_path / "a.conll"
    path.write_text("a x O\n")
    prints = {fingerprint(TaggedCorpusSettings(file=str(path), target=target)) for target in (None, 1, 2)}
    assert len(prints) == 3


def test_labels_of_texts(tmp_path: Path) -> None:
    """Beside the tags: a third parallel file, a key, a comment."""
    (tmp_path / "in").write_text("play it\nrain ?\n")
    (tmp_path / "out").write_text("O B\nB O\n")
    (tmp_path / "label").write_text("Play\nWeather \n")
    (tmp_path / "a.jsonl").write_text(
        '{"tokens": ["play", "it"], "tags": ["O", "B"], "intent": "Play"}\n'
        '{"tokens": ["rain", "?"], "tags": ["B", "O"], "intent": "Weather"}\n'
    )
    (tmp_path / "a.conll").write_text("# intent = Play\nplay O\nit B\n\n# id = 2\n# intent = Weather\nrain B\n? O\n")
    files = {name: str(tmp_path / name) for name in ("in", "out", "label")}
    corpora = [
        TaggedCorpusSettings(source=files["in"], target=files["out"], label=files["label"]),
        TaggedCorpusSettings(file=str(tmp_path / "a.jsonl"), label="intent"),
        TaggedCorpusSettings(file=str(tmp_path / "a.conll"), label="intent"),
    ]
    for corpus in corpora:
        found = list(read_pairs(corpus))
        assert [pair.source for pair in found] == [("play", "it"), ("rain", "?")]
        assert [pair.target for pair in found] == [(("O", "B"), "Play"), (("B", "O"), "Weather")]
        assert examine({"train": corpus}).ok
    before = fingerprint(corpora[0])
    (tmp_path / "label").write_text("Play\nPlay\n")
    assert fingerprint(corpora[0]) != before
    other = corpus_of([str(tmp_path / "b.jsonl")], corpora[1], TaggedCorpusSettings)
    assert other.label == "intent", "named data is read as the recipe says"


@pytest.mark.parametrize(
    ("label", "message"),
    [
        ("Play\n", r"label: there is no line 2, but .*in has one; parallel files need the same number"),
        ("Play\nWeather\nmore\n", r"label: there are more than 2 lines; the words have no more"),
        ("Play\n\n", r"label:2: there is no label"),
    ],
)
def test_faults_of_labels(tmp_path: Path, label: str, message: str) -> None:
    (tmp_path / "in").write_text("play it\nrain ?\n")
    (tmp_path / "out").write_text("O B\nB O\n")
    (tmp_path / "label").write_text(label)
    paths = [str(tmp_path / name) for name in ("in", "out", "label")]
    with pytest.raises(DataError, match=message):
        list(read_pairs(TaggedCorpusSettings(source=paths[0], target=paths[1], label=paths[2])))


def test_a_missing_label(tmp_path: Path) -> None:
    (tmp_path / "a.conll").write_text("# intent = Play\nplay O\n\nrain O\n")
    with pytest.raises(DataError, match=r"a\.conll:4: there is no label"):
        list(read_pairs(TaggedCorpusSettings(file=str(tmp_path / "a.conll"), label="intent")))
    (tmp_path / "a.jsonl").write_text('{"tokens": ["a"], "tags": ["O"], "intent": 3.5}\n')
    with pytest.raises(DataError, match=r"a\.jsonl:1: .* must hold text or a whole number; found a fraction"):
        list(read_pairs(TaggedCorpusSettings(file=str(tmp_path / "a.jsonl"), label="intent")))
    _, [problem] = check(TaggedCorpusSettings, {"file": "a.tsv", "label": "2"})
    assert problem == "label goes with line-parallel files, jsonl and conll, not with columns of a table"
