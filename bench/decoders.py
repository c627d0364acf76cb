"""Decoders that run in seqloom's own environment: `python -m bench.decoders NAME JOB.json`."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.peers.job import BATCH, DecodingJob, read_job, write_result
from bench.spec import EOS_ID, NEVER

if TYPE_CHECKING:
    from seqloom.model import Model


def seqloom(job: DecodingJob) -> None:
    """seqloom from text to text, on torch or on CTranslate2, as the folder is."""
    from seqloom.model import Model

    _timed(job, Model.load(job.model))


def fixed_length(job: DecodingJob) -> None:
    """seqloom on torch, from text to text, where every answer takes `job.steps` steps."""
    from seqloom.model import Model

    model = Model.load(job.model)
    answers = _timed(job, model, **never_ending(model, job.steps))
    early = sum(answer.finished for answer in answers)
    if early:
        raise SystemExit(f"{early:,} of {len(answers):,} answers ended before step {job.steps}")


def never_ending(model: Model, steps: int) -> dict[str, Any]:
    """Make the end impossible for the model, and give the settings with which it still comes, in the last step."""
    import torch

    with torch.no_grad():
        model.network.output.bias[EOS_ID] = NEVER
    return {"max_length": steps, "max_ratio": float(steps)}


def _timed(job: DecodingJob, model: Model, **more: Any) -> list[Any]:
    texts = Path(job.texts).read_text(encoding="utf-8").splitlines()
    how = {"method": "greedy"} if job.beam == 1 else {"method": "beam", "beam_size": job.beam}
    options: dict[str, Any] = {**how, "precision": job.compute, **more}
    model.predict(texts[:BATCH], **options)
    began = time.perf_counter()
    answers = model.predict(texts, **options)
    write_result(job, time.perf_counter() - began)
    return answers


def ctranslate2(job: DecodingJob) -> None:
    """CTranslate2 called directly, on text that is cut into symbols already; answers stay symbols."""
    translate, pieces = _direct(job)
    translate(pieces[:BATCH])
    began = time.perf_counter()
    translate(pieces)
    write_result(job, time.perf_counter() - began)


def ctranslate2_command(job: DecodingJob) -> None:
    """The same as a program that is timed whole: it has not answered anything before, and writes its answers."""
    translate, pieces = _direct(job)
    lines = [" ".join(answer) for answer in translate(pieces)]
    Path(job.answers).write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_result(job, None)


def _direct(job: DecodingJob) -> tuple[Callable[[list[list[str]]], list[list[str]]], list[list[str]]]:
    import ctranslate2 as package

    translator = package.Translator(job.model, compute_type=job.compute, inter_threads=job.workers, intra_threads=1)
    pieces = [line.split(" ") for line in Path(job.pieces).read_text(encoding="utf-8").splitlines()]

    def translate(sentences: list[list[str]]) -> list[list[str]]:
        found = translator.translate_batch(
            sentences, beam_size=job.beam, max_batch_size=BATCH, max_decoding_length=job.longest
        )
        return [one.hypotheses[0] for one in found]

    return translate, pieces


DECODERS = {
    "seqloom": seqloom,
    "fixed": fixed_length,
    "ctranslate2": ctranslate2,
    "ctranslate2-command": ctranslate2_command,
}


def main() -> None:
    DECODERS[sys.argv[1]](read_job())


if __name__ == "__main__":
    main()
