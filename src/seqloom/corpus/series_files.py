"""Files of real-valued series: .ts (sktime, UEA), CSV, JSONL, .npy and .npz. A fault is named with file and line.

Every reader gives `Recording`s: values (steps, channels) with NaN where one is missing, and what belongs to them.
"""

from __future__ import annotations

import csv
import json
import math
import os
import zipfile
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np

from seqloom.corpus.lines import COMPRESSIONS, Complain, expand_path, explained, lines_in, located_lines, opened
from seqloom.errors import DataError, did_you_mean

FORMATS = {".ts": "ts", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".npy": "npy", ".npz": "npz"}
MISSING = frozenset({"", "?", "nan", "na", "null", "none"})
MAX_NUMBERS = 200_000_000  # of a file that is read as one block
MAX_CHANNELS = 10_000
BLOCK = 2**20


@dataclass(frozen=True, eq=False)
class Recording:
    """One series of a file.

    `values` (steps, channels) float32, NaN where one is missing; `target`: None, one text, or a text for each step;
    `group`: what the recording is split by, such as a person.
    """

    values: np.ndarray
    channels: tuple[str, ...]
    path: str
    line: int | None
    name: str
    target: str | list[str] | None = None
    group: str = ""

    @property
    def place(self) -> str:
        return f"{self.path}:{self.line}" if self.line else f"{self.path}, {self.name}"


@dataclass(frozen=True)
class Layout:
    """Which parts of a file are what: columns of CSV, keys of JSONL and .npz."""

    format: str
    target: str | None = None
    id: str | None = None
    time: str | None = None
    group: str | None = None
    channels: tuple[str, ...] = field(default=())  # of CSV: none are all others
    channels_first: bool = False


def format_of(path: str) -> str | None:
    """The format that a name tells; .gz and .xz may follow (not after .npz)."""
    stem, suffix = os.path.splitext(path.lower())
    return FORMATS.get(os.path.splitext(stem)[1] if suffix in COMPRESSIONS else suffix)


def read_recordings(path: str, layout: Layout, complain: Complain) -> Iterator[Recording]:
    """All series of a file, one after the other."""
    found = False
    for recording in READERS[layout.format](path, layout, complain):
        found = True
        yield recording
    if not found:
        complain("unreadable", DataError("there is no series in it", path))


def number(text: str) -> float:
    """A finite number, or NaN where one is missing; ValueError says what else it is."""
    stripped = text.strip()
    if stripped.lower() in MISSING:
        return math.nan
    try:
        value = float(stripped)
    except ValueError:
        value = math.inf
    if "_" in stripped or not math.isfinite(value):
        raise ValueError(f"expected a number, found {stripped[:40]!r}")
    return value


# -- .ts --------------------------------------------------------------------------------------------------------------


def _read_ts(path: str, layout: Layout, complain: Complain) -> Iterator[Recording]:
    """The archive's text format: a header of @ lines; a line a series, channels between colons, the target last."""
    header: dict[str, list[str]] = {}
    began, width = False, 0
    for line, text, sound in located_lines(path, complain):
        text = text.strip()
        if not sound or not text or text.startswith("#"):
            continue
        if not began:
            if not text.startswith("@"):
                raise DataError(f"expected a header line such as @data, found {text[:40]!r}", path, line)
            name, *words = text[1:].split()
            header[name.lower()] = words
            began = name.lower() == "data"
            if began:
                width = _ts_width(header, path)
            continue
        try:
            values, target = _ts_series(text, header)
            if width and len(values[0]) != width:
                raise ValueError(f"expected {width} channels between colons, found {len(values[0])}")
        except ValueError as error:
            complain("columns", DataError(str(error), path, line))
            continue
        width = width or len(values[0])
        names = tuple(str(channel) for channel in range(width))
        yield Recording(np.array(values, np.float32), names, path, line, f"line {line}", target)
    if not began:
        raise DataError("there is no line @data; is this a .ts file?", path)


def _ts_width(header: dict[str, list[str]], path: str) -> int:
    if header.get("timestamps", ["false"])[0].lower() == "true":
        raise DataError("series with time stamps (@timeStamps true) are not read; write evenly spaced values", path)
    if header.get("univariate", ["false"])[0].lower() == "true":
        return 1
    said = (header.get("dimensions") or header.get("dimension") or ["0"])[0]
    if not said.isdecimal() or int(said) > MAX_CHANNELS:
        raise DataError(f"@dimensions must be a number up to {MAX_CHANNELS:,}; found {said[:40]!r}", path)
    return int(said)


