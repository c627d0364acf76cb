"""The readers give back what was written, and name file, line and remedy when they cannot."""

import csv
import gzip
import io
import itertools
import json
import lzma
import os
import sys
import tempfile
import types
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from seqloom.corpus import lines, readers
from seqloom.corpus.examples import Pair
from seqloom.corpus.lines import MAX_LINE_BYTES, expand_variables, located_lines, open_lines
from seqloom.corpus.readers import CorpusSettings, describe, files, fingerprint, read_located, read_pairs
from seqloom.errors import DataError, RecipeError, UserError
from seqloom.settings import validated

ENDINGS = ["", ".gz", ".xz"]


def write(path: Path, content: str | bytes) -> str:
    """Write bytes or UTF-8 text, compressed as the name says."""
    raw = content.encode() if isinstance(content, str) else content
    if path.suffix == ".gz":
        raw = gzip.compress(raw, compresslevel=1)
    elif path.suffix == ".xz":
        raw = lzma.compress(raw, preset=0)
    path.write_bytes(raw)
    return str(path)


def fault(settings: CorpusSettings) -> str:
    with pytest.raises(DataError) as caught:
        list(read_located(settings))
    return str(caught.value)


def line_fault(path: str) -> str:
    with pytest.raises(DataError) as caught:
        list(open_lines(path))
    return str(caught.value)


def problem(**values) -> str:
    with pytest.raises(RecipeError) as caught:
        validated(CorpusSettings, values, "r.yaml")
    assert len(caught.value.problems) == 1
    return caught.value.problems[0]


# --- round trips ---------------------------------------------------------------------------------------------------


def characters(without: str):
    return st.text(st.characters(exclude_categories=["Cs"], exclude_characters=without), max_size=12)


def pairs_of(without: str):
    pair = st.tuples(characters(without), characters(without)).map(lambda texts: Pair(*texts))
    pairs = st.lists(pair, min_size=1, max_size=8)
    # The first character of a file is a byte order mark when it is U+FEFF: dropped by design, tested below.
    return pairs.filter(lambda them: not any(text.startswith("\ufeff") for text in them[0][:2]))


SLIPPERY = [Pair("a\x0bb\x0cc\x1cd\x85e\u2028f\u2029", ""), Pair("", "\x00"), Pair(' "quoted", ', "'\\")]
light = hypothesis_settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("ending", ENDINGS)
@given(pairs=pairs_of("\n\r"), line_end=st.sampled_from(["\n", "\r\n"]), closed=st.booleans())
@example(pairs=SLIPPERY, line_end="\n", closed=True)
@light
def test_parallel_files_round_trip(ending, pairs, line_end, closed):
    # Without its line end an empty last line does not exist.
    closed = closed or not pairs[-1].source or not pairs[-1].target
    with tempfile.TemporaryDirectory() as folder:
        sides = []
        for name, texts in (("a", [p.source for p in pairs]), ("b", [p.target for p in pairs])):
            content = line_end.join(texts) + (line_end if closed else "")
            sides.append(write(Path(folder, name + ending), content))
        settings = CorpusSettings(source=sides[0], target=sides[1])
        assert list(read_pairs(settings)) == pairs
        assert [(x.path, x.line) for x in read_located(settings)] == [(sides[0], n + 1) for n in range(len(pairs))]


@pytest.mark.parametrize("ending", ENDINGS)
@given(pairs=pairs_of("\n\r\t"), named=st.booleans())
@example(pairs=SLIPPERY, named=False)
@light
def test_tsv_round_trips(ending, pairs, named):
    header = "number\ttarget text\tsource text\n" if named else ""
    content = header + "".join(f"{n}\t{p.target}\t{p.source}\n" for n, p in enumerate(pairs))
    columns = {"source": "source text", "target": "target text"} if named else {"source": 2, "target": "1"}
    with tempfile.TemporaryDirectory() as folder:
        settings = CorpusSettings(file=write(Path(folder, "p.tsv" + ending), content), **columns)
        found = list(read_located(settings))
    assert [x.pair for x in found] == pairs
    assert [x.line for x in found] == [n + 1 + named for n in range(len(pairs))]


