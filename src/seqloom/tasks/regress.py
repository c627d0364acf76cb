"""Regression: a text or a series goes in, one number or several come out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from seqloom.answers import NumbersAnswer
from seqloom.batches.collate import Batch
from seqloom.corpus.kinds import is_corpus, read_pairs
from seqloom.errors import UserError
from seqloom.evaluation.figures import METRICS, Metric, Report, metrics
from seqloom.inspection.trace import Trace
from seqloom.models import REGRESSORS
from seqloom.targets.numbers import NumbersTarget, numbers_of
from seqloom.tasks.any_source import BATCH_TOKENS, AnySource, AnySourceRecipe
from seqloom.tasks.base import Progress, Say
from seqloom.tasks.supervised import Compute, Examples
from seqloom.training.settings import ExampleTrainingSettings


class RegressionTrainingSettings(ExampleTrainingSettings):
    """How a regressor is fitted."""

    loss: Literal["mse", "mae"] = Field("mse", description="of numbers scaled by their mean and deviation")
    metric: Literal["loss", "mse", "mae"] = Field(
        "mse", description="decides which weights are kept and when to stop early"
    )


class RegressionRecipe(AnySourceRecipe):
    """Texts or series with a number each."""

    training: RegressionTrainingSettings

    def contradictions(self) -> list[str]:
        problems = super().contradictions()
        if self.training.label_smoothing:
            problems.append("training.label_smoothing is for labels; numbers have none")
        return problems


@dataclass(frozen=True)
class NumbersReport(Report):
    """Squared and absolute errors in the data's own units, over all numbers."""

    name: str
    count: int
    scores: dict[str, float]
    made: list[str] = field(repr=False)
    baselines: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def figures(self) -> dict[str, float]:
        return self.scores

    @property
    def answers(self) -> list[str]:
        return self.made

    def beside(self, baselines: Mapping[str, Mapping[str, float]]) -> NumbersReport:
        return replace(self, baselines={**self.baselines, **baselines})

    def to_dict(self) -> dict[str, Any]:
        others = {name: dict(figures) for name, figures in self.baselines.items()}
        return {"name": self.name, "count": self.count, **self.scores, "baselines": others}

    def render(self) -> str:
        lines = [f"{self.name}: {self.count:,} examples", ""]
        for name, figures in {"model": self.scores, **self.baselines}.items():
            shown = "  ".join(f"{METRICS[key].title} {METRICS[key].show(figures[key])}" for key in ("mse", "mae"))
            lines.append(f"{name}: {shown}")
        return "\n".join(lines)


