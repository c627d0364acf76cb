"""Encoded corpora on disk: written once, read where they are needed, a large one never whole.

    fields = {
        "text": Field(tokenizer.encode_many, size=len(tokenizer)),  # a sequence of ids in [0, size)
        "log": Field(read_logs, width=6),                           # (time, 6) floats
        "label": Field(find_labels, size=5, depth=0),               # one number; depth=2: a sequence of sequences
    }
    shard = write_shard(examples, fields, key)  # an example is a raw value for each field, in this order
    shard["log"][3], shard["label"].values[:], SymbolCounts(shard["text"], shard["log"], ends=(1, 0))[:64]

A shard is a folder: for each field `FIELD.values.bin` (all numbers one after the other) and `FIELD.offsets.bin` (where
each example starts); for a sequence of sequences the lengths of the inner ones, kept like a field `FIELD.inner`; and
`shard.json`, which is written last. Its name is a hash of everything that went in (file contents, tokenizers, kinds of
fields), so a changed corpus is never mistaken for the cached one.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.errors import UserError
from seqloom.files import folder_written_aside
from seqloom.folders import cache_folder

EXAMPLES_AT_A_TIME = 20_000
HEAVY_AT_A_TIME = 64  # one recording or document may be megabytes
HELD_BYTES = 2**22
Encode = Callable[[Sequence[Any]], Sequence[Any]]
FORMAT = 2


@dataclass(frozen=True)
class Field:
    """One place of every example: how raw values become numbers, and which kind of numbers.

    Attributes:
        encode: raw values (strings, paths, arrays …) -> a row of numbers for each.
        size: of ids, how many there are: all are in [0, size). None: floats.
        depth: a row is 0 one number, 1 a sequence, 2 a sequence of sequences.
        width: None, or how many numbers (channels) stand wherever one would.
    """

    encode: Encode
    _: KW_ONLY
    size: int | None = None
    depth: int = 1
    width: int | None = None

    def __post_init__(self) -> None:
        if self.size is not None and not 1 <= self.size <= 2**32:
            raise ValueError(f"size must be None or between 1 and 2**32; got {self.size}")
        if self.depth not in (0, 1, 2) or (self.width is not None and self.width < 1):
            raise ValueError(f"depth must be 0, 1 or 2, width None or at least 1; got {self.depth} and {self.width}")

    @property
    def dtype(self) -> str:
        if self.size is None:
            return "float32"
        return "uint16" if self.size <= 2**16 else "uint32"

    @property
    def step(self) -> tuple[int, ...]:
        """The shape of what stands at one step."""
        return () if self.width is None else (self.width,)


class Sequences:
    """One field of all examples: `sequences[i]` is read from disk when asked for.

    Depth 1 gives an array (time, [width]), depth 2 a list of them, depth 0 a number (or an array of `width` numbers).
    `values` are all examples in a row, (steps, [width]); example i has those from `offsets[i]` to `offsets[i + 1]`.
    Of depth 2, `inner[i]` are the lengths of its sequences. A single number is kept as a sequence of one step.
    """

    inner: Sequences

    def __init__(self, folder: Path, name: str, dtype: str, *, depth: int = 1, width: int | None = None) -> None:
        self.depth, self.width = depth, width
        self.offsets = _Numbers(folder / f"{name}.offsets.bin", "int64")
        self.values = _Numbers(folder / f"{name}.values.bin", dtype, width)
        self.tokens = self.values  # what ids are called: a text is one long array of them
        if depth == 2:
            self.inner = Sequences(folder, f"{name}.inner", "int64")

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"there is no example {index}; there are {len(self)}, counted from 0")
        start, end = self.offsets[index : index + 2].tolist()
        values = self.values[start:end]
        if self.depth == 2:
            return np.split(values, np.cumsum(self.inner[index]))[:-1]
        if self.depth == 1:
            return values
        return values[0].item() if self.width is None else values[0]


class _Numbers:
    """Numbers in a file: a small one is read once, of a large one only what is asked for, whenever it is.

    Read, not mapped: a process counts the mapped pages it has seen as its own, and would look as large as its data.
    What is given out cannot be written to, since a small file's numbers are given out more than once.
    """

    def __init__(self, path: Path, dtype: str, width: int | None = None) -> None:
        self.dtype = np.dtype(dtype)
        self.shape = (-1,) if width is None else (-1, width)
        self.step_bytes = self.dtype.itemsize * (width or 1)
        self.size = path.stat().st_size // self.step_bytes
        self.held: np.ndarray | None = None
        if path.stat().st_size <= HELD_BYTES:
            self.held = np.fromfile(path, self.dtype).reshape(self.shape)
            self.held.setflags(write=False)
        elif not hasattr(os, "pread"):  # Windows
            self.held = np.memmap(path, self.dtype, mode="r").reshape(self.shape)
        else:
            self.file = path.open("rb", buffering=0)

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, steps: slice) -> np.ndarray:
        if self.held is not None:
            return self.held[steps]
        start, end, _ = steps.indices(self.size)
        place, wanted = start * self.step_bytes, max(0, end - start) * self.step_bytes
        found = os.pread(self.file.fileno(), wanted, place)
        while len(found) < wanted and (more := os.pread(self.file.fileno(), wanted - len(found), place + len(found))):
            found += more  # Linux reads two gigabytes in one call at most
        return np.frombuffer(found, self.dtype).reshape(self.shape)


class SymbolCounts:
    """How many symbols or steps each example has in each field: (examples, fields), some at a time.

    `ends` are added, the same for all fields or one for each: 1 where an end symbol will follow, as after a text, 0
    where none will, as after floats. Of depth 2 the lengths of the inner sequences are added up.
    """

    def __init__(self, *fields: Sequences, ends: int | Sequence[int] = 1) -> None:
        self.fields, self.ends = fields, np.broadcast_to(np.asarray(ends, np.int64), len(fields))

    def __len__(self) -> int:
        return len(self.fields[0])

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        if isinstance(rows, slice):
            start, end, _ = rows.indices(len(self))
            found = [np.diff(field.offsets[start : max(start, end) + 1]) for field in self.fields]
        else:
            bounds = [[field.offsets[row : row + 2] for row in rows.tolist()] for field in self.fields]
            found = [np.diff(np.array(some, np.int64).reshape(-1, 2))[:, 0] for some in bounds]
        return np.stack(found, 1) + self.ends


def write_shard(
    examples: Iterable[Sequence[Any]],
    fields: dict[str, Field],
    key: str,
    progress: Callable[[int], None] | None = None,
    folder: Path | None = None,
) -> dict[str, Sequences]:
    """Encode every example's raw values unless the cache has them already.

    A tokenizer gets many in one call: `EXAMPLES_AT_A_TIME` are in memory at once, or `HEAVY_AT_A_TIME` where a field
    holds sequences of floats or of sequences.

    Args:
        examples: each a raw value for every field, in the order of `fields`; not read where the cache has them.
        fields: by name, which becomes the name of files.
        key: what distinguishes these raw values, encoded in this way, from all others.
        progress: called with how many examples have been written.
        folder: instead of the cache.

    Raises:
        UserError: a field of floats is not finite or not of its width (the message counts examples and steps from 1).
        ValueError: a bug of the caller: an id outside [0, size), ids of another shape, too few rows.
    """
    kinds = {name: [field.dtype, field.size, field.depth, field.width] for name, field in fields.items()}
    digest = hashlib.blake2b(json.dumps([FORMAT, kinds, key]).encode(), digest_size=16).hexdigest()
    final = (cache_folder() / "shards" if folder is None else folder) / digest
    if not (final / "shard.json").is_file():
        with folder_written_aside(final) as aside:
            _write(aside, examples, fields, progress)
    return {name: Sequences(final, name, one.dtype, depth=one.depth, width=one.width) for name, one in fields.items()}


def _write(
    folder: Path, examples: Iterable[Sequence[Any]], fields: dict[str, Field], progress: Callable[[int], None] | None
) -> None:
    names = [*fields, *(f"{name}.inner" for name, field in fields.items() if field.depth == 2)]
    sizes = dict.fromkeys(names, 0)
    for name in names:
        _append(folder, name, np.empty(0), np.zeros(1, np.int64))
    heavy = any(field.depth == 2 or (field.depth == 1 and field.size is None) for field in fields.values())
    iterator, total = iter(examples), 0
    while chunk := list(islice(iterator, HEAVY_AT_A_TIME if heavy else EXAMPLES_AT_A_TIME)):
        for number, (field_name, field) in enumerate(fields.items()):
            for name, values, ends in _encoded(field_name, field, [example[number] for example in chunk], total):
                _append(folder, name, values, ends + sizes[name])
                sizes[name] += len(values)
        total += len(chunk)
        if progress is not None:
            progress(total)
    summary = {"format": FORMAT, "examples": total, "steps": sizes}
    (folder / "shard.json").write_text(json.dumps(summary), encoding="utf-8")


def _append(folder: Path, name: str, values: np.ndarray, offsets: np.ndarray) -> None:
    for kind, numbers in (("values", values), ("offsets", offsets)):
        with (folder / f"{name}.{kind}.bin").open("ab") as file:
            file.write(numbers.tobytes())


def _encoded(name: str, field: Field, raw: list[Any], done: int) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """What some examples, `done` coming before them, add to each pair of files: values, and where examples end."""
    rows = field.encode(raw)
    if len(rows) != len(raw):
        raise ValueError(f"field {name!r}: encode gave {len(rows)} rows for {len(raw)} examples")
    nested = rows if field.depth == 2 else [[row] for row in rows]
    found = [_array(row, name, field, number) for number, some in enumerate(nested, done + 1) for row in some]
    lengths, counts = (np.fromiter(map(len, some), np.int64, len(some)) for some in (found, nested))
    ends = np.append(0, np.cumsum(lengths))[np.cumsum(counts)]
    none = np.empty((0, *field.step), np.int64 if field.size else np.float32)
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is refused
        values = np.concatenate([none, *found], dtype=none.dtype, casting="unsafe")
    wrong = (values < 0) | (values >= field.size) if field.size else ~np.isfinite(values)
    if wrong.any():
        step, value = int(np.argwhere(wrong)[0, 0]), values[wrong][0]
        index = int(np.searchsorted(ends, step, "right"))
        place = f"field {name!r}, example {done + index + 1}, step {step + 1 - int(np.append(0, ends)[index])}"
        if field.size:
            raise ValueError(f"{place}: the id {value} is outside [0, {field.size})")
        raise UserError(f"{place}: {value} is not a finite number; correct it or leave the example out")
    yield name, values.astype(field.dtype, copy=False), ends
    if field.depth == 2:
        yield f"{name}.inner", lengths, np.cumsum(counts)


def _array(row: Any, name: str, field: Field, number: int) -> np.ndarray:
    """One sequence, (time, [width]), or a number as a sequence of one step; what is neither is refused."""
    try:
        array = np.asarray(row)
    except ValueError:  # NumPy's answer to lists of different lengths
        array = None
    if array is not None:
        if field.depth and array.shape == (0,):
            return array.reshape(0, *field.step)
        steps = array if field.depth else array[None]
        if steps.dtype.kind in ("biu" if field.size else "biuf") and steps.ndim and steps.shape[1:] == field.step:
            return steps
    found = "steps of different widths" if array is None else f"{array.dtype} values of shape {array.shape}"
    expected = f"{field.width or 'one'} {'id' if field.size else 'number'}{'s' if field.width else ''}"
    problem = f"field {name!r}, example {number}: expected {expected}{' a step' if field.depth else ''}; got {found}"
    raise ValueError(problem) if field.size else UserError(problem)
