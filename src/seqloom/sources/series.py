"""Real-valued series as a source: channels scaled by what the training data are like."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from seqloom.arrays import read_arrays, write_arrays
from seqloom.batches.shards import Field as ShardField
from seqloom.batches.steps import Steps, padded_steps
from seqloom.corpus.lines import expand_path
from seqloom.corpus.series import SeriesSettings, corpus_of, interpolated, read_examples, recordings
from seqloom.corpus.series_files import format_of, steps_of
from seqloom.errors import UserError
from seqloom.evaluation.nearest import NearestSeries
from seqloom.settings import Settings, validated

FILE = "scaling.safetensors"
QUARTILES = 1.3489795003921634  # between them of a normal distribution, in deviations
MOST_QUARTILE_NUMBERS = 20_000_000  # more are thinned out: quartiles need all numbers at once


class SeriesSourceSettings(Settings):
    """How series are prepared."""

    scaling: Literal["standard", "robust", "none"] = Field(
        "standard",
        description="each channel less its mean, by its deviation; robust: less its median, by the distance of its "
        "quartiles; learned from training data only",
    )


@dataclass(frozen=True)
class Scaling:
    """(value - centre) / scale, channel by channel."""

    centre: np.ndarray
    scale: np.ndarray

    @classmethod
    def learn(cls, series: Iterable[np.ndarray], how: str) -> Scaling:
        """From (time, channels) arrays; a channel that never changes is only centred."""
        if how == "robust":
            found = list(series)
            total = sum(values.size for values in found)
            every = -(-total // MOST_QUARTILE_NUMBERS)
            low, centre, high = np.quantile(
                np.concatenate([v[::every] for v in found]).astype(np.float64), (0.25, 0.5, 0.75), 0
            )
            scale = (high - low) / QUARTILES
        else:
            centre, scale = mean_and_deviation(series)
            if how == "none":
                centre, scale = np.zeros_like(centre), np.ones_like(scale)
        tiny = scale <= 1e-8 * np.maximum(1.0, np.abs(centre))
        return cls(centre, np.where(tiny, 1.0, scale))

    def apply(self, values: np.ndarray) -> np.ndarray:
        return ((values - self.centre) / self.scale).astype(np.float32)

    def invert(self, values: np.ndarray) -> np.ndarray:
        """(…, channels) in the data's own units."""
        return np.asarray(values * self.scale + self.centre)


