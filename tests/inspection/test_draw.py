"""Pictures are complete, honest files."""

from __future__ import annotations

import itertools
import re
import struct
import subprocess
import sys
import threading
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import UserError
from seqloom.inspection import draw, page
from seqloom.inspection.terminal import to_terminal

ROWS = ["llegó", "la", "bruja", "<unk>", "</s>"]
COLUMNS = ["the", "$5", "Donaudampfschifffahrtsgesellschaft", "R&D", "$x_1^2$", "$", "</s>"]
MATRIX = np.random.default_rng(3).dirichlet(np.ones(7), size=5)


def svg_texts(path: Path) -> list[str]:
    root = ElementTree.parse(path).getroot()
    return ["".join(node.itertext()).strip() for node in root.iter("{http://www.w3.org/2000/svg}text")]


def svg_size(path: Path) -> tuple[float, float]:
    root = ElementTree.parse(path).getroot()
    return float(root.attrib["width"].removesuffix("pt")) / 72, float(root.attrib["height"].removesuffix("pt")) / 72


def png_size(path: Path) -> tuple[int, int]:
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    return width, height


def test_svg_holds_every_label_as_text(tmp_path: Path) -> None:
    path = draw.heatmap(MATRIX, ROWS, COLUMNS, "a title", tmp_path / "a.svg", marks=[(0, 1)])
    texts = svg_texts(path)
    for label in [*ROWS, *COLUMNS, "a title", "gold alignment"]:
        assert label in texts
    assert texts.count("</s>") == 2
    assert "sans-serif" in path.read_text("utf-8")


def test_equal_pictures_are_equal_files(tmp_path: Path) -> None:
    for suffix in page.SUFFIXES:
        first = draw.heatmap(MATRIX, ROWS, COLUMNS, "t", tmp_path / f"a{suffix}").read_bytes()
        second = draw.heatmap(MATRIX, ROWS, COLUMNS, "t", tmp_path / f"b{suffix}").read_bytes()
        other = draw.heatmap(1 - MATRIX, ROWS, COLUMNS, "t", tmp_path / f"c{suffix}").read_bytes()
        assert first == second
        assert first != other
    assert b"<dc:date>" not in (tmp_path / "a.svg").read_bytes()


def test_png_grows_with_its_cells(tmp_path: Path) -> None:
    sizes = []
    for number in (4, 40):
        labels = [str(i % 10) for i in range(number)]
        path = draw.heatmap(np.eye(number), labels, labels, "", tmp_path / f"{number}.png")
        sizes.append(png_size(path))
    (small, _), (large, _) = sizes
    assert large - small == pytest.approx(36 * draw.CELL * page.DPI, abs=3)
    assert 100 < small < 400


def test_beyond_sixty_tokens_the_page_stops_growing(tmp_path: Path) -> None:
    labels = [f"w{i}" for i in range(150)]
    path = draw.heatmap(np.eye(150), labels, labels, "", tmp_path / "a.png")
    assert max(png_size(path)) < (draw.MOST_CELLS * draw.CELL + 2) * page.DPI


def test_long_labels_stay_on_the_page(tmp_path: Path) -> None:
    """Ink in the outermost pixels would mean that something was cut off."""
    image = pytest.importorskip("matplotlib.image")
    long = ["Donaudampfschifffahrtsgesellschaft", "Geschwindigkeitsbegrenzungen", "Rindfleischetikettierung"]
    path = draw.heatmap(np.eye(3), long, long[::-1], "A rather long title " * 6, tmp_path / "a.png", marks=[(2, 2)])
    pixels = image.imread(path)[..., :3]
    margin = int(page.MARGIN * page.DPI * 0.5)
    for edge in (pixels[:margin], pixels[-margin:], pixels[:, :margin], pixels[:, -margin:]):
        assert edge.min() == 1.0
    assert pixels.min() < 0.3


def test_columns_are_slanted_only_when_needed(tmp_path: Path) -> None:
    short = draw.heatmap(np.eye(3), list("abc"), list("abc"), "", tmp_path / "a.svg").read_text("utf-8")
    long = draw.heatmap(np.eye(3), list("abc"), ["witch"] * 3, "", tmp_path / "b.svg").read_text("utf-8")
    assert "rotate(-45" not in short
    assert long.count("rotate(-45") == 3


def test_marks_outside_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="outside"):
        draw.heatmap(MATRIX, ROWS, COLUMNS, "", tmp_path / "a.svg", marks=[(5, 0)])
    with pytest.raises(AssertionError, match="cannot carry"):
        draw.heatmap(MATRIX.T, ROWS, COLUMNS, "", tmp_path / "a.svg")


def test_panels(tmp_path: Path) -> None:
    items = [draw.Panel(MATRIX, ROWS, COLUMNS, f"head {i}") for i in range(3)]
    texts = svg_texts(draw.panels(items, tmp_path / "a.svg", "heads"))
    assert {"heads", "head 0", "head 1", "head 2"} <= set(texts)
    assert texts.count("bruja") == 3
    draw.panels(items, tmp_path / "wide.svg", across=3)
    draw.panels(items, tmp_path / "tall.svg", across=1)
    assert svg_size(tmp_path / "wide.svg")[0] > 2 * svg_size(tmp_path / "tall.svg")[0]