@pytest.mark.parametrize("ending", ENDINGS)
@given(pairs=pairs_of("\r"), line_end=st.sampled_from(["\n", "\r\n"]))
@example(pairs=SLIPPERY + [Pair('two\nlines, "and" more', "\n")] + SLIPPERY, line_end="\n")
@light
def test_csv_round_trips(ending, pairs, line_end):
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator=line_end, quoting=csv.QUOTE_ALL)
    starts = []
    for pair in pairs:
        starts.append(text.getvalue().count("\n") + 1)
        writer.writerow(pair[:2])
    with tempfile.TemporaryDirectory() as folder:
        found = list(read_located(CorpusSettings(file=write(Path(folder, "p.csv" + ending), text.getvalue()))))
    assert [x.pair for x in found] == pairs
    assert [x.line for x in found] == starts


@pytest.mark.parametrize("ending", ENDINGS)
@given(pairs=pairs_of(""), ascii_only=st.booleans())
@example(pairs=SLIPPERY, ascii_only=False)
@light
def test_jsonl_round_trips(ending, pairs, ascii_only):
    rows = [json.dumps({"y": p.target, "n": 1, "x": p.source}, ensure_ascii=ascii_only) for p in pairs]
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder, "p.jsonl" + ending), "\n".join(rows))
        found = list(read_located(CorpusSettings(file=path, source="x", target="y")))
    assert [x.pair for x in found] == pairs
    assert [x.line for x in found] == list(range(1, len(pairs) + 1))


# A tab or a line break ends a cell of a TSV file; a brace would be a place.
literal = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="{}"), max_size=5)
cell = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\t\ufeff"), max_size=6)
NAMES = ["lemma", "form", "tags", "word class"]


@st.composite
def templates(draw):
    """Rows of four cells, and a template: literal text with columns between, by number or by name."""
    rows = draw(st.lists(st.lists(cell, min_size=4, max_size=4), min_size=1, max_size=4))
    columns = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    return rows, columns, draw(st.lists(literal, min_size=len(columns) + 1, max_size=len(columns) + 1))


def filled(row, columns, between):
    """What a template must give, by hand."""
    return between[0] + "".join(row[column] + text for column, text in zip(columns, between[1:], strict=True))


@pytest.mark.parametrize("kind", ["tsv", "named tsv", "csv", "jsonl"])
@given(table=templates())
@light
def test_templates_join_columns(kind, table):
    rows, columns, between = table
    named = kind != "tsv" and kind != "csv"
    places = [NAMES[column] if named else str(column) for column in columns]
    template = filled([f"{{{place}}}" for place in places], range(len(places)), between)
    target = NAMES[3] if named else 3
    if kind == "jsonl":
        lines = [json.dumps(dict(zip(NAMES, row, strict=True))) for row in rows]
    elif kind == "csv":
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows(rows)
        lines = buffer.getvalue().removesuffix("\n").split("\n")
    else:
        lines = ["\t".join(row) for row in ([NAMES, *rows] if named else rows)]
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder, f"a.{kind.split()[-1]}"), "\n".join(lines) + "\n")
        found = list(read_pairs(CorpusSettings(file=path, source=template, target=target)))
    assert found == [Pair(filled(row, columns, between), row[3]) for row in rows]


def test_a_template_of_inflections(tmp_path):
    """As the recipes for SIGMORPHON write it: the lemma's letters, and the features after them."""
    path = write(tmp_path / "a.tsv", "run\tran\tV;PST\n")
    found = CorpusSettings(file=path, source="{0} ;{2}", target=1)
    assert list(read_pairs(found)) == [Pair("run ;V;PST", "ran")]


@given(count=st.integers(1, 40), every=st.integers(2, 12))
@light
def test_take_every_and_skip_every_part_a_corpus(count, every):
    """Each pair is on one side or the other, in its order; every so-manieth is taken."""
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder, "a.tsv"), "".join(f"{n}\tx\n" for n in range(1, count + 1)))
        taken, left = (
            [int(one.pair.source) for one in read_located(CorpusSettings(file=path, **{name: every}))]
            for name in ("take_every", "skip_every")
        )
        few = CorpusSettings(file=path, skip_every=every, limit=3)
        assert [int(pair.source) for pair in read_pairs(few)] == left[:3]
    assert taken == [n for n in range(1, count + 1) if n % every == 0]
    assert sorted(taken + left) == list(range(1, count + 1))
    assert left == sorted(left)


