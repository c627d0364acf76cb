"""What every comparison does with its sides: run each in a process of its own, report progress, fail in a sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.peers import Peer
from bench.venvs import ROOT, NotInstalled


def run_side(python: Path, peer: Peer, job: Any, folder: Path, threads: int | None = None) -> dict[str, Any]:
    """One training in a process of its own; where it fails, the last line it printed is the reason.

    `job` is a dataclass whose `result` names the file that the peer must write. `threads` are those of its products.
    """
    Path(job.result).unlink(missing_ok=True)
    job_file, log = folder / "job.json", folder / "log.txt"
    job_file.write_text(json.dumps(asdict(job)), encoding="utf-8")
    paths = [str(ROOT)] if peer.steps is not None else [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    if threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    with log.open("wb") as out:
        command = [str(python), "-m", peer.module, str(job_file)]
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT)
    if done.returncode or not Path(job.result).is_file():
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        raise NotInstalled(f"failed: {lines[-1] if lines else f'exit code {done.returncode}'}")
    return dict(json.loads(Path(job.result).read_text(encoding="utf-8")))


@contextmanager
def user_errors() -> Iterator[None]:
    """What the user can put right is one sentence, not a traceback."""
    from seqloom.errors import UserError

    try:
        yield
    except UserError as error:
        raise SystemExit(str(error)) from None


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