def mean_and_deviation(series: Iterable[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Over all steps, in one pass: means and squares around them are put together piece by piece (Chan et al. 1983)."""
    count, mean, squares = 0, np.zeros(1), np.zeros(1)
    for values in series:
        exact = values.astype(np.float64)
        own, size = exact.mean(0), len(exact)
        difference, total = own - mean, count + size
        mean = mean + difference * size / total
        squares = squares + ((exact - own) ** 2).sum(0) + difference**2 * count * size / total
        count = total
    return mean, np.sqrt(squares / max(1, count))


@dataclass(frozen=True)
class SeriesSource:
    """Series of steps, each with a number in every channel."""

    channels: tuple[str, ...]
    scaling: Scaling
    reading: SeriesSettings
    """How files are read: as the training file was, but all of it."""
    ends = 0
    is_text = False
    one_input = "a series (a file, an array, a list of steps)"

    @classmethod
    def learn(cls, corpus: SeriesSettings, settings: SeriesSourceSettings) -> SeriesSource:
        """Channels and their scaling, from training data."""
        channels: dict[int, str] = {}

        def values() -> Iterable[np.ndarray]:
            for example in read_examples(corpus):
                width = example.source.shape[1]
                channels[width] = f"{example.path}:{example.line}"
                if len(channels) > 1:
                    (one, place), (other, elsewhere) = channels.items()
                    raise UserError(f"{elsewhere}: the series has {other} channels; that of {place} has {one}")
                yield example.source

        scaling = Scaling.learn(values(), settings.scaling)
        if not channels:
            raise UserError(f"{corpus.series}: no series is left to learn from")
        names = corpus.channels or channel_names(corpus, next(iter(channels)))
        return cls(names, scaling, reading_of(corpus))

    def save(self, folder: Path) -> dict[str, Any]:
        arrays = {"centre": self.scaling.centre, "scale": self.scaling.scale}
        write_arrays(folder / FILE, arrays, {})
        return {"channels": list(self.channels), "reading": self.reading.model_dump(mode="json", exclude_none=True)}

    @classmethod
    def load(cls, folder: Path, config: Mapping[str, Any]) -> SeriesSource:
        about = config.get("series")
        if not isinstance(about, dict) or not isinstance(about.get("channels"), list):
            raise UserError(f"{folder}/config.json: series must say the channels; copy the whole model folder again")
        names = tuple(map(str, about["channels"]))
        arrays, _ = read_arrays(folder / FILE)
        found = [arrays.get(name) for name in ("centre", "scale")]
        for array in found:
            if (
                array is None
                or array.shape != (len(names),)
                or array.dtype != np.float64
                or not np.isfinite(array).all()
            ):
                raise UserError(
                    f"{folder / FILE}: not a number for each of {len(names)} channels; copy the folder again"
                )
        centre, scale = found
        assert centre is not None
        assert scale is not None
        if (scale <= 0).any():
            raise UserError(f"{folder / FILE}: a scale must be above 0; copy the whole model folder again")
        reading = validated(SeriesSettings, about.get("reading", {}), f"{folder}/config.json: series.reading")
        return cls(names, Scaling(centre, scale), reading)

    # -- what a source offers -----------------------------------------------------------------------------------------

    def sizes(self) -> dict[str, int]:
        return {"num_channels": len(self.channels)}

    def vocabulary(self) -> str:
        return f"{len(self.channels)} channel" + ("s" if len(self.channels) > 1 else "")

    def key(self) -> str:
        return json.dumps([self.scaling.centre.tolist(), self.scaling.scale.tolist()])

    def fields(self) -> dict[str, ShardField]:
        return {"values": ShardField(self._scaled, width=len(self.channels))}

    def encode(self, raw: Sequence[Any]) -> dict[str, list[Any]]:
        return {"values": self._scaled(raw)}

    def _scaled(self, raw: Sequence[Any]) -> list[np.ndarray]:
        return [self.scaling.apply(self.array(one)) for one in raw]

    def collate(self, rows: Mapping[str, Sequence[Any]]) -> Steps:
        return Steps(*padded_steps([np.asarray(row, np.float32) for row in rows["values"]]))

    def batch(self, raw: Sequence[Any]) -> Steps:
        return self.collate(self.encode(raw))

    def unknown_rate(self, raw: Sequence[Any]) -> tuple[int, int]:
        return 0, sum(len(self.array(one)) for one in raw)

    def labels(self, raw: Any) -> list[str]:
        return [str(step) for step in range(len(self.array(raw)))]

    def is_empty(self, raw: Any) -> bool:
        return not len(self.array(raw))

    def shown(self, raw: Any) -> str:
        steps = len(self.array(raw))
        return f"{steps:,} step{'s' if steps > 1 else ''} of {self.vocabulary()}"

    def baseline(self, sources: Sequence[Any], labels: Sequence[str], asked: Sequence[Any]) -> tuple[str, list[str]]:
        """The nearest training series by Euclidean distance."""
        known = NearestSeries(self._scaled(sources), labels)
        return "nearest neighbour", known.predict(self._scaled(asked))

    # -- raw values ---------------------------------------------------------------------------------------------------

    def is_input(self, value: Any) -> bool:
        """One series: a file, an array, a list of numbers or of steps; several are a list of these."""
        if isinstance(value, str | Path):
            return True
        if hasattr(value, "__array__"):
            return np.ndim(value) in (1, 2)
        one_step = (int, float, np.number, tuple, dict)
        rows = isinstance(value, list | tuple) and len(value) > 0
        return rows and all(
            isinstance(step, one_step) or (isinstance(step, list) and all(isinstance(n, int | float) for n in step))
            for step in value
        )

    def array(self, raw: Any) -> np.ndarray:
        """An array, nested lists, a file with one series, or JSON -> (time, channels) with every number there."""
        if isinstance(raw, str | Path):
            found = self.inputs([os.fspath(raw)])
            if len(found) != 1:
                raise UserError(f"{raw}: holds {len(found)} series; 'seqloom predict' answers all, or give one array")
            return np.asarray(found[0])
        values = np.asarray(raw) if hasattr(raw, "__array__") else self._listed(raw)
        if values.ndim == 1 and len(self.channels) == 1:
            values = values[:, None]
        if values.ndim != 2 or values.dtype.kind not in "iuf":
            raise UserError(f"a series is an array of (steps, channels) numbers; got {values.dtype} of {values.shape}")
        if values.shape[1] != len(self.channels):
            listed = ", ".join(self.channels)[:200]
            raise UserError(
                f"the model reads {len(self.channels)} channels ({listed}); the series has {values.shape[1]}"
            )
        if not len(values):
            raise UserError("the series is empty; it needs at least one step")
        values = values.astype(np.float32)
        if np.isinf(values).any():
            raise UserError("the series has infinite numbers; correct them")
        missing = np.isnan(values)
        if missing.any():
            step, channel = (int(one) for one in np.argwhere(missing)[0])
            if self.reading.missing == "refuse" or missing.all(0).any():
                raise UserError(f"step {step + 1}, channel {self.channels[channel]!r}: the number is missing")
            values = interpolated(values)
        return values

    def _listed(self, raw: Any) -> np.ndarray:
        try:
            return steps_of([list(step) if isinstance(step, tuple) else step for step in raw])
        except (ValueError, TypeError) as error:
            raise UserError(f"not a series: {error}") from None

    def unanswered(self, path: str) -> SeriesSettings:
        """A file, to be read as the training file was, but for what it need not have: answers and times."""
        corpus = corpus_of([path], self.reading)
        known = {"channels": self.channels} if format_of(expand_path(path)) == "csv" else {}
        gone = ["target", "time", "split_by", "split_pattern"]
        if self.reading.label_of == "each":  # steps that have their own labels need no pieces
            gone += ["window", "stride"]
        return corpus.model_copy(update={**dict.fromkeys(gone), **known})

    def inputs(self, given: Sequence[str]) -> list[np.ndarray]:
        """What a command line names: files with one series or more, or one written as JSON."""
        found: list[np.ndarray] = []
        for one in given:
            if one.lstrip().startswith("["):
                try:
                    found.append(self.array(json.loads(one)))
                except (ValueError, RecursionError):
                    raise UserError(f"not a list of steps in JSON: {one[:60]}") from None
                continue
            found += [self.array(example.source) for example in read_examples(self.unanswered(one))]
        return found


def reading_of(corpus: SeriesSettings) -> SeriesSettings:
    """How a corpus is read, without its name and what only picks a part of it."""
    part = dict.fromkeys(("groups", "share", "rows", "take_every", "skip_every", "limit"))
    if corpus.is_made:
        return corpus.model_copy(update=part)
    kind = corpus.format or format_of(expand_path(corpus.series))
    beside = {"target": None} if kind == "npy" else {}
    return corpus.model_copy(update={**part, **beside, "series": f"series.{kind}", "format": None})


def channel_names(corpus: SeriesSettings, width: int) -> tuple[str, ...]:
    """The names of the channels of a corpus."""
    first = next(iter(recordings(corpus)))
    assert len(first.channels) == width, "every series was looked at"
    return first.channels
