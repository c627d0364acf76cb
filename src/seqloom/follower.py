"""A process that helps another one train; that one starts it: `python -m seqloom.follower RUN RANK SIZE RENDEZVOUS`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqloom.recipe import load_recipe
from seqloom.tasks import find_task
from seqloom.training.loop import follow
from seqloom.training.team import JoinedTeam, arrive, end_with_leader


def follow_run(run: Path, join: Callable[[], JoinedTeam]) -> None:
    """Prepare what the leader prepared, from the run folder it wrote; then do what it does."""
    recipe = load_recipe(run / "recipe.yaml")
    task: Any = find_task(recipe.task).kept(run / "text")
    work, model = task.prepare(recipe)
    follow(model, work, recipe.training, run, join(), recipe.seed)


def main(run: Path, rank: int, size: int, rendezvous: Path) -> None:
    end_with_leader()

    def join() -> JoinedTeam:
        arrive(rendezvous, rank)
        return JoinedTeam(rank, size, rendezvous)

    follow_run(run, join)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