def test_parts_of_a_corpus_are_different_corpora(tmp_path):
    """Or validation data would be found in the cache of training data."""
    path = write(tmp_path / "a.tsv", "a\tb\n" * 9)
    parts = [{}, {"take_every": 3}, {"skip_every": 3}, {"take_every": 4}]
    assert len({fingerprint(CorpusSettings(file=path, **part)) for part in parts}) == 4


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("prefix", ["", "__label__"])
def test_labelled_lines(tmp_path, ending, prefix):
    """fastText's form, with its mark or without, and TREC's."""
    content = f"{prefix}DESC:manner How did it happen ?\n{prefix}NUM\t 42 is   what ?\n  {prefix}none\n"
    settings = CorpusSettings(file=write(tmp_path / f"a.txt{ending}", content), format="labelled")
    assert list(read_pairs(settings)) == [
        Pair("How did it happen ?", "DESC:manner"),
        Pair("42 is   what ?", "NUM"),
        Pair("", "none"),
    ]
    assert [one.line for one in read_located(settings)] == [1, 2, 3]
    empty = write(tmp_path / f"b.txt{ending}", "")
    assert fault(CorpusSettings(file=empty, format="labelled")) == f"{empty}: the file is empty"


def test_defaults_of_each_kind(tmp_path):
    assert list(read_pairs(CorpusSettings(file=write(tmp_path / "a.tsv", "x\ty\tz\n")))) == [Pair("x", "y")]
    assert list(read_pairs(CorpusSettings(file=write(tmp_path / "a.csv", "x,y,z\n")))) == [Pair("x", "y")]
    keys = write(tmp_path / "a.jsonl", '{"target": "y", "source": "x"}\n')
    assert list(read_pairs(CorpusSettings(file=keys))) == [Pair("x", "y")]
    other = write(tmp_path / "deu.txt.gz", "x\ty\n")
    assert list(read_pairs(CorpusSettings(file=other, format="tsv"))) == [Pair("x", "y")]


def test_limit_stops_before_later_faults(tmp_path):
    path = write(tmp_path / "p.tsv", "a\tb\nc\td\nbroken\n")
    assert list(read_pairs(CorpusSettings(file=path, limit=2))) == [Pair("a", "b"), Pair("c", "d")]
    assert fault(CorpusSettings(file=path, limit=3)) == f"{path}:3: expected 2 columns, found 1"


# --- lines ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ENDINGS)
def test_byte_order_mark_is_dropped_only_at_the_start(tmp_path, ending):
    path = write(tmp_path / ("a" + ending), "\ufeffone\r\n\ufefftwo\r\n")
    assert list(open_lines(path)) == [(1, "one"), (2, "\ufefftwo")]


def test_file_of_only_a_byte_order_mark_is_empty(tmp_path):
    path = write(tmp_path / "a.tsv", "\ufeff")
    assert list(open_lines(path)) == []
    assert fault(CorpusSettings(file=path)) == f"{path}: the file is empty"


def test_lone_carriage_return_does_not_end_a_line(tmp_path):
    assert list(open_lines(write(tmp_path / "a", "x\ry\nz\r\n\r\r\n"))) == [(1, "x\ry"), (2, "z"), (3, "\r")]


@pytest.mark.parametrize("ending", ENDINGS)
def test_bad_bytes(tmp_path, ending):
    path = write(tmp_path / ("a" + ending), b"good\n\xc3\xa9t\xe9 latin\n")
    remedy = "convert the file, e.g. iconv -f latin1 -t utf-8"
    assert line_fault(path) == f"{path}:2: not UTF-8: byte 0xe9 at column 3; {remedy}"


def test_utf16_is_recognised(tmp_path):
    path = write(tmp_path / "a", "hello\n".encode("utf-16"))
    remedy = "convert the file, e.g. iconv -f utf-16 -t utf-8"
    assert line_fault(path) in {f"{path}:1: not UTF-8: byte 0x{b} at column 1; {remedy}" for b in ("ff", "fe")}


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("line_end", ["", "\n", "\r\n"])
def test_longest_line(tmp_path, mark, line_end):
    first, second = "x" * MAX_LINE_BYTES, "y" * MAX_LINE_BYTES
    path = write(tmp_path / "a", mark + first + "\n" + second + line_end)
    assert list(open_lines(path)) == [(1, first), (2, second)]


