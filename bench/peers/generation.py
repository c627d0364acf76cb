"""The decoding job of a peer: sentences as ids, batches of similar length, a clock around the search alone."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from bench.data import padded
from bench.spec import EOS_ID

BATCH = 64


@dataclass(frozen=True)
class DecodingJob:
    """What a decoder is asked to do."""

    model: str  # a model folder, or one that was exported
    texts: str  # a file, a sentence a line
    ids: list[list[int]]  # the same sentences as symbols, without EOS
    pieces: list[list[str]]
    beam: int  # 1: greedy
    workers: int
    compute: str
    result: str
    expected: list[list[int]]  # seqloom's own greedy answers to the first sentences
    steps: int = 0  # no answer may end before: each takes so many steps; 0: answers end by themselves


def read_job() -> DecodingJob:
    return DecodingJob(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))


def limit(source_length: int) -> int:
    """seqloom's length limit, end symbol included: `DecodingSettings.limit` with its defaults."""
    return min(200, 3 * source_length + 10)


Search = Callable[[Tensor, Tensor, int], list[list[int]]]  # sources, lengths, most symbols -> answers without EOS


def decode(job: DecodingJob, search: Search) -> None:
    """Warm up on one batch, time all, compare the greedy answers with seqloom's; write the result."""

    def run(sentences: Sequence[list[int]]) -> list[list[int]]:
        order = sorted(range(len(sentences)), key=lambda index: -len(sentences[index]))
        answers: dict[int, list[int]] = {}
        for start in range(0, len(order), BATCH):
            batch = order[start : start + BATCH]
            rows = [[*sentences[index], EOS_ID] for index in batch]
            source, lengths = torch.from_numpy(padded(rows)), torch.tensor([len(row) for row in rows])
            most = job.steps or limit(len(rows[0]))
            answers.update(zip(batch, search(source, lengths, most), strict=True))
        return [answers[index] for index in range(len(sentences))]

    with torch.inference_mode():
        run(job.ids[:BATCH])
        began = time.perf_counter()
        found = run(job.ids)
        seconds = time.perf_counter() - began
    if job.steps:
        early = sum(len(answer) != job.steps for answer in found)
        if early:
            raise SystemExit(f"{early:,} of {len(found):,} answers do not have {job.steps} symbols")
        found = [answer[:-1] for answer in found]  # in the last step seqloom must say the end
    same = [ours == theirs for ours, theirs in zip(job.expected, found, strict=False)]
    agreement = sum(same) / max(1, len(same)) if job.beam == 1 else None
    write_result(job, seconds, agreement)


def write_result(job: DecodingJob, seconds: float, agreement: float | None = None) -> None:
    Path(job.result).write_text(json.dumps({"seconds": seconds, "agreement": agreement}), encoding="utf-8")
