"""One training of word vectors, as both sides of bench.embeddings read it. Needs the standard library only."""

from __future__ import annotations

import json
import resource
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class VectorJob:
    """What a trainer is asked to do: read `text` (a sentence a line, words apart by blanks), write `vectors`.

    `vectors` is a file in word2vec's binary format, `result` a JSON file.
    """

    model: str
    text: str
    vectors: str
    result: str
    size: int
    window: int
    negatives: int
    epochs: int
    min_count: int
    subsample: float
    learning_rate: float
    threads: int
    seed: int
    buckets: int


def read_job() -> VectorJob:
    return VectorJob(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))


def write_result(job: VectorJob, **figures: Any) -> None:
    """Write the figures down, with the most memory this process has held."""
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    Path(job.result).write_text(json.dumps({**figures, "peak_mb": kilobytes / 1024}), encoding="utf-8")
