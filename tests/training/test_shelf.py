"""Memory that processes share: sums are right, turns do not mix, and where there is no room nothing is left behind."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import torch

from seqloom.training.shelf import Shelf, reserve, shared_folder

ROUNDS, SIZE, COUNT = 40, 3, 1001


def numbers(turn: int, rank: int) -> list[torch.Tensor]:
    """Whole numbers, so that sums are exact; in pieces."""
    return list((torch.arange(COUNT, dtype=torch.float32) * (rank + 1) + turn).split([1, 0, 400, 600]))


def work(path: str, rank: int, barrier: Any, answers: Any) -> None:
    torch.set_num_threads(1)
    shelf, right = Shelf(Path(path), SIZE, COUNT), True
    for turn in range(ROUNDS):
        shelf.lay_down(numbers(turn, rank), rank)
        barrier.wait()
        expected = sum(torch.cat(numbers(turn, other)) for other in range(SIZE))
        right &= bool(torch.equal(shelf.take_up(), torch.as_tensor(expected)))
    answers.put(right)


def test_everybody_takes_up_the_sum_of_all_turn_after_turn(tmp_path: Path) -> None:
    """Nobody waits between taking up and laying down again: the boards change."""
    path = tmp_path / "shelf"
    assert reserve(path, Shelf.num_bytes(SIZE, COUNT))
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(SIZE), context.Queue()
    others = [context.Process(target=work, args=(str(path), rank, barrier, answers)) for rank in range(SIZE)]
    for other in others:
        other.start()
    assert [answers.get(timeout=60) for _ in others] == [True] * SIZE
    for other in others:
        other.join(10)


def test_no_room_is_no_shelf(tmp_path: Path) -> None:
    assert not reserve(tmp_path / "shelf", 2**62)
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_somebody_else_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "shelf").write_bytes(b"theirs")
    with pytest.raises(FileExistsError):
        reserve(tmp_path / "shelf", 100)
    assert (tmp_path / "shelf").read_bytes() == b"theirs"


def test_the_place_in_memory_is_a_folder_or_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("seqloom.training.shelf.IN_MEMORY", tmp_path)
    assert shared_folder() == tmp_path
    monkeypatch.setattr("seqloom.training.shelf.IN_MEMORY", tmp_path / "missing")
    assert shared_folder() is None
