"""Who trains a run: one process with all threads, one process a core, or the processes that a launcher started.

The better of the first two is measured once for a model and a machine; the choice is kept, so that a run repeated is
the same run. A launcher (`torchrun`, or whatever sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT) has decided: the
process of rank 0 leads, the others follow; all must see the same run folder.
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
from typing import Any

import torch

import seqloom
from seqloom.batches.shards import cache_folder
from seqloom.errors import UserError
from seqloom.files import read_json, write_atomically
from seqloom.machine import num_cores
from seqloom.nn.plain import use_plain_paths
from seqloom.recipe import Recipe
from seqloom.tasks import TASKS
from seqloom.training.checkpoints import checkpoints_in
from seqloom.training.loop import seconds_a_step
from seqloom.training.memory import keep_freed_memory
from seqloom.training.progress import say
from seqloom.training.settings import FittingSettings
from seqloom.training.team import JoinedTeam, LedTeam, Team

WORTH_MEASURING = 90.0  # seconds: a shorter training is over before a choice has paid for itself
CLEARLY = 0.95  # several processes must take less than this share of one's time
MOST = 8


def prepared(recipe: Any, task: Any, told: Callable[[str], None] = lambda text: None) -> tuple[Any, torch.nn.Module]:
    """The task's work and a fresh model: the same in every process that trains together.

    `told` hears how many symbols start from vectors, where the recipe names some.
    """
    keep_freed_memory()
    work = TASKS[recipe.task][1](
        task, recipe.data.train, recipe.data.valid, recipe.training, recipe.seed, recipe.decoding
    )
    torch.manual_seed(recipe.seed)
    model = task.build(recipe.model)
    task.start_from_vectors(model, recipe.model, told)
    use_plain_paths(model, recipe.training.plain)
    return work, model


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


@contextmanager
def gathered(recipe: Recipe, model: torch.nn.Module, work: Any, run: Path) -> Iterator[Team]:
    """Those who train, for as long as they do."""
    s, cores = recipe.training, num_cores()
    size = _decided(s, run, cores)
    torch.set_num_threads(s.threads or cores)
    if size is None:
        size = _measured(recipe, model, work, run, min(cores, MOST, getattr(s, "rows", MOST)))
    if size == 1:
        yield Team()
        return
    with _led(s, run, size) as team:
        yield team


def _decided(s: FittingSettings, run: Path, cores: int) -> int | None:
    """The number of processes, where there is nothing to measure."""
    if s.processes is not None:
        return s.processes
    found = checkpoints_in(run)
    if found:  # a run goes on as it began: sums divided otherwise would round differently
        return int(read_json(found[-1].folder / "state.json").get("processes", 1))
    return 1 if s.threads is not None or cores == 1 else None


def _led(s: FittingSettings, run: Path, size: int) -> LedTeam:
    torch.set_num_threads(s.threads or max(1, num_cores() // size))
    return LedTeam(size, [sys.executable, "-m", "seqloom.follower", str(run.resolve())], torch.get_num_threads())


def _measured(recipe: Recipe, model: torch.nn.Module, work: Any, run: Path, several: int) -> int:
    """One process or `several`: whichever takes less time for a step."""
    s, kept = recipe.training, _kept(recipe, several)
    if several == 1:
        return 1
    if kept.is_file():
        return int(read_json(kept)["processes"])
    if _planned_seconds(s, work, seconds_a_step(model, work, s, Team(), 2)) < WORTH_MEASURING:
        return 1
    alone = seconds_a_step(model, work, s, Team())
    with _led(s, run, several) as team:
        together = seconds_a_step(model, work, s, team)
    torch.set_num_threads(num_cores())
    chosen = several if together < CLEARLY * alone else 1
    say(f"a step takes {alone:.3f} s in one process and {together:.3f} s in {several}: training in {chosen}")
    write_atomically(kept, json.dumps({"processes": chosen, "seconds": {"1": alone, str(several): together}}))
    return chosen


def _kept(recipe: Recipe, several: int) -> Path:
    """Where the choice for this model on this machine is kept."""
    s = recipe.training
    sizes = {name: getattr(s, name, None) for name in ("batch_tokens", "batching", "rows", "length")}
    what: list[Any] = [recipe.model.model_dump_json(), recipe.text.model_dump_json()]
    what += [sizes, s.accumulate, s.plain, several]
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
