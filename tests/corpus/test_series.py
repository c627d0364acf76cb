"""Series from files: what was written is what is read, faults are named with their line, cuts and splits are exact."""

from __future__ import annotations

import gzip
import io
import json
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.corpus import seasons
from seqloom.corpus.kinds import describe, fingerprint, kind_of, read_pairs
from seqloom.corpus.readers import CorpusSettings
from seqloom.corpus.series import SeriesSettings, read_examples, recordings, shared, windows
from seqloom.corpus.series_doctor import CHECKS, examine_series
from seqloom.errors import DataError, UserError
from seqloom.settings import check

HEADER = "# a comment\n@problemName made\n@timeStamps false\n@univariate false\n@dimensions 2\n"
LABELLED = HEADER + "@classLabel true up down\n@data\n"


def read(path: Path, **settings: Any) -> list[Any]:
    return list(read_examples(SeriesSettings(series=str(path), **settings)))


def fault(path: Path, **settings: Any) -> str:
    with pytest.raises(DataError) as caught:
        read(path, **settings)
    return str(caught.value).replace(str(path.parent) + "/", "")


numbers = st.floats(-1e6, 1e6, width=32)
series = st.integers(1, 4).flatmap(
    lambda width: st.lists(
        st.lists(st.lists(numbers, min_size=width, max_size=width), min_size=1, max_size=6), min_size=1, max_size=4
    )
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("series")


@given(series)
def test_what_was_written_is_what_is_read(folder: Path, given: list[list[list[float]]]) -> None:
    """In every text format, for any lengths and numbers; through compression too."""
    width = len(given[0][0])
    lines = [":".join(",".join(repr(step[c]) for step in one) for c in range(width)) + ":up" for one in given]
    ts = HEADER.replace("@dimensions 2", f"@dimensions {width}") + "@classLabel true up\n@data\n" + "\n".join(lines)
    (folder / "a.ts").write_text(ts)
    (folder / "a.jsonl.gz").write_bytes(
        gzip.compress("\n".join(json.dumps({"series": one, "label": "up"}) for one in given).encode())
    )
    names = [f"c{channel}" for channel in range(width)]
    rows = [[f"s{n}", "up", *map(repr, step)] for n, one in enumerate(given) for step in one]
    (folder / "a.csv").write_text("\n".join(",".join(row) for row in [["id", "label", *names], *rows]))
    found = [
        read(folder / "a.ts"),
        read(folder / "a.jsonl.gz", target="label"),
        read(folder / "a.csv", id="id", target="label"),
    ]
    for examples in found:
        assert [example.target for example in examples] == ["up"] * len(given)
        for example, one in zip(examples, given, strict=True):
            np.testing.assert_array_equal(example.source, np.array(one, np.float32))


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused_in_a_sentence(folder: Path, text: str) -> None:
    for name in ("b.ts", "b.csv", "b.jsonl"):
        for beginning in ("", LABELLED, "a,b\n1,2\n", '{"series": [1, 2]}\n'):
            (folder / name).write_text(beginning + text, encoding="utf-8", errors="replace")
            try:
                for example in read(folder / name):
                    assert np.isfinite(example.source).all()
            except UserError as error:
                told = str(error)
                assert "\n" not in told


def test_arrays_with_their_labels(tmp_path: Path) -> None:
    values = np.arange(24, dtype=np.int32).reshape(3, 2, 4)  # three series of two channels and four steps
    np.save(tmp_path / "x.npy", values)
    (tmp_path / "y.txt").write_text("a\nb\nc\n")
    found = read(tmp_path / "x.npy", target=str(tmp_path / "y.txt"), layout="channels_first")
    assert [one.target for one in found] == ["a", "b", "c"]
    np.testing.assert_array_equal(found[1].source, values[1].T)
    np.savez_compressed(tmp_path / "x.npz", series=values, kind=np.array(["a", "b", "c"]))
    assert [one.target for one in read(tmp_path / "x.npz", target="kind")] == ["a", "b", "c"]
    np.save(tmp_path / "fortran.npy", np.asfortranarray(values))
    np.testing.assert_array_equal(read(tmp_path / "fortran.npy")[2].source, values[2])
    (tmp_path / "y.txt").write_text("a\nb\n")
    assert "3 series, but 2 targets" in fault(tmp_path / "x.npy", target=str(tmp_path / "y.txt"))


class Trap:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("code of a file was run",))


