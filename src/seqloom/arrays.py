"""NumPy arrays in a safetensors file, written and read without a second copy of all of them in memory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from seqloom.errors import UserError
from seqloom.files import write_aside

KINDS = {"float32": ("F32", "<f4"), "float64": ("F64", "<f8"), "int64": ("I64", "<i8")}


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], about: Mapping[str, str]) -> None:
    """Arrays by name and what is to be known about them, aside first."""
    write_aside(path, lambda file: _write(file, arrays, about))


def _write(file: BinaryIO, arrays: Mapping[str, np.ndarray], about: Mapping[str, str]) -> None:
    """One array after the other: the library's own writer holds a second copy of all of them in memory."""
    header: dict[str, Any] = {"__metadata__": dict(about)} if about else {}
    place = 0
    for name in sorted(arrays):
        array = arrays[name]
        end = place + array.nbytes
        kind = KINDS[str(array.dtype)][0]
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for name in sorted(arrays):
        array = arrays[name]
        if array.size:
            file.write(np.ascontiguousarray(array, KINDS[str(array.dtype)][1]).data.cast("B"))


def read_arrays(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """-> arrays by name, what was written about them."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise UserError(f"{path}: there is no such file")
    try:
        with safe_open(path, framework="numpy") as opened:
            return {name: opened.get_tensor(name) for name in sorted(opened.keys())}, opened.metadata() or {}
    except (OSError, SafetensorError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path}: damaged or not a safetensors file ({error})") from None
