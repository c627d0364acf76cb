"""seqloom's character model: the recipe trained as `seqloom train` trains it, timed by the journal it writes."""

from __future__ import annotations

import json
import os
from pathlib import Path

from bench.characters_job import read_job, write_result


def main() -> None:
    job = read_job()
    os.environ["OMP_NUM_THREADS"] = str(job.threads)  # torch looks at it when it is imported, so that is done below
    os.environ["SEQLOOM_CACHE"] = job.cache
    from bench.peers.common import peak_megabytes
    from bench.peers.seqloom import paced
    from seqloom.experiment import train
    from seqloom.training.journal import read_journal

    run = Path(job.result).with_suffix(".run")
    train(job.recipe, run, overrides=job.overrides, restart=True)
    journal = list(read_journal(run / "journal.jsonl"))
    start = next(line for line in journal if line["event"] == "start")
    last = [line for line in journal if line["event"] == "validation"][-1]
    assert last["step"] == job.iterations, "the validation after the last iteration is the one that is compared"
    tokens, seconds = paced([line for line in journal if line["event"] == "train"], job.warmup)
    write_result(
        job,
        tokens,
        seconds,
        peak_mb=peak_megabytes(),
        parameters=start["parameters"],
        characters=json.loads((run / "data.json").read_text(encoding="utf-8"))["symbols"],
        validation_loss=last["loss"],
    )


if __name__ == "__main__":
    main()
