"""Who trains a run: all threads on one product, a thread or a process a core, or the processes of a launcher.

One thread a core with a part of every batch, or one process where the work does not fit threads, is compared with all
threads on one product, once for a model and a machine; the choice is kept, so that a run repeated is the same run. A
launcher (`torchrun`, or whatever sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT) has decided: the process of rank 0
leads, the others follow; all must see the same run folder.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch

import seqloom
from seqloom.errors import UserError
from seqloom.files import read_json, write_atomically
from seqloom.folders import cache_folder
from seqloom.machine import num_cores
from seqloom.training.checkpoints import checkpoints_in
from seqloom.training.loop import seconds_a_step
from seqloom.training.settings import FittingSettings
from seqloom.training.team import JoinedTeam, LedTeam, Team

WORTH_MEASURING = 90.0  # seconds: a shorter training is over before a choice has paid for itself
CLEARLY = 0.95  # several processes must take less than this share of one's time
MOST = 8


def launched() -> JoinedTeam | None:
    """The team that a launcher started, if one did."""
    size = os.environ.get("WORLD_SIZE", "1")
    if size == "1":
        return None
    missing = [name for name in ("RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing or not size.isdigit():
        raise UserError(
            f"WORLD_SIZE is {size}, so other processes are expected, but {', '.join(missing) or 'it'} is not set as a "
            "launcher such as torchrun sets it; unset WORLD_SIZE to train alone"
        )
    return JoinedTeam(int(os.environ["RANK"]), int(size))


class Way(NamedTuple):
    """How the cores of a machine are used: processes, and threads of each that compute with a part of a batch."""

    processes: int = 1
    workers: int = 1

    def __str__(self) -> str:
        if self.workers > 1:
            return f"{self.workers} threads with a part of the batch each"
        return f"{self.processes} processes" if self.processes > 1 else "all threads on one product"


@contextmanager
def gathered(
    recipe: Any,
    model: torch.nn.Module,
    work: Any,
    run: Path,
    say: Callable[[str], None],
    outside: JoinedTeam | None = None,
) -> Iterator[tuple[Team, int]]:
    """Those who train, for as long as they do: a team of processes, and the workers of each.

    `outside` is the team that a launcher started.
    """
    s, cores = recipe.training, num_cores()
    if (s.divided or 1) > 1 and not work.fits_threads(model):
        raise UserError(
            "training.workers: what torch drops of attention weights (model.attention_dropout), and what plain: true "
            "drops, is drawn for all threads at once, and no run could be repeated; use training.processes instead"
        )
    if outside is not None:
        with outside:
            yield outside, s.divided or 1
        return
    way = _decided(s, run, cores)
    torch.set_num_threads(s.threads or cores)
    if way is None:
        way = _measured(recipe, model, work, run, say, min(cores, MOST, getattr(s, "rows", MOST)))
    torch.set_num_threads(s.threads or max(1, cores // (way.processes * way.workers)))
    if way.processes == 1:
        yield Team(), way.workers
        return
    with _led(run, way) as team:
        yield team, way.workers


def _decided(s: FittingSettings, run: Path, cores: int) -> Way | None:
    """How many, where there is nothing to measure."""
    if s.processes is not None or s.divided is not None:
        return Way(s.processes or 1, s.divided or 1)
    found = checkpoints_in(run)
    if found:  # a run goes on as it began: sums divided otherwise would round differently
        state = read_json(found[-1].folder / "state.json")
        return Way(int(state.get("processes", 1)), int(state.get("workers", 1)))
    return Way() if s.threads is not None or cores == 1 else None


def _led(run: Path, way: Way) -> LedTeam:
    """Processes with as many threads as this one has now."""
    command = [sys.executable, "-m", "seqloom.follower", str(run.resolve())]
    return LedTeam(way.processes, command, torch.get_num_threads())


def _measured(
    recipe: Any, model: torch.nn.Module, work: Any, run: Path, say: Callable[[str], None], several: int
) -> Way:
    """All threads on one product, or a part of the batch for each: whichever takes less time for a step."""
    s, together = recipe.training, Way(workers=several) if work.fits_threads(model) else Way(processes=several)
    kept = _kept(recipe, together)
    if several == 1:
        return Way()
    if kept.is_file():
        found = read_json(kept)
        return Way(int(found["processes"]), int(found["workers"]))
    if _planned_seconds(s, work, seconds_a_step(model, work, s, Team(), rehearsed=2)) < WORTH_MEASURING:
        return Way()
    seconds = {Way(): seconds_a_step(model, work, s, Team())}
    torch.set_num_threads(s.threads or max(1, num_cores() // several))
    if together.workers > 1:
        seconds[together] = seconds_a_step(model, work, s, Team(), together.workers)
    else:
        with _led(run, together) as team:
            seconds[together] = seconds_a_step(model, work, s, team)
    chosen = together if seconds[together] < CLEARLY * seconds[Way()] else Way()
    measured = ", ".join(f"{took:.3f} s with {way}" for way, took in seconds.items())
    say(f"a step takes {measured}: training with {chosen}")
    write_atomically(kept, json.dumps({**chosen._asdict(), "seconds": list(seconds.values())}))
    return chosen


def _kept(recipe: Any, together: Way) -> Path:
    """Where the choice for this model on this machine is kept."""
    s = recipe.training
    sizes = {name: getattr(s, name, None) for name in ("batch_tokens", "batching", "rows", "length")}
    what: list[Any] = [recipe.model_dump_json(include={"task", "model", "text"})]
    what += [sizes, s.accumulate, s.plain, s.precision, together]
    what += [platform.node(), platform.machine(), torch.__version__, seqloom.__version__]
    name = hashlib.blake2b("\n".join(map(str, what)).encode(), digest_size=16).hexdigest()
    return cache_folder() / "paces" / f"{name}.json"


def _planned_seconds(s: FittingSettings, work: Any, step: float) -> float:
    """How long a training would take by its limits."""
    limits = [math.inf]
    if s.minutes is not None:
        limits.append(60 * s.minutes)
    if s.steps is not None:
        limits.append(s.steps * step)
    if s.epochs is not None:
        limits.append(s.epochs * work.batches_per_epoch() / s.accumulate * step)
    return min(limits)
