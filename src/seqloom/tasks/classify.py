"""Classification: a text goes in, one of a fixed set of labels comes out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field

from seqloom.answers import LabelAnswer
from seqloom.batches.collate import Batch
from seqloom.corpus.examples import Pair
from seqloom.corpus.readers import CorpusSettings, read_pairs
from seqloom.errors import UserError
from seqloom.evaluation.classification import (
    ClassificationReport,
    accuracy,
    classification_report,
    macro_f1,
    majority_baseline,
)
from seqloom.evaluation.figures import Metric, metrics
from seqloom.evaluation.text_baseline import TextBaseline
from seqloom.inspection.trace import Trace
from seqloom.models import CLASSIFIERS
from seqloom.settings import Settings
from seqloom.sources.text import TextSource
from seqloom.targets.label import LabelTarget
from seqloom.tasks.base import Progress, Say
from seqloom.tasks.supervised import Compute, ExampleRecipe, Examples, Supervised
from seqloom.text.settings import TextSettings
from seqloom.text.tokenizers import Tokenizer
from seqloom.training.progress import Progress as Bar
from seqloom.training.settings import ExampleTrainingSettings

BATCH_TOKENS = 8192


class ClassificationTrainingSettings(ExampleTrainingSettings):
    """How a classifier is fitted."""

    metric: Literal["loss", "accuracy", "macro_f1"] = Field(
        "accuracy", description="decides which weights are kept and when to stop early"
    )
    validation_sentences: int = Field(2000, ge=0, description="how many examples are answered at a validation")


class ClassificationRecipe(ExampleRecipe):
    """Texts with a label each."""

    text: TextSettings = TextSettings(tokenizer="word", vocabulary_size=None)
    training: ClassificationTrainingSettings
    decoding: Settings = Settings()

    def contradictions(self) -> list[str]:
        problems = []
        if self.text.dropout:
            problems.append("text.dropout is for translation; a classifier reads a text in one way")
        if self.training.candidates is not None:
            problems.append("training.candidates is for the choice among many symbols; a classifier has few labels")
        return problems


class Classification(Supervised):
    """Text to label: sentiment, topic, intent, kind of question."""

    name = "classify"
    about = "text to label: sentiment, topic, intent, kind of question"
    Recipe = ClassificationRecipe
    models = CLASSIFIERS
    Options = Settings
    metrics: ClassVar[tuple[Metric, ...]] = metrics("accuracy", "macro_f1", "loss", "calibration_error")
    drawn = ("accuracy", "macro_f1", "loss")
    report_options = frozenset({"output"})
    kind = "a classifier"
    source: TextSource
    target: LabelTarget

    # -- learning ----------------------------------------------------------------------------------------------------

    @classmethod
    def learn(cls, recipe: ClassificationRecipe, say: Say) -> Self:
        """The vocabulary of the texts, and the labels."""
        corpus = recipe.data.train
        target = LabelTarget.learn(pair.target for pair in read_pairs(corpus))
        tokenizer = Tokenizer.train((pair.source for pair in read_pairs(corpus)), recipe.text)
        return cls(TextSource(tokenizer), target)

    def save(self, folder: Path) -> dict[str, Any]:
        self.source.tokenizer.save(folder / "tokenizer.json")
        self.target.save(folder)
        return {"symbols": {"text": len(self.source.tokenizer)}, "labels": len(self.target)}

    @classmethod
    def load(cls, folder: Path, config: Mapping[str, Any]) -> Self:
        return cls(TextSource(Tokenizer.load(folder / "tokenizer.json")), LabelTarget.load(folder))

    def tokenizers(self) -> dict[str, Tokenizer]:
        return {"text": self.source.tokenizer}

    def vocabulary(self) -> str:
        tokenizer = self.source.tokenizer
        return f"{len(tokenizer):,} symbols ({tokenizer.kind}) and {len(self.target):,} labels"

    def sizes(self, settings: Any) -> dict[str, Any]:
        return {"num_symbols": len(self.source.tokenizer), "num_labels": len(self.target)}

    def losses(self, train: Examples, s: ClassificationTrainingSettings) -> Compute:
        def compute(model: Any, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
            return self.target.loss(model(batch), batch.target, s.label_smoothing if model.training else 0.0)

        return compute

    def validate(
        self, model: Any, pairs: list[Pair], recipe: Any, *, final: bool
    ) -> tuple[dict[str, float], list[dict[str, str]]]:
        if not pairs:
            return {}, []
        gold = [pair.target for pair in pairs]
        predicted = [answer.label for answer in self._answers(model, [pair.source for pair in pairs])]
        figures = {"accuracy": accuracy(gold, predicted), "macro_f1": macro_f1(gold, predicted)}
        samples = [
            {"source": pair.source, "reference": pair.target, "answer": label}
            for pair, label in list(zip(pairs, predicted, strict=True))[: recipe.training.samples]
        ]
        return figures, samples

    def next_steps(self, folder: Path, model: Any) -> list[str]:
        return [
            f'seqloom predict {folder} "some text"',
            f'seqloom look {folder} words "some text"',
            f"seqloom evaluate {folder}",
        ]

    # -- answering ---------------------------------------------------------------------------------------------------

    def predict(
        self, model: Any, inputs: Sequence[str], options: Any, progress: Callable[[int], None] | None = None
    ) -> Iterator[tuple[int, LabelAnswer]]:
        """The probability of every label, of each text."""

        def answer(source: Any, numbers: list[int]) -> dict[int, LabelAnswer]:
            with torch.inference_mode():
                found = model(Batch(source, None)).double().softmax(-1).numpy()
            return {
                number: LabelAnswer(
                    inputs[number],
                    dict(zip(self.target.names, row.tolist(), strict=True)),
                    lambda number=number: self.trace(model, inputs[number]),  # type: ignore[misc]
                )
                for number, row in zip(numbers, found, strict=True)
            }

        yield from self.answered(inputs, answer, batch_tokens=BATCH_TOKENS, progress=progress)

    def _answers(self, model: Any, texts: Sequence[str]) -> list[LabelAnswer]:
        found = dict(self.predict(model, texts, None))
        return [found[index] for index in range(len(texts))]

    def evaluate(
        self,
        model: Any,
        data: CorpusSettings | Sequence[Pair],
        name: str,
        options: Any,
        progress: Progress | None = None,
        **how: Any,
    ) -> ClassificationReport:
        """Accuracy and its kin, beside the majority class and TF-IDF with logistic regression."""
        pairs = list(read_pairs(data)) if isinstance(data, CorpusSettings) else list(data)
        if not pairs:
            raise UserError(f"{name}: there is no example in it")

        def heard(done: int) -> None:
            if progress is not None:
                progress(done / len(pairs), f"{done:,} of {len(pairs):,}")

        found = dict(self.predict(model, [pair.source for pair in pairs], options, heard))
        answers = [found[index] for index in range(len(pairs))]
        return classification_report(
            name,
            [pair.target for pair in pairs],
            [answer.label for answer in answers],
            np.array([[answer.probabilities[label] for label in self.target.names] for answer in answers]),
            self.target.names,
        )

    def baselines(self, recipe: Any, data: CorpusSettings | Sequence[Pair]) -> dict[str, dict[str, float | str]]:
        """The most frequent label, and TF-IDF with logistic regression, learned from the same training data."""
        train = list(read_pairs(recipe.data.train))
        pairs = list(read_pairs(data)) if isinstance(data, CorpusSettings) else list(data)
        labels, gold = [pair.target for pair in train], [pair.target for pair in pairs]
        with Bar("TF-IDF + logistic regression") as bar:
            linear = TextBaseline.fit([pair.source for pair in train], labels, lambda share: bar.update(share, ""))
        predicted = linear.predict([pair.source for pair in pairs])
        return {
            "majority class": majority_baseline(labels, gold),
            "TF-IDF + logistic regression": {
                "accuracy": accuracy(gold, predicted),
                "macro_f1": macro_f1(gold, predicted),
            },
        }

    # -- looking inside ----------------------------------------------------------------------------------------------

    def trace(self, model: Any, given: str, target: Any = None, options: Any = None) -> Trace:
        """What each word adds to each label, and what the encoder shows."""
        if target is not None:
            raise UserError("a classifier shows all labels at once: it takes no target")
        if self.source.is_empty(given):
            raise UserError("there is nothing to look at: give a text")
        trace = Trace({"source": self.source.labels(given), "label": list(self.target.names)})
        with torch.inference_mode():
            model(Batch(self.source.batch([given]), None), trace)
        return trace
