"""seqloom itself: a whole experiment as `seqloom train` runs it, timed by the journal it writes."""

from __future__ import annotations

import sys
from itertools import pairwise
from math import gcd
from pathlib import Path
from typing import Any

from bench.peers.common import Job, Profile, peak_megabytes, read_job, write_result


def overrides_of(job: Job, steps: int) -> list[str]:
    """What makes a run a measurement: no validation, checkpoint or decoding before its last step."""
    never = 10**9
    return [
        f"training.steps={steps}",
        f"training.log_every={gcd(job.warmup, job.updates)}",
        f"training.validate_every={never}",
        f"training.checkpoint_every={never}",
        "training.validation_sentences=0",
        "training.metric=loss",
        "training.average=1",
        *(f"training.{name}={value}" for name, value in job.options.items()),
        *job.overrides,
    ]


def paced(lines: list[dict[str, Any]], warmup: int) -> tuple[float, float]:
    """Target symbols and seconds of the updates after the first `warmup`, from the lines of the journal."""
    tokens = seconds = 0.0
    for before, line in pairwise(lines):
        if before["step"] >= warmup:
            spent = line["time"] - before["time"]
            tokens, seconds = tokens + line["tokens_per_second"] * spent, seconds + spent
    return tokens, seconds


def profiled(job: Job, recipe: Any, run: Path) -> float | None:
    """The share of matrix products in some steps of the real loop, in a run of its own."""
    from seqloom.tasks import find_task
    from seqloom.training.loop import Validation, fit

    task: Any = find_task(recipe.task).kept(run / "text")
    work, model = task.prepare(recipe)
    profile = Profile()

    class Watched:
        """The work, with the profiler started at the loss of a later update and stopped before validation."""

        losses = 0

        def __getattr__(self, name: str) -> Any:
            return getattr(work, name)

        def loss(self, model: Any, batch: Any, carried: Any) -> Any:
            if self.losses == job.warmup:
                profile.start()
            self.losses += 1
            return work.loss(model, batch, carried)

        def validate(self, model: Any, *, final: bool = False) -> Validation:
            profile.stop()
            return Validation({"loss": 0.0, "perplexity": 1.0}, [])

    fit(model, Watched(), recipe.training, run / "profile")
    return profile.share


def main() -> None:
    job = read_job()
    import torch

    from seqloom.experiment import train
    from seqloom.recipe import load_recipe
    from seqloom.training.journal import read_journal

    run = Path(job.result).with_suffix(".run")
    model = train(job.recipe, run, overrides=overrides_of(job, job.warmup + job.updates))
    journal = list(read_journal(run / "journal.jsonl"))
    tokens, seconds = paced([line for line in journal if line["event"] == "train"], job.warmup)
    start = next(line for line in journal if line["event"] == "start")
    result: dict[str, Any] = {
        "tokens": tokens,
        "seconds": seconds,
        "tokens_per_second": tokens / seconds,
        "peak_mb": peak_megabytes(),
        **model.task.amounts(model.network),
        "threads": start["workers"],
        "precision": start["precision"],
        "validation_loss": next(line["loss"] for line in journal if line["event"] == "validation"),
    }
    if job.profile:
        try:
            recipe = load_recipe(job.recipe, overrides_of(job, job.warmup + job.profile))
            torch.set_num_threads(result["threads"])
            result["in_products"] = profiled(job, recipe, run)
        except Exception as error:  # the pace is measured already; a missing share is shown as missing
            print(f"not profiled: {error!r}", file=sys.stderr)
    write_result(job, result)


if __name__ == "__main__":
    main()
