"""A planted fault is found at its file and line, a clean corpus gets a clean bill, and the doctor never stops."""

import json
import os
from pathlib import Path

import pytest

from seqloom.corpus.doctor import CHECKS, Finding, Report, examine, render, to_dict, verdict
from seqloom.corpus.readers import CorpusSettings

CLEAN = [(f"the {n} green witches arrived", f"las {n} brujas verdes llegaron") for n in range(20)]
JUDGED = [(f"{n} books on the table", f"{n} libros en la mesa") for n in range(5)]


class Corpus:
    """Two parallel files in a folder of the test."""

    def __init__(self, folder: Path, name: str, pairs):
        self.source, self.target = str(folder / f"{name}.en"), str(folder / f"{name}.es")
        for path, side in ((self.source, 0), (self.target, 1)):
            texts = [pair[side] for pair in pairs]
            Path(path).write_bytes(b"".join((t if isinstance(t, bytes) else t.encode()) + b"\n" for t in texts))
        self.settings = CorpusSettings(source=self.source, target=self.target)


@pytest.fixture
def corpus(tmp_path):
    def make(name, pairs):
        return Corpus(tmp_path, name, pairs)

    return make


def planted(at: int, *pairs):
    """The clean corpus with pairs put in so that the first stands at line `at`."""
    return CLEAN[: at - 1] + list(pairs) + CLEAN[at - 1 :]


def places(report: Report):
    return [(f.severity, f.check, os.path.basename(f.path), f.line, f.message) for f in report.findings]


def test_clean_corpora_report_nothing(corpus):
    report = examine({"train": corpus("train", CLEAN).settings, "valid": corpus("valid", JUDGED).settings})
    assert report.findings == ()
    assert report.ok
    assert verdict(report) == "No problems found."
    assert report.counts["train"] == {
        "pairs": 20,
        "source_words": 100,
        "source_mean": 5.0,
        "source_max": 5,
        "target_words": 100,
        "target_mean": 5.0,
        "target_max": 5,
        "duplicates": 0,
        "empty": 0,
        "leaked": 0,
        "faulty": 0,
    }
    assert report.counts["valid"]["pairs"] == 5
    assert report.counts["valid"]["source_words"] == 25


NFD = "arrivo\u0301"

LINES = [
    ("empty", "warning", ("", "x"), "train.en", "the source is empty"),
    ("empty", "warning", ("x", " \t"), "train.es", "the target is empty but for white space"),
    ("long", "warning", ("w " * 31, "v " * 30), "train.en", "the source has 31 words, over 30"),
    ("long", "warning", ("w " * 30, "v " * 31), "train.es", "the target has 31 words, over 30"),
    ("ratio", "warning", ("w", "v " * 7), "train.en", "1 word in the source, 7 words in the target"),
    ("ratio", "warning", ("w " * 9, "v v"), "train.en", "9 words in the source, 2 words in the target"),
    ("duplicate", "warning", CLEAN[2], "train.en", "the same pair as line 3"),
    ("several targets", "note", (CLEAN[2][0], "x"), "train.en", "the same source as line 3, with another target"),
    ("identical", "note", ("same", "same"), "train.en", "source and target are the same"),
    ("control character", "note", ("a\x85b", "x"), "train.en", "U+0085 in the source at column 2"),
    ("control character", "note", ("a", "x\u200b"), "train.es", "U+200B in the target at column 2"),
    (
        "replacement character",
        "note",
        ("a", "ni\ufffdo"),
        "train.es",
        "U+FFFD in the target at column 3: a character was lost before",
    ),
    ("normalisation", "note", (NFD, "x"), "train.en", "the source is not in Unicode's composed form (NFC)"),
    (
        "encoding",
        "error",
        ("a", b"ni\xf1o"),
        "train.es",
        "not UTF-8: byte 0xf1 at column 3; convert the file, e.g. iconv -f latin1 -t utf-8",
    ),
    (
        "line size",
        "error",
        ("a", "x" * 1_000_001),
        "train.es",
        "the line is over 1,000,000 bytes; is this a text file with one example per line?",
    ),
]


@pytest.mark.parametrize(("check", "severity", "pair", "name", "message"), LINES)
def test_planted_line(corpus, check, severity, pair, name, message):
    report = examine({"train": corpus("train", planted(14, pair)).settings}, max_length=30)
    assert places(report) == [(severity, check, name, 14, message)]
    assert report.ok == (severity != "error")