def test_lines_name_every_series(tmp_path: Path) -> None:
    series = {f"model {i}": [(0.0, 1.0), (1.0, 2.0 + i / 1000)] for i in range(12)}
    path = draw.lines(series, "words", "BLEU", "title", tmp_path / "a.svg", ticks=[(0, "≤5"), (1, "6–10")])
    root = ElementTree.parse(path).getroot()
    places = {}
    for node in root.iter("{http://www.w3.org/2000/svg}text"):
        text = "".join(node.itertext()).strip()
        found = re.search(r"(?:translate|rotate)\([^)]*?(-?[\d.]+)[ ,]+(-?[\d.]+)\)", node.attrib.get("transform", ""))
        places[text] = float(node.attrib["y"]) if "y" in node.attrib else float(found[2]) if found else None
    assert {*series, "words", "BLEU", "title", "≤5", "6–10"} <= set(places)
    heights = sorted(places[name] for name in series)
    assert min(b - a for a, b in itertools.pairwise(heights)) > page.LABEL


@given(st.lists(st.floats(0, 10), min_size=1, max_size=8).map(sorted))
def test_spread_keeps_order_distance_and_bounds(places: list[float]) -> None:
    moved = draw.spread(places, 1.0, 0.0, 10.0)
    assert all(b - a >= 1.0 - 1e-9 for a, b in itertools.pairwise(moved))
    assert moved[0] >= -1e-9
    assert moved[-1] <= 10 + 1e-9


def test_spread_leaves_free_places_alone() -> None:
    assert draw.spread([1.0, 3.0, 9.0], 1.0, 0.0, 10.0) == [1.0, 3.0, 9.0]


def test_bad_paths(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a\.gif: a picture must end in \.svg, \.png, \.pdf or \.html"):
        draw.heatmap(MATRIX, ROWS, COLUMNS, "", tmp_path / "a.gif")
    with pytest.raises(UserError, match=r"the folder .*nowhere does not exist"):
        draw.heatmap(MATRIX, ROWS, COLUMNS, "", tmp_path / "nowhere" / "a.svg")
    (tmp_path / "dir.svg").mkdir()
    with pytest.raises(UserError, match="this is a folder"):
        draw.heatmap(MATRIX, ROWS, COLUMNS, "", tmp_path / "dir.svg")


def test_a_failed_drawing_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = pytest.importorskip("matplotlib.figure")
    target = tmp_path / "a.png"
    target.write_text("old")

    def full_disk(self: object, path: Path, **options: object) -> None:
        Path(path).write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(figure.Figure, "savefig", full_disk)
    with pytest.raises(UserError, match=r"a\.png: could not be written \(No space left on device\)"):
        draw.heatmap(MATRIX, ROWS, COLUMNS, "", target)
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_no_leftovers_and_no_global_changes(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    touched = ("font.sans-serif", "svg.fonttype", "svg.hashsalt", "text.parse_math", "savefig.dpi")
    before = {name: matplotlib.rcParams[name] for name in touched}
    draw.heatmap(MATRIX, ROWS, COLUMNS, "", tmp_path / "a.svg")
    assert [path.name for path in tmp_path.iterdir()] == ["a.svg"]
    assert {name: matplotlib.rcParams[name] for name in touched} == before


def test_pyplot_is_never_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from seqloom.inspection import draw; "
        "draw.heatmap([[1.0]], ['a'], ['b'], 't', sys.argv[1]); draw.lines({'a': [(0, 1)]}, '', '', '', sys.argv[1]); "
        "print('matplotlib.pyplot' in sys.modules)"
    )
    arguments = [sys.executable, "-c", code, str(tmp_path / "a.png")]
    assert subprocess.run(arguments, capture_output=True, text=True, check=True).stdout.strip() == "False"


def test_several_threads_draw_the_same(tmp_path: Path) -> None:
    expected = draw.heatmap(MATRIX, ROWS, COLUMNS, "t", tmp_path / "a.svg").read_bytes()
    paths = [tmp_path / f"{i}.svg" for i in range(4)]
    threads = [threading.Thread(target=draw.heatmap, args=(MATRIX, ROWS, COLUMNS, "t", path)) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.read_bytes() for path in paths] == [expected] * 4


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError, match=re.escape("drawing needs matplotlib: pip install 'seqloom[plots]'")):
        draw.heatmap(MATRIX, ROWS, COLUMNS, "", tmp_path / "a.svg")
    assert to_terminal(MATRIX, ROWS, COLUMNS, width=100)


def test_control_characters_do_not_break_xml(tmp_path: Path) -> None:
    path = draw.heatmap(np.eye(2), ["\x00a", "\n"], ["\ud800", "我"], "", tmp_path / "a.svg")
    assert {"�a", "↵", "�", "我"} <= set(svg_texts(path))
