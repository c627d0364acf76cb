"""Words to vectors: from running text to a folder of vectors. Nothing here needs torch."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import seqloom
from seqloom.batches.tokens import TokenCorpus, write_tokens
from seqloom.corpus.plain import PlainTextSettings, describe, fingerprint, read_lines
from seqloom.errors import Stopped
from seqloom.files import folder_written_aside
from seqloom.text.counts import WordCounts, count, load_counts, save_counts, words_of
from seqloom.text.phrases import Phrases, learn_phrases, load_phrases, save_phrases
from seqloom.training.journal import Journal
from seqloom.training.progress import Progress, duration, say
from seqloom.vectors.finishing import finished_vectors
from seqloom.vectors.glove import train_glove
from seqloom.vectors.ppmi import train_ppmi
from seqloom.vectors.settings import WordsSettings
from seqloom.vectors.table import WordVectors
from seqloom.vectors.word2vec import Progressed, train_word2vec

FORMAT = 1


class Words:
    """How text becomes words: cut, made small, glued into phrases."""

    def __init__(self, settings: WordsSettings, phrases: Phrases) -> None:
        self.settings, self.phrases = settings, phrases

    def __call__(self, line: str) -> list[str]:
        return self.phrases.glue(words_of(line, self.settings.split, self.settings.lowercase))


def train_vectors(recipe: Any, run: Path, *, resume: bool = False) -> WordVectors:
    """prepare -> fit -> save, for vectors."""
    say(f"reading {describe(recipe.data.train)}")
    words, counts = _learned(recipe.data.train, recipe.text, run / "text", resume)
    corpus = _numbered(recipe.data.train, words, counts)
    exact = "" if counts.exact else " (rare ones were forgotten while counting: counts are lower bounds)"
    say(f"{corpus.num_words:,} running words, {len(counts):,} different ones with a vector{exact}")
    kept = (run / "journal.jsonl").stat().st_size if resume and (run / "journal.jsonl").is_file() else 0
    journal = Journal(run / "journal.jsonl", kept)
    journal.write("start", words=corpus.num_words, vocabulary=len(counts))
    began = time.monotonic()
    try:
        with Progress("training") as bar:
            vectors, figures = _TRAINERS[recipe.model.kind](recipe, run, resume, corpus, counts, bar, journal)
    except KeyboardInterrupt:
        raise Stopped(f"{duration(time.monotonic() - began)} of training", signal.SIGINT) from None
    journal.write("end", seconds=round(time.monotonic() - began, 2), **figures)
    journal.close()
    _save(run / "model", recipe, vectors, words.phrases, figures)
    say(f"trained in {duration(time.monotonic() - began)}")
    return vectors


# -- prepare ----------------------------------------------------------------------------------------------------------


def _learned(corpus: PlainTextSettings, s: WordsSettings, folder: Path, resume: bool) -> tuple[Words, WordCounts]:
    """The phrases and words of the text, learned once a run."""
    if resume and folder.is_dir():
        words = Words(s, load_phrases(folder / "phrases.json") if s.phrases else Phrases())
        return words, load_counts(folder / "counts.tsv")

    def sentences(cut: Callable[[str], Sequence[str]]) -> Iterator[Sequence[str]]:
        return map(cut, read_lines(corpus))

    words = Words(s, Phrases())
    if s.phrases:
        plain = words
        learned = learn_phrases(
            lambda: sentences(plain), passes=s.phrases, threshold=s.phrase_threshold, discount=s.min_count, tell=say
        )
        words = Words(s, learned)
    with Progress("counting words") as bar:
        counts = count(
            sentences(words),
            min_count=s.min_count,
            max_words=s.max_words,
            progress=lambda read: bar.update(None, f"{read:,} words"),
        )
    with folder_written_aside(folder) as aside:
        save_counts(aside / "counts.tsv", counts)
        if s.phrases:
            save_phrases(aside / "phrases.json", words.phrases)
    return words, counts


def _numbered(corpus: PlainTextSettings, words: Words, counts: WordCounts) -> TokenCorpus:
    """The text as numbers, from the cache where they are there already."""
    key = "\n".join([fingerprint(corpus), words.settings.model_dump_json()])
    with Progress("writing numbers") as bar:
        total = max(1, counts.total)
        return write_tokens(
            read_lines(corpus), counts, words, key, lambda done: bar.update(done / total, f"{done:,} words")
        )


# -- fit --------------------------------------------------------------------------------------------------------------


def _word2vec(
    recipe: Any, run: Path, resume: bool, corpus: TokenCorpus, counts: WordCounts, bar: Progress, journal: Journal
) -> tuple[WordVectors, dict[str, Any]]:
    def tell(done: Progressed) -> None:
        if done.compiling:
            bar.say("compiling the loops for this machine; only the first training waits for it")
            return
        loss = f"loss {done.loss:.4f}  " if done.loss == done.loss else ""  # none yet: NaN
        bar.update(done.words_done / max(1, done.words_in_all), f"{loss}{done.words_per_second:,.0f} words/s")
        if loss:
            journal.write("train", words=done.words_done, loss=done.loss, learning_rate=done.learning_rate)

    trained = train_word2vec(
        corpus,
        counts,
        recipe.model,
        recipe.training,
        seed=recipe.seed,
        folder=run / "checkpoints",
        resume=resume,
        tell=tell,
    )
    s, own, matrix = recipe.model.subwords, None, trained.input
    if s is not None and trained.buckets is not None:
        own, matrix = matrix, finished_vectors([word.encode() for word in counts.words], matrix, trained.buckets, s)
    vectors = WordVectors(
        list(counts.words),
        matrix,
        counts=counts.counts,
        subwords=s,
        buckets=trained.buckets,
        own=own,
        output=trained.output if len(trained.output) == len(counts) else None,  # a tree's nodes are no words
    )
    pace = trained.words_seen / max(1e-9, trained.seconds)
    return vectors, {"losses": list(trained.losses), "words_per_second": round(pace)}


def _glove(
    recipe: Any, run: Path, resume: bool, corpus: TokenCorpus, counts: WordCounts, bar: Progress, journal: Journal
) -> tuple[WordVectors, dict[str, Any]]:
    trained = train_glove(
        corpus,
        counts,
        recipe.model,
        recipe.training,
        seed=recipe.seed,
        folder=run / "checkpoints",
        resume=resume,
        tell=bar.update,
    )
    vectors = WordVectors(list(counts.words), trained.vectors, counts=counts.counts)
    pace = trained.num_pairs * recipe.training.epochs / max(1e-9, trained.seconds)
    return vectors, {"losses": trained.losses, "pairs": trained.num_pairs, "updates_per_second": pace}


def _ppmi(
    recipe: Any, run: Path, resume: bool, corpus: TokenCorpus, counts: WordCounts, bar: Progress, journal: Journal
) -> tuple[WordVectors, dict[str, Any]]:
    trained = train_ppmi(
        corpus, counts, recipe.model, recipe.training, seed=recipe.seed, folder=run / "checkpoints", tell=bar.update
    )
    return WordVectors(list(counts.words), trained.vectors, counts=counts.counts), {}


_TRAINERS = {"skipgram": _word2vec, "cbow": _word2vec, "glove": _glove, "ppmi": _ppmi}


# -- save -------------------------------------------------------------------------------------------------------------


def _save(folder: Path, recipe: Any, vectors: WordVectors, phrases: Phrases, figures: dict[str, Any]) -> None:
    config = {
        "format": FORMAT,
        "seqloom": seqloom.__version__,
        "task": "embed",
        "model": recipe.model.model_dump(mode="json"),
        "text": recipe.text.model_dump(mode="json"),
    }
    with folder_written_aside(folder) as aside:
        vectors.save(aside)
        if phrases.passes:
            save_phrases(aside / "phrases.json", phrases)
        (aside / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
        (aside / "README.md").write_text(_card(recipe, vectors, figures), encoding="utf-8")


def _card(recipe: Any, vectors: WordVectors, figures: dict[str, Any]) -> str:
    """What a stranger should know before using the vectors."""
    losses = ", ".join(f"{loss:.4g}" for loss in figures.get("losses", []))
    return f"""# {recipe.description or "Word vectors"}

| | |
|---|---|
| model | {recipe.model.kind}, {len(vectors):,} words, {vectors.size} dimensions |
| trained on | {describe(recipe.data.train)} |
| loss, each epoch | {losses or "–"} |
| made with | seqloom {seqloom.__version__}, {time.strftime("%Y-%m-%d")} |

They carry what was written in that text, its prejudices included.

```
seqloom embed neighbours . WORD
```
"""
