"""The decoding of a peer: sentences as ids, batches of similar length, a clock around the search alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from bench.data import padded
from bench.peers.job import BATCH, DecodingJob, write_result
from bench.spec import EOS_ID


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
        found = [answer[:-1] for answer in found]  # in the last step seqloom must give the end symbol
    same = [ours == theirs for ours, theirs in zip(job.expected, found, strict=False)]
    agreement = sum(same) / max(1, len(same)) if job.beam == 1 else None
    write_result(job, seconds, agreement)
