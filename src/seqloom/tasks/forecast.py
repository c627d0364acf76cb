"""Forecasting: steps of a series go in, the steps that follow come out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, model_validator
from torch import Tensor, nn

from seqloom.answers import NumbersAnswer
from seqloom.batches.samplers import Position
from seqloom.batches.shards import Field as ShardField
from seqloom.batches.shards import write_shard
from seqloom.batches.windows import WindowBatch, Windows, WindowSampler
from seqloom.corpus.series import SeriesSettings, corpus_of, describe, fingerprint, recordings
from seqloom.corpus.series_doctor import examine_series
from seqloom.errors import UserError
from seqloom.evaluation.figures import Metric, metrics
from seqloom.evaluation.forecasting import (
    Errors,
    ForecastReport,
    WindowRegression,
    drift,
    find_period,
    last_value,
    measured,
    seasonal,
    total,
)
from seqloom.inspection.trace import Trace
from seqloom.losses import Loss
from seqloom.models import FORECASTERS
from seqloom.models.forecaster import forecast
from seqloom.parallel import spread
from seqloom.settings import Settings, validated
from seqloom.sources.series import SeriesSource, SeriesSourceSettings
from seqloom.tasks.any_source import SeriesDataSettings
from seqloom.tasks.base import Examined, Progress, Say
from seqloom.tasks.network import Network, NetworkRecipe
from seqloom.training.loop import Validation
from seqloom.training.settings import FittingSettings

AT_ONCE = 256  # windows that are answered together
LONGEST_PERIOD = 5_000


class ForecastSettings(Settings):
    """What is asked."""

    history: int = Field(ge=2, le=1_000_000, description="steps that are read")
    horizon: int = Field(ge=1, le=100_000, description="steps that are forecast")
    quantiles: tuple[float, ...] = Field(
        (), description="instead of one value, those that so large a share of values is below, such as [0.1, 0.5, 0.9]"
    )
    period: int | None = Field(
        None, ge=1, description="of the seasonal baseline, in steps (default: found in the training data)"
    )

    @model_validator(mode="after")
    def _fits(self) -> ForecastSettings:
        if self.quantiles:
            wrong = [share for share in self.quantiles if not 0 < share < 1]
            if wrong or 0.5 not in self.quantiles or list(self.quantiles) != sorted(set(self.quantiles)):
                raise ValueError(
                    f"quantiles rise between 0 and 1, and 0.5 is one of them, the forecast; got {list(self.quantiles)}"
                )
        if self.period is not None and self.period > self.history:
            raise ValueError(f"period {self.period} is longer than history {self.history}")
        return self


class ForecastTrainingSettings(FittingSettings):
    """How a forecaster is fitted."""

    batch_windows: int = Field(32, ge=1, description="windows in a batch")
    loss: Literal["mse", "mae"] = Field("mse", description="of values; quantiles have a loss of their own")
    metric: Literal["loss", "mse", "mae"] = Field(
        "mse", description="decides which weights are kept and when to stop early"
    )

    @property
    def num_shards(self) -> int:
        return min(self.batch_windows, super().num_shards)


class ForecastRecipe(NetworkRecipe):
    """Series and what follows."""

    data: SeriesDataSettings
    forecast: ForecastSettings
    series: SeriesSourceSettings = SeriesSourceSettings()
    training: ForecastTrainingSettings
    decoding: Settings = Settings()

    def contradictions(self) -> list[str]:
        problems = []
        model: Any = self.model
        for name, corpus in self.data.corpora().items():
            if corpus.window is not None:
                problems.append(f"data.{name}.window is for labels; forecast.history says how much is read")
            given = [key for key in ("target", "take_every", "skip_every", "limit") if getattr(corpus, key) is not None]
            problems += [f"data.{name}.{key} does not go with forecasting: the series is the answer" for key in given]
        if getattr(model, "patch", 1) > self.forecast.history:
            problems.append(f"model.patch {model.patch} is longer than forecast.history {self.forecast.history}")
        if self.forecast.quantiles and getattr(model, "steps", "direct") == "recursive":
            problems.append("forecast.quantiles need model.steps: direct; what is read again has one value")
        if self.training.label_smoothing or self.training.candidates is not None:
            problems.append("training.label_smoothing and training.candidates are for symbols and labels")
        return problems


class Asked(NamedTuple):
    """A window to look at: what was read, what is forecast, what followed where that is known, and where it begins."""

    history: np.ndarray
    answer: NumbersAnswer
    truth: np.ndarray | None
    start: int


class Forecasting(Network):
    """Series to what follows."""

    name = "forecast"
    about = "a series to the steps that follow"
    Recipe = ForecastRecipe
    models = FORECASTERS
    Options = Settings
    metrics: ClassVar[tuple[Metric, ...]] = metrics("mse", "mae")
    drawn = ("mse", "mae", "loss")
    verbs: ClassVar[frozenset[str]] = frozenset({"predict", "evaluate", "trace"})
    kind = "a forecaster"
    one_input = "a series (a file, an array, a list of steps)"

    def __init__(self, source: SeriesSource, settings: ForecastSettings) -> None:
        self.source, self.settings = source, settings

    # -- data --------------------------------------------------------------------------------------------------------

    @classmethod
    def corpora(cls, data: Sequence[str], recipe: Any = None) -> dict[str, Any]:
        return {"data": corpus_of(data, None if recipe is None else recipe.data.train)}

    @classmethod
    def describe(cls, corpus: SeriesSettings) -> str:
        return describe(corpus)

    @classmethod
    def fingerprint(cls, corpus: SeriesSettings) -> str:
        return fingerprint(corpus)

    @classmethod
    def examine(cls, recipe: Any, say: Say, **limits: Any) -> Examined:
        return Examined(*examine_series(recipe.data.corpora(), **limits))

    # -- learning ----------------------------------------------------------------------------------------------------

    @classmethod
    def learn(cls, recipe: ForecastRecipe, say: Say) -> Self:
        """Channels, their scaling, and the period of the seasonal baseline."""
        source, settings = SeriesSource.learn(recipe.data.train, recipe.series), recipe.forecast
        if settings.period is None:
            first = next(iter(recordings(recipe.data.train)))
            period = find_period(source.scaling.apply(first.values), min(settings.history, LONGEST_PERIOD))
            settings = settings.model_copy(update={"period": period})
            say("no season was found in the training data" if period is None else f"a season of {period} steps")
        return cls(source, settings)

    def save(self, folder: Path) -> dict[str, Any]:
        return {"series": self.source.save(folder), "forecast": self.settings.model_dump(mode="json")}

    @classmethod
    def load(cls, folder: Path, config: Mapping[str, Any]) -> Self:
        settings = validated(ForecastSettings, config.get("forecast"), f"{folder}/config.json: forecast")
        return cls(SeriesSource.load(folder, config), settings)

    def tokenizers(self) -> dict[str, Any]:
        return {}

    def vocabulary(self) -> str:
        return f"{self.source.vocabulary()}; {self.settings.history:,} steps are read, {self.settings.horizon:,} follow"

    def sizes(self, settings: Any) -> dict[str, Any]:
        return {
            "history": self.settings.history,
            "horizon": self.settings.horizon,
            "num_channels": len(self.source.channels),
            "num_outputs": len(self.settings.quantiles) or 1,
        }

    def work(self, recipe: Any) -> ForecastWork:
        return ForecastWork(self, recipe)

    def windows(self, corpus: SeriesSettings, *, before: bool = True) -> Windows:
        """All windows whose forecast lies in a corpus; `before`: their history may begin before its first row."""
        s = self.settings
        field = {
            "values": ShardField(
                lambda raw: [self.source.scaling.apply(v) for v in raw], width=len(self.source.channels)
            )
        }
        early = s.history if before else 0

        def rows() -> Iterator[list[np.ndarray]]:
            for recording in recordings(corpus, before=early):
                yield [self.source.array(recording.values)]

        found = write_shard(rows(), field, "\n".join([fingerprint(corpus), self.source.key(), str(early)]))
        windows = Windows(found["values"], s.history, s.horizon)
        if not len(windows):
            raise UserError(
                f"{describe(corpus)}: no window of {s.history} + {s.horizon} steps fits in it (forecast.history, "
                "forecast.horizon)"
            )
        return windows

    # -- what is minimised -------------------------------------------------------------------------------------------

    def loss(self, model: Any, batch: WindowBatch, how: str) -> Loss:
        """Summed over all numbers of a batch; a recursive model is asked for its next step, which counts as all."""
        made = model(batch.values)
        target = batch.targets[:, : model.block]
        share = batch.num_tokens / target.numel()
        if self.settings.quantiles:
            found = pinball(made, target, self.settings.quantiles)
        else:
            measure = F.mse_loss if how == "mse" else F.l1_loss
            found = measure(made[..., 0], target, reduction="sum")
        return Loss(found * share, found.detach() * share)

    def point(self, made: Tensor) -> np.ndarray:
        """(…, outputs) -> (…): the value, or the median."""
        place = self.settings.quantiles.index(0.5) if self.settings.quantiles else 0
        return np.asarray(made[..., place].numpy())

    def batches(self, windows: Windows, progress: Progress | None = None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """All windows in order, as arrays."""
        for numbers in windows.in_order(AT_ONCE):
            yield windows.arrays(numbers)
            if progress is not None:
                done = int(numbers[-1]) + 1
                progress(done / len(windows), f"{done:,} of {len(windows):,}")

    # -- answering ---------------------------------------------------------------------------------------------------

    def inputs(self, given: Sequence[str]) -> list[Any]:
        return self.source.inputs(given)

    def _history(self, raw: Any) -> np.ndarray:
        values = self.source.array(raw)
        if len(values) < self.settings.history:
            raise UserError(f"the model reads {self.settings.history} steps; the series has {len(values)}")
        return values[-self.settings.history :]

    def predict(
        self, model: Any, inputs: Sequence[Any], options: Any, progress: Callable[[int], None] | None = None
    ) -> Iterator[tuple[int, NumbersAnswer]]:
        """What follows the last steps of each series, in the data's own units."""
        for start in range(0, len(inputs), AT_ONCE):
            some = inputs[start : start + AT_ONCE]
            read = np.stack([self.source.scaling.apply(self._history(one)) for one in some])
            with torch.inference_mode():
                made = forecast(model, torch.from_numpy(read))
            values = self.source.scaling.invert(self.point(made).astype(np.float64))
            # Quantiles that were learned one by one may cross; sorted they are at least as good (Chernozhukov 2010).
            spread = np.sort(made.numpy().astype(np.float64), -1)
            for place, one in enumerate(some):
                quantiles = {
                    share: self.source.scaling.invert(spread[place, ..., number])
                    for number, share in enumerate(self.settings.quantiles)
                }
                if quantiles:
                    values[place] = quantiles[0.5]
                traced = partial(self.trace, model, one)
                yield start + place, NumbersAnswer(one, values[place], self.source.channels, traced, quantiles)
            if progress is not None:
                progress(start + len(some))

    def evaluate(
        self,
        model: Any,
        data: SeriesSettings,
        name: str,
        options: Any,
        progress: Progress | None = None,
        **how: Any,
    ) -> ForecastReport:
        """Errors over all windows on scaled values, as the literature reports them."""
        windows, errors, inside, numbers = self.windows(data), Errors(), 0, 0
        for history, target in self.batches(windows, progress):
            with torch.inference_mode():
                made = forecast(model, torch.from_numpy(np.ascontiguousarray(history)))
            errors.add(self.point(made), target)
            if self.settings.quantiles:
                low, high = made.amin(-1).numpy(), made.amax(-1).numpy()
                inside, numbers = inside + int(((target >= low) & (target <= high)).sum()), numbers + target.size
        own = errors.absolute / errors.count * self.source.scaling.scale
        return ForecastReport(
            name,
            len(windows),
            self.settings.horizon,
            errors.figures,
            dict(zip(self.source.channels, own.tolist(), strict=True)),
            100.0 * inside / numbers if numbers else None,
            self.settings.quantiles,
        )

    def baselines(self, recipe: Any, data: Any) -> dict[str, dict[str, float]]:
        """Last value, the season before, drift, and linear regression on the window."""
        period = self.settings.period
        methods: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {"last value": last_value}
        if period is not None:
            methods[f"season of {period}"] = lambda history, horizon: seasonal(history, horizon, period)
        methods["drift"] = drift
        methods["linear regression"] = WindowRegression.fit(self.batches(self.windows(recipe.data.train, before=False)))
        return measured(methods, self.batches(self.windows(data)))

    # -- looking inside ----------------------------------------------------------------------------------------------

    def trace(self, model: Any, given: Any, target: Any = None, options: Any = None) -> Trace:
        """What was read and what follows, scaled back."""
        if target is not None:
            raise UserError("a forecaster takes no target; look at a part of a longer series instead")
        history = self._history(given)
        [(_, answer)] = self.predict(model, [history], options)
        trace = Trace({"channel": list(self.source.channels)})
        trace.add("history", history, rows="source", columns="channel")
        trace.add("forecast", answer.values, rows="horizon", columns="channel")
        return trace

    def series_of(self, corpus: SeriesSettings) -> list[np.ndarray]:
        """The series of a corpus, with as much before its first row as a forecast reads."""
        return [self.source.array(recording.values) for recording in recordings(corpus, before=self.settings.history)]

    def ask(self, model: Any, values: np.ndarray, at: int | None) -> Asked:
        """The forecast that begins at a step of a series; where none is named, so that the truth is known."""
        s, steps = self.settings, len(values)
        if at is None:
            at = steps - s.horizon if steps >= s.history + s.horizon else steps
        if not s.history <= at <= steps:
            raise UserError(f"a forecast can begin at steps {s.history:,} to {steps:,} of this series; got {at:,}")
        [(_, answer)] = self.predict(model, [values[at - s.history : at]], None)
        truth = values[at : at + s.horizon]
        return Asked(values[at - s.history : at], answer, truth if len(truth) else None, at)

    def next_steps(self, folder: Path, model: Any) -> list[str]:
        return [f"seqloom evaluate {folder}", f"seqloom look {folder} forecast", f"seqloom predict {folder} FILE"]


