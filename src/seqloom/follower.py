"""A process that helps another one train: `python -m seqloom.follower RUN RANK SIZE MEETING`, started by the leader."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from seqloom.gathering import prepared
from seqloom.recipe import load_recipe
from seqloom.tasks import TASKS
from seqloom.training.loop import follow
from seqloom.training.team import JoinedTeam, arrive, end_with_leader


def follow_run(run: Path, join: Callable[[], JoinedTeam]) -> None:
    """Prepare what the leader prepared, from the run folder it wrote; then do what it does."""
    recipe = load_recipe(run / "recipe.yaml")
    work, model = prepared(recipe, TASKS[recipe.task][0].load(run / "text"))
    follow(model, work, recipe.training, run, join(), recipe.seed)


def main(run: Path, rank: int, size: int, meeting: Path) -> None:
    end_with_leader()

    def join() -> JoinedTeam:
        arrive(meeting, rank)
        return JoinedTeam(rank, size, meeting)

    follow_run(run, join)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