def _ts_series(text: str, header: dict[str, list[str]]) -> tuple[list[tuple[float, ...]], str | None]:
    """Steps of channels, and the target."""
    parts, target = text.split(":"), None
    labels = header.get("classlabel", ["false"])
    if labels[0].lower() == "true" or header.get("targetlabel", ["false"])[0].lower() == "true":
        target = parts.pop().strip()
        if len(labels) > 1 and labels[0].lower() == "true" and target not in labels[1:]:
            raise ValueError(f"the label {target!r} is not in @classLabel{did_you_mean(target, labels[1:])}")
    if not parts:
        raise ValueError("expected channels between colons and the target last, found one part")
    channels = [[number(value) for value in part.split(",")] for part in parts]
    for place, channel in enumerate(channels[1:], 2):
        if len(channel) != len(channels[0]):
            raise ValueError(f"channel {place} has {len(channel)} steps, channel 1 has {len(channels[0])}")
    return list(zip(*channels, strict=True)), target


# -- CSV --------------------------------------------------------------------------------------------------------------


def _read_csv(path: str, layout: Layout, complain: Complain) -> Iterator[Recording]:
    """A header and a row a step; an id column separates series, which stand one after the other."""
    rows = _csv_rows(path, complain)
    line, header = next(rows, (0, []))
    if not header:
        raise DataError("the header line is empty" if line else "the file is empty", path)
    header = [name.strip() for name in header]
    own = {kind: _column(name, header, path) for kind, name in _named(layout)}
    places = [_column(name, header, path) for name in layout.channels] or [
        place for place in range(len(header)) if place not in own.values()
    ]
    if not places:
        raise DataError("no column is left for the values", path, line)
    names = tuple(header[place] for place in places)
    at, seen = _Steps(path, names), set[str]()
    for line, row in rows:
        if len(row) != len(header):
            found = str(len(row)) if row else "an empty line"
            complain("columns", DataError(f"expected {len(header)} columns, found {found}", path, line))
            continue
        name = row[own["id"]] if "id" in own else ""
        if at.begun and name != at.name:
            yield at.finished()
            seen.add(at.name)
            at = _Steps(path, names)
            if name in seen:
                complain("columns", DataError(f"the series {name!r} goes on after another; sort the rows", path, line))
        try:
            values = [number(row[place]) for place in places]
        except ValueError:
            place = next(place for place in places if not _is_number(row[place]))
            problem = f"the column {header[place]!r} must hold numbers; found {row[place][:40]!r}"
            complain("columns", DataError(problem, path, line))
            continue
        wrong = at.add(line, name, values, {kind: row[place] for kind, place in own.items()})
        if wrong is not None:
            complain("columns", DataError(wrong, path, line))
    if at.begun:
        yield at.finished()


def _named(layout: Layout) -> list[tuple[str, str]]:
    named = (("target", layout.target), ("id", layout.id), ("time", layout.time), ("group", layout.group))
    return [(kind, name) for kind, name in named if name is not None]


def _column(name: str, header: Sequence[str], path: str) -> int:
    if name not in header:
        hint = did_you_mean(name, header) or f"; the columns are {', '.join(header)[:300]}"
        raise DataError(f"the header has no column {name!r}{hint}", path, 1)
    if header.count(name) > 1:
        raise DataError(f"the header names the column {name!r} twice", path, 1)
    return header.index(name)


def _is_number(text: str) -> bool:
    try:
        number(text)
    except ValueError:
        return False
    return True


def _csv_rows(path: str, complain: Complain) -> Iterator[tuple[int, list[str]]]:
    last = 0

    def feed() -> Iterator[str]:
        nonlocal last
        for number, text, sound in located_lines(path, complain):
            last = number
            if sound:
                yield text + "\n"

    reader = csv.reader(feed(), strict=True)
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            complain("csv", DataError(f"not valid CSV: {error}", path, last))
            continue
        yield last, row


