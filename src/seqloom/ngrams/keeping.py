"""An n-gram model in a folder: `ngrams.safetensors`, its arrays and what they mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from seqloom.errors import UserError
from seqloom.files import write_aside
from seqloom.ngrams.settings import NGramSettings
from seqloom.settings import check

FILE = "ngrams.safetensors"
KINDS = {"float64": ("F64", "<f8"), "int64": ("I64", "<i8")}


def save_arrays(folder: Path, arrays: Mapping[str, np.ndarray], settings: NGramSettings, num_symbols: int) -> None:
    """Write arrays, settings and the number of symbols, aside first."""
    about = {"settings": settings.model_dump_json(), "num_symbols": str(num_symbols)}
    write_aside(folder / FILE, lambda file: _write(file, arrays, about))


def _write(file: BinaryIO, arrays: Mapping[str, np.ndarray], about: Mapping[str, str]) -> None:
    """One array after the other: the library's own writer holds a second copy of all of them in memory."""
    header: dict[str, Any] = {"__metadata__": dict(about)}
    place = 0
    for name in sorted(arrays):
        array = arrays[name]
        header[name] = {
            "dtype": KINDS[str(array.dtype)][0],
            "shape": list(array.shape),
            "data_offsets": [place, place + array.nbytes],
        }
        place += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for name in sorted(arrays):
        if arrays[name].size:
            stored = np.ascontiguousarray(arrays[name], KINDS[str(arrays[name].dtype)][1])
            file.write(stored.data.cast("B"))


def load_arrays(folder: Path) -> tuple[dict[str, np.ndarray], NGramSettings, int]:
    """-> arrays by name, settings, number of symbols; whether the arrays fit is not looked at here."""
    from safetensors import SafetensorError, safe_open

    path = folder / FILE
    if not path.is_file():
        raise UserError(f"{path}: there is no such file")
    try:
        with safe_open(path, framework="numpy") as opened:
            about = opened.metadata() or {}
            arrays = {name: opened.get_tensor(name) for name in sorted(opened.keys())}
    except (OSError, SafetensorError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path}: damaged or not a safetensors file ({error})") from None
    return arrays, *_read_about(about, path)


def _read_about(about: Mapping[str, str], path: Path) -> tuple[NGramSettings, int]:
    try:
        values, num_symbols = json.loads(about["settings"]), about["num_symbols"]
    except (KeyError, ValueError, RecursionError):
        raise UserError(f"{path}: the settings of an n-gram model are missing or damaged") from None
    settings, problems = check(NGramSettings, values, "settings")
    if problems:
        raise UserError(f"{path}: {problems[0]}")
    if not (num_symbols.isascii() and num_symbols.isdigit() and len(num_symbols) < 10):
        raise UserError(f"{path}: {num_symbols[:20]!r} is no number of symbols")
    assert isinstance(settings, NGramSettings)
    return settings, int(num_symbols)