@pytest.mark.parametrize("line", [1, 2])
@pytest.mark.parametrize("excess", [1, 2, 3, 4, MAX_LINE_BYTES + 3])
def test_line_over_the_limit(tmp_path, line, excess):
    path = write(tmp_path / "a", "ok\n" * (line - 1) + "x" * (MAX_LINE_BYTES + excess) + "\nend\n")
    message = "the line is over 1,000,000 bytes; is this a text file with one example per line?"
    assert line_fault(path) == f"{path}:{line}: {message}"
    seen = []
    numbered = list(located_lines(path, lambda check, error: seen.append((check, error.line))))
    assert seen == [("line size", line)]
    assert numbered[line - 1 :] == [(line, "", False), (line + 1, "end", True)]


def test_a_huge_compressed_line_is_never_held_in_memory(tmp_path):
    import tracemalloc

    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=1) as stream:
        for _ in range(40):
            stream.write(bytes(1_000_000))
    tracemalloc.start()
    line_fault(str(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000


# --- files that cannot be read -------------------------------------------------------------------------------------


def test_missing_file(tmp_path, monkeypatch):
    write(tmp_path / "train.en.gz", "x\n")
    path = str(tmp_path / "trian.en")
    assert line_fault(path) == f"{path}: there is no such file (did you mean 'train.en.gz'?)"
    monkeypatch.chdir(tmp_path)
    hint = f"there is no such file (did you mean 'train.en.gz'?); looked for it from {tmp_path}"
    assert line_fault("train.en") == f"train.en: {hint}"
    assert line_fault("zzz") == f"zzz: there is no such file; looked for it from {tmp_path}"
    away = "there is no such file, nor its folder nowhere"
    assert line_fault("nowhere/x") == f"nowhere/x: {away}; looked for it from {tmp_path}"


@pytest.mark.parametrize("name", ["folder", "folder.gz", "folder.xz"])
def test_folder(tmp_path, name):
    (tmp_path / name).mkdir()
    assert line_fault(str(tmp_path / name)) == f"{tmp_path / name}: this is a folder; give a file"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may read everything")
def test_no_permission(tmp_path):
    path = write(tmp_path / "a", "x\n")
    os.chmod(path, 0)
    assert line_fault(path) == f"{path}: there is no permission to read this file"


def test_permission_error_is_explained(tmp_path, monkeypatch):
    def locked(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(lines, "opened", locked)
    assert line_fault("a") == "a: there is no permission to read this file"


def test_other_system_errors(tmp_path):
    path = write(tmp_path / "a", "x\n") + "/b"
    assert line_fault(path) == f"{path}: cannot be read: Not a directory"
    assert line_fault("a\0b") == "a\0b: cannot be read: embedded null byte"


@pytest.mark.parametrize("ending", [".gz", ".xz"])
def test_compressed_file_cut_short(tmp_path, ending):
    path = Path(write(tmp_path / ("a" + ending), "".join(f"{n * n}\n" for n in range(5000))))
    path.write_bytes(path.read_bytes()[:-30])
    assert line_fault(str(path)) == f"{path}: the compressed file is cut short; copy or download it again"


def test_not_really_compressed(tmp_path):
    for ending, kind, told in [(".gz", "gzip", "Not a gzipped file"), (".xz", "xz", "Input format not supported")]:
        path = tmp_path / ("a" + ending)
        path.write_text("plain text\n")
        message = line_fault(str(path))
        assert message.startswith(f"{path}: this is not a {kind} file, or it is damaged (")
        assert told in message


def test_damaged_inside(tmp_path):
    for ending, kind in [(".gz", "gzip"), (".xz", "xz")]:
        path = Path(write(tmp_path / ("a" + ending), "".join(f"{n * n}\n" for n in range(5000))))
        raw = bytearray(path.read_bytes())
        raw[len(raw) // 2 : len(raw) // 2 + 40] = b"\xff" * 40
        path.write_bytes(raw)
        assert f"this is not a {kind} file, or it is damaged (" in line_fault(str(path))


def test_variables_and_home(tmp_path, monkeypatch):
    write(tmp_path / "a", "x\n")
    monkeypatch.setenv("HERE", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NOWHERE", raising=False)
    assert list(open_lines("${HERE}/a")) == list(open_lines("~/a")) == [(1, "x")]
    assert files(CorpusSettings(source="~/a", target="${NOWHERE:-/b}/c")) == [str(tmp_path / "a"), "/b/c"]
    with pytest.raises(UserError, match="NOWHERE is not set"):
        list(open_lines("${NOWHERE}/a"))
    with pytest.raises(UserError, match="NOWHERE is not set"):
        list(read_pairs(CorpusSettings(file="${NOWHERE}")))


# --- faults of each kind -------------------------------------------------------------------------------------------


def test_unequal_line_counts(tmp_path):
    long = write(tmp_path / "train.en", "x\n" * 1203)
    short = write(tmp_path / "train.de.gz", "x\n" * 1201)
    expected = f"{short}: 1,201 lines, but {long} has 1,203; parallel files need the same number"
    assert fault(CorpusSettings(source=long, target=short)) == expected
    assert fault(CorpusSettings(source=short, target=long)) == expected
    one, none = write(tmp_path / "one", "x"), write(tmp_path / "none", "")
    assert fault(CorpusSettings(source=one, target=short)).startswith(f"{one}: 1 line, but {short} has 1,201;")
    assert fault(CorpusSettings(source=one, target=none)).startswith(f"{none}: 0 lines, but {one} has 1;")


def test_pairs_before_the_fault_are_delivered(tmp_path):
    settings = CorpusSettings(source=write(tmp_path / "a", "x\ny\n"), target=write(tmp_path / "b", "z\n"))
    reading = read_pairs(settings)
    assert next(reading) == Pair("x", "z")
    with pytest.raises(DataError):
        next(reading)


def test_empty_files(tmp_path):
    empty = write(tmp_path / "a", "")
    assert fault(CorpusSettings(source=empty, target=empty)) == f"{empty}: the file is empty"
    for kind in ("tsv", "csv", "jsonl"):
        assert fault(CorpusSettings(file=empty, format=kind)) == f"{empty}: the file is empty"
    assert fault(CorpusSettings(file=empty, format="tsv", source="en")) == f"{empty}: the file is empty"
    header = write(tmp_path / "h.tsv", "en\tde\n")
    told = f"{header}: the file is empty: there is a header, but no row"
    assert fault(CorpusSettings(file=header, source="en")) == told


@pytest.mark.parametrize(
    ("name", "content", "columns", "expected"),
    [
        ("a.tsv", "a\tb\nab\n", {}, "2: expected 2 columns, found 1"),
        ("a.tsv", "a\tb\na\tb\tc\n", {}, "2: expected 2 columns, found 3"),
        ("a.tsv", "a\tb\tc\na\tb\n", {}, "2: expected 3 columns, found 2"),
        ("a.tsv", "a\tb\n", {"target": 2}, "1: expected 3 columns, found 2"),
        ("a.tsv", "a\tb\n\n", {}, "2: expected 2 columns, found an empty line"),
        ("a.tsv", "s\tt\na\tb\nc\n", {"source": "s"}, "3: expected 2 columns, found 1"),
        ("a.csv", '"a\nb",c\nd\n', {}, "3: expected 2 columns, found 1"),
        ("a.csv", 'a,b\n"c\nd"e,f\n', {}, "2: not valid CSV: ',' expected after '\"'"),
        ("a.csv", 'a,b\n"c,d\n', {}, "2: not valid CSV: the file ends inside quotes; a closing quote is missing"),
        ("a.csv", "a\rb,c\n", {}, "1: not valid CSV: a carriage return stands outside quotes"),
        (
            "a.csv",
            'a,b\n"c,d\n' + "word,\n" * 40_000,
            {},
            "2: not valid CSV: a field is over 131,072 characters; is a closing quote missing?",
        ),
        (
            "a.tsv",
            "english\tgerman\na\tb\n",
            {"source": "englsh"},
            "1: the header has no column 'englsh' (did you mean 'english'?)",
        ),
        ("a.csv", "en,de\na,b\n", {"source": "target"}, "1: the header has no column 'target'; the columns are en, de"),
        (
            "a.csv",
            "en,de\na,b\n",
            {"source": "en", "target": 2},
            "1: there is no column 2; the header has 2, counted from 0",
        ),
        ("a.tsv", "en\ten\na\tb\n", {"source": "en"}, "1: the header names the column 'en' twice; give its number"),
        ("a.jsonl", '{"source": "a"\n', {}, "1: not valid JSON: Expecting ',' delimiter at column 15"),
        ("a.jsonl", "[1]\n", {}, "1: expected a JSON object, found a list"),
        ("a.jsonl", "7\n", {}, "1: expected a JSON object, found a number"),
        ("a.jsonl", " \n", {}, "1: expected a JSON object, found an empty line"),
        (
            "a.jsonl",
            '{"source": "a", "target": "b"}\n{"source": "a", "targt": "b"}\n',
            {},
            "2: the key 'target' is missing (did you mean 'targt'?)",
        ),
        ("a.jsonl", '{"en": "a", "de": ""}\n', {}, "1: the key 'source' is missing; the keys here are en, de"),
        (
            "a.jsonl",
            '{"source": 1.5, "target": "b"}\n',
            {},
            "1: the key 'source' must hold text or a whole number; found a fraction",
        ),
        (
            "a.jsonl",
            '{"source": "", "target": null}\n',
            {},
            "1: the key 'target' must hold text or a whole number; found null",
        ),
        (
            "a.jsonl",
            '{"source": "\\ud800", "target": ""}\n',
            {},
            "1: the key 'source' holds half of a surrogate pair, which is no character",
        ),
        ("a.jsonl", "[" * 200_000 + "\n", {}, "1: not valid JSON: nested too deeply"),
        ("a.tsv", "a\tb\n", {"source": "{0} {4}"}, "1: expected 5 columns, found 2"),
        (
            "a.tsv",
            "lemma\tform\na\tb\n",
            {"source": "{lema} {form}", "target": "form"},
            "1: the header has no column 'lema' (did you mean 'lemma'?)",
        ),
        (
            "a.jsonl",
            '{"lemma": "a", "form": "b"}\n',
            {"source": "{lemma}{tags}", "target": "form"},
            "1: the key 'tags' is missing; the keys here are lemma, form",
        ),
        (
            "a.txt",
            "a b\n \n",
            {"format": "labelled"},
            "2: expected a label, a space and a text; found an empty line",
        ),
        (
            "a.txt",
            "__label__a b\n__label__a __label__b c\n",
            {"format": "labelled"},
            "2: expected one label; found another, '__label__b'",
        ),
    ],
)
def test_faulty_rows(tmp_path, name, content, columns, expected):
    path = write(tmp_path / name, content)
    assert fault(CorpusSettings(file=path, **columns)) == f"{path}:{expected}"


def test_empty_header_line(tmp_path):
    path = write(tmp_path / "a.tsv", "\na\tb\n")
    assert fault(CorpusSettings(file=path, source="en")) == f"{path}: the header line is empty"


def test_complaints_leave_the_sound_pairs(tmp_path):
    seen = []

    def note(check, error):
        seen.append((check, Path(error.path).name, error.line))

    source = write(tmp_path / "a", b"1\n\xff\n3\n4\n5\n")
    target = write(tmp_path / "b", b"i\nii\niii\n\xfe\n")
    found = [x.pair for x in read_located(CorpusSettings(source=source, target=target), note)]
    assert found == [Pair("1", "i"), Pair("3", "iii")]
    assert seen == [("encoding", "a", 2), ("encoding", "b", 4), ("line counts", "b", None)]

    seen.clear()
    table = write(tmp_path / "c.csv", b'a,b\n"x\n\xff",b\n"y"z,b\none\nc,d\n')
    assert [x.pair for x in read_located(CorpusSettings(file=table), note)] == [Pair("a", "b"), Pair("c", "d")]
    assert seen == [("encoding", "c.csv", 3), ("csv", "c.csv", 4), ("columns", "c.csv", 5)]

    seen.clear()
    only_faults = write(tmp_path / "d.tsv", b"\xff\n")
    assert list(read_located(CorpusSettings(file=only_faults), note)) == []
    assert list(read_located(CorpusSettings(file=only_faults, source="en"), note)) == []
    assert seen == [("encoding", "d.tsv", 1)] * 2


# --- settings ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {},
            "say where the pairs come from: source and target (two line-parallel files), "
            "file (one TSV, CSV or JSONL file) or grammar (en-es or en-fr)",
        ),
        ({"source": "a"}, "source is given without target; line-parallel files need both"),
        ({"target": "a"}, "target is given without source; line-parallel files need both"),
        (
            {"source": 0, "target": "b"},
            "source is a column number, but there is no file; add file, or give a path",
        ),
        (
            {"file": "a.tsv", "grammar": "en-es"},
            "file and grammar exclude each other; keep the one the pairs come from",
        ),
        ({"file": "a.tsv", "split": "test"}, "split does not go with file; remove it"),
        ({"file": "a.tsv", "split": "train", "size": 3}, "split and size do not go with file; remove them"),
        ({"grammar": "en-es", "source": "a"}, "source does not go with grammar; remove it"),
        (
            {"source": "a", "target": "b", "format": "tsv"},
            "format does not go with two line-parallel files; remove it",
        ),
        ({"file": "deu.txt"}, "the name 'deu.txt' does not tell the format; add format: tsv, csv, jsonl or labelled"),
        ({"file": "a.csv", "source": -1}, "source is -1, but columns are counted from 0"),
        (
            {"file": "a.jsonl", "target": 1},
            "target is the number 1, but a JSONL file has keys; give the key's name",
        ),
        ({"file": "a.tsv", "source": True}, "source: must be text; got True"),
        ({"file": "a.tsv", "source": ["a"]}, "source: must be text; got ['a']"),
        ({"file": ""}, "file: must not be empty"),
        ({"grammar": "en-se"}, "grammar must be one of en-es, en-fr; got 'en-se' (did you mean 'en-es'?)"),
        ({"grammar": "en-es", "size": 0}, "size: must be greater than or equal to 1; got 0"),
        ({"file": "a.tsv", "limit": 0}, "limit: must be greater than or equal to 1; got 0"),
        ({"file": "a.tsv", "take_every": 1}, "take_every: must be greater than or equal to 2; got 1"),
        ({"grammar": "en-es", "skip_every": 0}, "skip_every: must be greater than or equal to 2; got 0"),
        (
            {"file": "a.tsv", "take_every": 5, "skip_every": 5},
            "take_every and skip_every exclude each other; one is for validation, one for training",
        ),
        (
            {"file": "a.txt", "format": "labelled", "target": 1},
            "target does not go with format: labelled, whose lines are a label and a text; remove it",
        ),
        (
            {"file": "a.tsv", "source": "{lemma"},
            "source joins columns by their names or numbers in braces; got '{lemma'",
        ),
        (
            {"file": "a.jsonl", "target": "{}"},
            "target joins columns by their names or numbers in braces; got '{}'",
        ),
        ({"file": "a.tsv", "sorce": 0}, "sorce is not a setting (did you mean 'source'?)"),
    ],
)
def test_settings_problems(values, expected):
    assert problem(**values) == expected


@pytest.mark.parametrize(
    "values",
    [
        {"source": "a", "target": "b", "limit": 5},
        {"file": "a.CSV.gz", "source": "en", "target": 3},
        {"file": "${SURELY_NOT_SET_ANYWHERE}"},
        {"grammar": "en-fr"},
        {"grammar": "en-es", "split": "test", "size": 9},
        {"file": "a.tsv", "source": "{lemma} ;{2}", "take_every": 7},
        {"file": "a.txt", "format": "labelled", "skip_every": 7},
    ],
)
def test_settings_survive_a_round_trip(values):
    settings = CorpusSettings(**values)
    assert CorpusSettings.model_validate(settings.model_dump()) == settings
    assert CorpusSettings.model_validate_json(settings.model_dump_json()) == settings


def test_paths_may_be_path_objects(tmp_path):
    assert CorpusSettings(source=tmp_path / "a", target=tmp_path / "b").source == str(tmp_path / "a")


def test_describe_and_files():
    parallel = CorpusSettings(source="d/train.en", target="d/train.de.gz")
    assert describe(parallel) == "train.en + train.de.gz"
    assert files(parallel) == ["d/train.en", "d/train.de.gz"]
    assert describe(CorpusSettings(file="d/pairs.tsv")) == "pairs.tsv"
    assert files(CorpusSettings(file="d/pairs.tsv", source="en")) == ["d/pairs.tsv"]
    assert describe(CorpusSettings(grammar="en-es")) == "grammar en-es/train"
    assert files(CorpusSettings(grammar="en-es")) == []


# --- grammar -------------------------------------------------------------------------------------------------------


@pytest.fixture
def grammar(monkeypatch):
    """A stand-in for the embedded grammar, which has tests of its own."""
    calls = []

    def generate(direction, split, size=None):
        calls.append((direction, split, size))
        return iter([Pair("a", "b", ((0, 0),), ("t",)), Pair("c", "d"), Pair("e", "f")])

    import seqloom.corpus

    module = types.ModuleType("seqloom.corpus.grammar")
    module.generate = generate
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(seqloom.corpus, "grammar", module, raising=False)
    return calls


def test_grammar(grammar):
    found = list(read_located(CorpusSettings(grammar="en-es", limit=2)))
    assert found == [
        ("grammar:en-es/train", 1, Pair("a", "b", ((0, 0),), ("t",))),
        ("grammar:en-es/train", 2, Pair("c", "d")),
    ]
    assert len(list(read_pairs(CorpusSettings(grammar="en-fr", split="long", size=3)))) == 3
    assert grammar == [("en-es", "train", None), ("en-fr", "long", 3)]


# --- fingerprints --------------------------------------------------------------------------------------------------


def test_fingerprint_follows_content_not_names(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    a, b = write(tmp_path / "a", "x\ny\n"), write(tmp_path / "b", "z\n")
    here = CorpusSettings(source=a, target=b)
    there = CorpusSettings(source=write(tmp_path / "elsewhere" / "c", "x\ny\n"), target=write(tmp_path / "d", "z\n"))
    assert fingerprint(here) == fingerprint(there)
    swapped, limited = CorpusSettings(source=b, target=a), CorpusSettings(source=a, target=b, limit=1)
    seen = {fingerprint(here), fingerprint(swapped), fingerprint(limited)}
    write(tmp_path / "a", "x\n")
    write(tmp_path / "b", "y\nz\n")
    seen.add(fingerprint(here))
    assert len(seen) == 4


def test_fingerprint_follows_columns_and_format(tmp_path):
    tsv, csv_file = write(tmp_path / "a.tsv", "x\ty\n"), write(tmp_path / "a.csv", "x\ty\n")
    plain = fingerprint(CorpusSettings(file=tsv))
    assert plain == fingerprint(CorpusSettings(file=csv_file, format="tsv"))
    others = [CorpusSettings(file=csv_file), CorpusSettings(file=tsv, source=1, target=0)]
    assert len({plain, *map(fingerprint, others)}) == 3


def test_fingerprint_of_the_grammar_follows_its_source(tmp_path, monkeypatch):
    monkeypatch.setattr(readers, "__file__", str(tmp_path / "readers.py"))
    settings = CorpusSettings(grammar="en-es")
    seen = []
    for name, content in itertools.product(readers.GRAMMAR_FILES, "12"):
        write(tmp_path / name, content)
        seen.append(fingerprint(settings))
    others = ({"split": "test"}, {"size": 5}, {"grammar": "en-fr"})
    seen += [fingerprint(CorpusSettings(**{"grammar": "en-es", **other})) for other in others]
    assert len(set(seen)) == len(seen)
    assert fingerprint(CorpusSettings(grammar="en-es", split="train")) == fingerprint(settings)


def test_fingerprint_of_a_missing_file(tmp_path):
    with pytest.raises(DataError, match="there is no such file"):
        fingerprint(CorpusSettings(file=str(tmp_path / "a.tsv")))


# -- variables -------------------------------------------------------------------------------------------------------


def test_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEQLOOM_TEST_A", "here")
    monkeypatch.setenv("SEQLOOM_TEST_EMPTY", "")
    monkeypatch.delenv("SEQLOOM_TEST_B", raising=False)
    assert expand_variables("${SEQLOOM_TEST_A}/x") == "here/x"
    assert expand_variables("${SEQLOOM_TEST_A:-there}/${SEQLOOM_TEST_B:-../data}") == "here/../data"
    assert expand_variables("${SEQLOOM_TEST_B:-}x") == "x"
    assert expand_variables("${SEQLOOM_TEST_EMPTY:-d}") == "d"
    assert expand_variables("$HOME {a} $") == "$HOME {a} $"
    with pytest.raises(UserError) as caught:
        expand_variables("${SEQLOOM_TEST_B}/x")
    assert str(caught.value) == (
        "${SEQLOOM_TEST_B}/x: the environment variable SEQLOOM_TEST_B is not set (export SEQLOOM_TEST_B=…)"
    )
