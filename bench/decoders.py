"""Decoders that run in seqloom's own environment: `python -m bench.decoders NAME JOB.json`."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bench.peers.generation import BATCH, DecodingJob, write_result


def torch_engine(job: DecodingJob) -> None:
    """seqloom on torch, from text to text."""
    from seqloom.predictor import Predictor

    _timed(job, Predictor.load(job.model))


def exported(job: DecodingJob) -> None:
    """seqloom on CTranslate2, from text to text."""
    from seqloom.export.translator import ExportedTranslator

    _timed(job, ExportedTranslator.load(job.model))


def _timed(job: DecodingJob, predictor: object) -> None:
    texts = Path(job.texts).read_text(encoding="utf-8").splitlines()
    settings = {"method": "greedy"} if job.beam == 1 else {"method": "beam", "beam_size": job.beam}
    predict = predictor.predict  # type: ignore[attr-defined]
    predict(texts[:BATCH], **settings)
    began = time.perf_counter()
    predict(texts, **settings)
    write_result(job, time.perf_counter() - began)


def ctranslate2(job: DecodingJob) -> None:
    """CTranslate2 called directly, on text that is cut into symbols already; answers stay symbols."""
    import ctranslate2 as package

    translator = package.Translator(job.model, compute_type=job.compute, inter_threads=job.workers, intra_threads=1)
    options = {"beam_size": job.beam, "max_batch_size": BATCH}
    translator.translate_batch(job.pieces[:BATCH], **options)
    began = time.perf_counter()
    answers = translator.translate_batch(job.pieces, **options)
    seconds = time.perf_counter() - began
    assert len([answer.hypotheses[0] for answer in answers]) == len(job.pieces)
    write_result(job, seconds)


DECODERS = {"torch": torch_engine, "exported": exported, "ctranslate2": ctranslate2}


def main() -> None:
    import json

    job = DecodingJob(**json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")))
    DECODERS[sys.argv[1]](job)


if __name__ == "__main__":
    main()
