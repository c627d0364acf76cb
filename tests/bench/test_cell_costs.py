"""What a step costs in each cell: all of them are timed, and the ratios are to the LSTM."""

from __future__ import annotations

from bench.cells import cells_table, measure

from seqloom.nn.cells import CELLS


def test_every_cell_is_timed_beside_its_formula_and_torch() -> None:
    found = measure((8,), sentences=4, longest=6, rounds=1)
    cells = found["seconds"][8]
    assert cells.keys() == CELLS.keys()
    assert all({"seqloom", "plain"} <= ways.keys() and min(ways.values()) > 0 for ways in cells.values())
    assert [name for name, ways in cells.items() if "torch" in ways] == ["elman", "gru", "lstm"]
    cells["lstm"]["seqloom"], cells["gru"]["seqloom"] = 0.002, 0.001
    assert "| 8 | gru | 1.0 |" in cells_table(found)
    assert "| 0.50× |" in cells_table(found)
