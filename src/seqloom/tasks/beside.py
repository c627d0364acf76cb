"""The files of a language model that reads a source beside an encoder: found in its own folder, kept in the other's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from seqloom.corpus.lines import expand_path
from seqloom.errors import UserError
from seqloom.files import read_json, write_json
from seqloom.folders import FORMAT, find_model, read_config
from seqloom.models import READERS
from seqloom.settings import ModelSettings, validated
from seqloom.sources.reading import Beside
from seqloom.sources.running_text import RunningText
from seqloom.text.tokenizers import Tokenizer
from seqloom.training.checkpoints import load_tensors, put_weights

TOKENIZER, DESCRIPTION = "tokenizer.contextual.json", "contextual.json"
WHERE = "model.contextual.source"


def open_beside(path: str) -> Beside:
    """The language model in a run or model folder."""
    folder = _found(path)
    config = read_config(folder)
    settings = _checked(config["model"], f"{WHERE}: {path}")
    return Beside(RunningText.load(folder), settings)


def build_beside(beside: Beside) -> nn.Module:
    """It with random weights and without an output layer, which nobody asks for words."""
    model: nn.Module = READERS[beside.settings.kind][1](beside.settings, **beside.text.sizes(beside.settings))
    del model.output
    return model


def fill_beside(path: str, model: nn.Module) -> None:
    """Take the weights from the folder that it was found in."""
    file = _found(path) / "model.safetensors"
    wanted = dict(model.named_parameters())
    kept = {n: w for n, w in load_tensors(file).items() if n in wanted or not n.startswith("output.")}
    put_weights(model, kept, str(file))


def save_beside(beside: Beside | None, folder: Path) -> None:
    """What a model folder keeps of it, besides its weights."""
    if beside is not None:
        beside.text.tokenizer.save(folder / TOKENIZER)
        write_json(folder / DESCRIPTION, {"format": FORMAT, "model": beside.settings.model_dump(mode="json")})


def load_beside(folder: Path) -> Beside | None:
    """What `save_beside` wrote; None where there is nothing of it."""
    path = folder / DESCRIPTION
    if not path.is_file():
        return None
    values = read_json(path)
    about = values.get("model") if isinstance(values, dict) else None
    if not isinstance(about, dict) or values.get("format") != FORMAT:
        raise UserError(f"{path}: not the description of a language model of format {FORMAT}")
    return Beside(RunningText(Tokenizer.load(folder / TOKENIZER)), _checked(about, str(path)))


def _found(path: str) -> Path:
    try:
        return find_model(expand_path(path))
    except UserError as error:
        raise UserError(f"{WHERE}: {error}") from None


def _checked(about: dict[str, Any], origin: str) -> ModelSettings:
    kind = about.get("kind")
    if not isinstance(kind, str) or kind not in READERS:
        kinds = " or ".join(READERS)
        raise UserError(f"{origin} is a {kind}; vectors of words in their context come from a {kinds}")
    settings: ModelSettings = validated(READERS[kind][0], about, origin)
    return settings