class Regression(AnySource):
    """Text or series to numbers."""

    name = "regress"
    about = "text or series to one number or several"
    Recipe = RegressionRecipe
    models = REGRESSORS
    metrics: ClassVar[tuple[Metric, ...]] = metrics("mse", "mae")
    drawn = ("mse", "mae", "loss")
    report_options = frozenset({"output"})
    kind = "a regressor"
    target_type = object
    target: NumbersTarget

    # -- learning ----------------------------------------------------------------------------------------------------

    @classmethod
    def learn(cls, recipe: RegressionRecipe, say: Say) -> Self:
        """The vocabulary of texts or the scaling of series, and that of the numbers."""
        target = NumbersTarget.learn(pair.target for pair in read_pairs(recipe.data.train))
        return cls(cls.learn_source(recipe), target)

    def save(self, folder: Path) -> dict[str, Any]:
        about = self.save_source(folder)
        self.target.save(folder)
        return about

    @classmethod
    def load(cls, folder: Path, config: Mapping[str, Any]) -> Self:
        return cls(cls.load_source(folder, config), NumbersTarget.load(folder))

    def vocabulary(self) -> str:
        return f"{self.source.vocabulary()}; {len(self.target)} number{'s' if len(self.target) > 1 else ''} come out"

    def sizes(self, settings: Any) -> dict[str, Any]:
        return {**self.source.sizes(), "num_numbers": len(self.target)}

    def losses(self, train: Examples, s: RegressionTrainingSettings) -> Compute:
        def compute(model: Any, batch: Batch) -> tuple[Tensor, Tensor]:
            found = self.target.loss(model(batch), batch.target, s.loss)
            return found, found.detach()

        return compute

    def validate(
        self, model: Any, pairs: list[Any], recipe: Any, *, final: bool
    ) -> tuple[dict[str, float], list[dict[str, str]]]:
        if not pairs:
            return {}, []
        answers = self._answers(model, pairs)
        samples = [
            {"source": self.source.shown(pair.source), "reference": pair.target, "answer": answer.text}
            for pair, answer in list(zip(pairs, answers, strict=True))[: recipe.training.samples]
        ]
        return _errors(answers, pairs), samples

    def next_steps(self, folder: Path, model: Any) -> list[str]:
        what = '"some text"' if self.source.is_text else "FILE"
        return [f"seqloom predict {folder} {what}", f"seqloom evaluate {folder}"]

    # -- answering ---------------------------------------------------------------------------------------------------

    def predict(
        self, model: Any, inputs: Sequence[Any], options: Any, progress: Callable[[int], None] | None = None
    ) -> Iterator[tuple[int, NumbersAnswer]]:
        """The numbers of each input, in the data's own units."""
        names = [str(place) for place in range(len(self.target))]

        def answer(source: Any, numbers: list[int]) -> dict[int, NumbersAnswer]:
            with torch.inference_mode():
                found = self.target.invert(model(Batch(source, None)).double().numpy())
            return {
                number: NumbersAnswer(inputs[number], row, names, partial(self.trace, model, inputs[number]))
                for number, row in zip(numbers, found, strict=True)
            }

        yield from self.answered(inputs, answer, batch_tokens=BATCH_TOKENS, progress=progress)

    def _answers(
        self, model: Any, pairs: Sequence[Any], progress: Callable[[int], None] | None = None
    ) -> list[NumbersAnswer]:
        found = dict(self.predict(model, [pair.source for pair in pairs], None, progress))
        return [found[number] for number in range(len(pairs))]

    def evaluate(
        self, model: Any, data: Any, name: str, options: Any, progress: Progress | None = None, **how: Any
    ) -> NumbersReport:
        """Mean squared and absolute error."""
        pairs = self.read(data) if is_corpus(data) else list(data)
        if not pairs:
            raise UserError(f"{name}: there is no example in it")

        def heard(done: int) -> None:
            if progress is not None:
                progress(done / len(pairs), f"{done:,} of {len(pairs):,}")

        answers = self._answers(model, pairs, heard)
        return NumbersReport(name, len(pairs), _errors(answers, pairs), [answer.text for answer in answers])

    def baselines(self, recipe: Any, data: Any) -> dict[str, dict[str, float]]:
        """The mean of the training numbers."""
        pairs = self.read(data) if is_corpus(data) else list(data)
        wrong = np.array([numbers_of(pair.target) for pair in pairs]) - np.array(self.target.mean)
        return {"mean": {"mse": float((wrong**2).mean()), "mae": float(np.abs(wrong).mean())}}

    # -- looking inside ----------------------------------------------------------------------------------------------

    def trace(self, model: Any, given: Any, target: Any = None, options: Any = None) -> Trace:
        """What the encoder shows, and the scaled numbers."""
        if target is not None:
            raise UserError("a regressor takes no target")
        trace = Trace({"source": self.source.labels(given)})
        with torch.inference_mode():
            model(Batch(self.source.batch([given]), None), trace)
        return trace


def _errors(answers: Sequence[NumbersAnswer], pairs: Sequence[Any]) -> dict[str, float]:
    wrong = np.array([answer.values for answer in answers]) - np.array([numbers_of(pair.target) for pair in pairs])
    return {"mse": float((wrong**2).mean()), "mae": float(np.abs(wrong).mean())}
