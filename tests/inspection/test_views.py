"""The views: attention, gates, quality against length."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

from seqloom.errors import UserError
from seqloom.evaluation.report import Bucket
from seqloom.inspection.attention import draw_attention
from seqloom.inspection.gates import draw_gates
from seqloom.inspection.lengths import draw_lengths
from seqloom.inspection.trace import Trace

SOURCE = ["the", "green", "witch", "arrived", "</s>"]
TARGET = ["llegó", "la", "bruja", "</s>"]
LSTM = ("input_gate", "forget_gate", "output_gate", "candidate", "cell", "hidden")


def svg_texts(path: str | Path) -> list[str]:
    root = ElementTree.parse(path).getroot()
    return ["".join(node.itertext()).strip() for node in root.iter("{http://www.w3.org/2000/svg}text")]


@pytest.fixture
def attention() -> Trace:
    trace = Trace({"source": SOURCE, "target": TARGET})
    weights = np.random.default_rng(5).dirichlet(np.ones(5), size=4)
    trace.add("decoder.attention", weights, rows="target", columns="source")
    return trace


def gates(side: str = "encoder.0.forward", names: tuple[str, ...] = LSTM, num_units: int = 7) -> Trace:
    trace, random = Trace({"source": SOURCE, "target": TARGET}), np.random.default_rng(7)
    axis = "source" if side.startswith("encoder") else "target"
    for name in names:
        shape = (len(trace.labels[axis]), num_units)
        values = random.random(shape) if name.endswith("gate") else random.normal(size=shape)
        trace.add(f"{side}.{name}", values, rows=axis)
    return trace


def test_attention_picture(attention: Trace, tmp_path: Path) -> None:
    written = draw_attention(attention, tmp_path / "a.svg", gold={(3, 0), (2, 2)})
    assert written == str(tmp_path / "a.svg")
    texts = svg_texts(written)
    assert set(SOURCE) | set(TARGET) <= set(texts)
    assert "the green witch arrived → llegó la bruja" in texts
    assert "gold alignment" in texts
    plain = draw_attention(attention["decoder.attention"], tmp_path / "b.svg")
    assert "gold alignment" not in svg_texts(plain)


def test_gold_links_frame_source_by_target(attention: Trace, tmp_path: Path) -> None:
    one = Path(draw_attention(attention, tmp_path / "a.svg", gold={(4, 0)})).read_bytes()
    assert (
        one
        == attention["decoder.attention"]
        .plot(tmp_path / "b.svg", "the green witch arrived → llegó la bruja", marks=[(0, 4)])
        .read_bytes()
    )
    with pytest.raises(UserError, match=r"gold link \(0, 4\) is outside .* 5 source and 4 target"):
        draw_attention(attention, tmp_path / "a.svg", gold={(0, 4)})


def test_attention_in_the_terminal(attention: Trace) -> None:
    text = draw_attention(attention, width=80, colour=False)
    assert text.splitlines()[0].split() == SOURCE
    assert all(label in text for label in TARGET)
    assert "\x1b" not in text
    assert "\x1b[48;" in draw_attention(attention, width=80)


def test_heads_are_averaged_and_plotted_apart(tmp_path: Path) -> None:
    trace = Trace({"source": ["a", "b"], "target": ["c"]})
    trace.add("decoder.attention", [[[1.0, 0.0]], [[0.0, 1.0]]], axes=("head", "target", "source"))
    text = draw_attention(trace, width=40, colour=False)
    assert text.splitlines()[0] == "mean of 2 heads"
    assert "c ▒▒ ▒▒" in text
    texts = svg_texts(trace["decoder.attention"].plot(tmp_path / "a.svg"))
    assert {"decoder.attention", "head 0", "head 1"} <= set(texts)
    apart = trace["decoder.attention"].to_text(width=40, colour=False)
    assert apart.index("head 0") < apart.index("c ██") < apart.index("head 1")


def test_long_sentences_get_a_general_title(tmp_path: Path) -> None:
    words = ["neunzehnhundert"] * 9
    trace = Trace({"source": words, "target": words})
    trace.add("decoder.attention", np.eye(9), rows="target", columns="source")
    assert "attention: target (rows) to source (columns)" in svg_texts(draw_attention(trace, tmp_path / "a.svg"))


def test_pieces_are_joined_in_the_title(tmp_path: Path) -> None:
    trace = Trace({"source": ["▁the", "▁wit", "ch"], "target": ["▁bru", "ja", "</s>"]})
    trace.add("decoder.attention", np.eye(3), rows="target", columns="source")
    assert "the witch → bruja" in svg_texts(draw_attention(trace, tmp_path / "a.svg"))


def test_a_model_without_attention() -> None:
    with pytest.raises(UserError, match="no attention to show; one trained with"):
        draw_attention(gates(names=("hidden",)))


@pytest.mark.parametrize("names", [LSTM, ("reset_gate", "update_gate", "candidate", "hidden"), ("hidden",)])
def test_gates_have_a_panel_each(names: tuple[str, ...], tmp_path: Path) -> None:
    texts = svg_texts(draw_gates(gates(names=names), tmp_path / "a.svg"))
    for name in names:
        assert ("hidden state" if name == "hidden" else name.replace("_", " ")) in texts
    assert texts.count("mean") == len(names)
    assert "encoder, layer 0, forward" in texts
    assert texts.count("witch") == (1 if len(names) < 3 else 2)


def test_gates_say_how_many_units_they_show(tmp_path: Path) -> None:
    some = " ".join(svg_texts(draw_gates(gates(num_units=70), tmp_path / "a.svg")))
    assert "Rows are 64 of 70 units" in some
    assert "the mean over all 70 units" in some
    few = svg_texts(draw_gates(gates(num_units=70), tmp_path / "b.svg", units="3,17"))
    assert {"3", "17"} <= set(few)
    assert "Rows are 2 of 70 units" in " ".join(few)


def test_gates_of_a_decoder_need_no_direction(tmp_path: Path) -> None:
    texts = svg_texts(draw_gates(gates("decoder.1"), tmp_path / "a.svg", side="decoder", layer=1))
    assert set(TARGET) <= set(texts)
    assert "decoder, layer 1" in texts


def test_gates_in_the_terminal_show_means() -> None:
    trace = Trace({"source": ["a", "b"]})
    trace.add("encoder.0.forward.forget_gate", [[1.0, 1.0], [0.0, 1.0]], rows="source")
    text = draw_gates(trace, width=60, colour=False)
    assert "forget gate ██ ▒▒" in text
    everything = draw_gates(gates(), width=90, colour=False)
    assert all(label in everything for label in [*SOURCE, "input gate", "candidate", "cell", "hidden state"])


def test_gates_of_a_model_that_exploded(tmp_path: Path) -> None:
    trace = Trace({"source": ["a", "b", "c"]})
    trace.add("encoder.0.forward.cell", [[0.5, -2.0], [np.inf, 1.0], [np.nan, np.nan]], rows="source")
    texts = svg_texts(draw_gates(trace, tmp_path / "a.svg"))
    assert {"−2", "2", "cell"} <= set(texts)
    assert "·" in draw_gates(trace, width=60, colour=False)


def test_gates_that_are_not_there(attention: Trace) -> None:
    with pytest.raises(UserError, match=r"no gates of encoder.3.forward; layers it has: encoder.0.forward$"):
        draw_gates(gates(), layer=3)
    with pytest.raises(UserError, match=r"no recurrent layer to show; arrays it has: decoder.attention$"):
        draw_gates(attention)


def buckets(scores: list[float], count: int = 30) -> list[Bucket]:
    ranges = [("≤5", 0, 5), ("6–10", 6, 10), ("11+", 11, None)]
    return [Bucket(*place, count, score, 0.0) for place, score in zip(ranges, scores, strict=False)]


def test_lengths_picture(tmp_path: Path) -> None:
    series = {"LSTM": buckets([30.0, 20.0, 10.0]), "Transformer": buckets([31.0, 29.5])}
    texts = svg_texts(draw_lengths(series, tmp_path / "a.svg", title="Quality"))
    assert {"LSTM", "Transformer", "Quality", "BLEU", "≤5", "6–10", "11+", "n=30"} <= set(texts)


def test_lengths_table() -> None:
    series = {"LSTM": buckets([30.0, 20.0, 10.0]), "Transformer": buckets([31.0, 29.5])}
    lines = [line.split() for line in draw_lengths(series).splitlines()]
    assert lines[0] == ["words", "sentences", "LSTM", "Transformer"]
    assert lines[2:] == [["≤5", "30", "30.00", "31.00"], ["6–10", "30", "20.00", "29.50"], ["11+", "30", "10.00", "–"]]


def test_counts_are_shown_only_where_models_agree(tmp_path: Path) -> None:
    series = {"a": buckets([30.0, 20.0]), "b": buckets([31.0, 29.5], count=7)}
    assert "sentences" not in draw_lengths(series)
    assert not any(text.startswith("n=") for text in svg_texts(draw_lengths(series, tmp_path / "a.svg")))


def test_nothing_to_draw() -> None:
    with pytest.raises(UserError, match="no length buckets"):
        draw_lengths({"a": []})
