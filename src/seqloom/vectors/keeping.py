"""Word vectors in a folder of ours: `words.txt`, a word a line, and `vectors.safetensors`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from seqloom.arrays import read_arrays, write_arrays
from seqloom.errors import UserError
from seqloom.files import write_atomically
from seqloom.settings import check
from seqloom.vectors.settings import SubwordSettings

VECTORS, WORDS = "vectors.safetensors", "words.txt"
LONGEST_WORD = 10_000  # bytes on average that a list of words may take
ARRAYS = {"vectors": np.float32, "own": np.float32, "output": np.float32, "buckets": np.float32, "counts": np.int64}


def save_parts(
    folder: Path, words: list[str], arrays: Mapping[str, np.ndarray], subwords: SubwordSettings | None
) -> None:
    """Write the words and the arrays, each file aside first."""
    broken = next((word for word in words if "\n" in word), None)
    if broken is not None:
        raise UserError(f"the word {broken!r} holds a line break and cannot be kept in {folder / WORDS}")
    about = {} if subwords is None else {"subwords": subwords.model_dump_json()}
    kept = {name: np.asarray(array, ARRAYS[name]) for name, array in arrays.items()}
    write_arrays(folder / VECTORS, kept, about)
    write_atomically(folder / WORDS, "".join(f"{word}\n" for word in words))


def load_parts(folder: Path) -> tuple[list[str], dict[str, np.ndarray], SubwordSettings | None]:
    """-> words, arrays by name, settings of pieces; everything checked against everything else."""
    path = folder / VECTORS
    arrays, about = read_arrays(path)
    for name, array in arrays.items():
        if name not in ARRAYS:
            raise UserError(f"{path}: '{name}' is no part of word vectors; the file was not written by seqloom")
        if array.dtype != ARRAYS[name] or array.ndim != (1 if name == "counts" else 2):
            raise UserError(f"{path}: '{name}' is not as seqloom writes it ({array.dtype}, shape {array.shape})")
    if "vectors" not in arrays:
        raise UserError(f"{path}: holds no 'vectors'; the file was not written by seqloom")
    rows, size = arrays["vectors"].shape
    subwords = _subwords(about, path)
    expected: dict[str, tuple[int, ...]] = {"own": (rows, size), "output": (rows, size), "counts": (rows,)}
    if subwords is not None:
        expected["buckets"] = (subwords.buckets, size)
    if (subwords is not None) != ("buckets" in arrays):
        raise UserError(f"{path}: the vectors of word pieces and their settings do not come together")
    for name, shape in expected.items():
        if name in arrays and arrays[name].shape != shape:
            raise UserError(f"{path}: '{name}' has the shape {arrays[name].shape}, expected {shape}")
    for name in ("vectors", "buckets"):
        if name in arrays and (row := first_not_finite(arrays[name])) is not None:
            raise UserError(f"{path}: row {row} of '{name}' holds a number that is not finite")
    return _read_words(folder / WORDS, rows), arrays, subwords


def first_not_finite(matrix: np.ndarray) -> int | None:
    """The first row with an infinite number or none at all; looked at in parts, so that little memory is needed."""
    step = max(1, 1_000_000 // max(1, matrix.shape[1]))
    for start in range(0, len(matrix), step):
        bad = ~np.isfinite(matrix[start : start + step]).all(1)
        if bad.any():
            return start + int(bad.argmax())
    return None


def _subwords(about: Mapping[str, str], path: Path) -> SubwordSettings | None:
    if "subwords" not in about:
        return None
    try:
        values = json.loads(about["subwords"])
    except (ValueError, RecursionError):
        raise UserError(f"{path}: the settings of word pieces are not valid JSON") from None
    settings, problems = check(SubwordSettings, values, "subwords")
    if problems:
        raise UserError(f"{path}: {problems[0]}")
    assert isinstance(settings, SubwordSettings)
    return settings


def _read_words(path: Path, expected: int) -> list[str]:
    try:
        if path.stat().st_size > LONGEST_WORD * (expected + 1):
            raise UserError(f"{path}: far too large for {expected:,} words")
        data = path.read_bytes()
        text = data.decode()
    except FileNotFoundError:
        raise UserError(f"{path}: there is no such file") from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(f"{path}:{line}: not UTF-8 text (byte 0x{data[error.start]:02x})") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    words = text.split("\n")
    if words.pop():
        raise UserError(f"{path}: ends in the middle of a line; the file is damaged")
    if len(words) != expected:
        raise UserError(f"{path}: holds {len(words):,} words, but {VECTORS} has {expected:,} vectors")
    if len(set(words)) < len(words):
        seen: set[str] = set()
        line, word = next((n, w) for n, w in enumerate(words, 1) if w in seen or seen.add(w))  # type: ignore[func-returns-value]
        raise UserError(f"{path}:{line}: the word {word!r} comes twice")
    return words