class _Steps:
    """A series that grows row by row."""

    def __init__(self, path: str, channels: tuple[str, ...]) -> None:
        self.path, self.channels = path, channels
        self.numbers = array("f")
        self.targets: list[str] = []
        self.line, self.name, self.group, self.time = 0, "", "", ""

    @property
    def begun(self) -> bool:
        return self.line > 0

    def add(self, line: int, name: str, values: list[float], own: dict[str, str]) -> str | None:
        """A further step; what is wrong with it, where something is."""
        if not self.begun:
            self.line, self.name, self.group = line, name, own.get("group", "")
        elif own.get("group", "") != self.group:
            return f"the series {name!r} belongs to {self.group!r} and to {own['group']!r}"
        if "time" in own:
            if self.time and _earlier(own["time"], self.time):
                return f"the time {own['time'][:40]!r} is before {self.time[:40]!r}"
            self.time = own["time"]
        if len(self.numbers) + len(values) > MAX_NUMBERS:
            raise DataError(f"a series of over {MAX_NUMBERS:,} numbers; cut it into parts", self.path, line)
        self.numbers.extend(values)
        if "target" in own:
            self.targets.append(own["target"].strip())
        return None

    def finished(self) -> Recording:
        values = np.frombuffer(self.numbers, np.float32).reshape(-1, len(self.channels))
        name = self.name or f"line {self.line}"
        return Recording(values, self.channels, self.path, self.line, name, self.targets or None, self.group)


def _earlier(new: str, old: str) -> bool:
    """Numbers are compared as numbers, anything else, such as ISO dates, as text."""
    try:
        return float(new) < float(old)
    except ValueError:
        return new < old


# -- JSONL ------------------------------------------------------------------------------------------------------------


def _read_jsonl(path: str, layout: Layout, complain: Complain) -> Iterator[Recording]:
    for line, text, sound in located_lines(path, complain):
        if not sound:
            continue
        try:
            values = json.loads(text)
            if not isinstance(values, dict):
                raise ValueError("expected a JSON object")
            steps = steps_of(_key(values, "series"))
            target = None if layout.target is None else _json_target(values, layout.target, len(steps))
            group = "" if layout.group is None else str(_key(values, layout.group))
            name = f"line {line}" if layout.id is None else str(_key(values, layout.id))
        except RecursionError:
            complain("json", DataError("not valid JSON: nested too deeply", path, line))
            continue
        except json.JSONDecodeError as error:
            complain("json", DataError(f"not valid JSON: {error.msg} at column {error.colno}", path, line))
            continue
        except ValueError as error:
            complain("json", DataError(str(error), path, line))
            continue
        names = tuple(str(channel) for channel in range(steps.shape[1]))
        yield Recording(steps, names, path, line, name, target, group)


def _key(values: dict[str, Any], key: str) -> Any:
    if key not in values:
        hint = did_you_mean(key, values) or f"; the keys here are {', '.join(values) or 'none'}"
        raise ValueError(f"the key {key!r} is missing{hint}")
    return values[key]


def _json_target(values: dict[str, Any], key: str, steps: int) -> str | list[str]:
    """A text or a number; a list of numbers as a text of several; of texts, one a step."""
    found = _key(values, key)
    if isinstance(found, list) and found and all(isinstance(one, str) for one in found):
        if len(found) != steps:
            raise ValueError(f"{key!r} has {len(found)} labels for {steps} steps")
        return [str(one) for one in found]
    several = found if isinstance(found, list) else [found]
    if not several or not all(isinstance(one, str | int | float) and not isinstance(one, bool) for one in several):
        raise ValueError(f"{key!r} must be a text, a number or a list of them; found {json.dumps(found)[:40]}")
    return " ".join(str(one) for one in several)


def steps_of(values: Any) -> np.ndarray:
    """Nested lists -> (steps, channels) float32; plain numbers are one channel, None is missing."""
    if not isinstance(values, list) or not values:
        raise ValueError("a series must be a list of steps, each a list of numbers; found none")
    rows = values if isinstance(values[0], list) else [[value] for value in values]
    width = len(rows[0])
    numbers = array("f")
    for step, row in enumerate(rows, 1):
        if not isinstance(row, list) or len(row) != width or not row:
            raise ValueError(f"step {step} must have {width} numbers as step 1 has; found {json.dumps(row)[:40]}")
        for value in row:
            if value is None:
                numbers.append(math.nan)
            elif isinstance(value, bool) or not isinstance(value, int | float) or not _finite(value):
                raise ValueError(f"step {step}: expected a number, found {json.dumps(value)[:40]}")
            else:
                numbers.append(value)
    return np.frombuffer(numbers, np.float32).reshape(-1, width)


