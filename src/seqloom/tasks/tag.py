"""Tagging: a text goes in, a tag for each of its words comes out; tags may mark spans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, cast

import torch
from pydantic import Field
from torch import Tensor

from seqloom.answers import AnsweredSpan, TagsAnswer
from seqloom.batches.collate import Batch
from seqloom.corpus.examples import Pair, TagsAndLabel, paired
from seqloom.corpus.readers import CorpusSettings, corpus_of, read_pairs
from seqloom.corpus.tagged import TaggedCorpusSettings
from seqloom.errors import UserError
from seqloom.evaluation.classification import majority_baseline
from seqloom.evaluation.figures import Metric, metrics
from seqloom.evaluation.spans import spans_of, to_bio
from seqloom.evaluation.tagging import (
    TaggingReport,
    frequent_tag_baseline,
    label_scores,
    tag_scores,
    tagging_report,
)
from seqloom.inspection.trace import Trace
from seqloom.models import TAGGERS
from seqloom.models.tagger import TaggerSettings
from seqloom.nn.crf import Chain, log_partition, marginals, sequence_scores, viterbi
from seqloom.nn.masks import length_mask
from seqloom.settings import Settings
from seqloom.sources.turns import TurnSource
from seqloom.sources.words import WordSource
from seqloom.targets.tags import TagSettings, TagTarget, label_of, tag_loss, tags_of
from seqloom.tasks.base import PairDataSettings, Progress, Say
from seqloom.tasks.supervised import Compute, ExampleRecipe, Examples, Supervised, counted, read_examples
from seqloom.text.whole_words import WholeWords, WholeWordsSettings
from seqloom.training.settings import ExampleTrainingSettings

BATCH_TOKENS = 4096


class TaggedDataSettings(PairDataSettings):
    """Where words and their tags come from. `test` is one corpus or several by name."""

    train: TaggedCorpusSettings
    valid: TaggedCorpusSettings
    test: dict[str, TaggedCorpusSettings] = Field(default_factory=dict)  # type: ignore[assignment]


class TaggingTrainingSettings(ExampleTrainingSettings):
    """How a tagger is fitted."""

    metric: Literal["loss", "accuracy", "f1", "label_accuracy", "exact_match"] = Field(
        "accuracy",
        description="decides which weights are kept and when to stop early (f1: of tags that mark spans; "
        "label_accuracy, exact_match: of texts with a label)",
    )
    validation_sentences: int = Field(2000, ge=0, description="how many examples are answered at a validation")


class TaggingRecipe(ExampleRecipe):
    """Texts with a tag for each word."""

    data: TaggedDataSettings
    text: WholeWordsSettings = WholeWordsSettings()
    tags: TagSettings = TagSettings()
    training: TaggingTrainingSettings
    decoding: Settings = Settings()

    def contradictions(self) -> list[str]:
        problems, model = [], cast(TaggerSettings, self.model)
        if self.training.candidates is not None:
            problems.append("training.candidates is for the choice among many symbols; a tagger has few tags")
        if self.training.label_smoothing and model.output == "crf":
            problems.append("training.label_smoothing is for model.output: softmax; crf judges whole sequences")
        if getattr(model.encoder, "word_ngrams", 1) > 1 or getattr(model.encoder, "subwords", None) is not None:
            problems.append("model.encoder.word_ngrams and subwords are for classifiers; a tagger has model.characters")
        labelled = self.data.train.label is not None
        if (self.data.valid.label is not None) != labelled:
            problems.append("data.train and data.valid: give both a label, or none of them")
        if self.training.metric in ("label_accuracy", "exact_match") and not labelled:
            problems.append(f"training.metric: {self.training.metric} needs a label of every text: data.train.label")
        return problems


class Tagging(Supervised):
    """Text to tags: parts of speech, chunks, names, opinion targets; and a label of the text beside them."""

    name = "tag"
    about = "text to a tag for each word: parts of speech, chunks, names, opinion targets"
    Recipe = TaggingRecipe
    models = TAGGERS
    Options = Settings
    metrics: ClassVar[tuple[Metric, ...]] = metrics(
        "f1", "precision", "recall", "accuracy", "label_accuracy", "exact_match", "loss"
    )
    drawn = ("f1", "accuracy", "label_accuracy", "loss")
    report_options = frozenset({"output"})
    kind = "a tagger"
    source: WordSource | TurnSource
    target: TagTarget

    # -- learning ----------------------------------------------------------------------------------------------------

    @classmethod
    def corpora(cls, data: Sequence[str], recipe: Any = None) -> dict[str, Any]:
        return {"data": corpus_of(data, None if recipe is None else recipe.data.train, TaggedCorpusSettings)}

    def examples(self, inputs: Any, targets: Any) -> list[Pair]:
        """Texts or lists of words, and a list of tags for each."""
        words = [one if isinstance(one, str) else tuple(one) for one in inputs]
        pairs = paired(words, [tuple(tags) for tags in targets], self.is_input, self.one_input, tuple, "a list of tags")
        pairs = [pair._replace(source=self.source.cut(pair.source).words) for pair in pairs]
        for number, pair in enumerate(pairs, 1):
            if len(pair.source) != len(pair.target):
                raise UserError(f"input {number} has {len(pair.source)} words, but {len(pair.target)} tags")
        return pairs

    @classmethod
    def learn(cls, recipe: TaggingRecipe, say: Say) -> Self:
        """The words and their letters, and the tags."""
        corpus = recipe.data.train
        target = TagTarget.learn((pair.target for pair in read_pairs(corpus)), recipe.tags.scheme)
        if recipe.training.metric == "f1" and not target.has_spans:
            some = ", ".join(target.names[:5])
            raise UserError(f"training.metric: f1 is of tags of spans (B-…, I-…, O), not of {some}; set accuracy")
        model = cast(TaggerSettings, recipe.model)
        sentences: Iterator[Sequence[str]] = (pair.source for pair in read_pairs(corpus))
        if model.turns is None:
            return cls(
                WordSource(WholeWords.learn(sentences, recipe.text, spelled=model.characters is not None)), target
            )
        turns = (recipe.text.cut(turn) for turns in sentences for turn in turns)
        return cls(TurnSource(WholeWords.learn(turns, recipe.text, spelled=False)), target)

    def save(self, folder: Path) -> dict[str, Any]:
        self.source.words.save(folder)
        self.target.save(folder)
        turns = isinstance(self.source, TurnSource)
        sizes = {"symbols": {"text": len(self.source.words)}, "tags": len(self.target), "labels": self._num_labels}
        return {**sizes, "turns": turns}

    @classmethod
    def load(cls, folder: Path, config: Mapping[str, Any]) -> Self:
        source = TurnSource if config.get("turns") is True else WordSource
        return cls(source(WholeWords.load(folder)), TagTarget.load(folder))

    def load_model(self, settings: Any, folder: Path) -> Any:
        if (settings.turns is not None) != isinstance(self.source, TurnSource):
            raise UserError(
                f"{folder}/config.json: turns and model.turns do not agree; copy the whole model folder again"
            )
        return super().load_model(settings, folder)

    def tokenizers(self) -> dict[str, Any]:
        return {"text": self.source.words}

    def vocabulary(self) -> str:
        words = self.source.words
        letters = f", {len(words.letters):,} letters" if words.letters else ""
        labels = f", {self._num_labels:,} labels" if self._num_labels else ""
        return f"{len(words):,} words{letters}{labels} and {len(self.target):,} tags"

    @property
    def _num_labels(self) -> int:
        return 0 if self.target.label is None else len(self.target.label)

    def sizes(self, settings: Any) -> dict[str, Any]:
        words = self.source.words
        return {
            "num_symbols": len(words),
            "num_letters": words.num_letters,
            "num_tags": len(self.target),
            "num_labels": self._num_labels,
        }

    def losses(self, train: Examples, s: TaggingTrainingSettings) -> Compute:
        def compute(model: Any, batch: Batch) -> tuple[Tensor, Tensor]:
            found, smoothing = model(batch), s.label_smoothing if model.training else 0.0
            return tag_loss(found.tags, batch.target, model.chain, smoothing, found.labels)

        return compute

    def validate(
        self, model: Any, pairs: list[Pair], recipe: Any, *, final: bool
    ) -> tuple[dict[str, float], list[dict[str, str]]]:
        if not pairs:
            return {}, []
        gold, answers = self._gold(pairs), self._answers(model, pairs)
        tags = [answer.tags for answer in answers]
        figures = tag_scores(gold, tags, spans=self.target.has_spans)
        figures |= label_scores(gold, tags, *self._labels(pairs, answers))
        samples = [
            {"source": " ".join(pair.source), "reference": " ".join(tags), "answer": " ".join(answer.tags)}
            for pair, tags, answer in list(zip(pairs, gold, answers, strict=True))[: recipe.training.samples]
        ]
        return figures, samples

    def next_steps(self, folder: Path, model: Any) -> list[str]:
        steps = [f'seqloom predict {folder} "some text"', f'seqloom look {folder} tags "some text"']
        if model.chain is not None:
            steps.append(f"seqloom look {folder} transitions")
        return [*steps, f"seqloom evaluate {folder}"]

    # -- answering ---------------------------------------------------------------------------------------------------

    def inputs(self, given: Sequence[str]) -> list[Any]:
        return self.source.inputs(given)

    def predict(
        self, model: Any, inputs: Sequence[Any], options: Any, progress: Callable[[int], None] | None = None
    ) -> Iterator[tuple[int, TagsAnswer]]:
        """The best tags of each text, and the probability of every tag at every word."""

        def answer(source: Any, numbers: list[int]) -> dict[int, TagsAnswer]:
            with torch.inference_mode():
                scores = model(Batch(source, None))
                found = self._decoded(model, scores.tags, source.lengths - 1)
            labels = [None] * len(numbers) if scores.labels is None else scores.labels.double().softmax(-1).tolist()
            rows = zip(numbers, *found, labels, source.lengths.tolist(), strict=True)
            return {
                number: self._answer(model, inputs[number], tags[: length - 1], shares[: length - 1], score, label)
                for number, tags, shares, score, label, length in rows
            }

        for number, found in self.answered(inputs, answer, batch_tokens=BATCH_TOKENS, silent=(), progress=progress):
            none = torch.zeros(0, dtype=torch.long)
            yield (
                number,
                found or self._answer(model, inputs[number], none, torch.zeros(0, len(self.target)), 0.0, None),
            )

    def _decoded(self, model: Any, emissions: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor, list[float]]:
        """Tags (batch, time), probabilities (batch, time, tags), log probabilities of the tags.

        Moves that make no spans are never answered; of probabilities and scores they are a part, as in training.
        """
        emissions, mask = emissions.double(), length_mask(lengths, emissions.shape[1])
        chain, pay = model.chain, self.target.penalties
        if chain is None:
            chain = Chain(*map(torch.zeros_like, pay))
        tags = viterbi(emissions, mask, Chain(*(own + more for own, more in zip(chain, pay, strict=True)))).tags
        scores = sequence_scores(emissions, tags, mask, chain) - log_partition(emissions, mask, chain)
        return tags, marginals(emissions, mask, chain), scores.tolist()

    def _answer(
        self, model: Any, given: Any, tags: Tensor, shares: Tensor, score: float, label: list[float] | None
    ) -> TagsAnswer:
        words, places = self.source.cut(given)
        text = given if isinstance(given, str) else " ".join(given)
        names = self.target.shown(tags.tolist())
        spans = [
            AnsweredSpan(*span, text[places[span.start][0] : places[span.end - 1][1]])
            for span in (spans_of(names) if self.target.has_spans else [])
        ]
        shown = (shares.double() @ self.target.shown_of).tolist()
        probabilities = [dict(zip(self.target.shown_names, row, strict=True)) for row in shown]
        labels = dict(zip(self.target.label.names, label, strict=True)) if self.target.label and label else {}
        return TagsAnswer(
            given,
            words,
            names,
            probabilities,
            spans,
            score,
            lambda: self.trace(model, given),
            labels,
            lambda: self.warnings(given),
        )

    def _answers(self, model: Any, pairs: Sequence[Pair], progress: Any = None) -> list[TagsAnswer]:
        found = dict(self.predict(model, [pair.source for pair in pairs], None, progress))
        return [found[index] for index in range(len(pairs))]

    def _gold(self, pairs: Sequence[Pair]) -> list[Sequence[str]]:
        """The right tags, as answers write them."""
        tags = [tags_of(pair.target) for pair in pairs]
        return [to_bio(one) for one in tags] if self.target.scheme == "bioes" else tags

    def _labels(
        self, pairs: Sequence[Pair], answers: Sequence[TagsAnswer]
    ) -> tuple[list[str] | None, list[str] | None]:
        """The right labels and the answered ones; None where the data or the model has none."""
        if self.target.label is None or not all(isinstance(pair.target, TagsAndLabel) for pair in pairs):
            return None, None
        return [label_of(pair.target) for pair in pairs], [answer.label or "" for answer in answers]

    def evaluate(
        self,
        model: Any,
        data: CorpusSettings | Sequence[Pair],
        name: str,
        options: Any,
        progress: Progress | None = None,
        **how: Any,
    ) -> TaggingReport:
        """F1 of spans, accuracy of words, and what is confused."""
        pairs = read_examples(data, name)
        answers = self._answers(model, pairs, counted(progress, len(pairs)))
        words, tags = [pair.source for pair in pairs], [answer.tags for answer in answers]
        labels, answered = self._labels(pairs, answers)
        spans = self.target.has_spans
        return tagging_report(name, words, self._gold(pairs), tags, spans=spans, labels=labels, answered=answered)

    def baselines(self, recipe: Any, data: CorpusSettings | Sequence[Pair]) -> dict[str, dict[str, float]]:
        """The most frequent tag of each word, learned from the same training data."""
        train = list(read_pairs(recipe.data.train))
        pairs = read_examples(data, "the data")
        seen = zip((pair.source for pair in train), self._gold(train), strict=True)
        words, gold = [pair.source for pair in pairs], self._gold(pairs)
        found = frequent_tag_baseline(seen, words, gold, spans=self.target.has_spans)
        if self.target.label is not None and all(isinstance(pair.target, TagsAndLabel) for pair in pairs):
            labels = [[label_of(pair.target) for pair in some] for some in (train, pairs)]
            found["label_accuracy"] = float(majority_baseline(*labels)["accuracy"])
        return {"most frequent tag": found}

    # -- looking inside ----------------------------------------------------------------------------------------------

    def trace(self, model: Any, given: Any, target: Any = None, options: Any = None) -> Trace:
        """The scores and the probabilities of every tag at every word, and what the encoder shows."""
        if target is not None:
            raise UserError("a tagger shows all tags at once: it takes no target")
        if self.source.is_empty(given):
            raise UserError("there is nothing to look at: give a text")
        labels = self.source.labels(given)
        trace = Trace({"source": labels, "word": labels[:-1], "tag": list(self.target.names)})
        with torch.inference_mode():
            source = self.source.batch([given])
            emissions = model(Batch(source, None), trace).tags
            _, shares, _ = self._decoded(model, emissions, source.lengths - 1)
        trace.add("emissions", emissions[0, :-1], rows="word", columns="tag")
        trace.add("probabilities", shares[0, :-1], rows="word", columns="tag")
        return trace
