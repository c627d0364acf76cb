"""Memory that processes of one machine share: each lays its numbers down, and all take up the sum.

Through sockets, as torch.distributed does it, every number is copied more often.
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor

IN_MEMORY = Path("/dev/shm")  # a folder of files that are never written to a disk, where the system has one


def shared_folder() -> Path | None:
    """Where files that live in memory are made; None where there is no such place."""
    return IN_MEMORY if IN_MEMORY.is_dir() and os.access(IN_MEMORY, os.W_OK) else None


def reserve(path: Path, num_bytes: int) -> bool:
    """Make a file of that size whose memory is there; False where there is not so much."""
    with path.open("xb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, num_bytes)
        except OSError:
            path.unlink()
            return False
    return True


class Shelf:
    """Two boards with a place for every process, used in turn.

    Between laying down and taking up, everybody must have laid down; that is for the caller to wait for. Since the
    boards change, nobody can lay down the next numbers where another still takes up the last ones.
    """

    def __init__(self, path: Path, size: int, count: int) -> None:
        """Open a reserved file for `size` processes with `count` numbers each."""
        self.boards = torch.from_file(str(path), shared=True, size=2 * size * count).view(2, size, count)
        self.turn = 0

    @staticmethod
    def num_bytes(size: int, count: int) -> int:
        return 2 * size * count * 4

    def lay_down(self, parts: list[Tensor], rank: int) -> None:
        self.turn = 1 - self.turn
        torch.cat(parts, out=self.boards[self.turn, rank])

    def take_up(self) -> Tensor:
        """The sum of what all have laid down, in the order of their ranks: the same bits for everybody."""
        first, *others = self.boards[self.turn]
        total = first + others[0] if others else first.clone()
        for other in others[1:]:
            total += other
        return total
