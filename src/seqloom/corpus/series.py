"""Real-valued series as a corpus: which file, which channels, who is in it, and how a long recording is cut."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field, field_validator, model_validator

from seqloom.corpus import seasons
from seqloom.corpus.lines import Complain, content_digest, expand_path, refuse
from seqloom.corpus.series_files import Layout, Recording, format_of, read_recordings
from seqloom.errors import DataError, UserError, did_you_mean
from seqloom.settings import Settings, validated

SeriesFormat = Literal["ts", "csv", "jsonl", "npy", "npz"]
KEPT_NUMBERS = 20_000_000
# Raised when the meaning of a file changes with this code or that of the readers, so that caches are made again.
_VERSION = 1


class SeriesSettings(Settings):
    """Where real-valued series come from."""

    series: str = Field(
        description="a file: .ts, .csv, .jsonl, .npy or .npz, all but the last also with .gz or .xz; or a series that "
        "is made: made:seasons"
    )
    format: SeriesFormat | None = Field(None, description="of the file; by its name when absent")
    channels: tuple[str, ...] | None = Field(
        None, description="which ones, in this order: columns of CSV, else numbers from 0 (default: all others)"
    )
    target: str | None = Field(
        None, description="a column of CSV, a key of JSONL or .npz; of .npy a file of a line each; .ts has it last"
    )
    id: str | None = Field(None, description="of CSV: the column that separates series; of JSONL: a key")
    time: str | None = Field(
        None, description="of CSV: a column that must not fall within a series and is not learned from"
    )
    missing: Literal["refuse", "interpolate"] = Field(
        "refuse", description="what to do about missing numbers: an error, or a straight line between their neighbours"
    )
    layout: Literal["steps_first", "channels_first"] = Field("steps_first", description="of arrays")
    rows: tuple[int, int] | None = Field(
        None, description="only these steps of every recording: the first one, from 0, and the one after the last"
    )
    split_by: str | None = Field(None, description="a column or key that says whose a series is, such as a person")
    split_pattern: str | None = Field(
        None, description="a regular expression; what its first group finds there is who it is"
    )
    groups: tuple[str, ...] | None = Field(None, description="only series of these; needs split_by")
    share: tuple[float, float] | None = Field(
        None, description="only this share of them, in a fixed random order, such as [0, 0.6]; needs split_by"
    )
    window: int | None = Field(None, ge=2, description="steps of the pieces that recordings are cut into")
    stride: int | None = Field(None, ge=1, description="steps from one piece to the next (default: window)")
    label_of: Literal["majority", "last", "each"] = Field(
        "majority", description="where every step has a label: that of most steps, of the last one, or one for each"
    )
    take_every: int | None = Field(None, ge=2, description="only every so-manieth example")
    skip_every: int | None = Field(None, ge=2, description="all examples but those")
    limit: int | None = Field(None, ge=1, description="only the first so many examples")

    @field_validator("series", mode="before")
    @classmethod
    def _plain(cls, value: Any) -> Any:
        value = os.fspath(value) if isinstance(value, os.PathLike) else value
        if value == "":
            raise ValueError("must not be empty")
        if isinstance(value, str) and value.startswith(seasons.PREFIX):
            seasons.check_made(value)
        return value

    @model_validator(mode="after")
    def _fits(self) -> SeriesSettings:
        if self.take_every is not None and self.skip_every is not None:
            raise ValueError("take_every and skip_every exclude each other; one is for validation, one for training")
        if self.groups is not None and self.share is not None:
            raise ValueError("groups and share are two ways to one end; choose one")
        for name in ("split_pattern", "groups", "share"):
            if getattr(self, name) is not None and self.split_by is None:
                raise ValueError(f"{name} needs split_by, the column or key that says whose a series is")
        if self.share is not None and not 0 <= self.share[0] < self.share[1] <= 1:
            raise ValueError(f"share goes from a beginning to a later end within 0 and 1; got {list(self.share)}")
        if self.rows is not None and not 0 <= self.rows[0] < self.rows[1]:
            raise ValueError(f"rows goes from a step to a later one; got {list(self.rows)}")
        if self.stride is not None and self.window is None:
            raise ValueError("stride needs window")
        if self.split_pattern is not None:
            try:
                re.compile(self.split_pattern)
            except re.error as error:
                raise ValueError(f"split_pattern is no regular expression ({error})") from None
        self._of_format()
        return self

    def _of_format(self) -> None:
        if self.is_made:
            return
        try:
            kind = self.format or format_of(expand_path(self.series))
        except UserError:  # a variable that is not set here; told when the file is opened
            return
        if kind is None:
            raise ValueError(f"the name {self.series!r} does not tell the format; add format: ts, csv, jsonl, npy, npz")
        takes = {"ts": (), "csv": ("target", "id", "time", "split_by"), "jsonl": ("target", "id", "split_by")}
        for name in ("target", "id", "time", "split_by"):
            if getattr(self, name) is not None and name not in takes.get(kind, ("target",)):
                raise ValueError(f"{name} does not go with format: {kind}; remove it")

    @property
    def is_made(self) -> bool:
        return self.series.startswith(seasons.PREFIX)


class SeriesExample(NamedTuple):
    """A series and what is to be said about it: a text, or a text for each step; and where it was read."""

    source: np.ndarray
    target: Any
    path: str = ""
    line: int | None = None
    group: str = ""


def corpus_of(data: Sequence[str], like: SeriesSettings | None = None) -> SeriesSettings:
    """What `--data` names: a file that is read like those of the recipe, all of it."""
    if len(data) != 1:
        raise UserError(f"--data takes one file of series; got {len(data)}")
    values: dict[str, Any] = {"series": data[0]}
    if like is not None:
        every = {"groups", "share", "rows", "take_every", "skip_every", "limit", "series", "format"}
        values |= {name: value for name, value in like.model_dump().items() if name not in every}
        own = None if like.is_made else _format(like)
        if format_of(data[0]) is None:
            values["format"] = own
        elif format_of(data[0]) != own:  # names of columns mean nothing in another format
            values |= dict.fromkeys(("target", "id", "time", "split_by", "split_pattern"))
    found: SeriesSettings = validated(SeriesSettings, values, "--data")
    return found


def describe(settings: SeriesSettings) -> str:
    """A short name for people."""
    name = settings.series if settings.is_made else os.path.basename(expand_path(settings.series))
    if settings.rows is not None:
        name += f", steps {settings.rows[0]:,} to {settings.rows[1]:,}"
    if settings.groups is not None:
        name += f", {settings.split_by} {', '.join(settings.groups)}"
    if settings.share is not None:
        name += f", {settings.share[0]:g} to {settings.share[1]:g} of {settings.split_by}"
    return name


def files(settings: SeriesSettings) -> list[str]:
    """The paths a corpus is read from."""
    if settings.is_made:
        return [os.path.join(os.path.dirname(__file__), "seasons.py")]
    beside = [] if settings.target is None or _format(settings) != "npy" else [expand_path(settings.target)]
    return [expand_path(settings.series), *beside]


def fingerprint(settings: SeriesSettings) -> str:
    """A hash of what the corpus holds."""
    values = settings.model_dump(mode="json", exclude=set() if settings.is_made else {"series"})
    digest = hashlib.blake2b(json.dumps([_VERSION, values], sort_keys=True).encode(), digest_size=16)
    for path in files(settings):
        digest.update(content_digest(path))
    return digest.hexdigest()


# -- recordings -------------------------------------------------------------------------------------------------------


def recordings(settings: SeriesSettings, complain: Complain = refuse, *, before: int = 0) -> Iterator[Recording]:
    """The series of a corpus as they were recorded: chosen channels, people and steps, nothing missing.

    `before`: so many steps before `rows` come along, where there are as many.
    """
    found = _all_recordings(settings, complain)
    if settings.split_by is not None:
        found = _of_groups(found, settings, complain)
    for recording in found:
        values = _chosen(recording, settings)
        target = recording.target
        if settings.rows is not None:
            first, end = max(0, settings.rows[0] - before), settings.rows[1]
            if len(values) < end:
                raise DataError(
                    f"rows: {list(settings.rows)}, but {recording.name} has {len(values):,} steps", recording.path
                )
            values = values[first:end]
            target = target[first:end] if isinstance(target, list) else target
        missing = np.isnan(values)
        if missing.any():
            step, channel = (int(one) for one in np.argwhere(missing)[0])
            name = _names(recording, settings)[channel]
            if settings.missing == "refuse" or missing.all(0).any():
                where = f"channel {name!r}, step {step + 1}: the number is missing"
                remedy = "; missing: interpolate draws a line" if settings.missing == "refuse" else " all along"
                complain("missing", DataError(where + remedy, recording.path, recording.line))
                continue
            values = interpolated(values)
        yield Recording(values, _names(recording, settings), *recording_place(recording), target, recording.group)


def recording_place(recording: Recording) -> tuple[str, int | None, str]:
    return recording.path, recording.line, recording.name


def _all_recordings(settings: SeriesSettings, complain: Complain) -> Iterator[Recording]:
    if settings.is_made:
        values = seasons.made(settings.series)
        return iter([Recording(values, seasons.CHANNELS, settings.series, None, "the series")])
    path, layout = expand_path(settings.series), _layout(settings)
    if complain is not refuse:
        return read_recordings(path, layout, complain)
    try:
        changed = tuple(os.stat(one).st_mtime_ns for one in files(settings))
    except (OSError, ValueError):
        return read_recordings(path, layout, complain)  # which says what is wrong
    return iter(_kept(path, layout, changed))


@lru_cache(maxsize=2)
def _kept(path: str, layout: Layout, changed: tuple[int, ...]) -> Sequence[Recording]:
    """A file of some megabytes is read once and kept: its parts are asked for many times."""
    found, numbers = list[Recording](), 0
    whole = read_recordings(path, layout, refuse)
    for recording in whole:
        found.append(recording)
        numbers += recording.values.size
        if numbers > KEPT_NUMBERS:
            return _Streamed(path, layout)
    return found


class _Streamed(Sequence[Recording]):
    """A large file, read anew each time."""

    def __init__(self, path: str, layout: Layout) -> None:
        self.path, self.layout = path, layout

    def __iter__(self) -> Iterator[Recording]:
        return read_recordings(self.path, self.layout, refuse)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __getitem__(self, place: Any) -> Any:
        return list(self)[place]


def _format(settings: SeriesSettings) -> str:
    kind = settings.format or format_of(expand_path(settings.series))
    if kind is None:
        raise DataError("the name does not tell the format; add format: ts, csv, jsonl, npy or npz", settings.series)
    return kind


def _layout(settings: SeriesSettings) -> Layout:
    kind = _format(settings)
    return Layout(
        kind,
        settings.target,
        settings.id,
        settings.time,
        settings.split_by,
        (settings.channels or ()) if kind == "csv" else (),
        settings.layout == "channels_first",
    )


def _names(recording: Recording, settings: SeriesSettings) -> tuple[str, ...]:
    return settings.channels or recording.channels


def _chosen(recording: Recording, settings: SeriesSettings) -> np.ndarray:
    if settings.channels is None or settings.channels == recording.channels:
        return recording.values
    for name in settings.channels:
        if name not in recording.channels:
            hint = did_you_mean(name, recording.channels) or f"; it has {', '.join(recording.channels)[:200]}"
            raise DataError(f"there is no channel {name!r}{hint}", recording.path)
    return recording.values[:, [recording.channels.index(name) for name in settings.channels]]


def interpolated(values: np.ndarray) -> np.ndarray:
    """Missing numbers on a straight line between their neighbours; at the ends, the nearest one."""
    steps, filled = np.arange(len(values)), values.copy()
    for channel in filled.T:
        known = ~np.isnan(channel)
        channel[~known] = np.interp(steps[~known], steps[known], channel[known])
    return filled


# -- whose series -----------------------------------------------------------------------------------------------------


def _of_groups(found: Iterator[Recording], settings: SeriesSettings, complain: Complain) -> Iterator[Recording]:
    named = [(group_of(recording, settings), recording) for recording in found]
    known = dict.fromkeys(name for name, _ in named)
    wanted = set(known)
    if settings.groups is not None:
        unknown = [group for group in settings.groups if group not in known]
        if unknown:
            hint = did_you_mean(unknown[0], known) or f"; there are {', '.join(sorted(known))[:300]}"
            raise UserError(f"{settings.series}: groups: there is no {settings.split_by} {unknown[0]!r}{hint}")
        wanted = set(settings.groups)
    elif settings.share is not None:
        wanted = shared(known, settings.share)
        if not wanted:
            raise UserError(f"{settings.series}: share: {list(settings.share)} of {len(known)} groups is none of them")
    for name, recording in named:
        if name in wanted:
            yield Recording(recording.values, recording.channels, *recording_place(recording), recording.target, name)


def group_of(recording: Recording, settings: SeriesSettings) -> str:
    """Whose a recording is."""
    if settings.split_pattern is None:
        return recording.group
    found = re.search(settings.split_pattern, recording.group)
    if found is None:
        problem = f"split_pattern {settings.split_pattern!r} finds nothing in {recording.group!r}"
        raise DataError(problem, recording.path, recording.line)
    return found[1] if found.re.groups else found[0]


def shared(names: Sequence[str] | dict[str, None], share: tuple[float, float]) -> set[str]:
    """Those of a share: each name has its place in an order that depends on the names alone."""
    order = sorted(names, key=lambda name: hashlib.blake2b(name.encode()).digest())
    return {name for place, name in enumerate(order) if share[0] <= (place + 0.5) / len(order) < share[1]}


# -- examples ---------------------------------------------------------------------------------------------------------


def read_examples(settings: SeriesSettings, complain: Complain = refuse) -> Iterator[SeriesExample]:
    """The examples of a corpus: whole recordings, or the pieces they are cut into."""
    found: Iterator[SeriesExample]
    found = (example for recording in recordings(settings, complain) for example in examples_of(recording, settings))
    if settings.take_every is not None:
        found = itertools.islice(found, settings.take_every - 1, None, settings.take_every)
    elif settings.skip_every is not None:
        every = settings.skip_every
        found = (example for number, example in enumerate(found, 1) if number % every)
    return itertools.islice(found, settings.limit)


def examples_of(recording: Recording, settings: SeriesSettings) -> Iterator[SeriesExample]:
    """A recording, whole or in windows."""
    for start, end in windows(len(recording.values), settings):
        target = recording.target
        if isinstance(target, list):
            own = target[start:end]
            target = tuple(own) if settings.label_of == "each" else reduced(own, settings.label_of)  # type: ignore[assignment]
        line = None if recording.line is None or settings.window is None else recording.line + start
        yield SeriesExample(
            recording.values[start:end], target, recording.path, line or recording.line, recording.group
        )


def windows(steps: int, settings: SeriesSettings) -> list[tuple[int, int]]:
    """Where each piece of a recording begins and ends.

    What is left at the end is shorter than a window: it is kept where every step has its label, else left out.
    """
    if settings.window is None:
        return [(0, steps)]
    stride = settings.stride or settings.window
    found = [(start, start + settings.window) for start in range(0, steps - settings.window + 1, stride)]
    done = found[-1][1] if found else 0
    if settings.label_of == "each" and stride <= settings.window and done < steps:
        found.append((done, steps))
    return found


def reduced(labels: Sequence[str], how: str) -> str:
    """The label of a window: of its last step, or of most (of equals, the one that comes first)."""
    return labels[-1] if how == "last" else Counter(labels).most_common(1)[0][0]
