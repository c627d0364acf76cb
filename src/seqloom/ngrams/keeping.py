"""An n-gram model in a folder: `ngrams.safetensors`, its arrays and what they mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from seqloom.arrays import read_arrays, write_arrays
from seqloom.errors import UserError
from seqloom.ngrams.settings import NGramSettings
from seqloom.settings import check

FILE = "ngrams.safetensors"


def save_arrays(folder: Path, arrays: Mapping[str, np.ndarray], settings: NGramSettings, num_symbols: int) -> None:
    """Write arrays, settings and the number of symbols, aside first."""
    about = {"settings": settings.model_dump_json(), "num_symbols": str(num_symbols)}
    write_arrays(folder / FILE, arrays, about)


def load_arrays(folder: Path) -> tuple[dict[str, np.ndarray], NGramSettings, int]:
    """-> arrays by name, settings, number of symbols; whether the arrays fit is not looked at here."""
    path = folder / FILE
    arrays, about = read_arrays(path)
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
