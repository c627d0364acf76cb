"""What a decoder is asked to do, and where it writes how long it took. No torch: not every decoder needs it."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

BATCH = 64


@dataclass(frozen=True)
class DecodingJob:
    """What a decoder is asked to do."""

    model: str  # a model folder, or one that was exported
    texts: str  # a file, a sentence a line
    ids: list[list[int]]  # the same sentences as symbols, without EOS
    pieces: str  # a file, the same as pieces with spaces between them
    beam: int  # 1: greedy
    workers: int
    compute: str
    answers: str  # a file that whoever is timed as a whole writes its answers to
    result: str
    expected: list[list[int]]  # seqloom's own greedy answers to the first sentences
    longest: int  # the most symbols that seqloom's answer to any of the sentences may have
    steps: int = 0  # no answer may end before: each takes so many steps; 0: answers end by themselves


def read_job() -> DecodingJob:
    """The job whose file is the last argument."""
    return DecodingJob(**json.loads(Path(sys.argv[-1]).read_text(encoding="utf-8")))


def write_result(job: DecodingJob, seconds: float | None, agreement: float | None = None) -> None:
    Path(job.result).write_text(json.dumps({"seconds": seconds, "agreement": agreement}), encoding="utf-8")