def pinball(made: Tensor, target: Tensor, quantiles: Sequence[float]) -> Tensor:
    """Koenker & Bassett 1978: too low costs the share, too high 1 less it; the sum over numbers of the mean over
    quantiles, doubled, so that the median alone costs the absolute error.

    (…, quantiles), (…)
    """
    shares = torch.tensor(quantiles)
    wrong = target[..., None] - made
    return 2 * torch.maximum(shares * wrong, (shares - 1) * wrong).mean(-1).sum()


class ForecastWork:
    """What forecasting brings to the training loop."""

    def __init__(self, task: Forecasting, recipe: Any) -> None:
        self.task, self.settings = task, recipe.training
        self.train, self.valid = task.windows(recipe.data.train, before=False), task.windows(recipe.data.valid)
        self.sampler = WindowSampler(len(self.train), size=self.settings.batch_windows, seed=recipe.seed)

    def batches(self, position: Position) -> Iterator[tuple[Position, WindowBatch]]:
        for after, numbers in self.sampler.batches_from(position):
            yield after, self.train.batch(numbers)

    def batches_per_epoch(self) -> float:
        return self.sampler.batches

    def epochs_done(self, position: Position) -> float:
        return position.epoch + position.batch / self.sampler.batches

    def loss(self, model: nn.Module, batch: WindowBatch, carried: Any = None) -> Loss:
        return self.task.loss(model, batch, self.settings.loss)

    def restored(self, model: nn.Module, tensors: list[Tensor]) -> None:
        assert not tensors, "windows stand for themselves"

    def validate(self, model: Any, *, final: bool = False) -> Validation:
        def measure(numbers: np.ndarray) -> tuple[float, int, list[float], list[float], int]:
            batch, errors = self.valid.batch(numbers), Errors()
            with torch.inference_mode():
                loss = float(self.loss(model, batch).nll)
                errors.add(self.task.point(forecast(model, batch.values)), batch.targets.numpy())
            return loss, batch.num_tokens, errors.squares.tolist(), errors.absolute.tolist(), errors.count

        losses, counts, *parts = zip(*spread(measure, list(self.valid.in_order(AT_ONCE))), strict=True)
        errors = [Errors(np.array(a), np.array(b), count) for a, b, count in zip(*parts, strict=True)]
        return Validation({"loss": sum(losses) / sum(counts), **total(errors).figures}, [])

    def overview(self) -> str:
        return (
            f"{len(self.train):,} windows, {self.sampler.batches:,} batches an epoch, {len(self.valid):,} windows to "
            f"validate; {self.task.vocabulary()}"
        )

    def summary(self) -> dict[str, Any]:
        return {
            "windows": len(self.train),
            "valid": len(self.valid),
            "batches_per_epoch": self.sampler.batches,
            "period": self.task.settings.period,
        }
