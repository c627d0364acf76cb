"""seqloom's word vectors, trained through the functions a recipe is trained with."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.vectors_job import VectorJob, read_job, write_result
from seqloom.batches.tokens import TokenCorpus, write_tokens
from seqloom.text.counts import WordCounts, count_words, words_of
from seqloom.vectors.settings import GloveSettings, SubwordSettings, VectorTrainingSettings, Word2VecSettings


def lines_of(job: VectorJob) -> Iterator[str]:
    with Path(job.text).open(encoding="utf-8") as file:
        yield from file


def encoded(line: str) -> list[str]:
    return words_of(line, "spaces", lowercase=False)


def counted(job: VectorJob) -> tuple[TokenCorpus, WordCounts]:
    """The text as numbers, made anew in the job's folder: the cache would spare us the work that is timed."""
    counts = count_words(lines_of(job), split="spaces", lowercase=False, min_count=job.min_count)
    folder = Path(job.result).parent / f"tokens-{time.time_ns()}"
    return write_tokens(lines_of(job), counts, encoded, key=job.text, folder=folder), counts


def word2vec_settings(job: VectorJob) -> Word2VecSettings:
    return Word2VecSettings(
        kind="cbow" if job.model == "cbow" else "skipgram",
        size=job.size,
        window=job.window,
        negatives=job.negatives,
        objective="hierarchical_softmax" if job.model == "skipgram-hs" else "negative_sampling",
        subwords=SubwordSettings(shortest=3, longest=6, buckets=job.buckets) if job.model == "fasttext" else None,
    )


def trained(job: VectorJob, corpus: TokenCorpus, counts: WordCounts) -> tuple[np.ndarray, dict[str, float]]:
    """The words' finished vectors, the seconds of training, and for GloVe the co-occurrences learned from a second."""
    training = VectorTrainingSettings(
        epochs=job.epochs, learning_rate=job.learning_rate, subsample=job.subsample, threads=job.threads
    )
    began = time.perf_counter()
    if job.model == "glove":
        from seqloom.vectors.glove import train_glove

        settings = GloveSettings(kind="glove", size=job.size, window=job.window)
        with tempfile.TemporaryDirectory(dir=Path(job.result).parent) as folder:
            found = train_glove(corpus, counts, settings, training, seed=job.seed, folder=Path(folder))
        seconds = time.perf_counter() - began
        pace = found.num_pairs * job.epochs / found.seconds
        return found.vectors, {"seconds": seconds, "updates_per_second": pace, "pairs": found.num_pairs}
    from seqloom.vectors.word2vec import train_word2vec

    model = word2vec_settings(job)
    made = train_word2vec(corpus, counts, model, training, seed=job.seed, folder=None, resume=False, tell=None)
    seconds = time.perf_counter() - began
    if model.subwords is None or made.buckets is None:
        return made.input, {"seconds": seconds}
    from seqloom.vectors.finishing import finished_vectors

    words = [word.encode() for word in counts.words]
    return finished_vectors(words, made.input, made.buckets, model.subwords), {"seconds": seconds}


def main() -> None:
    job = read_job()
    began = time.perf_counter()
    corpus, counts = counted(job)
    ready = time.perf_counter()
    processor = time.process_time()
    matrix, figures = trained(job, corpus, counts)
    figures["processor_seconds"] = time.process_time() - processor
    write_result(job, **figures, vocabulary_seconds=ready - began, vocabulary=len(counts), kept_words=corpus.num_words)
    from seqloom.vectors.formats import write_vectors
    from seqloom.vectors.table import WordVectors

    write_vectors(WordVectors(list(counts.words), matrix), job.vectors, "word2vec-binary")


if __name__ == "__main__":
    main()
