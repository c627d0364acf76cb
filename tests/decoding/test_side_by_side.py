"""Searches side by side: the same answers as one after the other, in the order of the texts; errors are raised."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import seqloom
from seqloom.parallel import side_by_side
from seqloom.tasks import supervised


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
def test_all_items_are_computed_and_threads_have_one_each() -> None:
    met = threading.Barrier(3, timeout=30)

    def compute(number: int) -> tuple[int, int]:
        if number < 3:
            met.wait()  # three are under way at once, or nobody gets through
        return number, torch.get_num_threads()

    assert sorted(side_by_side(compute, range(10))) == [(number, 1) for number in range(10)]
    assert torch.get_num_threads() == 3
    later: list[int] = []
    thread = threading.Thread(target=lambda: later.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert later == [3]


@pytest.mark.usefixtures("three_threads")
def test_an_error_is_raised_and_no_thread_is_left() -> None:
    def compute(number: int) -> int:
        if number == 4:
            raise MemoryError(number)
        return number

    with pytest.raises(MemoryError, match="4"):
        list(side_by_side(compute, range(8)))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("search")]


@pytest.mark.parametrize("how", [{"method": "greedy"}, {"beam_size": 3, "n_best": 2}, {"method": "sample", "seed": 5}])
def test_answers_do_not_depend_on_threads(
    how: dict[str, Any], tiny_transformer_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervised, "SEARCHED_AT_LEAST", 20)
    model = seqloom.load(tiny_transformer_run)
    texts = [text for text in ("the cat sleeps", "", "my famous brothers can clean my plate", " ") for _ in range(9)]
    one_by_one = model.predict(texts, **how)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        together = model.predict(texts, **how)
    finally:
        torch.set_num_threads(before)
    assert [answer.text for answer in together] == [answer.text for answer in one_by_one]
    assert [answer.score for answer in together] == pytest.approx([answer.score for answer in one_by_one], rel=1e-4)