@pytest.mark.parametrize(
    "pair",
    [
        ("w " * 30, "v " * 30),  # as long as allowed
        ("w", "v " * 6),  # six times, but only five words more
        ("w " * 8, "v v"),  # exactly four times
        ("a\tb", "été ñ ü 漢字 👩‍👩‍👧"),  # tab, composed letters, joined emoji
        (CLEAN[2][0] + " ", CLEAN[2][1]),  # nearly a duplicate
        ("x", CLEAN[2][1]),  # same target only
    ],
)
def test_what_is_no_fault(corpus, pair):
    assert places(examine({"train": corpus("train", planted(14, pair)).settings}, max_length=30)) == []


def test_a_pair_is_not_confused_with_another_cut_of_its_text(corpus):
    assert places(examine({"train": corpus("train", [("ab", "c d"), ("a", "bc d")]).settings})) == []


def test_unequal_counts_do_not_stop_the_others(corpus, tmp_path):
    train, valid = corpus("train", CLEAN), corpus("valid", [*JUDGED, ("", "x")])
    Path(train.target).write_text("x\n" * 19)
    report = examine({"train": train.settings, "valid": valid.settings})
    message = f"19 lines, but {train.source} has 20; parallel files need the same number"
    assert places(report) == [
        ("error", "line counts", "train.es", None, message),
        ("warning", "empty", "valid.en", 6, "the source is empty"),
    ]
    assert not report.ok
    assert report.counts["train"]["pairs"] == 19


def test_every_bad_line_is_reported(corpus):
    report = examine({"train": corpus("train", planted(4, (b"\xe9", "a"), ("ok", "bien"), ("b", b"x\xe9"))).settings})
    assert [(check, name, line) for _, check, name, line, _ in places(report)] == [
        ("encoding", "train.en", 4),
        ("encoding", "train.es", 6),
    ]
    assert report.counts["train"]["faulty"] == 2
    assert report.counts["train"]["pairs"] == 21


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.tsv", "a\tb\nc\nd\te\nf\tg\th\n", [("columns", 2), ("columns", 4)]),
        ("a.csv", 'a,b\n"c"d,e\nf\ng,h\n', [("columns", 3), ("csv", 2)]),
        ("a.jsonl", '{"source": "a", "target": "b"}\n{}\nno\n', [("json", 2), ("json", 3)]),
    ],
)
def test_faulty_rows(tmp_path, name, content, expected):
    path = tmp_path / name
    path.write_text(content)
    report = examine({"train": CorpusSettings(file=str(path))})
    assert [(f.check, f.line) for f in report.findings] == expected
    assert {f.path for f in report.findings} == {str(path)}
    assert not report.ok


