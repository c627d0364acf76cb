"""Classification: a text or a series goes in, one of a fixed set of labels comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field

from seqloom.answers import LabelAnswer
from seqloom.batches.collate import Batch
from seqloom.corpus.kinds import read_pairs
from seqloom.errors import UserError
from seqloom.evaluation.classification import (
    ClassificationReport,
    accuracy,
    classification_report,
    macro_f1,
    majority_baseline,
)
from seqloom.evaluation.figures import Metric, metrics
from seqloom.inspection.trace import Trace
from seqloom.models import CLASSIFIERS
from seqloom.models.saliency import gradient_times_input, occlusion
from seqloom.targets.label import LabelTarget
from seqloom.tasks.any_source import BATCH_TOKENS, AnySource, AnySourceRecipe
from seqloom.tasks.base import Progress, Say
from seqloom.tasks.supervised import Compute, Examples, counted, read_examples
from seqloom.training.settings import ExampleTrainingSettings


class ClassificationTrainingSettings(ExampleTrainingSettings):
    """How a classifier is fitted."""

    metric: Literal["loss", "accuracy", "macro_f1"] = Field(
        "accuracy", description="decides which weights are kept and when to stop early"
    )
    validation_sentences: int = Field(2000, ge=0, description="how many examples are answered at a validation")


class ClassificationRecipe(AnySourceRecipe):
    """Texts or series with a label each."""

    training: ClassificationTrainingSettings


class Classification(AnySource):
    """Text or series to label: sentiment, topic, intent, kind of question; activity, speaker, gesture."""

    name = "classify"
    about = "text or series to label: sentiment, topic, intent; activity, speaker, gesture"
    Recipe = ClassificationRecipe
    models = CLASSIFIERS
    metrics: ClassVar[tuple[Metric, ...]] = metrics("accuracy", "macro_f1", "loss", "calibration_error")
    drawn = ("accuracy", "macro_f1", "loss")
    report_options = frozenset({"output"})
    kind = "a classifier"
    target: LabelTarget

    # -- learning ----------------------------------------------------------------------------------------------------

    @classmethod
    def learn(cls, recipe: ClassificationRecipe, say: Say) -> Self:
        """The vocabulary of texts or the scaling of series, and the labels."""
        target = LabelTarget.learn(labels_of(recipe.data.train))
        return cls(cls.learn_source(recipe), target)

    def save(self, folder: Path) -> dict[str, Any]:
        about = self.save_source(folder)
        self.target.save(folder)
        return {**about, "labels": len(self.target)}

    @classmethod
    def load(cls, folder: Path, config: Mapping[str, Any]) -> Self:
        return cls(cls.load_source(folder, config), LabelTarget.load(folder))

    def vocabulary(self) -> str:
        return f"{self.source.vocabulary()} and {len(self.target):,} labels"

    def sizes(self, settings: Any) -> dict[str, Any]:
        return {**self.source.sizes(), "num_labels": len(self.target)}

    def losses(self, train: Examples, s: ClassificationTrainingSettings) -> Compute:
        def compute(model: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
            return self.target.loss(model(batch), batch.target, s.label_smoothing if model.training else 0.0)

        return compute

    def validate(
        self, model: Any, pairs: list[Any], recipe: Any, *, final: bool
    ) -> tuple[dict[str, float], list[dict[str, str]]]:
        if not pairs:
            return {}, []
        gold = [pair.target for pair in pairs]
        predicted = [answer.label for answer in self._answers(model, [pair.source for pair in pairs])]
        figures = {"accuracy": accuracy(gold, predicted), "macro_f1": macro_f1(gold, predicted)}
        samples = [
            {"source": self.source.shown(pair.source), "reference": pair.target, "answer": label}
            for pair, label in list(zip(pairs, predicted, strict=True))[: recipe.training.samples]
        ]
        return figures, samples

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
        """The probability of every label, of each input."""

        def answer(source: Any, numbers: list[int]) -> dict[int, LabelAnswer]:
            with torch.inference_mode():
                found = model(Batch(source, None)).double().softmax(-1).numpy()
            return {
                number: LabelAnswer(
                    inputs[number],
                    dict(zip(self.target.names, row.tolist(), strict=True)),
                    lambda number=number: self.trace(model, inputs[number]),  # type: ignore[misc]
                    lambda number=number: self.warnings(inputs[number]),  # type: ignore[misc]
                )
                for number, row in zip(numbers, found, strict=True)
            }

        yield from self.answered(inputs, answer, batch_tokens=BATCH_TOKENS, progress=progress)

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
    ) -> ClassificationReport:
        """Accuracy and its kin, beside the majority class and a simple method of the source."""
        pairs = read_examples(data, name)
        found = dict(self.predict(model, [pair.source for pair in pairs], options, counted(progress, len(pairs))))
        answers = [found[index] for index in range(len(pairs))]
        return classification_report(
            name,
            [pair.target for pair in pairs],
            [answer.label for answer in answers],
            np.array([[answer.probabilities[label] for label in self.target.names] for answer in answers]),
            self.target.names,
        )

    def baselines(self, recipe: Any, data: Any) -> dict[str, dict[str, float | str]]:
        """The most frequent label, and a simple method that fits the source, learned from the same training data."""
        train = list(read_pairs(recipe.data.train))
        pairs = read_examples(data, "the data")
        labels, gold = [pair.target for pair in train], [pair.target for pair in pairs]
        asked = [pair.source for pair in pairs]
        name, predicted = self.source.baseline([pair.source for pair in train], labels, asked)
        return {
            "majority class": majority_baseline(labels, gold),
            name: {"accuracy": accuracy(gold, predicted), "macro_f1": macro_f1(gold, predicted)},
        }

    # -- looking inside ----------------------------------------------------------------------------------------------

    def trace(self, model: Any, given: Any, target: Any = None, options: Any = None) -> Trace:
        """What each word adds to each label, and what the encoder shows."""
        if target is not None:
            raise UserError("a classifier shows all labels at once: it takes no target")
        if self.source.is_empty(given):
            raise UserError("there is nothing to look at: give a text")
        trace = Trace({"source": self.source.labels(given), "label": list(self.target.names)})
        with torch.inference_mode():
            model(Batch(self.source.batch([given]), None), trace)
        return trace

    def saliency(
        self, model: Any, given: Any, label: str, method: str, width: int, callback: Callable[[float], None]
    ) -> np.ndarray:
        """(time,): what each step adds to the logit of a label above the mean of all."""
        if self.source.is_empty(given):
            raise UserError("there is nothing to look at: give a text")
        source, number = self.source.batch([given]), self.target.names.index(label)
        if method == "gradient":
            return np.asarray(gradient_times_input(model, source, number).sum(1).numpy())
        return np.asarray(occlusion(model, source, number, width, callback).numpy())


def labels_of(corpus: Any) -> Iterator[str]:
    """The label of every example of a corpus; one without is the data's fault."""
    for number, example in enumerate(read_pairs(corpus), 1):
        if not isinstance(example.target, str):
            found = "none" if example.target is None else "one for each step"
            place = getattr(example, "path", "") or f"example {number}"
            raise UserError(f"{place}: an example needs one label (data: target, label_of); it has {found}")
        yield example.target
