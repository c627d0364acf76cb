"""gensim's Word2Vec and FastText, reading the file by themselves (`corpus_file`), the fastest way they have."""

from __future__ import annotations

import time
from typing import Any

from bench.vectors_job import VectorJob, read_job, write_result


def model_of(job: VectorJob) -> Any:
    from gensim.models import FastText, Word2Vec

    shared: dict[str, Any] = {
        "vector_size": job.size,
        "window": job.window,
        "min_count": job.min_count,
        "sample": job.subsample,
        "alpha": job.learning_rate,
        "workers": job.threads,
        "seed": job.seed,
        "epochs": job.epochs,
        "sg": 0 if job.model == "cbow" else 1,
        "hs": 1 if job.model == "skipgram-hs" else 0,
        "negative": 0 if job.model == "skipgram-hs" else job.negatives,
    }
    if job.model == "fasttext":
        return FastText(min_n=3, max_n=6, bucket=job.buckets, **shared)
    return Word2Vec(**shared)


def main() -> None:
    job = read_job()
    model = model_of(job)
    began = time.perf_counter()
    model.build_vocab(corpus_file=job.text)
    counted, processor = time.perf_counter(), time.process_time()
    model.train(
        corpus_file=job.text,
        total_examples=model.corpus_count,
        total_words=model.corpus_total_words,
        epochs=model.epochs,
    )
    trained, processor = time.perf_counter(), time.process_time() - processor
    kept = sum(model.wv.get_vecattr(word, "count") for word in model.wv.index_to_key)
    write_result(
        job,
        vocabulary_seconds=counted - began,
        seconds=trained - counted,
        processor_seconds=processor,
        vocabulary=len(model.wv),
        kept_words=int(kept),
    )
    model.wv.save_word2vec_format(job.vectors, binary=True)


if __name__ == "__main__":
    main()
