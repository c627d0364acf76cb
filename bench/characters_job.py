"""One training of the character model, as both sides of bench.characters read it. Needs the standard library."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class CharactersJob:
    """What a trainer is asked to do; `result` is a JSON file.

    seqloom follows `recipe` with `overrides`, and keeps what it keeps for later runs in `cache`.
    nanoGPT's train.py stands in `folder` and is given `arguments`.
    """

    result: str
    iterations: int
    warmup: int
    threads: int
    recipe: str = ""
    cache: str = ""
    overrides: tuple[str, ...] = ()
    folder: str = ""
    arguments: tuple[str, ...] = ()


def read_job() -> CharactersJob:
    return CharactersJob(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))


def write_result(job: CharactersJob, tokens: float, seconds: float, **figures: Any) -> None:
    """Write the figures down; `tokens` and `seconds` are of the iterations after the warm-up."""
    pace = {"tokens_per_second": tokens / seconds, "milliseconds": 1000 * seconds / (job.iterations - job.warmup)}
    Path(job.result).write_text(json.dumps({**pace, **figures}), encoding="utf-8")