def test_both_sides_of_a_table_are_placed_in_it(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("en\tes\nwitch\t\n\tbruja\n")
    report = examine({"train": CorpusSettings(file=str(path), source="en", target="es")})
    assert places(report) == [
        ("warning", "empty", "a.tsv", 2, "the target is empty"),
        ("warning", "empty", "a.tsv", 3, "the source is empty"),
    ]


def test_unreadable_files_do_not_stop_the_others(corpus, tmp_path, monkeypatch):
    monkeypatch.delenv("NOWHERE", raising=False)
    away = str(tmp_path / "qqq")
    broken = tmp_path / "b.gz"
    broken.write_bytes(b"plain")
    report = examine(
        {
            "train": CorpusSettings(source=away, target=str(broken)),
            "valid": CorpusSettings(file="${NOWHERE}/a.tsv"),
            "test": corpus("test", [*JUDGED, JUDGED[1]]).settings,
            "test:empty": CorpusSettings(file=str(tmp_path / "e.tsv")),
        }
    )
    (tmp_path / "e.tsv").write_text("")
    assert [(f.check, f.path, f.line) for f in report.findings] == [
        ("unreadable", away, None),
        ("unreadable", str(broken), None),
        ("unreadable", "${NOWHERE}/a.tsv", None),
        ("unreadable", str(tmp_path / "e.tsv"), None),
        ("duplicate", str(tmp_path / "test.en"), 6),
    ]
    assert report.findings[0].message == "there is no such file"
    assert report.findings[1].message.startswith("this is not a gzip file")
    assert report.findings[2].message == "the environment variable NOWHERE is not set (export NOWHERE=…)"
    assert report.counts["train"]["pairs"] == report.counts["valid"]["pairs"] == 0
    render(report)
    emptied = examine({"train": CorpusSettings(file=str(tmp_path / "e.tsv"))})
    assert places(emptied) == [("error", "unreadable", "e.tsv", None, "the file is empty")]


@pytest.mark.parametrize("train_first", [True, False])
def test_leakage(corpus, train_first):
    train = corpus("train", CLEAN)
    more = corpus("more", [("unlike", "the rest")])
    valid = corpus("valid", [JUDGED[0], CLEAN[7], (CLEAN[8][0], "otra cosa"), ("unlike", "the rest")])
    test = corpus("test", [*JUDGED[1:], CLEAN[19]])
    corpora = {"train": train, "train:more": more, "valid": valid, "test:x": test}
    if not train_first:
        corpora = dict(reversed(corpora.items()))
    report = examine({name: each.settings for name, each in corpora.items()})
    assert sorted(places(report)) == [
        (
            "note",
            "source overlap",
            "valid.en",
            3,
            f"the same source as {train.source}:9, with another target",
        ),
        ("warning", "leakage", "test.en", 5, f"the same pair as {train.source}:20"),
        ("warning", "leakage", "valid.en", 2, f"the same pair as {train.source}:8"),
        ("warning", "leakage", "valid.en", 4, f"the same pair as {more.source}:1"),
    ]
    assert list(report.counts) == list(corpora)
    assert report.counts["valid"]["leaked"] == 2


def test_only_the_first_cases_are_listed(corpus):
    pairs = planted(3, *[("", f"{n}") for n in range(8)])
    report = examine({"train": corpus("train", pairs).settings}, most=3)
    assert [(f.line, f.message, f.count) for f in report.findings] == [
        (3, "the source is empty", 1),
        (4, "the source is empty", 1),
        (5, "the source is empty", 1),
        (None, "… and 5 more", 5),
    ]
    assert report.total("warning") == 8
    assert report.counts["train"]["empty"] == 8
    assert verdict(report) == "8 warnings"
    none_listed = examine({"train": corpus("train", pairs).settings}, most=0)
    assert [(f.message, f.count) for f in none_listed.findings] == [("8 in all", 8)]


def test_a_side_without_spaces_is_one_note(corpus):
    pairs = [(f"we saw {n} very big dogs near the old house", f"我们在老房子附近看到了{n}只大狗") for n in range(12)]
    report = examine({"train": corpus("train", pairs).settings})
    message = (
        "in 12 of 12 pairs one side has more than 4 times the words of the other; "
        "it seems that one is written without spaces, so lengths are not compared"
    )
    assert places(report) == [("note", "words", "train.en + train.es", None, message)]


def test_unknown_rate(corpus):
    asked = []

    def rate(side, texts):
        asked.append((side, len(texts)))
        words = [word for text in texts for word in text.split()]
        return sum(word == "verdes" for word in words), len(words)

    # 2,500 pairs: more than one batch. On the target 1 word of 5 is unknown, on the source none.
    pairs = [(f"the {n} green witches arrived", f"las {n} brujas verdes llegaron") for n in range(2500)]
    report = examine({"train": corpus("train", pairs).settings}, unknown_rate=rate)
    message = "20.0 % of the target tokens are unknown (2,500 of 12,500)"
    assert places(report) == [("warning", "unknown", "train.es", None, message)]
    assert report.counts["train"]["target_unknown"] == pytest.approx(0.2)
    assert report.counts["train"]["source_unknown"] == 0
    for side in ("source", "target"):
        assert [size for name, size in asked if name == side] == [1000, 1000, 500]


@pytest.mark.parametrize(("unknown", "warned"), [(2, False), (3, True)])
def test_unknown_rate_up_to_two_percent_is_fine(corpus, unknown, warned):
    report = examine({"train": corpus("train", CLEAN).settings}, unknown_rate=lambda side, texts: (unknown, 100))
    assert [f.check for f in report.findings] == ["unknown", "unknown"] * warned


def test_progress(corpus):
    told = []
    pairs = [(f"a {n}", f"b {n}") for n in range(2100)]
    examine({"train": corpus("train", pairs).settings}, progress=lambda name, count: told.append((name, count)))
    assert told == [("train", 1000), ("train", 2000), ("train", 2100)]


def test_no_sentence_is_kept(corpus):
    import tracemalloc

    pairs = [(f"{n} " + "x" * 5000, f"{n} " + "y" * 5000) for n in range(2000)]  # 20 MB of text
    settings = corpus("train", pairs).settings
    tracemalloc.start()
    examine({"train": settings})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


def test_render():
    counts = {
        "pairs": 1234,
        "source_words": 5000,
        "source_mean": 4.05,
        "source_max": 30,
        "source_unknown": 0.0123,
        "target_words": 6000,
        "target_mean": 4.86,
        "target_max": 31,
        "target_unknown": 0.0,
        "duplicates": 2,
    }
    report = Report(
        (
            Finding("error", "encoding", "a.en", 3, "not UTF-8"),
            Finding("warning", "duplicate", "a.en", 9, "the same pair as line 4"),
            Finding("warning", "duplicate", "a.en", None, "… and 1,001 more", 1001),
            Finding("note", "identical", "a.en", 2, "source and target are the same"),
        ),
        {"train": counts, "v": {"pairs": 0}},
    )
    assert render(report) == (
        "corpus  pairs  source words  mean  longest  unknown  target words  mean  longest  unknown  duplicates\n"
        "train   1,234         5,000   4.0       30    1.2 %         6,000   4.9       31    0.0 %           2\n"
        "v           0             0   0.0        0    0.0 %             0   0.0        0    0.0 %           0\n"
        "\n"
        "Errors\n"
        "  lines that are not UTF-8\n"
        "    a.en:3: not UTF-8\n"
        "\n"
        "Warnings\n"
        "  pairs that occur more than once\n"
        "    a.en:9: the same pair as line 4\n"
        "    a.en: … and 1,001 more\n"
        "\n"
        "Notes\n"
        "  source and target are the same\n"
        "    a.en:2: source and target are the same\n"
        "\n"
        "1 error, 1,002 warnings, 1 note\n"
    )
    assert verdict(Report(report.findings[3:], {})) == "No problems found (1 note)."


def test_findings_come_gravest_first(corpus):
    pairs = planted(4, ("same", "same"), ("", "x"), (b"\xff", "x"))
    report = examine({"valid": corpus("valid", pairs).settings, "train": corpus("train", pairs[3:]).settings})
    severities = [f.severity for f in report.findings]
    assert severities == sorted(severities, key=["error", "warning", "note"].index)
    assert [severity for severity, _ in CHECKS.values()] == sorted(
        (severity for severity, _ in CHECKS.values()), key=["error", "warning", "note"].index
    )


def test_json(corpus):
    report = examine({"train": corpus("train", planted(4, ("", "ñ"))).settings})
    values = json.loads(json.dumps(to_dict(report)))
    assert values["ok"] is True
    assert values["counts"]["train"]["pairs"] == 21
    assert values["findings"] == [
        {
            "severity": "warning",
            "check": "empty",
            "path": report.findings[0].path,
            "line": 4,
            "message": "the source is empty",
            "count": 1,
        }
    ]


DATA = Path(os.environ.get("SEQLOOM_DATA") or Path(__file__).parents[2] / "../shared/data") / "multi30k"


@pytest.mark.skipif(not (DATA / "train.en").exists(), reason="Multi30k is not in SEQLOOM_DATA")
def test_multi30k():
    names = {"train": "train", "valid": "val", "test:flickr": "test_2016_flickr"}
    report = examine(
        {name: CorpusSettings(source=str(DATA / f"{n}.en"), target=str(DATA / f"{n}.de")) for name, n in names.items()}
    )
    assert report.ok
    assert {name: figures["pairs"] for name, figures in report.counts.items()} == {
        "train": 29000,
        "valid": 1014,
        "test:flickr": 1000,
    }
    # The repetitions, counted another way.
    lines = [(DATA / f"train.{side}").read_text(encoding="utf-8").split("\n")[:-1] for side in ("en", "de")]
    assert report.counts["train"]["duplicates"] == 29000 - len(set(zip(*lines, strict=True)))
    assert report.counts["train"]["source_words"] == sum(len(line.split()) for line in lines[0])
