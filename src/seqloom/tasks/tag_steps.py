"""Tagging of steps: a series goes in, a label for each of its steps comes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from seqloom.answers import StepLabelsAnswer
from seqloom.batches.collate import Batch
from seqloom.corpus.kinds import read_pairs
from seqloom.corpus.series import SeriesSettings
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
from seqloom.models import STEP_TAGGERS
from seqloom.settings import Settings
from seqloom.sources.series import SeriesSource, SeriesSourceSettings
from seqloom.targets.step_labels import StepLabelTarget
from seqloom.tasks.any_source import BATCH_TOKENS, AnySource, SeriesDataSettings
from seqloom.tasks.base import Progress, Say
from seqloom.tasks.supervised import Compute, ExampleRecipe, Examples
from seqloom.training.settings import ExampleTrainingSettings


class StepTrainingSettings(ExampleTrainingSettings):
    """How a tagger of steps is fitted."""

    metric: Literal["loss", "accuracy", "macro_f1"] = Field(
        "accuracy", description="decides which weights are kept and when to stop early"
    )
    max_length: int = Field(2000, ge=2, description="longer series are left out of training")


class StepRecipe(ExampleRecipe):
    """Series with a label for each step."""

    data: SeriesDataSettings
    series: SeriesSourceSettings = SeriesSourceSettings()
    training: StepTrainingSettings
    decoding: Settings = Settings()

    def contradictions(self) -> list[str]:
        named = self.data.corpora().items()
        short = [name for name, corpus in named if corpus.label_of != "each"]
        problems = [f"data.{name}.label_of must be each: every step keeps its label" for name in short]
        if self.training.candidates is not None:
            problems.append("training.candidates is for the choice among many symbols")
        return problems


class StepTagging(AnySource):
    """Series to a label for each step: what somebody does at every moment."""

    name = "tag_steps"
    about = "a series to a label for each step"
    Recipe = StepRecipe
    models = STEP_TAGGERS
    metrics: ClassVar[tuple[Metric, ...]] = metrics("accuracy", "macro_f1", "loss")
    drawn = ("accuracy", "macro_f1", "loss")
    report_options = frozenset({"output"})
    kind = "a tagger of steps"
    target_type = object
    source: SeriesSource
    target: StepLabelTarget

    # -- learning ----------------------------------------------------------------------------------------------------

    @classmethod
    def learn(cls, recipe: StepRecipe, say: Say) -> Self:
        """The scaling of the channels, and the labels."""
        target = StepLabelTarget.learn(_labels(example) for example in read_pairs(recipe.data.train))
        return cls(SeriesSource.learn(recipe.data.train, recipe.series), target)

    def save(self, folder: Path) -> dict[str, Any]:
        about = self.save_source(folder)
        self.target.save(folder)
        return {**about, "labels": len(self.target)}

    @classmethod
    def load(cls, folder: Path, config: Mapping[str, Any]) -> Self:
        return cls(SeriesSource.load(folder, config), StepLabelTarget.load(folder))

    def vocabulary(self) -> str:
        return f"{self.source.vocabulary()} and {len(self.target):,} labels"

    def sizes(self, settings: Any) -> dict[str, Any]:
        return {**self.source.sizes(), "num_labels": len(self.target)}

    def losses(self, train: Examples, s: StepTrainingSettings) -> Compute:
        def compute(model: Any, batch: Batch) -> tuple[Tensor, Tensor]:
            return self.target.loss(model(batch), batch.target, s.label_smoothing if model.training else 0.0)

        return compute

    def validate(
        self, model: Any, pairs: list[Any], recipe: Any, *, final: bool
    ) -> tuple[dict[str, float], list[dict[str, str]]]:
        if not pairs:
            return {}, []
        gold, predicted, _ = self._labelled(model, pairs)
        return {"accuracy": accuracy(gold, predicted), "macro_f1": macro_f1(gold, predicted)}, []

    def next_steps(self, folder: Path, model: Any) -> list[str]:
        return [f"seqloom evaluate {folder}", f"seqloom predict {folder} FILE"]

    # -- answering ---------------------------------------------------------------------------------------------------

    def predict(
        self, model: Any, inputs: Sequence[Any], options: Any, progress: Callable[[int], None] | None = None
    ) -> Iterator[tuple[int, StepLabelsAnswer]]:
        """The probability of every label at every step."""

        def answer(source: Any, numbers: list[int]) -> dict[int, StepLabelsAnswer]:
            with torch.inference_mode():
                found = model(Batch(source, None)).double().softmax(-1).numpy()
            lengths = source.lengths.tolist()
            return {
                number: StepLabelsAnswer(
                    inputs[number], self.target.names, row[:length], partial(self.trace, model, inputs[number])
                )
                for number, row, length in zip(numbers, found, lengths, strict=True)
            }

        yield from self.answered(inputs, answer, batch_tokens=BATCH_TOKENS, progress=progress)

    def _labelled(
        self, model: Any, pairs: Sequence[Any], progress: Callable[[int], None] | None = None
    ) -> tuple[list[str], list[str], np.ndarray]:
        """Of all steps of some series, one after the other: gold labels, the model's, and probabilities."""
        found = dict(self.predict(model, [pair.source for pair in pairs], None, progress))
        answers = [found[number] for number in range(len(pairs))]
        gold = [label for pair in pairs for label in _labels(pair)]
        predicted = [label for answer in answers for label in answer.labels]
        return gold, predicted, np.concatenate([answer.probabilities for answer in answers])

    def evaluate(
        self,
        model: Any,
        data: Any,
        name: str,
        options: Any,
        progress: Progress | None = None,
        **how: Any,
    ) -> ClassificationReport:
        """Accuracy and F1 over all steps."""
        pairs = self.read(data) if isinstance(data, SeriesSettings) else list(data)
        if not pairs:
            raise UserError(f"{name}: there is no series in it")

        def heard(done: int) -> None:
            if progress is not None:
                progress(done / len(pairs), f"{done:,} of {len(pairs):,}")

        gold, predicted, probabilities = self._labelled(model, pairs, heard)
        return classification_report(name, gold, predicted, probabilities, self.target.names)

    def baselines(self, recipe: Any, data: Any) -> dict[str, dict[str, float | str]]:
        """The most frequent label, and the most frequent one of the nearest mean of a label, step by step."""
        train = self.read(recipe.data.train)
        pairs = self.read(data) if isinstance(data, SeriesSettings) else list(data)
        gold = [label for pair in pairs for label in _labels(pair)]
        centres = self._centres(train)
        asked = np.concatenate([self.source.scaling.apply(self.source.array(pair.source)) for pair in pairs])
        distances = np.stack([((asked - centre) ** 2).sum(1) for centre in centres.values()])
        names = list(centres)
        nearest = [names[place] for place in distances.argmin(0)]
        return {
            "majority class": majority_baseline([label for pair in train for label in _labels(pair)], gold),
            "nearest mean": {"accuracy": accuracy(gold, nearest), "macro_f1": macro_f1(gold, nearest)},
        }

    def _centres(self, train: Sequence[Any]) -> dict[str, np.ndarray]:
        """The mean of the steps of each label."""
        counts, sums = Counter[str](), dict[str, np.ndarray]()
        for pair in train:
            values, labels = self.source.scaling.apply(self.source.array(pair.source)), np.array(_labels(pair))
            for label in np.unique(labels).tolist():
                own = values[labels == label]
                counts[label] += len(own)
                sums[label] = sums.get(label, 0.0) + own.sum(0, dtype=np.float64)
        return {label: total / counts[label] for label, total in sorted(sums.items())}

    # -- looking inside ----------------------------------------------------------------------------------------------

    def trace(self, model: Any, given: Any, target: Any = None, options: Any = None) -> Trace:
        """The probability of every label at every step, and what the encoder shows."""
        if target is not None:
            raise UserError("a tagger shows all labels at once: it takes no target")
        trace = Trace({"source": self.source.labels(given), "label": list(self.target.names)})
        with torch.inference_mode():
            model(Batch(self.source.batch([given]), None), trace)
        return trace


def _labels(example: Any) -> Sequence[str]:
    """The labels of an example's steps."""
    if not isinstance(example.target, tuple | list) or len(example.target) != len(example.source):
        raise UserError(f"{example.path}: a label for each step is needed (data: target, label_of: each)")
    return example.target