def test_a_file_runs_no_code_and_takes_no_memory(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([Trap()], dtype=object), allow_pickle=True)
    assert "Python objects, which may execute code" in fault(tmp_path / "x.npy")
    np.savez(tmp_path / "x.npz", series=np.array([Trap()], dtype=object))
    assert "Python objects" in fault(tmp_path / "x.npz")
    (tmp_path / "p.npy").write_bytes(pickle.dumps([1.0]))
    assert "not a .npy file" in fault(tmp_path / "p.npy")
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": (10**9, 10**9)})
    (tmp_path / "huge.npy").write_bytes(head.getvalue())
    assert "cut it into parts" in fault(tmp_path / "huge.npy")
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": (1000, 1000)})
    (tmp_path / "short.npy").write_bytes(head.getvalue() + b"1234")
    assert "cut short" in fault(tmp_path / "short.npy")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LABELLED + "1,2:3,4:up\n1,2:3:up\n", "x.ts:9: channel 2 has 1 steps, channel 1 has 2"),
        (LABELLED + "1,2:up\n", "x.ts:8: expected 2 channels between colons, found 1"),
        (LABELLED + "1,2:3,x:up\n", "x.ts:8: expected a number, found 'x'"),
        (LABELLED + "1,2:3,inf:up\n", "x.ts:8: expected a number, found 'inf'"),
        (LABELLED + "1,2:3,1_0:up\n", "x.ts:8: expected a number, found '1_0'"),
        (LABELLED + "1,2:3,4:upp\n", "x.ts:8: the label 'upp' is not in @classLabel (did you mean 'up'?)"),
        (LABELLED.replace("@timeStamps false", "@timeStamps true") + "1:up", "with time stamps"),
        (LABELLED, "x.ts: there is no series in it"),
        (HEADER, "x.ts: there is no line @data"),
        ("1,2:3,4:up", "x.ts:1: expected a header line such as @data"),
        (LABELLED + "1,?:3,4:up\n", "x.ts:8: channel '0', step 2: the number is missing; missing: interpolate"),
    ],
)
def test_faults_of_ts_files(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.ts").write_text(text)
    assert message in fault(tmp_path / "x.ts")


@pytest.mark.parametrize(
    ("text", "settings", "message"),
    [
        ("a,b\n1,2\n1\n", {}, "x.csv:3: expected 2 columns, found 1"),
        ("a,b\n1,x\n", {}, "x.csv:2: the column 'b' must hold numbers; found 'x'"),
        ("a,b\n1,2\n", {"target": "label"}, "x.csv:1: the header has no column 'label'"),
        ("t,b\n1,2\n0,2\n", {"time": "t"}, "x.csv:3: the time '0' is before '1'"),
        ("i,b\nx,1\ny,1\nx,1\n", {"id": "i"}, "x.csv:4: the series 'x' goes on after another; sort the rows"),
        ("i,p,b\nx,1,1\nx,2,1\n", {"id": "i", "split_by": "p"}, "x.csv:3: the series 'x' belongs to '1' and to '2'"),
        ("a,b\n", {}, "x.csv: there is no series in it"),
        ("", {}, "x.csv: the file is empty"),
        ("a\n1\n2\n", {"rows": (0, 5)}, "rows: [0, 5], but line 2 has 2 steps"),
        ('a\n"1\n', {}, "not valid CSV"),
    ],
)
def test_faults_of_csv_files(tmp_path: Path, text: str, settings: dict[str, Any], message: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    assert message in fault(tmp_path / "x.csv", **settings)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"series": [[1, 2], [3]]}', "step 2 must have 2 numbers as step 1 has"),
        ('{"series": [[1, true]]}', "step 1: expected a number, found true"),
        ('{"series": []}', "a series must be a list of steps"),
        ('{"serie": [1]}', "the key 'series' is missing (did you mean 'serie'?)"),
        ("[1]", "expected a JSON object"),
        ("{", "not valid JSON"),
        ('{"series": [1, 2], "label": ["a"]}', "'label' has 1 labels for 2 steps"),
        ('{"series": [1, 2], "label": null}', "'label' must be a text, a number or a list"),
    ],
)
def test_faults_of_jsonl_files(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "x.jsonl").write_text('{"series": [1, 2], "label": "a"}\n' + line)
    assert message in fault(tmp_path / "x.jsonl", target="label" if "label" in line else None)
    assert "x.jsonl:2: " in fault(tmp_path / "x.jsonl", target="label" if "label" in line else None)


