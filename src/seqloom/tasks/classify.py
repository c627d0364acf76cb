"""Classification: a text goes in, one of a fixed set of labels comes out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field

from seqloom.answers import LabelAnswer, LabelsAnswer
from seqloom.batches.collate import Batch
from seqloom.corpus.kinds import kind_of, read_pairs
from seqloom.errors import UserError
from seqloom.evaluation.calibration import best_threshold, sigmoid, sigmoid_temperature, softmax_temperature
from seqloom.evaluation.classification import (
    accuracy,
    classification_report,
    macro_f1,
    majority_baseline,
)
from seqloom.evaluation.figures import Metric, Report, metrics
from seqloom.evaluation.multi_label import MultiLabelReport, binary_loss, label_figures, set_scores
from seqloom.inspection.trace import Trace
from seqloom.models import CLASSIFIERS
from seqloom.models.saliency import gradient_times_input, occlusion
from seqloom.settings import validated
from seqloom.sources.document import DocumentSource
from seqloom.sources.text import TextSource
from seqloom.sources.word_pieces import CUT_INTO_WORDS
from seqloom.targets.label import LabelTarget
from seqloom.targets.label_set import LabelSetTarget
from seqloom.tasks.any_source import BATCH_TOKENS, AnySource, AnySourceRecipe
from seqloom.tasks.base import Fitted, Progress, Say
from seqloom.tasks.saliency import Saliency, saliency
from seqloom.tasks.supervised import Compute, Examples, counted, read_examples
from seqloom.text.sentences import SentenceSettings
from seqloom.text.tokenizers import Tokenizer
from seqloom.training.settings import ExampleTrainingSettings
from seqloom.vectors.settings import SubwordSettings


class ClassificationTrainingSettings(ExampleTrainingSettings):
    """How a classifier is fitted."""

    metric: Literal["loss", "accuracy", "macro_f1", "micro_f1"] = Field(
        "accuracy", description="decides which weights are kept and when to stop early"
    )
    calibrate: bool = Field(
        True,
        description="when training is over, a temperature is fitted on the validation data: probabilities mean more",
    )
    thresholds: Literal["one", "each"] = Field(
        "one",
        description="several labels an example: above which probability a label is given, one for all or one for each; "
        "chosen on the validation data",
    )
    validation_sentences: int = Field(2000, ge=0, description="how many examples are answered at a validation")
    class_weights: Literal["balanced"] | None = Field(
        None, description="balanced: an example counts the more the rarer its label is, every label the same altogether"
    )
    focal: float = Field(
        0.0, ge=0, le=10, description="γ of the focal loss: what is right with probability p counts (1 − p)^γ"
    )


class ClassificationRecipe(AnySourceRecipe):
    """Texts or series with a label each."""

    training: ClassificationTrainingSettings
    labels_separator: str | None = Field(
        None,
        min_length=1,
        max_length=10,
        description="an example may have several labels (or none), with this between them; or a list in JSONL",
    )

    def contradictions(self) -> list[str]:
        problems, several = super().contradictions(), self.labels_separator is not None
        if kind_of(self.data.train) != "text":
            if several:
                problems.append("labels_separator is for texts; the data are series")
            if getattr(self.model, "sentences", None) is not None:
                problems.append("a hierarchical_classifier reads texts; the data are series")
            encoder = getattr(self.model, "encoder", None)
            if getattr(encoder, "word_ngrams", 1) > 1 or getattr(encoder, "subwords", None) is not None:
                problems.append("model.encoder.word_ngrams and subwords are for texts; the data are series")
            return problems
        if several and (self.training.class_weights is not None or self.training.focal):
            problems.append("training.class_weights and training.focal are for one label an example; leave them out")
        if self.training.metric == "micro_f1" and not several:
            problems.append("training.metric: micro_f1 is for several labels an example; of one it is the accuracy")
        if subwords_of(self.model) is not None and self.text.tokenizer not in CUT_INTO_WORDS:
            problems.append(
                f"model.encoder.subwords are pieces of words, and text.tokenizer {self.text.tokenizer} does not give "
                f"words; take one of {', '.join(CUT_INTO_WORDS)}"
            )
        return problems


def _target_of(folder: Path, config: Mapping[str, Any]) -> tuple[LabelTarget | LabelSetTarget, float, Any]:
    """The labels of a model folder, the temperature and the thresholds."""
    origin = f"{folder}/config.json"
    temperature = config.get("temperature", 1.0)
    if not isinstance(temperature, int | float) or not 0 < temperature < math.inf:
        raise UserError(f"{origin}: temperature must be a number above 0; got {temperature!r}")
    separator = config.get("labels_separator")
    if separator is None:
        return LabelTarget.load(folder), temperature, ()
    if not isinstance(separator, str) or not 1 <= len(separator) <= 10:
        raise UserError(f"{origin}: labels_separator must be a short text; got {separator!r}")
    target, thresholds = LabelSetTarget.load(folder, separator), config.get("thresholds")
    sound = isinstance(thresholds, list) and all(isinstance(one, int | float) and 0 <= one <= 1 for one in thresholds)
    if not isinstance(thresholds, list) or not sound or len(thresholds) != len(target):
        raise UserError(f"{origin}: thresholds must be {len(target)} numbers from 0 to 1, one for each label")
    return target, temperature, tuple(thresholds)


def subwords_of(model: Any) -> SubwordSettings | None:
    """Which pieces of words its encoder has vectors for."""
    found: SubwordSettings | None = getattr(getattr(model, "encoder", None), "subwords", None)
    return found


def source_of(model: Any, tokenizer: Tokenizer) -> TextSource | DocumentSource:
    """What a model of these settings reads: texts, or documents cut into sentences."""
    sentences: SentenceSettings | None = getattr(model, "sentences", None)
    if sentences is not None:
        return DocumentSource(tokenizer, sentences)
    return TextSource(tokenizer, subwords=subwords_of(model))


def _kept_source(folder: Path, config: Mapping[str, Any]) -> TextSource | DocumentSource:
    """The way of reading of a model folder, or of a run's."""
    tokenizer, origin = Tokenizer.load(folder / "tokenizer.json"), f"{folder}/config.json"
    if "sentences" in config:
        return DocumentSource(tokenizer, validated(SentenceSettings, config["sentences"], f"{origin}: sentences"))
    if "subwords" not in config:
        return TextSource(tokenizer)
    subwords = validated(SubwordSettings, config["subwords"], f"{origin}: subwords")
    if tokenizer.kind not in CUT_INTO_WORDS:
        raise UserError(f"{origin}: subwords do not go with a tokenizer of kind {tokenizer.kind}")
    return TextSource(tokenizer, subwords=subwords)


