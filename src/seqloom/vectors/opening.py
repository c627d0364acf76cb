"""From a path to word vectors: a model or run folder of ours, or a file of any known format."""

from __future__ import annotations

from pathlib import Path

from seqloom.errors import UserError, did_you_mean
from seqloom.files import read_json
from seqloom.folders import find_model
from seqloom.vectors.formats import read_vectors
from seqloom.vectors.sources import Told
from seqloom.vectors.table import WordVectors

TASK, FORMAT = "embed", 1


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
    config = read_json(folder / "config.json")
    task = config.get("task") if isinstance(config, dict) else None
    if task != TASK:
        raise UserError(f"{folder}: a model of task {task}; this needs word vectors: a model of task {TASK}, or a file")
    if config.get("format") != FORMAT:
        found = config.get("format")
        raise UserError(f"{folder}/config.json: this seqloom reads model format {FORMAT}; the folder has {found!r}")
    return WordVectors.load(folder)