def test_missing_numbers_lie_on_a_line_between_their_neighbours(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n,1\n2,\n?,nan\n5,4\nNA,5\n")
    [found] = read(tmp_path / "x.csv", missing="interpolate")
    np.testing.assert_allclose(found.source, [[2, 1], [2, 2], [3.5, 3], [5, 4], [5, 5]])
    (tmp_path / "x.csv").write_text("a,b\n,1\n,2\n")
    assert "channel 'a', step 1: the number is missing all along" in fault(tmp_path / "x.csv", missing="interpolate")


def test_windows_and_their_labels(tmp_path: Path) -> None:
    rows = "".join(f"{step},{'a' if step < 4 else 'b'}\n" for step in range(8))
    (tmp_path / "x.csv").write_text("v,label\n" + rows)
    cut = {"target": "label", "window": 3, "stride": 2}
    found = read(tmp_path / "x.csv", **cut)
    assert [one.source[:, 0].tolist() for one in found] == [[0, 1, 2], [2, 3, 4], [4, 5, 6]]
    assert [one.target for one in found] == ["a", "a", "b"]
    assert [one.line for one in found] == [2, 4, 6]
    assert [one.target for one in read(tmp_path / "x.csv", **cut, label_of="last")] == ["a", "b", "b"]
    each = read(tmp_path / "x.csv", target="label", window=3, label_of="each")
    assert [one.target for one in each] == [("a", "a", "a"), ("a", "b", "b"), ("b", "b")], "every step once"


@given(st.integers(0, 60), st.integers(2, 9), st.integers(1, 9), st.booleans())
def test_windows_lie_within_their_recording(steps: int, window: int, stride: int, each: bool) -> None:
    how = SeriesSettings(series="made:seasons", window=window, stride=stride, label_of="each" if each else "majority")
    found = windows(steps, how)
    assert all(0 <= start < end <= steps for start, end in found)
    assert [start for start, end in found if end - start == window] == list(range(0, steps - window + 1, stride))
    if each and stride <= window:
        assert {step for start, end in found for step in range(start, end)} == set(range(steps))


def test_groups_are_split_once_and_for_all(tmp_path: Path) -> None:
    rows = "".join(f"s{person:02d}_{take},{take}\n" for person in range(20) for take in (1, 2))
    (tmp_path / "x.csv").write_text("run,v\n" + rows)
    split = {"id": "run", "split_by": "run", "split_pattern": "^(s[0-9]+)"}
    parts = [read(tmp_path / "x.csv", **split, share=share) for share in ((0, 0.6), (0.6, 0.8), (0.8, 1))]
    people = [{one.group for one in part} for part in parts]
    assert [len(some) for some in people] == [12, 4, 4]
    assert set.union(*people) == {f"s{person:02d}" for person in range(20)}
    assert [len(part) for part in parts] == [24, 8, 8], "whoever is in a part is in it with all recordings"
    chosen = read(tmp_path / "x.csv", **split, groups=["s03", "s07"])
    assert [one.group for one in chosen] == ["s03", "s03", "s07", "s07"]
    with pytest.raises(UserError, match=r"groups: there is no run 's99'"):
        read(tmp_path / "x.csv", **split, groups=["s99"])
    assert "finds nothing in 's00_1'" in fault(tmp_path / "x.csv", **{**split, "split_pattern": "z"}, groups=["z"])


@given(st.lists(st.text(min_size=1), min_size=1, unique=True), st.floats(0.01, 0.99))
def test_shares_are_apart_and_together_all(names: list[str], at: float) -> None:
    first, second = shared(names, (0, at)), shared(names, (at, 1))
    assert not first & second
    assert first | second == set(names)
    assert shared(list(reversed(names)), (0, at)) == first, "the order in a file does not matter"


def test_a_part_of_a_recording_may_bring_what_was_before(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("v\n" + "\n".join(map(str, range(10))))
    part = SeriesSettings(series=str(tmp_path / "x.csv"), rows=(4, 7))
    assert [r.values[:, 0].tolist() for r in recordings(part)] == [[4, 5, 6]]
    assert [r.values[:, 0].tolist() for r in recordings(part, before=2)] == [[2, 3, 4, 5, 6]]
    assert [r.values[:, 0].tolist() for r in recordings(part, before=9)] == [[0, 1, 2, 3, 4, 5, 6]]


def test_contradictions_are_told(tmp_path: Path) -> None:
    for wrong, message in (
        ({"stride": 3}, "stride needs window"),
        ({"share": (0.5, 0.2), "split_by": "p"}, "share goes from a beginning to a later end"),
        ({"groups": ("a",)}, "groups needs split_by"),
        ({"split_by": "a", "split_pattern": "("}, "split_pattern is no regular expression"),
        ({"take_every": 2, "skip_every": 2}, "exclude each other"),
        ({"rows": (5, 5)}, "rows goes from a step to a later one"),
        ({"series": "made:waves"}, "a made series is one of made:seasons"),
        ({"series": "x.wav"}, "does not tell the format"),
        ({"series": "x.npy", "time": "t"}, "time does not go with format: npy"),
    ):
        _, [problem] = check(SeriesSettings, {"series": "x.csv", **wrong})
        assert message in problem


def test_the_kind_of_a_corpus_follows_from_its_settings(tmp_path: Path) -> None:
    text, made = CorpusSettings(grammar="en-es", size=3), SeriesSettings(series="made:seasons", rows=(0, 5))
    assert (kind_of(text), kind_of(made)) == ("text", "series")
    assert len(list(read_pairs(text))) == 3
    assert next(read_pairs(made)).source.shape == (5, 2)
    assert describe(made) == "made:seasons, steps 0 to 5"
    assert fingerprint(made) != fingerprint(SeriesSettings(series="made:seasons", rows=(0, 6)))


def test_the_made_series_has_its_seasons_and_a_trend() -> None:
    values = seasons.made("made:seasons").astype(float)
    assert values.shape == (seasons.HOURS, len(seasons.CHANNELS))
    np.testing.assert_array_equal(values, seasons.made("made:seasons"))
    load = values[:, 0]
    spectrum = np.abs(np.fft.rfft(load - load.mean()))
    strongest = {round(seasons.HOURS / place) for place in np.argsort(spectrum)[-6:] if place}
    assert 24 in strongest
    assert strongest & {167, 168, 169}
    assert math.isclose(np.polyfit(np.arange(seasons.HOURS), load, 1)[0], 0.002, abs_tol=0.0005)


def test_the_doctor_finds_people_and_windows_in_two_parts(tmp_path: Path) -> None:
    rows = [
        f"s{person},{step * person},0,{'a' if person < 3 else 'b'}\n" for person in range(1, 5) for step in range(8)
    ]
    (tmp_path / "x.csv").write_text("who,v,still,label\n" + "".join(rows))
    base = {"series": str(tmp_path / "x.csv"), "id": "who", "split_by": "who", "target": "label"}
    train = SeriesSettings(**base, window=4, stride=2, groups=("s1", "s2"))
    test = SeriesSettings(**base, window=4, stride=4, groups=("s2", "s3"))
    text, values, ok = examine_series({"train": train, "test": test})
    found = {(one["corpus"], one["check"]) for one in values["findings"]}
    assert ok, "warnings are the user's to weigh"
    assert {("test", "groups"), ("test", "leakage"), ("test", "new label"), ("train", "constant")} <= found
    assert "1 of 2 are in training too: s2" in text
    assert {one["check"] for one in values["findings"]} <= CHECKS.keys()
    clean = SeriesSettings(**base, window=4, groups=("s4",))
    _, values, _ = examine_series({"train": train, "test": clean})
    assert not [one for one in values["findings"] if one["check"] in ("groups", "leakage")]
    (tmp_path / "y.csv").write_text("v\n1\nx\n\n")
    text, values, ok = examine_series({"train": SeriesSettings(series=str(tmp_path / "y.csv"))})
    assert not ok
    assert [one["place"].rpartition("/")[2] for one in values["findings"][:2]] == ["y.csv:3", "y.csv:4"]