def _finite(value: float) -> bool:
    return math.isnan(value) or abs(value) < 3e38


# -- .npy and .npz ----------------------------------------------------------------------------------------------------


def _read_npy(path: str, layout: Layout, complain: Complain) -> Iterator[Recording]:
    values = _numpy_file(path)
    targets = None if layout.target is None else _beside(layout.target)
    yield from _of_array(values, targets, path, layout)


def _read_npz(path: str, layout: Layout, complain: Complain) -> Iterator[Recording]:
    with explained(path):
        try:
            with zipfile.ZipFile(path) as found:
                names = {name.removesuffix(".npy"): name for name in found.namelist()}
                wanted = ["series", *([layout.target] if layout.target else [])]
                for key in wanted:
                    if key not in names:
                        raise DataError(f"there is no array {key!r} in it; it has {', '.join(names)[:200]}", path)
                arrays = []
                for key in wanted:
                    with found.open(names[key]) as stream:
                        arrays.append(_numpy_array(stream, path))
        except (zipfile.BadZipFile, zipfile.LargeZipFile, NotImplementedError, RuntimeError) as error:
            raise DataError(f"this is not an .npz file, or it is damaged ({error})", path) from None
    targets = None if layout.target is None else [str(one) for one in arrays[1].reshape(-1).tolist()]
    yield from _of_array(arrays[0], targets, path, layout)


def _of_array(values: np.ndarray, targets: list[str] | None, path: str, layout: Layout) -> Iterator[Recording]:
    """(steps, channels) is one series, (series, steps, channels) are many."""
    if values.dtype.kind not in "iuf":
        raise DataError(f"expected numbers, found {values.dtype}", path)
    if values.ndim not in (2, 3) or 0 in values.shape:
        shape = "(steps, channels) or (series, steps, channels)"
        raise DataError(f"expected an array of shape {shape}, found {values.shape}", path)
    series = values if values.ndim == 3 else values[None]
    if layout.channels_first:
        series = series.transpose(0, 2, 1)
    if targets is not None and len(targets) != len(series):
        raise DataError(f"{len(series):,} series, but {len(targets):,} targets", path)
    names = tuple(str(channel) for channel in range(series.shape[2]))
    with np.errstate(over="ignore"):
        for place, one in enumerate(series):
            target = None if targets is None else targets[place]
            steps = np.ascontiguousarray(one, np.float32)
            if np.isinf(steps).any():
                raise DataError(f"series {place + 1} has infinite numbers", path)
            yield Recording(steps, names, path, None, f"series {place + 1}", target)


def _numpy_file(path: str) -> np.ndarray:
    with explained(path), opened(path) as stream:
        return _numpy_array(stream, path)


def _numpy_array(stream: IO[bytes], path: str) -> np.ndarray:
    """An array without pickle, refused before memory is asked for where its header says it is too large."""
    try:
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(stream)
    except ValueError as error:
        raise DataError(f"this is not a .npy file, or it is damaged ({error})", path) from None
    count = math.prod(shape)
    if dtype.hasobject:
        raise DataError("it holds Python objects, which may execute code; save plain numbers or texts", path)
    if count > MAX_NUMBERS or dtype.itemsize > 4096:
        raise DataError(f"an array of shape {shape} is over {MAX_NUMBERS:,} numbers; cut it into parts", path)
    wanted = count * dtype.itemsize
    blocks, held = list[bytes](), 0
    while held < wanted and (block := stream.read(min(BLOCK, wanted - held))):
        blocks.append(block)
        held += len(block)
    if held < wanted:
        raise DataError("the file is cut short; copy or download it again", path)
    return np.frombuffer(b"".join(blocks), dtype).reshape(shape, order="F" if fortran else "C")


def _beside(given: str) -> list[str]:
    """Targets in a file of their own: an array, or a line each."""
    path = expand_path(given)
    if format_of(path) == "npy":
        return [str(one) for one in _numpy_file(path).reshape(-1).tolist()]
    return [text.strip() for _, text in lines_in(path)]


READERS: dict[str, Callable[[str, Layout, Complain], Iterator[Recording]]] = {
    "ts": _read_ts,
    "csv": _read_csv,
    "jsonl": _read_jsonl,
    "npy": _read_npy,
    "npz": _read_npz,
}
