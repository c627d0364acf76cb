"""The one place where a folder becomes something that answers, on the engine it was made for or one asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from seqloom.errors import SeqloomError, UserError
from seqloom.folders import (
    EXPORTED,
    cache_folder,
    export_beside,
    find_model,
    fingerprint,
    is_arpa,
    is_exported,
    task_of,
)

if TYPE_CHECKING:
    from seqloom.export.search import Decoding
    from seqloom.export.translator import ExportedTranslator
    from seqloom.language import LanguageModel
    from seqloom.predictor import Predictor
    from seqloom.vectors.table import WordVectors

EngineName = Literal["auto", "torch", "ctranslate2"]
MANY = 200  # texts that are worth writing a model for CTranslate2, which takes a few seconds, once


def load(path: str | Path) -> Predictor | ExportedTranslator | WordVectors | LanguageModel:
    """A model folder, the model of a run folder, an exported model, word vectors, or n-grams in an ARPA file."""
    if is_exported(path):
        return _exported(path)
    if is_arpa(path):
        from seqloom.language import LanguageModel

        return LanguageModel.from_arpa(path)
    folder = find_model(path)
    if task_of(folder) == "embed":
        from seqloom.vectors.table import WordVectors

        return WordVectors.load(folder)
    if task_of(folder) == "model_language":
        from seqloom.language import LanguageModel

        return LanguageModel.load(path)
    from seqloom.predictor import Predictor

    return Predictor.load(path)


class Chosen(NamedTuple):
    """A model on the engine that was chosen for it; `why` is a line for the person, where there was a choice."""

    model: Predictor | ExportedTranslator
    why: str | None = None


def choose(
    path: str | Path,
    engine: EngineName = "auto",
    texts: Sequence[str] = (),
    decoding: Mapping[str, Any] | None = None,
    *,
    aligns: bool = False,
) -> Chosen:
    """The model at a path on an engine.

    `auto` takes CTranslate2 where it gives the same answers and is at hand: the folder is an export, an export of these
    very weights is beside it, or there are texts enough to write one into the cache. Otherwise torch.

    Args:
        path: a model folder, a run folder or an exported folder.
        engine: torch and ctranslate2 insist.
        texts: what will be asked.
        decoding: settings to be changed.
        aligns: whether attention will be looked at, which only torch shows.
    """
    if is_exported(path):
        if engine == "torch":
            raise UserError(f"{path}: an exported model runs on CTranslate2; torch needs the folder it was made from")
        return Chosen(_exported(path))
    folder = find_model(path)
    if task_of(folder) == "embed":
        raise UserError(f"{folder}: word vectors, which answer no text; ask 'seqloom embed neighbours {path} WORD'")
    if engine == "torch":
        return Chosen(_on_torch(folder))
    if engine == "ctranslate2":
        return Chosen(_on_ctranslate2(folder, texts, decoding or {}, write=True))
    try:
        if aligns:
            raise UserError("alignments are shown by torch only")
        model = _on_ctranslate2(folder, texts, decoding or {}, write=len(texts) >= MANY, same=True)
        return Chosen(model, f"answering on CTranslate2 ({model.engine.folder}); --engine torch does without")
    except SeqloomError as reason:  # whatever stands in the way, torch can do it, or says better what is wrong
        return Chosen(_on_torch(folder), f"answering on torch: {reason}")


def _exported(path: str | Path) -> ExportedTranslator:
    from seqloom.export.translator import ExportedTranslator

    return ExportedTranslator.load(path)


def _on_torch(folder: Path) -> Predictor:
    from seqloom.predictor import Predictor
    from seqloom.training.memory import keep_freed_memory

    keep_freed_memory()  # every step of a search asks for the same large blocks
    return Predictor.load(folder)


def _on_ctranslate2(
    folder: Path, texts: Sequence[str], decoding: Mapping[str, Any], *, write: bool, same: bool = False
) -> ExportedTranslator:
    """A model folder on CTranslate2, from an export of these very weights; an error says why that cannot be."""
    from seqloom.files import read_json

    config = read_json(folder / "config.json")
    about = config.get("model") if isinstance(config, dict) else None
    kind = about.get("kind") if isinstance(about, dict) else None
    if kind != "transformer_translator":
        raise UserError(f"CTranslate2 runs Transformers; this is a {kind}")
    if find_spec("ctranslate2") is None:
        from seqloom.export.engine import MISSING

        raise UserError(MISSING)
    from seqloom.export.search import check_decoding
    from seqloom.export.translator import ExportedTranslator

    made_from = fingerprint(folder)
    places = (export_beside(folder), _cache(made_from))
    place = next((place for place in places if _is_made_from(place, made_from)), None)
    model = ExportedTranslator.load(place) if place else None
    own = _own_decoding(folder, config.get("decoding", {}), model)
    settings = own.overridden(decoding)
    check_decoding(settings, None)
    if same and (settings.method == "sample" or settings.n_best > 1):  # other draws; the last of many may differ
        name, value = ("method", "sample") if settings.method == "sample" else ("n_best", settings.n_best)
        raise UserError(f"decoding.{name}: {value} gives other answers on CTranslate2")
    model = model or ExportedTranslator.load(_written(folder, made_from, write))
    check_decoding(settings, model.positions)
    model.refuse_long(texts)
    model.decoding = own  # an export may have been given other settings
    return model


def _own_decoding(folder: Path, given: Mapping[str, Any], exported: ExportedTranslator | None) -> Decoding:
    """A model folder's own settings; what they share with a known export was checked when that was written."""
    from seqloom.decoding.known import KnownDecoding

    if exported and isinstance(exported.decoding, KnownDecoding) and vars(exported.decoding) == given:
        return exported.decoding
    from seqloom.decoding.settings import DecodingSettings
    from seqloom.settings import validated

    settings: DecodingSettings = validated(DecodingSettings, given, f"{folder}/config.json")
    return settings


def _is_made_from(place: Path, made_from: str) -> bool:
    """Whether there is an export that answers as this model does: not of other weights, and not rounded."""
    from seqloom.files import read_json

    if not is_exported(place):
        return False
    about = read_json(place / EXPORTED)
    return isinstance(about, dict) and (about.get("made_from"), about.get("compute")) == (made_from, "float32")


def _cache(made_from: str) -> Path:
    """Where an export is kept that nobody asked for."""
    return cache_folder() / "engines" / made_from


def _written(folder: Path, made_from: str, write: bool) -> Path:
    """The model's export in the cache, written now if it is worth it."""
    if not write:
        raise UserError(f"no export of this model is at hand, and fewer than {MANY} texts are not worth one")
    from seqloom.export.ctranslate2 import export

    place = _cache(made_from)
    export(folder, place, verify=False, overwrite=True)
    return place
