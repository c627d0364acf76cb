"""nanoGPT's own train.py, as it is, timed by what it prints; afterwards its weights are read as seqloom's are."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

from bench.characters_job import read_job, write_result

DATA = Path("data", "shakespeare_char")
OUT = "out"
AT_ONCE = 128  # pieces in one call
ITERATION = re.compile(r"^iter (\d+): loss \S+, time ([\d.]+)ms", re.MULTILINE)
ESTIMATE = re.compile(r"^step (\d+): train loss \S+ val loss ([\d.]+)", re.MULTILINE)
PARAMETERS = re.compile(r"^num (?:non-)?decayed parameter tensors: \d+, with ([\d,]+) parameters", re.MULTILINE)


def seconds_of(log: str, warmup: int, iterations: int) -> float:
    """Seconds of the iterations after the warm-up, each of which must have been printed once.

    An iteration's time has the validation before it in it. There is one before the first and one before the iteration
    that follows the last we ask for, and neither counts.
    """
    times = [float(time) for number, time in ITERATION.findall(log) if warmup <= int(number) < iterations]
    if len(times) != iterations - warmup:
        raise SystemExit(
            f"nanoGPT printed the times of {len(times)} iterations where {iterations - warmup} were expected"
        )
    return sum(times) / 1000


def estimate_of(log: str, iterations: int) -> float:
    """The validation loss that it estimates itself after so many iterations."""
    found = [float(loss) for step, loss in ESTIMATE.findall(log) if int(step) == iterations]
    if not found:
        raise SystemExit(f"nanoGPT printed no validation loss at step {iterations}")
    return found[0]


def parameters_of(log: str) -> int | None:
    """All weights, positions too."""
    return sum(int(count.replace(",", "")) for count in PARAMETERS.findall(log)) or None


def loss_once(folder: Path) -> float:
    """Mean loss of the validation characters, each predicted once, in pieces of the model's context side by side."""
    sys.path.insert(0, str(folder))
    import numpy as np
    import torch
    from model import GPT, GPTConfig  # type: ignore[import-not-found]  # nanoGPT's own

    kept = torch.load(folder / OUT / "ckpt.pt", map_location="cpu", weights_only=True)
    model = GPT(GPTConfig(**kept["model_args"])).eval()
    model.load_state_dict(kept["model"])
    tokens = torch.from_numpy(np.fromfile(folder / DATA / "val.bin", np.uint16).astype(np.int64))
    context = model.config.block_size
    read, targets = tokens[:-1], tokens[1:]
    whole = len(read) // context * context
    pairs = list(zip(*(part[:whole].view(-1, context).split(AT_ONCE) for part in (read, targets)), strict=True))
    pairs.append((read[None, whole:], targets[None, whole:]))
    with torch.no_grad():
        return sum(float(model(some, gold)[1]) * gold.numel() for some, gold in pairs if gold.numel()) / len(targets)


def main() -> None:
    job = read_job()
    folder, output = Path(job.folder), Path(job.folder) / "output.txt"
    environment = {**os.environ, "OMP_NUM_THREADS": str(job.threads)}
    with output.open("wb") as out:
        done = subprocess.run([sys.executable, "train.py", *job.arguments], cwd=folder, env=environment, stdout=out)
    if done.returncode:
        raise SystemExit(done.returncode)  # its own last line is the last of the log
    kilobytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    log = output.read_text(encoding="utf-8")
    batch = int(re.findall(r"^tokens per iteration will be: ([\d,]+)", log, re.MULTILINE)[0].replace(",", ""))
    write_result(
        job,
        batch * (job.iterations - job.warmup),
        seconds_of(log, job.warmup, job.iterations),
        peak_mb=kilobytes / 1024,
        parameters=parameters_of(log),
        characters=(folder / DATA / "train.bin").stat().st_size // 2,
        estimate=estimate_of(log, job.iterations),
        validation_loss=loss_once(folder),
    )


if __name__ == "__main__":
    main()
