"""A process that helps another one train: `python -m seqloom.follower RUN RANK SIZE MEETING`, started by the leader."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from seqloom.experiment import prepared
from seqloom.recipe import load_recipe
from seqloom.tasks import TASKS
from seqloom.training.loop import follow
from seqloom.training.team import JoinedTeam, arrive, end_with_leader


def main(run: Path, rank: int, size: int, meeting: Path) -> None:
    """Prepare what the leader prepared, from the run folder it wrote; then follow it."""
    end_with_leader()
    recipe = load_recipe(run / "recipe.yaml")
    task = TASKS[recipe.task][0].load(run / "text")
    work, model = prepared(recipe, task)
    torch.set_num_threads(recipe.training.threads or 1)
    arrive(meeting, rank)
    follow(model, work, recipe.training, run, JoinedTeam(rank, size, meeting), recipe.seed)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
