"""What a folder on disk is: a run, a model, or a model exported to another engine; where the cache is. No torch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from seqloom.errors import UserError, did_you_mean
from seqloom.files import read_json

FORMAT = 2  # of model folders
EXPORTED = "seqloom.json"  # our description of an exported model; CTranslate2 has a config.json of its own


def find_model(path: str | Path) -> Path:
    """The model folder at a path: the folder itself, or `model` inside a run folder."""
    path = Path(path).expanduser()
    refuse_exported(path, "this needs the model folder that it was made from")
    for folder in (path, path / "model"):
        if (folder / "config.json").is_file():
            return folder
    if (path / "recipe.yaml").is_file():
        raise UserError(
            f"{path}: this run has no model yet; finish it with 'seqloom train {path} --resume', or see what it has "
            f"learned so far with 'seqloom look {path} VIEW --checkpoint best'"
        )
    if not path.exists():
        near = did_you_mean(path.name, [p.name for p in path.parent.iterdir()]) if path.parent.is_dir() else ""
        raise UserError(f"{path}: there is no such model or run folder{near}")
    raise UserError(f"{path}: not a model folder (it has no config.json) nor a run with a model")


def read_config(model: Path) -> dict[str, Any]:
    """The description in a model folder, of a format that this version reads."""
    path = model / "config.json"
    config = read_json(path)
    if not isinstance(config, dict) or not isinstance(config.get("model"), dict):
        raise UserError(f"{path}: not the description of a seqloom model")
    if config.get("format") != FORMAT:
        raise UserError(
            f"{path}: this seqloom reads model format {FORMAT}; the folder has {config.get('format')!r}: train the "
            "model again with this version, or use the version that it names"
        )
    return config


def fingerprint(model: Path) -> str:
    """A hash of all that makes a model's answers: weights, settings, tokenizers."""
    import hashlib

    digest = hashlib.sha256()
    for path in sorted([model / "model.safetensors", model / "config.json", *model.glob("tokenizer*.json")]):
        digest.update(f"{path.name}\n".encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def export_beside(model: Path, compute: str = "float32") -> Path:
    """Where the exported form of a model folder is looked for: in its run, or beside it."""
    name = "ctranslate2" if compute == "float32" else f"ctranslate2-{compute}"
    in_run = (model.parent / "recipe.yaml").is_file()
    return model.parent / name if in_run else model.with_name(f"{model.name}-{name}")


def is_arpa(path: str | Path) -> bool:
    """Whether a path names n-grams in the common form that other programs write."""
    return str(path).endswith((".arpa", ".arpa.gz"))


def is_exported(path: str | Path) -> bool:
    """Whether `seqloom export` wrote this folder."""
    return (Path(path).expanduser() / EXPORTED).is_file()


def refuse_exported(path: str | Path, instead: str) -> None:
    """An exported model answers and nothing else."""
    if is_exported(path):
        raise UserError(f"{path}: a model exported to CTranslate2, for 'predict' and 'evaluate' only; {instead}")


def name_of(model: Path) -> str:
    """A model's name in pictures: the folder's, or the run's it lies in."""
    return model.name if model.name != "model" else model.parent.name


def cache_folder() -> Path:
    """Where things are kept that can be made again: $SEQLOOM_CACHE, else the user's cache folder."""
    chosen = os.environ.get("SEQLOOM_CACHE")
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(chosen) if chosen else (Path(base) if base else Path.home() / ".cache") / "seqloom"
