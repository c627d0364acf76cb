"""Several processes that train one model: each computes the gradients of its share of a batch, then all add them up.

On a machine of a few cores, processes of one thread each are faster than one process of many threads: a small model's
products are too short to be worth dividing. The process that was started first leads: it alone validates, writes and
talks. The others follow: they take the same steps from the same state, so that all have the same weights.

    leader      says go (with the learning rate) or stop
    everybody   gradients of its rows of the batch; their sum over all; the same update

`LedTeam` starts followers on this machine. A follower ends when its leader does, however that ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Thread
from types import TracebackType

import torch
import torch.distributed as dist
from torch import Tensor

from seqloom.errors import RunError
from seqloom.training.shelf import Shelf, reserve, shared_folder

PATIENCE = timedelta(hours=12)  # a leader may validate for long; that it has died is noticed otherwise
FIRST_CONTACT = 300.0  # seconds in which every follower must have prepared its data


class Team:
    """One process alone, unless a subclass says otherwise: nothing to share, nobody to wait for."""

    rank = 0
    size = 1

    def send_rate(self, rate: float) -> None:
        """Leader: everybody takes a step at this learning rate."""

    def all_reduce(self, weights: Sequence[Tensor], total: float) -> tuple[float, list[Tensor]]:
        """The gradients of all, summed, become everybody's; so does the number beside them.

        Given back are that number and the gradients of all weights, in as few tensors as there happen to be.
        """
        return total, [weight.grad for weight in weights if weight.grad is not None]

    def gather(self, own: dict[str, Tensor]) -> dict[str, Tensor]:
        """What everybody has of tensors whose rows were dealt out, like those of a batch, in one piece."""
        return own


class JoinedTeam(Team):
    """A team that speaks through torch.distributed (gloo); on one machine, gradients go through shared memory."""

    def __init__(self, rank: int, size: int, rendezvous: Path | None = None) -> None:
        """Meet at a file, or where MASTER_ADDR and MASTER_PORT say; returns when all are there."""
        self.rank, self.size, self.rendezvous = rank, size, rendezvous
        self.shelf: Shelf | None = None
        store = None if rendezvous is None else dist.FileStore(str(rendezvous), size)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=PATIENCE)

    def __enter__(self) -> JoinedTeam:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if kind is None:
            self.send_rate(float("nan"))

    def wait(self) -> None:
        """Until everybody waits here."""
        dist.barrier()

    def send_rate(self, rate: float) -> None:
        dist.broadcast(torch.tensor([rate], dtype=torch.float64), 0)

    def receive_rate(self) -> float | None:
        """Follower: the learning rate of the next step, or None when there is none."""
        rate = torch.empty(1, dtype=torch.float64)
        dist.broadcast(rate, 0)
        return None if bool(rate.isnan()) else float(rate)

    def all_reduce(self, weights: Sequence[Tensor], total: float) -> tuple[float, list[Tensor]]:
        parts = [(w.new_zeros(w.numel()) if w.grad is None else w.grad.flatten()) for w in weights]
        sizes, summed = [len(part) for part in parts], torch.tensor([total], dtype=torch.float64)
        if self.rendezvous is not None:
            self.shelf = self._shared(self.rendezvous, sum(sizes), parts[0].dtype)
            self.rendezvous = None  # tried once
        if self.shelf is not None:
            self.shelf.lay_down(parts, self.rank)
            dist.all_reduce(summed)  # whoever has the sum knows that all have laid down
            flat = self.shelf.take_up()
        else:
            flat = torch.cat(parts)
            dist.all_reduce(flat)
            dist.all_reduce(summed)
        for weight, gradient in zip(weights, flat.split(sizes), strict=True):
            weight.grad = gradient.view_as(weight)
        return float(summed), [flat]

    def _shared(self, rendezvous: Path, count: int, dtype: torch.dtype) -> Shelf | None:
        """Memory for so many gradients of each, if the leader can get it; its file is gone once all have opened it."""
        path, found = rendezvous.with_suffix(".shelf"), torch.zeros(1)
        if self.rank == 0 and dtype == torch.float32 and shared_folder() in rendezvous.parents:
            found[0] = reserve(path, Shelf.num_bytes(self.size, count))
        dist.broadcast(found, 0)
        if not found:
            return None
        shelf = Shelf(path, self.size, count)
        self.wait()
        if self.rank == 0:
            path.unlink()
        return shelf

    def gather(self, own: dict[str, Tensor]) -> dict[str, Tensor]:
        everybody: list[dict[str, Tensor]] = [{}] * self.size
        dist.all_gather_object(everybody, own)
        whole = {}
        for name, first in everybody[0].items():
            parts = [one[name] for one in everybody if name in one]  # the last ones have no row where these are few
            whole[name] = first.new_empty(sum(map(len, parts)), *first.shape[1:])
            for rank, part in enumerate(parts):
                whole[name][rank :: self.size] = part
        return whole


class LedTeam(JoinedTeam):
    """The leader's side: it has started the others as processes of this machine, and ends them."""

    def __init__(self, size: int, command: Sequence[str], threads: int = 1) -> None:
        """`command` starts a follower, given three more words: its rank, the size, and the file to meet at."""
        self.folder = tempfile.TemporaryDirectory(prefix="seqloom-team-", dir=shared_folder())
        rendezvous = Path(self.folder.name, "rendezvous")
        self.logs = [Path(self.folder.name, f"follower-{rank}.log") for rank in range(1, size)]
        self.followers: list[subprocess.Popen[bytes]] = []
        for rank, log in enumerate(self.logs, 1):
            with log.open("wb") as out:
                self.followers.append(
                    subprocess.Popen(
                        [*command, str(rank), str(size), str(rendezvous)],
                        stdin=subprocess.PIPE,
                        stdout=out,
                        stderr=out,
                        start_new_session=True,  # Ctrl-C is for the leader
                        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
                    )
                )
        try:
            self._wait(rendezvous)
            super().__init__(0, size, rendezvous)
        except BaseException:
            self.end()
            raise

    def _wait(self, rendezvous: Path) -> None:
        """Until every follower has arrived: to wait for one that died on its way would take for ever."""
        began = time.monotonic()
        while not all(Path(f"{rendezvous}.{rank}").exists() for rank in range(1, len(self.followers) + 1)):
            if any(follower.poll() is not None for follower in self.followers):
                raise RunError(self.failure())
            if time.monotonic() - began > FIRST_CONTACT:
                raise RunError(f"the other processes did not start within {FIRST_CONTACT:.0f} s{self._last_line()}")
            time.sleep(0.02)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        super().__exit__(kind, error, _)  # after an error nobody knows what the others wait for: the pipe ends them
        self.end()
        dist.destroy_process_group()

    def end(self) -> None:
        """No follower is left behind."""
        for follower in self.followers:
            if follower.stdin is not None:
                follower.stdin.close()
        for follower in self.followers:
            try:
                follower.wait(10)
            except subprocess.TimeoutExpired:
                follower.kill()
                follower.wait()
        self.folder.cleanup()

    def send_rate(self, rate: float) -> None:
        with self._reporting():
            super().send_rate(rate)

    def all_reduce(self, weights: Sequence[Tensor], total: float) -> tuple[float, list[Tensor]]:
        with self._reporting():
            return super().all_reduce(weights, total)

    def gather(self, own: dict[str, Tensor]) -> dict[str, Tensor]:
        with self._reporting():
            return super().gather(own)

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """What torch says of a lost connection is one sentence for people."""
        try:
            yield
        except RuntimeError:
            raise RunError(self.failure()) from None

    def failure(self) -> str:
        """What happened when the others are gone."""
        return f"one of the processes that train together has ended{self._last_line()}"

    def _last_line(self) -> str:
        words = [log.read_text(encoding="utf-8", errors="replace").strip() for log in self.logs if log.is_file()]
        lines = [text.splitlines()[-1] for text in words if text]
        return f": {lines[0]}" if lines else " without a word (killed, or out of memory?)"


def arrive(rendezvous: Path, rank: int) -> None:
    """Follower: ready to meet."""
    Path(f"{rendezvous}.{rank}").touch()


def end_with_leader() -> None:
    """Follower: end at once when the leader does. Its end of the pipe closes even if it is killed."""

    def watch() -> None:
        sys.stdin.buffer.read()
        os._exit(1)

    Thread(target=watch, daemon=True).start()
