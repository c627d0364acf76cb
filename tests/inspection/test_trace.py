"""A trace keeps what it was given, under the labels it was given."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from seqloom.errors import UserError
from seqloom.inspection.trace import Trace

SOURCE = ["the", "green", "witch"]
TARGET = ["la", "bruja", "verde", "llegó", "."]


def test_arrays_carry_their_labels() -> None:
    trace = Trace()
    trace.labels["source"], trace.labels["target"] = SOURCE, TARGET
    weights = np.arange(15).reshape(5, 3) / 15
    trace.add("decoder.attention", weights, rows="target", columns="source")
    array = trace["decoder.attention"]
    assert (array.rows, array.columns, array.axes) == (TARGET, SOURCE, ("target", "source"))
    np.testing.assert_array_equal(array.values, weights)
    assert trace.names() == ["decoder.attention"]
    assert "decoder.attention" in trace
    assert "encoder.attention" not in trace
    assert len(trace) == 1


def test_values_are_copied() -> None:
    trace, state = Trace(), np.zeros((2, 3))
    trace.add("encoder.0.hidden", state, rows="source")
    trace.append("decoder.0.hidden", state[0], rows="target")
    state += 1
    assert not trace["encoder.0.hidden"].values.any()
    assert not trace["decoder.0.hidden"].values.any()


def test_steps_are_stacked_when_read() -> None:
    trace = Trace({"source": SOURCE})
    for step in range(5):
        trace.append("decoder.attention", [step, 0.5, 1.0], rows="target", columns="source")
    trace.labels["target"] = TARGET
    array = trace["decoder.attention"]
    assert array.values.shape == (5, 3)
    np.testing.assert_array_equal(array.values[:, 0], range(5))
    assert array.rows == TARGET


def test_growing_steps_are_filled_with_zeros() -> None:
    trace = Trace()
    for step in range(1, 4):
        trace.append("decoder.self_attention", np.full(step, 1 / step), rows="target", columns="target")
    np.testing.assert_allclose(
        trace["decoder.self_attention"].values, [[1, 0, 0], [1 / 2, 1 / 2, 0], [1 / 3, 1 / 3, 1 / 3]]
    )


def test_steps_of_several_heads_may_be_stacked_inside() -> None:
    trace = Trace({"source": SOURCE, "target": TARGET})
    for step in range(5):
        trace.append("decoder.attention", np.full((2, 3), step / 5), axes=("head", "target", "source"), stack=1)
    array = trace["decoder.attention"]
    assert array.values.shape == (2, 5, 3)
    assert (array.rows, array.columns, array.labels_of(0)) == (TARGET, SOURCE, ["0", "1"])
    np.testing.assert_allclose(array.values[1, :, 0], np.arange(5) / 5)


def test_an_unnamed_second_axis_counts_units() -> None:
    trace = Trace({"source": SOURCE})
    trace.add("encoder.0.hidden", np.zeros((3, 2)), rows="source")
    array = trace["encoder.0.hidden"]
    assert (array.axes, array.rows, array.columns) == (("source", "unit"), SOURCE, ["0", "1"])


def test_one_row_of_values() -> None:
    trace = Trace({"target": TARGET})
    trace.add("decoder.surprise", [1, 2, 3, 4, 5], rows="target")
    array = trace["decoder.surprise"]
    assert (array.rows, array.columns) == (["surprise"], TARGET)
    assert "surprise" in array.to_text(width=80, colour=False)


def test_labels_that_do_not_fit() -> None:
    trace = Trace({"source": SOURCE})
    with pytest.raises(ValueError, match=r"'decoder.attention' has 4 entries along 'source', but there are 3 source"):
        trace.add("decoder.attention", np.zeros((5, 4)), rows="target", columns="source")
    assert "decoder.attention" not in trace
    trace.add("decoder.attention", np.zeros((4, 3)), rows="target", columns="source")
    trace.labels["target"] = TARGET
    with pytest.raises(ValueError, match=r"4 entries along 'target', but there are 5 target labels: la bruja verde"):
        trace["decoder.attention"]
    with pytest.raises(ValueError, match="4 entries along 'target'"):
        trace.to_dict()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ({}, "must name its axes"),
        ({"axes": ["source"]}, "has 2 axes, but 1 names were given: source"),
        ({"axes": ["a", "b"], "rows": "a"}, "either by axes"),
    ],
)
def test_axes_must_be_named(names: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Trace().add("x", np.zeros((2, 2)), **names)


def test_three_axes_need_three_names() -> None:
    with pytest.raises(ValueError, match="has 3 axes, but 2 names"):
        Trace().add("x", np.zeros((2, 2, 2)), rows="target", columns="source")


def test_names_are_not_mixed_up() -> None:
    trace = Trace()
    trace.add("whole", [[1.0]], rows="target", columns="source")
    trace.append("steps", [1.0], rows="target", columns="source")
    with pytest.raises(ValueError, match="added before"):
        trace.add("whole", [[1.0]], rows="target", columns="source")
    with pytest.raises(ValueError, match="added as a whole"):
        trace.append("whole", [1.0], rows="target", columns="source")
    with pytest.raises(ValueError, match="was begun with axes"):
        trace.append("steps", [1.0], rows="target", columns="target")


def test_unknown_array() -> None:
    trace = Trace()
    trace.add("decoder.attention", [[1.0]], rows="target", columns="source")
    with pytest.raises(
        UserError, match=r"no array 'decoder.atention' \(did you mean 'decoder.attention'\?\); arrays it"
    ):
        trace["decoder.atention"]


def test_to_dict_is_json() -> None:
    trace = Trace({"source": SOURCE})
    trace.add("a", np.array([[0.123456, np.nan, np.inf]], dtype=np.float32), rows="target", columns="source")
    trace.add("b", np.array([True, False, True]), rows="source")
    found = json.loads(json.dumps(trace.to_dict(digits=3), allow_nan=False))
    assert found["labels"] == {"source": SOURCE}
    assert found["arrays"]["a"] == {"axes": ["target", "source"], "shape": [1, 3], "values": [[0.123, None, None]]}
    assert found["arrays"]["b"]["values"] == [True, False, True]


def test_tensors() -> None:
    torch = pytest.importorskip("torch")
    trace = Trace()
    trace.add("a", torch.full((2, 3), 0.5, requires_grad=True) * 2, rows="target", columns="source")
    trace.add("b", torch.full((2, 3), 0.5, dtype=torch.bfloat16), rows="target", columns="source")
    np.testing.assert_array_equal(trace["a"].values, np.ones((2, 3)))
    np.testing.assert_array_equal(trace["b"].values, np.full((2, 3), 0.5))


def test_looking_and_measuring_need_neither_torch_nor_matplotlib_to_be_imported() -> None:
    code = (
        "import sys, seqloom.inspection.gates, seqloom.inspection.attention, seqloom.inspection.lengths, "
        "seqloom.inspection.heads, "
        "seqloom.evaluation.report, seqloom.evaluation.alignment; "
        "print([name for name in ('torch', 'matplotlib', 'sacrebleu') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_it_is_a_mapping_of_arrays(tmp_path: Path) -> None:
    trace = Trace({"source": ["a", "b", "c"]})
    weights = np.arange(6, dtype=np.float32).reshape(2, 3)
    trace.add("decoder.attention", weights, rows="target", columns="source")
    trace.add("encoder.0.hidden", np.ones((3, 2)), rows="source")
    assert list(trace) == trace.keys() == trace.names() == ["decoder.attention", "encoder.0.hidden"]
    assert len(trace) == len(dict(trace)) == 2
    assert "decoder.attention" in trace
    assert repr(trace) == "<trace: decoder.attention, encoder.0.hidden>"
    view = trace["decoder.attention"]
    assert view.shape == (2, 3)
    np.testing.assert_array_equal(np.asarray(view), weights)
    assert np.asarray(view, np.float64).dtype == np.float64
    copied = np.array(view)
    copied[0, 0] = 9
    assert view.values[0, 0] == 0
    assert np.asarray(view) is view.values
    with pytest.raises(ValueError, match="must be copied"):
        view.__array__(np.float64, copy=False)


def test_plot_gives_the_figure_or_saves_it(tmp_path: Path) -> None:
    figure = pytest.importorskip("matplotlib.figure")
    trace = Trace()
    trace.add("decoder.attention", np.eye(2), rows="target", columns="source")
    trace.add("heads", np.ones((3, 2, 2)), axes=("head", "target", "source"))
    for name in trace:
        drawn = trace[name].plot()
        assert isinstance(drawn, figure.Figure)
        assert len(drawn.axes) >= 1
        assert trace[name].plot(tmp_path / "a.svg") == tmp_path / "a.svg"