class Classification(AnySource):
    """Text or series to label: sentiment, topic, intent, kind of question; activity, speaker, gesture."""

    name = "classify"
    about = "text or series to label: sentiment, topic, intent; activity, speaker, gesture"
    Recipe = ClassificationRecipe
    models = CLASSIFIERS
    metrics: ClassVar[tuple[Metric, ...]] = metrics(
        "accuracy", "micro_f1", "macro_f1", "mcc", "loss", "calibration_error"
    )
    drawn = ("accuracy", "micro_f1", "macro_f1", "loss")
    report_options = frozenset({"output"})
    kind = "a classifier"
    target: LabelTarget | LabelSetTarget

    def __init__(
        self,
        source: Any,
        target: LabelTarget | LabelSetTarget,
        temperature: float = 1.0,
        thresholds: tuple[float, ...] = (),
    ) -> None:
        """
        Args:
            source: Texts, documents or series.
            target: Labels.
            temperature: By which the logits of the finished model were divided.
            thresholds: Of several labels an example: from which probability on each is given.
        """
        super().__init__(source, target)
        self.temperature = temperature
        self.thresholds = thresholds or ((0.5,) * len(target) if isinstance(target, LabelSetTarget) else ())

    # -- learning ----------------------------------------------------------------------------------------------------

    @classmethod
    def learn(cls, recipe: ClassificationRecipe, say: Say) -> Self:
        """The vocabulary of texts or the scaling of series, and the labels."""
        labels, separator = labels_of(recipe.data.train), recipe.labels_separator
        target = LabelTarget.learn(labels) if separator is None else LabelSetTarget.learn(labels, separator)
        source = cls.learn_source(recipe)
        return cls(source_of(recipe.model, source.tokenizer) if source.is_text else source, target)

    def save(self, folder: Path) -> dict[str, Any]:
        kept = {**self.save_source(folder), "labels": len(self.target), "temperature": self.temperature}
        self.target.save(folder)
        if self.source.is_text:
            kept |= self.source.kept()
        if isinstance(self.target, LabelSetTarget):
            kept |= {"labels_separator": self.target.separator, "thresholds": list(self.thresholds)}
        return kept

    @classmethod
    def load(cls, folder: Path, config: Mapping[str, Any]) -> Self:
        series = config.get("source") == "series"
        source = cls.load_source(folder, config) if series else _kept_source(folder, config)
        return cls(source, *_target_of(folder, config))

    def vocabulary(self) -> str:
        return f"{self.source.vocabulary()} and {len(self.target):,} labels"

    def sizes(self, settings: Any) -> dict[str, Any]:
        return {**self.source.sizes(), "num_labels": len(self.target)}

    def fit(self, recipe: Any, run: Path, *, resume: bool, ranks: Any, say: Say) -> Fitted:
        """Training, and what the validation data say when it is over: a temperature, thresholds."""
        fitted = super().fit(recipe, run, resume=resume, ranks=ranks, say=say)
        pairs = list(read_pairs(recipe.data.valid))
        card = self.adjust(fitted.model, pairs, recipe.training) if pairs else {}
        return fitted._replace(card={**fitted.card, **card})

    def adjust(self, model: Any, pairs: Sequence[Any], s: ClassificationTrainingSettings) -> dict[str, str]:
        """Divide the logits by a temperature, choose thresholds; -> what a model card says of it."""
        texts, gold, card = [pair.source for pair in pairs], [pair.target for pair in pairs], {}
        logits = self._logits(model, texts)
        several = isinstance(self.target, LabelSetTarget)
        present = np.array(self.target.rows(gold)) if isinstance(self.target, LabelSetTarget) else np.empty(0)
        if s.calibrate:
            if isinstance(self.target, LabelSetTarget):
                self.temperature = sigmoid_temperature(logits, present)
            else:
                self.temperature = softmax_temperature(logits, np.array(self.target.numbers(gold)))
            with torch.no_grad():
                model.output.weight.div_(self.temperature)
                model.output.bias.div_(self.temperature)
            card["probabilities"] = f"temperature {self.temperature:.3f}, fitted on the validation data"
        if several:
            probabilities = sigmoid(logits / self.temperature)
            if s.thresholds == "one":
                self.thresholds = (best_threshold(probabilities.ravel(), present.ravel()),) * len(self.target)
            else:
                self.thresholds = tuple(map(best_threshold, probabilities.T, present.T))
            ends = (f"{one:.3f}" for one in (min(self.thresholds), max(self.thresholds)))
            card["thresholds"] = f"{' to '.join(dict.fromkeys(ends))}, chosen on the validation data"
        return card

    def _logits(self, model: Any, texts: Sequence[Any]) -> np.ndarray:
        """(texts, labels)"""

        def compute(source: Any, numbers: list[int]) -> dict[int, np.ndarray]:
            with torch.inference_mode():
                return dict(zip(numbers, model(Batch(source, None)).double().numpy(), strict=True))

        found = dict(self.answered(texts, compute, batch_tokens=BATCH_TOKENS))
        return np.stack([found[index] for index in range(len(texts))])

    def losses(self, train: Examples, s: ClassificationTrainingSettings) -> Compute:
        target = self.target
        if isinstance(target, LabelSetTarget):
            return lambda model, batch: target.loss(
                model(batch), batch.target, s.label_smoothing if model.training else 0.0
            )
        weights = target.balanced(train.rows["target"]["label"].values[:]) if s.class_weights else None

        def compute(model: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
            if not model.training:
                return target.loss(model(batch), batch.target)
            smoothing = s.label_smoothing
            return target.loss(model(batch), batch.target, smoothing, weights=weights, focal=s.focal)

        return compute

    def validate(
        self, model: Any, pairs: list[Any], recipe: Any, *, final: bool
    ) -> tuple[dict[str, float], list[dict[str, str]]]:
        if not pairs:
            return {}, []
        gold = [pair.target for pair in pairs]
        predicted = [answer.text for answer in self._answers(model, [pair.source for pair in pairs])]
        if isinstance(self.target, LabelSetTarget):
            figures = set_scores(*(np.array(self.target.rows(sets)) for sets in (gold, predicted)))
        else:
            figures = {"accuracy": accuracy(gold, predicted), "macro_f1": macro_f1(gold, predicted)}
        samples = [
            {"source": self.source.shown(pair.source), "reference": self._shown(pair.target), "answer": label}
            for pair, label in list(zip(pairs, predicted, strict=True))[: recipe.training.samples]
        ]
        return figures, samples

    def _shown(self, text: str) -> str:
        """A value of the data's label column, as answers are written."""
        target = self.target
        return target.separator.join(sorted(target.split(text))) if isinstance(target, LabelSetTarget) else text

    def next_steps(self, folder: Path, model: Any) -> list[str]:
        if not self.source.is_text:
            return [
                f"seqloom predict {folder} FILE",
                f"seqloom look {folder} saliency FILE",
                f"seqloom evaluate {folder}",
            ]
        return [
            f'seqloom predict {folder} "some text"',
            f'seqloom look {folder} words "some text"',
            f"seqloom evaluate {folder}",
        ]

    # -- answering ---------------------------------------------------------------------------------------------------

    def predict(
        self, model: Any, inputs: Sequence[Any], options: Any, progress: Callable[[int], None] | None = None
    ) -> Iterator[tuple[int, LabelAnswer]]:
        """The probability of every label, of each text."""

        def answer(source: Any, numbers: list[int]) -> dict[int, LabelAnswer]:
            with torch.inference_mode():
                logits = model(Batch(source, None)).double()
            found = (logits.sigmoid() if self.thresholds else logits.softmax(-1)).tolist()
            return {
                number: self._answer(model, inputs[number], row) for number, row in zip(numbers, found, strict=True)
            }

        yield from self.answered(inputs, answer, batch_tokens=BATCH_TOKENS, progress=progress)

    def _answer(self, model: Any, text: Any, probabilities: Sequence[float]) -> LabelAnswer:
        found = dict(zip(self.target.names, probabilities, strict=True))
        if not isinstance(self.target, LabelSetTarget):
            return LabelAnswer(text, found, lambda: self.trace(model, text), lambda: self.warnings(text))
        thresholds = dict(zip(self.target.names, self.thresholds, strict=True))
        return LabelsAnswer(
            text,
            found,
            thresholds,
            self.target.separator,
            lambda: self.trace(model, text),
            lambda: self.warnings(text),
        )

    def _answers(self, model: Any, texts: Sequence[Any]) -> list[LabelAnswer]:
        found = dict(self.predict(model, texts, None))
        return [found[index] for index in range(len(texts))]

    def evaluate(
        self,
        model: Any,
        data: Any,
        name: str,
        options: Any,
        progress: Progress | None = None,
        **how: Any,
    ) -> Report:
        """Accuracy and its kin, beside the majority class and TF-IDF with logistic regression."""
        pairs = read_examples(data, name)
        found = dict(self.predict(model, [pair.source for pair in pairs], options, counted(progress, len(pairs))))
        answers = [found[index] for index in range(len(pairs))]
        gold, predicted = [pair.target for pair in pairs], [answer.text for answer in answers]
        probabilities = np.array([[answer.probabilities[label] for label in self.target.names] for answer in answers])
        if isinstance(self.target, LabelSetTarget):
            right, chosen = np.array(self.target.rows(gold)), np.array(self.target.rows(predicted))
            scores = {**set_scores(right, chosen), "loss": binary_loss(right, probabilities)}
            labels = label_figures(right, chosen, self.target.names)
            return MultiLabelReport(name, len(pairs), scores, labels, predicted=predicted)
        texts = [self.source.shown(pair.source) for pair in pairs]
        return classification_report(name, gold, predicted, probabilities, self.target.names, texts=texts)

    def baselines(self, recipe: Any, data: Any) -> dict[str, dict[str, float | str]]:
        """The most frequent label, and TF-IDF with logistic regression, learned from the same training data."""
        train = list(read_pairs(recipe.data.train))
        pairs = read_examples(data, "the data")
        labels, gold = [pair.target for pair in train], [pair.target for pair in pairs]
        if isinstance(self.target, LabelSetTarget):
            return {"most frequent labels": self._always_the_same(labels, gold)}
        asked = [pair.source for pair in pairs]
        name, predicted = self.source.baseline([pair.source for pair in train], labels, asked)
        return {
            "majority class": majority_baseline(labels, gold),
            name: {"accuracy": accuracy(gold, predicted), "macro_f1": macro_f1(gold, predicted)},
        }

    def _always_the_same(self, train: Sequence[str], gold: Sequence[str]) -> dict[str, float | str]:
        """What one set of labels scores, the most frequent one of the training data."""
        assert isinstance(self.target, LabelSetTarget)
        label = str(majority_baseline([self._shown(text) for text in train], gold)["label"])
        right, chosen = (np.array(self.target.rows(some)) for some in (gold, [label] * len(gold)))
        return {"label": label or "none", **set_scores(right, chosen)}

    # -- looking inside ----------------------------------------------------------------------------------------------

    def saliency(
        self, model: Any, given: Any, label: str, method: str, width: int, callback: Callable[[float], None]
    ) -> np.ndarray:
        """(time,): what each step of a series adds to the logit of a label above the mean of all."""
        if self.source.is_empty(given):
            raise UserError("there is nothing to look at: give a series")
        source, number = self.source.batch([given]), self.target.names.index(label)
        if method == "gradient":
            return np.asarray(gradient_times_input(model, source, number).sum(1).numpy())
        return np.asarray(occlusion(model, source, number, width, callback).numpy())

    def saliency_of_words(self, model: Any, text: str, label: str, method: str) -> tuple[list[str], Saliency]:
        """The symbols of a text, and what each does to a label."""
        if self.source.is_empty(text):
            raise UserError("there is nothing to look at: give a text")
        apart = isinstance(self.target, LabelSetTarget)
        found = saliency(model, self.source, text, self.target.names.index(label), method, apart=apart)
        return self.source.labels(text), found

    def trace(self, model: Any, given: Any, target: Any = None, options: Any = None) -> Trace:
        """What each word adds to each label, and what the encoder shows."""
        if target is not None:
            raise UserError("a classifier shows all labels at once: it takes no target")
        if self.source.is_empty(given):
            raise UserError("there is nothing to look at: give a text")
        axes = {"source": self.source.labels(given), "label": list(self.target.names)}
        if isinstance(self.source, DocumentSource):
            axes |= {"sentence": [" ".join(words) for words in self.source.parts(given)], "document": ["document"]}
        trace = Trace(axes)
        with torch.inference_mode():
            model(Batch(self.source.batch([given]), None), trace)
        return trace


def labels_of(corpus: Any) -> Iterator[str]:
    """The label of every example of a corpus; one without is the data's fault."""
    for number, example in enumerate(read_pairs(corpus), 1):
        if not isinstance(example.target, str):
            found = "none" if example.target is None else "one for each step"
            place = getattr(example, "path", "") or f"example {number}"
            raise UserError(f"{place}: an example needs one label (data: target, label_of); it has {found}")
        yield example.target
