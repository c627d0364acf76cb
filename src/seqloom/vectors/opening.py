"""From a path to word vectors: a model or run folder of ours, or a file of any known format."""

from __future__ import annotations

from pathlib import Path

from seqloom.errors import UserError, did_you_mean
from seqloom.folders import find_model, read_config
from seqloom.vectors.formats import read_vectors
from seqloom.vectors.keeping import VECTORS
from seqloom.vectors.sources import Told
from seqloom.vectors.table import WordVectors


def open_vectors(
    path: str | Path, format: str | None = None, limit: int | None = None, told: Told = lambda text: None
) -> WordVectors:
    """Load the vectors at a path, whatever holds them.

    Args:
        path: A model folder or run folder of task embed, or a file of word2vec, GloVe or fastText (.gz and .xz too).
        format: Of a file; told from its content when absent.
        limit: Only the first so many words of a file.
        told: Hears of faults of a file that do not hinder.
    """
    path = Path(path).expanduser()
    if path.is_file():
        return read_vectors(path, format, limit, told)
    if not path.exists():
        near = did_you_mean(path.name, [p.name for p in path.parent.iterdir()]) if path.parent.is_dir() else ""
        raise UserError(f"{path}: there is no such model folder, run folder or file of vectors{near}")
    folder = find_model(path)
    task = read_config(folder).get("task")
    if not (folder / VECTORS).is_file():
        raise UserError(f"{folder}: a model of task {task}; this needs word vectors, from a model folder or a file")
    return WordVectors.load(folder)
