"""Words to vectors: from running text to a table of vectors. Nothing here needs torch."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import Field

from seqloom.answers import NeighbourAnswer
from seqloom.batches.tokens import TokenCorpus, write_tokens
from seqloom.corpus.examination import examine_words
from seqloom.corpus.lines import content_digest, expand_path
from seqloom.corpus.plain import PlainTextSettings, describe, fingerprint, read_lines
from seqloom.errors import Stopped, UserError
from seqloom.evaluation.figures import Metric, Report, metrics
from seqloom.evaluation.words import evaluate_file
from seqloom.settings import Settings, validated
from seqloom.tasks.base import Examined, Fitted, Recipe, Say, Task, by_name
from seqloom.tasks.base import Progress as Callback
from seqloom.text.counts import WordCounts, count, load_counts, save_counts, words_of
from seqloom.text.phrases import Phrases, learn_phrases, load_phrases, save_phrases
from seqloom.training.journal import Journal
from seqloom.training.progress import Progress, duration
from seqloom.vectors.finishing import finished_vectors
from seqloom.vectors.glove import train_glove
from seqloom.vectors.opening import open_vectors
from seqloom.vectors.ppmi import train_ppmi
from seqloom.vectors.settings import VECTOR_MODELS, VectorTrainingSettings, WordsSettings
from seqloom.vectors.table import WordVectors
from seqloom.vectors.word2vec import Progressed, train_word2vec

PHRASES, COUNTS = "phrases.json", "counts.tsv"


class VectorDataSettings(Settings):
    """The text that words are met in, and the files that tell how good their vectors are."""

    train: PlainTextSettings
    test: dict[str, str] = Field(default_factory=dict)

    def corpora(self) -> dict[str, Any]:
        return {"train": self.train, **self.test}


class EmbeddingRecipe(Recipe):
    """Words to vectors, learned from running text."""

    data: VectorDataSettings
    text: WordsSettings = WordsSettings()
    training: VectorTrainingSettings = VectorTrainingSettings()


class NeighbourSettings(Settings):
    """What is answered about a word."""

    count: int = Field(10, ge=1, description="how many of the nearest words")


class Words:
    """How text becomes words: cut, made small, glued into phrases."""

    def __init__(self, settings: WordsSettings, phrases: Phrases) -> None:
        self.settings, self.phrases = settings, phrases

    def __call__(self, line: str) -> list[str]:
        return self.phrases.glue(words_of(line, self.settings.split, self.settings.lowercase))


class Embedding(Task):
    """Words to vectors."""

    name = "embed"
    about = "words to vectors: nearest words, analogies"
    Recipe = EmbeddingRecipe
    models: ClassVar[Mapping[str, tuple[Any, Any]]] = {kind: (s, None) for kind, s in VECTOR_MODELS.items()}
    Options = NeighbourSettings
    metrics: ClassVar[tuple[Metric, ...]] = metrics("add", "multiply", "spearman")
    verbs = frozenset({"predict", "evaluate"})
    instead = "seqloom embed neighbours {model} WORD"
    tests = "all"
    kind = "word vectors"
    one_input = "a word"
    offers = frozenset(
        {"__contains__", "__getitem__", "__len__", "analogy", "doesnt_match", "index_to_key", "key_to_index"}
        | {"most_similar", "neighbours", "similarity", "vector"}
    )

    def __init__(self, words: Words, counts: WordCounts | None = None) -> None:
        """`counts` are needed for learning only."""
        self.words, self.counts = words, counts

    # -- data --------------------------------------------------------------------------------------------------------

    @classmethod
    def corpora(cls, data: Sequence[str], recipe: Any = None) -> dict[str, Any]:
        return by_name(data, lambda path: Path(path).stem)

    @classmethod
    def describe(cls, corpus: PlainTextSettings | str) -> str:
        return Path(corpus).name if isinstance(corpus, str) else describe(corpus)

    @classmethod
    def fingerprint(cls, corpus: PlainTextSettings | str) -> str:
        return content_digest(expand_path(corpus)).hex() if isinstance(corpus, str) else fingerprint(corpus)

    @classmethod
    def examine(cls, recipe: Any, say: Say, **limits: Any) -> Examined:
        return Examined(*examine_words(recipe.data.train, recipe.text))

    # -- learning ----------------------------------------------------------------------------------------------------

    @classmethod
    def learn(cls, recipe: Any, say: Say) -> Self:
        """The phrases and words of the text."""
        corpus, s = recipe.data.train, recipe.text

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
        return cls(words, counts)

    def save(self, folder: Path) -> dict[str, Any]:
        if self.counts is not None:
            save_counts(folder / COUNTS, self.counts)
        if self.words.phrases.passes:
            save_phrases(folder / PHRASES, self.words.phrases)
        return {"text": self.words.settings.model_dump(mode="json")}

    @classmethod
    def load(cls, folder: Path, config: Mapping[str, Any]) -> Self:
        s = validated(WordsSettings, config.get("text", {}), f"{folder}: text")
        phrases = load_phrases(folder / PHRASES) if (folder / PHRASES).is_file() else Phrases()
        return cls(Words(s, phrases), load_counts(folder / COUNTS) if (folder / COUNTS).is_file() else None)

    def vocabulary(self) -> str:
        return f"{len(self.counts or ()):,} words"

    def fit(self, recipe: Any, run: Path, *, resume: bool, ranks: Any, say: Say) -> Fitted:
        self.refuse_ranks(ranks)
        counts = self.counts
        assert counts is not None, "learned before"
        corpus = _numbered(recipe.data.train, self.words, counts)
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
        seconds = time.monotonic() - began
        journal.write("end", seconds=round(seconds, 2), **figures)
        journal.close()
        losses = ", ".join(f"{loss:.4g}" for loss in figures.get("losses", []))
        card = {"loss, each epoch": losses} if losses else {}
        return Fitted(vectors, self.size(vectors), card, seconds)

    def save_model(self, model: WordVectors, folder: Path) -> None:
        (folder / COUNTS).unlink(missing_ok=True)  # the vectors have them
        model.save(folder)

    def load_model(self, settings: Any, folder: Path) -> WordVectors:
        return WordVectors.load(folder)

    @classmethod
    def open_file(cls, path: Path) -> tuple[Self, WordVectors]:
        """A file of word2vec, GloVe or fastText."""
        return cls(Words(WordsSettings(), Phrases())), open_vectors(path)

    def size(self, model: WordVectors) -> str:
        return f"{len(model):,} words, {model.size} numbers each"

    def amounts(self, model: WordVectors) -> dict[str, int]:
        pieces = 0 if model.buckets is None else len(model.buckets)
        return {"parameters": (len(model) + pieces) * model.size}

    def next_steps(self, folder: Path, model: WordVectors) -> list[str]:
        word = model.words[min(len(model) - 1, 1000)]
        return [f"seqloom embed neighbours {folder} {word}", f"seqloom look {folder} projection --save words.png"]

    # -- answering ---------------------------------------------------------------------------------------------------

    def predict(
        self,
        model: WordVectors,
        inputs: Sequence[str],
        options: NeighbourSettings,
        progress: Callable[[int], None] | None = None,
    ) -> Iterator[tuple[int, NeighbourAnswer]]:
        """The nearest words of each word."""
        for index, word in enumerate(inputs):
            spelled = model.spelled(word)
            found = [(near, float(cosine)) for near, cosine in model.neighbours(spelled, options.count)]
            yield index, NeighbourAnswer(word, spelled in model, found)
            if progress is not None:
                progress(index + 1)

    def evaluate(
        self,
        model: WordVectors,
        data: str | Path,
        name: str,
        options: Any,
        progress: Callback | None = None,
        **how: Any,
    ) -> Report:
        """On a file of analogies, or of word pairs that people judged."""
        if isinstance(data, PlainTextSettings):
            raise UserError("word vectors are measured on files of analogies or word pairs, not on running text")
        return evaluate_file(model, expand_path(str(data)))


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
